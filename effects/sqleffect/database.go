package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql/driver"

	"edda/effects/dial"
)

// database is what differs from one to the other.
type database interface {
	// connector reads a DSN. Its error shows nothing of it.
	connector(s source, g *dial.Guard, t *tls.Config) (driver.Connector, error)
	// begin lists what begins a transaction.
	begin(isolation string, readonly bool) []string
	// row is how the row of a command is kept.
	row() rowText
	// argument writes null, a bool or a number as the driver takes it.
	argument(v any) any
	// value makes a canonical value, or one that jsonvalue.Canonical makes one, of
	// what the driver gave for a column of a type.
	value(kind string, v any) any
	// judge reads the server's answer; false when the error is none.
	judge(err error) (verdict, bool)
	// lastID reports whether the driver's last inserted id is this statement's.
	lastID(text string, affected int64) bool
	// connections that one process keeps at most.
	connections(readonly bool) int
}

// stopper is a connection whose server goes on with a statement after the
// connection is gone, unless it is told.
type stopper interface {
	stop(ctx context.Context) error
}

// rowText is the SQL of the table edda_effects. Parameters are, in order:
// insert (tenant, command, effect), find (tenant, command), finish (result,
// tenant, command).
type rowText struct{ create, insert, find, finish string }

// levels are the words for isolation, and the SQL for them.
func levels() map[string]string {
	return map[string]string{"serializable": "SERIALIZABLE", "repeatable_read": "REPEATABLE READ", "read_committed": "READ COMMITTED"}
}

// databases by the manifest's word.
func databases() map[string]database {
	return map[string]database{"postgres": postgres{}, "mysql": mariadb{}, "sqlite": sqlite{}}
}

// The statuses of answers, HTTP's, so that expressions read alike.
const (
	statusDone       = 200
	statusBad        = 400 // syntax, a missing table, a value that does not fit
	statusConstraint = 409
	statusTooLarge   = 413
	statusLater      = 503 // rolled back: the same call may be answered otherwise later
)

// verdict is a server's answer that is no success.
type verdict struct {
	status     int
	code       string
	message    string // no values of rows
	constraint string
	missing    bool // a table is missing
	taken      bool // a key is there already
	absent     bool // there is no database
	// ending is set where the server ended the connection, or said nothing about
	// the transaction: after a COMMIT that may be either.
	ending bool
}
