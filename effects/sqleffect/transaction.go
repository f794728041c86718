package sqleffect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// endsWithin bounds the ending of a transaction whose call has no time left.
const endsWithin = 2 * time.Second

// transaction is one, on a connection of its own. It is driven by hand because
// each of its steps, the commit too, must end with the call's context.
type transaction struct {
	conn   *sql.Conn
	row    rowText
	judge  func(error) (verdict, bool)
	stop   func(context.Context) error // the server from going on with the statement; may be nil
	ctx    context.Context             // of the call
	open   bool
	broken bool // the connection cannot be used again
}

// errDied is a connection that turned out to be dead before anything was done.
var errDied = errors.New("the connection had died")

// open begins a transaction. Where a connection died while it was idle others
// have, too: then a fresh one is tried, once.
func (r *request) open(ctx context.Context, p *pool) (*transaction, error) {
	t, err := r.openOne(ctx, p)
	if !errors.Is(err, errDied) {
		return t, err
	}
	p.forgetIdle()
	return r.openOne(ctx, p)
}

func (r *request) openOne(ctx context.Context, p *pool) (*transaction, error) {
	conn, err := connect(ctx, p)
	if err != nil {
		return nil, err
	}
	d := r.source.database
	t := &transaction{conn: conn, row: d.row(), judge: d.judge, ctx: ctx, open: true}
	_ = conn.Raw(func(c any) error {
		if s, ok := c.(stopper); ok {
			t.stop = s.stop
		}
		return nil
	})
	for _, text := range d.begin(r.isolation, r.readonly) {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			t.close()
			return nil, t.unbegun(err)
		}
	}
	return t, nil
}

// unbegun tells a dead connection from a server's refusal.
func (t *transaction) unbegun(err error) error {
	if v, answered := t.judge(err); t.ctx.Err() != nil || answered && !v.ending {
		return err
	}
	return fmt.Errorf("%w: %w", errDied, err)
}

// claim inserts the command's row, waiting for a twin that is under way; it
// reports whether the row is there already.
func (t *transaction) claim(ctx context.Context, r *request) (bool, error) {
	got, err := t.conn.ExecContext(ctx, t.row.insert, r.tenant, r.key, r.effect)
	if err != nil {
		v, _ := t.judge(err)
		if v.missing {
			return false, &noTable{}
		}
		if v.taken {
			return true, nil
		}
		return false, err
	}
	n, err := got.RowsAffected()
	return n == 0, err
}

// finish stores the result in the row, and reports whether that is still there.
func (t *transaction) finish(ctx context.Context, r *request, result []byte) (bool, error) {
	got, err := t.conn.ExecContext(ctx, t.row.finish, string(result), r.tenant, r.key)
	if err != nil {
		return false, err
	}
	n, err := got.RowsAffected()
	return n > 0, err
}

// find reads what an earlier call has stored.
func (t *transaction) find(ctx context.Context, r *request) (effect string, result sql.NullString, err error) {
	err = t.conn.QueryRowContext(ctx, t.row.find, r.tenant, r.key).Scan(&effect, &result)
	return effect, result, err
}

func (t *transaction) commit(ctx context.Context) error {
	_, err := t.conn.ExecContext(ctx, "COMMIT")
	t.open = err != nil
	return err
}

// rollback ends the transaction, if need be by ending the connection.
func (t *transaction) rollback() {
	if !t.open {
		return
	}
	t.open = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), endsWithin)
	defer cancel()
	if _, err := t.conn.ExecContext(ctx, "ROLLBACK"); err == nil {
		return
	}
	t.broken = true
	if t.stop != nil && t.ctx.Err() != nil {
		_ = t.stop(ctx) // at worst the server finds out by itself, and rolls back then
	}
}

// close gives the connection back, or away.
func (t *transaction) close() {
	t.rollback()
	if t.broken {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // so that nobody gets it again
	}
	_ = t.conn.Close() // it has gone back
}
