package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql/driver"

	"edda/effects/dial"
)

// database is what differs between databases.
type database interface {
	// connector parses a DSN. Its error does not show the DSN.
	connector(s source, g *dial.Guard, t *tls.Config) (driver.Connector, error)
	// begin lists the statements that begin a transaction.
	begin(isolation string, readonly bool) []string
	// row returns the SQL for the row of a command.
	row() rowText
	// argument converts null, a bool or a number for the driver.
	argument(v any) any
	// value converts the driver's value of a column into one that jsonvalue.Canonical accepts.
	value(kind string, v any) any
	// judge reads a server's answer from an error. It returns false if the error is no answer.
	judge(err error) (verdict, bool)
	// lastID reports whether the driver's last inserted id is this statement's.
	lastID(text string, affected int64) bool
	// connections bounds the connections of one process.
	connections(readonly bool) int
}

// stopper is a connection whose server continues a statement after the connection has ended.
type stopper interface {
	stop(ctx context.Context) error
}

// rowText is the SQL for the table edda_effects. The parameters are, in order: insert (tenant,
// command, effect), find (tenant, command), finish (result, tenant, command).
type rowText struct{ create, insert, find, finish string }

// levels maps the words of isolation: to SQL.
func levels() map[string]string {
	return map[string]string{"serializable": "SERIALIZABLE", "repeatable_read": "REPEATABLE READ", "read_committed": "READ COMMITTED"}
}

// databases maps the words of driver: to databases.
func databases() map[string]database {
	return map[string]database{"postgres": postgres{}, "mysql": mariadb{}, "sqlite": sqlite{}}
}

// The statuses of answers are those of HTTP, so that expressions look alike.
const (
	statusDone       = 200
	statusBad        = 400 // syntax, a missing table, a value that does not fit
	statusConstraint = 409
	statusTooLarge   = 413
	statusLater      = 503 // rolled back, and the same call may succeed later
)

// verdict is a server's negative answer.
type verdict struct {
	status     int
	code       string
	message    string // without values of rows
	constraint string
	missing    bool // a table is missing
	taken      bool // the key exists
	absent     bool // the database does not exist
	// ending is set if the server ended the connection, or did not say what became of the
	// transaction. After a COMMIT it may be committed or rolled back.
	ending bool
}
