package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"edda/effects/dial"
)

type postgres struct{}

func (postgres) row() rowText {
	return rowText{
		create: `CREATE TABLE IF NOT EXISTS edda_effects (tenant text NOT NULL, command text NOT NULL, effect text NOT NULL, result text, created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (tenant, command))`,
		insert: `INSERT INTO edda_effects (tenant, command, effect) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		find:   `SELECT effect, result FROM edda_effects WHERE tenant = $1 AND command = $2`,
		finish: `UPDATE edda_effects SET result = $1 WHERE tenant = $2 AND command = $3`,
	}
}

func (postgres) begin(isolation string, readonly bool) []string {
	text := "BEGIN"
	if level := levels()[isolation]; level != "" {
		text += " ISOLATION LEVEL " + level
	}
	if readonly {
		text += " READ ONLY"
	}
	return []string{text}
}

// argument returns text, which the server reads exactly as the placeholder's type.
func (postgres) argument(v any) any {
	switch v := v.(type) {
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return v
}

func (postgres) value(kind string, v any) any {
	switch v := v.(type) {
	case time.Time:
		if kind == "DATE" {
			return calendar(v)
		}
	case float64:
		if kind == "FLOAT4" {
			return float32(v)
		}
	case []byte:
		if kind == "JSON" || kind == "JSONB" {
			return decoded(string(v))
		}
	}
	return v
}

func (postgres) lastID(string, int64) bool { return false } // RETURNING does

func (postgres) connections(bool) int { return maxConnections }

// pgLater reports whether the same call may succeed later. Prepared statements become invalid when
// a table is changed.
func pgLater(e *pgconn.PgError) bool {
	switch e.Code {
	case "55P03", "57014", "57P01", "57P02", "57P03", "57P04", "57P05", "58030", "26000", "25006":
		return true
	case "0A000":
		return strings.Contains(e.Message, "cached plan")
	}
	return slices.Contains([]string{"40", "53", "08"}, class(e))
}

func class(e *pgconn.PgError) string { return e.Code[:min(2, len(e.Code))] }

func (postgres) judge(err error) (verdict, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return verdict{}, false
	}
	v := verdict{status: statusBad, code: e.Code, message: e.Message, constraint: e.ConstraintName, missing: e.Code == "42P01"}
	switch {
	case pgLater(e):
		v.status = statusLater
	case class(e) == "23":
		v.status = statusConstraint
	case class(e) == "22":
		v.message = without(e.Message, `"`) // data exceptions quote the data
	}
	told := slices.Contains([]string{"22", "23", "40", "42", "44", "P0"}, class(e)) && e.Code != "40003"
	v.ending = !told || e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
	return v, true
}

// pgSettings lists the settings that a DSN may contain.
func pgSettings() []string {
	return []string{"host", "port", "user", "password", "dbname", "connect_timeout", "application_name", "options", "search_path", "timezone", "role",
		"sslmode", "sslnegotiation", "sslsni", "channel_binding", "require_auth", "target_session_attrs", "min_protocol_version", "max_protocol_version",
		"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity"}
}

// pgUnsaid has the values of settings that a DSN does not contain, so that the environment and
// files of Edda's user have no effect.
func pgUnsaid() map[string]string {
	return map[string]string{"port": "5432", "dbname": "", "password": "", "application_name": "edda", "connect_timeout": "10", "sslmode": "prefer",
		"target_session_attrs": "any", "channel_binding": "prefer", "require_auth": "", "sslnegotiation": "postgres", "sslsni": "1",
		"min_protocol_version": "3.0", "max_protocol_version": "3.0", "passfile": "", "sslkey": "", "sslcert": "", "sslrootcert": "", "sslpassword": "", "sslcertmode": "allow"}
}

func (postgres) connector(s source, g *dial.Guard, t *tls.Config) (driver.Connector, error) {
	said, err := pgSaid(s.dsn)
	if err != nil {
		return nil, err
	}
	conf, err := pgx.ParseConfig(pgComplete(s.dsn, said))
	if err != nil {
		return nil, errNotPostgres // the library's error may show the DSN
	}
	if conf.DefaultQueryExecMode == pgx.QueryExecModeExec || conf.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		return nil, errors.New("dsn may not set default_query_exec_mode to exec or simple_protocol: the first guesses types, the second pastes text into SQL")
	}
	for _, name := range []string{"options", "timezone"} { // the environment may have given them
		if !slices.Contains(said, name) {
			delete(conf.RuntimeParams, name)
		}
	}
	if t != nil {
		secure(conf, t)
	}
	conf.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // the guard needs the name
	conf.DialFunc = g.DialContext
	return stdlib.GetConnector(*conf, stdlib.OptionResetSession(forget)), nil
}

// forget resets a session before its next command, which may be of another tenant.
func forget(ctx context.Context, c *pgx.Conn) error {
	const all = "RESET SESSION AUTHORIZATION; RESET ALL; CLOSE ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()"
	if _, err := c.PgConn().Exec(ctx, all).ReadAll(); err != nil {
		return driver.ErrBadConn // a new connection is reset
	}
	return nil
}

var errNotPostgres = errors.New("dsn is none that PostgreSQL knows; write postgres://user:password@host:5432/database?sslmode=verify-full")

// secure uses the manifest's TLS for every host, and never falls back to plain text.
func secure(conf *pgx.ConnConfig, t *tls.Config) {
	named := func(host string) *tls.Config {
		out := t.Clone()
		if out.ServerName == "" {
			out.ServerName = host
		}
		return out
	}
	conf.TLSConfig = named(conf.Host)
	var rest []*pgconn.FallbackConfig
	last := conf.Host + strconv.Itoa(int(conf.Port))
	for _, f := range conf.Fallbacks {
		if at := f.Host + strconv.Itoa(int(f.Port)); at != last {
			rest, last = append(rest, &pgconn.FallbackConfig{Host: f.Host, Port: f.Port, TLSConfig: named(f.Host)}), at
		}
	}
	conf.Fallbacks = rest
}

// pgFiles matches errors about settings that read files of this machine.
var pgFiles = regexp.MustCompile(`key "(passfile|service|servicefile|sslkey|sslcert|sslcertmode|sslrootcert|sslpassword|krbsrvname|krbspn)" is not`)

// pgSaid lists the settings that a DSN contains, and refuses those that it may not.
func pgSaid(dsn string) ([]string, error) {
	options := pgx.ParseConfigOptions{ParseConfigOptions: pgconn.ParseConfigOptions{ConnStringAllowedKeys: pgSettings()}}
	if _, err := pgx.ParseConfigWithOptions(dsn, options); err != nil {
		if m := pgFiles.FindStringSubmatch(err.Error()); m != nil {
			return nil, errors.New("dsn may not set " + m[1] + ", which reads files of this machine; tls: takes certificates from secrets")
		}
		return nil, errNotPostgres
	}
	var said []string
	for _, name := range pgSettings() {
		options.ConnStringAllowedKeys = slices.DeleteFunc(pgSettings(), func(s string) bool { return s == name })
		if _, err := pgx.ParseConfigWithOptions(dsn, options); err != nil {
			said = append(said, name)
		}
	}
	if !slices.Contains(said, "host") || !slices.Contains(said, "user") {
		return nil, errors.New("dsn names no host or no user")
	}
	return said, nil
}

// pgComplete appends pgUnsaid to a DSN.
func pgComplete(dsn string, said []string) string {
	var b strings.Builder
	b.WriteString(dsn)
	isURL, first := driverOf(dsn) != "", !strings.Contains(dsn, "?")
	for name, v := range pgUnsaid() {
		switch {
		case slices.Contains(said, name):
		case !isURL:
			b.WriteString(" " + name + "='" + v + "'")
		case first:
			first = false
			b.WriteString("?" + name + "=" + url.QueryEscape(v))
		default:
			b.WriteString("&" + name + "=" + url.QueryEscape(v))
		}
	}
	return b.String()
}
