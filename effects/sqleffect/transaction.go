package sqleffect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// endsWithin bounds the rollback of a call whose time has run out.
const endsWithin = 2 * time.Second

// transaction is a transaction on its own connection. It sends BEGIN and COMMIT as statements,
// because each must end with the call's context.
type transaction struct {
	conn   *sql.Conn
	row    rowText
	judge  func(error) (verdict, bool)
	stop   func(context.Context) error // stops the statement at the server; may be nil
	ctx    context.Context             // of the call
	open   bool
	broken bool // the connection cannot be used again
}

// errDied marks the error of an idle connection that had ended before the transaction began.
var errDied = errors.New("the connection had died")

// open begins a transaction. If the connection has died while it was idle, others have too: open
// closes the idle ones and tries once more.
func (r *request) open(ctx context.Context, p *pool) (*transaction, error) {
	t, err := r.begin(ctx, p)
	if errors.Is(err, errDied) {
		p.forgetIdle()
		t, err = r.begin(ctx, p)
	}
	return t, err
}

func (r *request) begin(ctx context.Context, p *pool) (*transaction, error) {
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
			if v, answered := t.judge(err); ctx.Err() != nil || answered && !v.ending {
				return nil, err // the server's refusal
			}
			return nil, fmt.Errorf("%w: %w", errDied, err)
		}
	}
	return t, nil
}

// claim inserts the command's row. It waits for another call of the command that is under way, and
// reports whether the row exists.
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

// finish stores the result in the row, and reports whether the row still exists.
func (t *transaction) finish(ctx context.Context, r *request, result []byte) (bool, error) {
	got, err := t.conn.ExecContext(ctx, t.row.finish, string(result), r.tenant, r.key)
	if err != nil {
		return false, err
	}
	n, err := got.RowsAffected()
	return n > 0, err
}

// find reads the row of an earlier call.
func (t *transaction) find(ctx context.Context, r *request) (effect string, result sql.NullString, err error) {
	err = t.conn.QueryRowContext(ctx, t.row.find, r.tenant, r.key).Scan(&effect, &result)
	return effect, result, err
}

func (t *transaction) commit(ctx context.Context) error {
	_, err := t.conn.ExecContext(ctx, "COMMIT")
	t.open = err != nil
	return err
}

// rollback ends the transaction. If the server does not answer, the connection is broken.
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
		_ = t.stop(ctx) // after an error the server notices later, and rolls back
	}
}

// close rolls back and releases the connection, which the pool drops if it is broken.
func (t *transaction) close() {
	t.rollback()
	if t.broken {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool drops it
	}
	_ = t.conn.Close()
}
