package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	lite "modernc.org/sqlite"

	"edda/effects/dial"
)

type sqlite struct{}

func (sqlite) row() rowText {
	return rowText{
		create: `CREATE TABLE IF NOT EXISTS edda_effects (tenant text NOT NULL, command text NOT NULL, effect text NOT NULL, result text, created_at text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), PRIMARY KEY (tenant, command)) WITHOUT ROWID`,
		insert: `INSERT INTO edda_effects (tenant, command, effect) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		find:   `SELECT effect, result FROM edda_effects WHERE tenant = ? AND command = ?`,
		finish: `UPDATE edda_effects SET result = ? WHERE tenant = ? AND command = ?`,
	}
}

// begin takes the write lock at once, because a later upgrade could fail. All isolation levels are
// serializable.
func (sqlite) begin(_ string, readonly bool) []string {
	if readonly {
		return []string{"BEGIN"}
	}
	return []string{"BEGIN IMMEDIATE"}
}

func (sqlite) argument(v any) any { return v }

// lastID reports whether the statement inserts. The connection keeps the id of earlier inserts; the
// table edda_effects has none.
func (sqlite) lastID(text string, affected int64) bool {
	return affected > 0 && (firstWord(text) == "insert" || firstWord(text) == "replace")
}

// connections allows one writer. Waiting for it in this process ends with the call's context,
// waiting for the file's lock does not.
func (sqlite) connections(readonly bool) int {
	if readonly {
		return maxConnections
	}
	return 1
}

func (sqlite) value(kind string, v any) any {
	switch v := v.(type) {
	case time.Time:
		if kind == "DATE" {
			return calendar(v)
		}
	case string:
		if kind == "JSON" {
			return decoded(v)
		}
	case int64:
		if kind == "BOOLEAN" || kind == "BOOL" {
			return v != 0
		}
	}
	return v
}

// The primary codes: https://www.sqlite.org/rescode.html.
const (
	liteError      = 1
	liteBusy       = 5
	liteLocked     = 6
	liteNoMemory   = 7
	liteInterrupt  = 9
	liteIO         = 10
	liteFull       = 13
	liteCannotOpen = 14
	liteProtocol   = 15
	liteSchema     = 17
	liteConstraint = 19
)

func (sqlite) judge(err error) (verdict, bool) {
	var e *lite.Error
	if !errors.As(err, &e) {
		return verdict{}, false
	}
	message := liteMessage(e)
	v := verdict{status: statusBad, code: liteName(e.Code()), message: message, missing: strings.HasSuffix(message, "no such table: edda_effects")}
	switch e.Code() & 0xff {
	case liteBusy, liteLocked, liteProtocol, liteSchema:
		v.status = statusLater
	case liteCannotOpen:
		v.status, v.ending, v.absent = statusLater, true, true
	case liteNoMemory, liteInterrupt, liteIO, liteFull:
		v.status, v.ending = statusLater, true
	case liteConstraint:
		v.status = statusConstraint
		_, v.constraint, _ = strings.Cut(message, " constraint failed: ")
	case liteError:
	default:
		v.ending = true
	}
	return v, true
}

// liteNumber is the code that the driver appends to a message.
var liteNumber = regexp.MustCompile(` \(\d+\)$`)

func liteMessage(e *lite.Error) string {
	text := liteNumber.ReplaceAllString(e.Error(), "")
	for _, prefix := range []string{"SQL logic error: ", "constraint failed: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// liteName returns a code's name, such as SQLITE_CONSTRAINT_UNIQUE.
func liteName(code int) string {
	text := lite.ErrorCodeString[code]
	if text == "" {
		text = lite.ErrorCodeString[code&0xff]
	}
	_, name, _ := strings.Cut(text, "(")
	return strings.TrimSuffix(name, ")")
}

// liteSettings has the settings that a DSN may contain, and their values.
func liteSettings() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"busy_timeout": regexp.MustCompile(`^[0-9]{1,5}$`),
		"journal_mode": regexp.MustCompile(`^(?i)(wal|delete|truncate|persist)$`),
		"synchronous":  regexp.MustCompile(`^(?i)(normal|full|extra)$`),
		"foreign_keys": regexp.MustCompile(`^[01]$`),
	}
}

func (sqlite) connector(s source, g *dial.Guard, t *tls.Config) (driver.Connector, error) {
	if t != nil {
		return nil, errors.New("tls is not for sqlite")
	}
	path, settings, err := litePath(s.dsn)
	if err != nil {
		return nil, err
	}
	query := url.Values{"mode": {"rw"}, "_defensive": {"1"}, "_dqs": {"0"}}
	for name, v := range settings {
		query.Set("_"+name, v)
	}
	if s.readonly {
		query.Set("_query_only", "1")
		query.Del("_journal_mode") // setting it writes
	}
	inner, err := lite.NewConnector("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode())
	if err != nil {
		return nil, errNotSQLite
	}
	return liteConnector{inner, g, path}, nil
}

var errNotSQLite = errors.New("dsn is no file of SQLite; write sqlite:/folder/name.db")

// litePath returns the file and the settings of a DSN.
func litePath(dsn string) (string, map[string]string, error) {
	rest := dsn
	for _, scheme := range []string{"sqlite:", "file:"} {
		rest = strings.TrimPrefix(rest, scheme)
	}
	path, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if path == "" || strings.ContainsAny(path, "%#\x00") || strings.HasPrefix(path, ":memory:") {
		return "", nil, fmt.Errorf("%w: one in memory is gone with its connection, and # and %% mean something else", errNotSQLite)
	}
	given, err := url.ParseQuery(query)
	if err != nil {
		return "", nil, errNotSQLite
	}
	settings := map[string]string{"busy_timeout": "2000", "journal_mode": "WAL", "synchronous": "FULL", "foreign_keys": "1"}
	for name := range given {
		if p := liteSettings()[name]; p == nil || !p.MatchString(given.Get(name)) {
			return "", nil, fmt.Errorf("dsn of sqlite may set %s, each to one of its words", strings.Join(slices.Sorted(maps.Keys(liteSettings())), ", "))
		}
		settings[name] = given.Get(name)
	}
	path, err = filepath.Abs(path)
	return path, settings, err
}

// liteConnector asks the guard before it opens a file.
type liteConnector struct {
	driver.Connector
	guard *dial.Guard
	path  string
}

func (c liteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.guard.File(c.path); err != nil {
		return nil, err
	}
	return c.Connector.Connect(ctx)
}
