package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"edda/effects/dial"
)

// mariadb is MariaDB or MySQL.
type mariadb struct{}

func (mariadb) row() rowText {
	return rowText{
		create: "CREATE TABLE IF NOT EXISTS edda_effects (tenant varbinary(255) NOT NULL, command varbinary(255) NOT NULL, effect varbinary(255) NOT NULL, result mediumtext CHARACTER SET utf8mb4, created_at timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), PRIMARY KEY (tenant, command)) ENGINE=InnoDB",
		insert: "INSERT INTO edda_effects (tenant, command, effect) VALUES (?, ?, ?)",
		find:   "SELECT effect, result FROM edda_effects WHERE tenant = ? AND command = ?",
		finish: "UPDATE edda_effects SET result = ? WHERE tenant = ? AND command = ?",
	}
}

func (mariadb) begin(isolation string, readonly bool) []string {
	var out []string
	if level := levels()[isolation]; level != "" {
		out = append(out, "SET TRANSACTION ISOLATION LEVEL "+level) // for the next transaction only
	}
	if readonly {
		return append(out, "START TRANSACTION READ ONLY")
	}
	return append(out, "START TRANSACTION")
}

func (mariadb) argument(v any) any { return v }

func (mariadb) lastID(_ string, affected int64) bool { return affected > 0 } // the server returns 0 if there is none

func (mariadb) connections(bool) int { return maxConnections }

// value converts the types that the driver returns as bytes.
func (mariadb) value(kind string, v any) any {
	raw, isBytes := v.([]byte)
	if !isBytes {
		return v
	}
	switch kind {
	case "BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY", "VECTOR":
		return raw
	case "BIT":
		return bits(raw)
	case "JSON":
		return decoded(string(raw))
	case "DATETIME", "TIMESTAMP":
		return moment(string(raw))
	}
	return string(raw)
}

// bits converts up to 64 bits into a number.
func bits(raw []byte) any {
	var n uint64
	for _, b := range raw {
		n = n<<8 | uint64(b)
	}
	return n
}

// moment parses a date and time in UTC. It returns the text if it is none, such as the zero date.
func moment(text string) any {
	t, err := time.Parse("2006-01-02 15:04:05.999999", text)
	if err != nil {
		return text
	}
	return t
}

// The server's numbers: https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
// and https://mariadb.com/kb/en/mariadb-error-code-reference/.
func myLater() []uint16 {
	return []uint16{
		1213, 1205, 1614, 3572, 1206, 1020, 1615, 1412, // deadlocks, locks, a row changed meanwhile, a table changed
		1040, 1203, 1226, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031, // connections, shutdown
		1317, 1969, 3024, 1021, 1037, 1038, 1041, 1290, 1792, 1836, 1047, 1180, 3100, 3101, // stopped, no room, another is the primary, the group disagrees
	}
}

func myConstraint() []uint16 {
	return []uint16{1062, 1022, 1586, 1859, 1169, 1048, 1364, 1216, 1217, 1451, 1452, 1557, 1761, 1762, 3819, 4025}
}

// myNames lists the errors whose messages quote only names.
func myNames() []uint16 { return []uint16{1048, 1364, 1406, 1264, 3819, 1644} }

func (mariadb) judge(err error) (verdict, bool) {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return verdict{}, false
	}
	state := string(e.SQLState[:])
	v := verdict{status: statusBad, code: strconv.Itoa(int(e.Number)), message: e.Message, missing: e.Number == 1146, taken: e.Number == 1062}
	switch {
	case slices.Contains(myLater(), e.Number) || strings.HasPrefix(state, "08"):
		v.status = statusLater
	case slices.Contains(myConstraint(), e.Number):
		v.status, v.constraint = statusConstraint, myConstraintName(e.Message)
	}
	if e.Number == 1062 || e.Number == 1586 {
		v.message = "duplicate entry for key " + v.constraint
	} else if !strings.HasPrefix(state, "42") && !slices.Contains(myNames(), e.Number) {
		v.message = without(e.Message, "'")
	}
	told := v.status == statusConstraint || slices.Contains([]uint16{1213, 1205, 1020, 3101}, e.Number)
	v.ending = !told
	return v, true
}

// myConstraintPatterns find a constraint's name. The last key counts, because the text before it
// may be a value.
var myConstraintPatterns = []*regexp.Regexp{
	regexp.MustCompile(`^Duplicate entry (?s:.*) for key '([^']*)'`),
	regexp.MustCompile("^(?:[^`]*)(?:`[^`]*`\\.`[^`]*`, )?CONSTRAINT `([^`]*)`"),
	regexp.MustCompile(`^Check constraint '([^']*)' is violated`),
	regexp.MustCompile(`^(?:Column|Field) '([^']*)'`),
}

func myConstraintName(message string) string {
	for _, p := range myConstraintPatterns {
		if m := p.FindStringSubmatch(message); m != nil {
			return m[1]
		}
	}
	return ""
}

var errNotMySQL = errors.New("dsn is none that MySQL knows; write mysql://user:password@host:3306/database?tls=true")

func (mariadb) connector(s source, g *dial.Guard, t *tls.Config) (driver.Connector, error) {
	conf, err := myConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	if err := myRefused(conf); err != nil {
		return nil, err
	}
	if t != nil {
		conf.TLS, conf.TLSConfig, conf.AllowFallbackToPlaintext = t, "", false
	}
	if conf.Timeout == 0 {
		conf.Timeout = dial.Timeout
	}
	if conf.Params == nil {
		conf.Params = map[string]string{}
	}
	conf.Params["time_zone"] = "'+00:00'" // of timestamps in results
	if conf.Params["sql_mode"] == "" {
		conf.Params["sql_mode"] = "CONCAT(@@sql_mode,',STRICT_ALL_TABLES')" // or values that do not fit are cut silently
	}
	conf.ClientFoundRows, conf.ParseTime, conf.Loc = true, false, time.UTC // count affected rows as other databases do; a zero date is no time
	conf.Logger, conf.DialFunc = &mysql.NopLogger{}, g.DialContext
	if err := conf.Apply(mysql.Charset("utf8mb4", conf.Collation)); err != nil {
		return nil, errNotMySQL
	}
	inner, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, errNotMySQL
	}
	return myConnector{inner}, nil
}

// myConfig parses a URL, or the driver's own form.
func myConfig(dsn string) (*mysql.Config, error) {
	_, rest, isURL := strings.Cut(dsn, "://")
	if !isURL {
		conf, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, errNotMySQL
		}
		return conf, nil
	}
	u, err := url.Parse("mysql://" + rest)
	if err != nil || u.Opaque != "" || u.Fragment != "" {
		return nil, errNotMySQL
	}
	query := u.Query()
	at := "tcp(" + u.Host + ")"
	if socket := query.Get("socket"); socket != "" {
		at = "unix(" + socket + ")"
	} else if u.Host == "" {
		return nil, errNotMySQL
	}
	query.Del("socket")
	conf, err := mysql.ParseDSN(at + "/" + url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "?" + query.Encode())
	if err != nil {
		return nil, errNotMySQL
	}
	conf.User = u.User.Username()
	conf.Passwd, _ = u.User.Password()
	return conf, nil
}

// mySetting matches the literal value of a session variable.
var mySetting = regexp.MustCompile(`^('[^'\\]*'|[A-Za-z0-9_.]+)$`)

// mySettings lists the session variables that a DSN may set.
func mySettings() []string {
	return []string{"sql_mode", "lock_wait_timeout", "innodb_lock_wait_timeout", "max_statement_time", "max_execution_time", "net_read_timeout", "net_write_timeout", "wait_timeout"}
}

// myRefused returns an error about a parameter that a DSN may not contain.
func myRefused(c *mysql.Config) error {
	refused := map[string]bool{"allowAllFiles": c.AllowAllFiles, "multiStatements": c.MultiStatements, "interpolateParams": c.InterpolateParams,
		"allowOldPasswords": c.AllowOldPasswords, "serverPubKey": c.ServerPubKey != "", "columnsWithAlias": c.ColumnsWithAlias}
	for name, set := range refused {
		if set {
			return fmt.Errorf("dsn may not set %s", name)
		}
	}
	if c.Net != "tcp" && c.Net != "unix" || !collation.MatchString(c.Collation) {
		return errNotMySQL
	}
	for name, v := range c.Params {
		if !slices.Contains(mySettings(), name) || !mySetting.MatchString(v) {
			return errors.New("dsn sets a variable of the session that is none of " + strings.Join(mySettings(), ", ") + ", or not to a literal")
		}
	}
	return nil
}

var collation = regexp.MustCompile(`^[a-z0-9_]*$`)

// myConnector makes connections that know their id at the server.
type myConnector struct{ driver.Connector }

func (c myConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := conn.(myConn)
	if !ok {
		return conn, nil
	}
	id, err := connectionID(ctx, inner)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &session{inner, c.Connector, id}, nil
}

func connectionID(ctx context.Context, conn driver.QueryerContext) (string, error) {
	rows, err := conn.QueryContext(ctx, "SELECT CONNECTION_ID()", nil)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	id := make([]driver.Value, 1)
	err = rows.Next(id)
	return fmt.Sprint(id[0]), err
}

// myConn is the interface of the driver's connections.
type myConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// session is a connection with its id at the server.
type session struct {
	myConn
	connector driver.Connector
	id        string
}

// stop kills the session at the server over another connection, because the server does not notice
// the end of a connection while a statement runs.
func (s *session) stop(ctx context.Context) error {
	conn, err := s.connector.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, "KILL "+s.id, nil)
	return err
}
