package sqleffect

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// run runs the command, and creates the table if it is missing.
func (r *request) run(ctx context.Context, p *pool) (effects.Response, error) {
	resp, err := r.attempt(ctx, p)
	var missing *noTable
	if !errors.As(err, &missing) {
		return resp, err
	}
	refused := r.create(ctx, p)
	resp, err = r.attempt(ctx, p)
	if !errors.As(err, &missing) {
		return resp, err // created here or by another process
	}
	return r.answerTo(verdict{status: statusLater, code: refused.code,
		message: "the table edda_effects is missing and cannot be made (" + refused.message + "); let somebody run: " + r.source.database.row().create}), nil
}

// noTable is the error about a missing table edda_effects.
type noTable struct{}

func (*noTable) Error() string { return "the table edda_effects is missing" }

// create creates the table. The next attempt shows whether it succeeded.
func (r *request) create(ctx context.Context, p *pool) verdict {
	conn, err := connect(ctx, p)
	if err == nil {
		defer conn.Close()
		_, err = conn.ExecContext(ctx, r.source.database.row().create)
	}
	v, _ := r.source.database.judge(err)
	return v
}

// attempt runs the command and inserts its row in one transaction.
func (r *request) attempt(ctx context.Context, p *pool) (effects.Response, error) {
	t, err := r.open(ctx, p)
	if err != nil {
		return r.failed(ctx, err, false)
	}
	defer t.close()
	if r.readonly {
		return r.look(ctx, t)
	}
	there, err := t.claim(ctx, r)
	switch {
	case err != nil:
		return r.failedIn(ctx, t, err)
	case there:
		return r.repeat(ctx, t)
	}
	return r.change(ctx, t)
}

// change runs the statement, stores the result in the row, and commits.
func (r *request) change(ctx context.Context, t *transaction) (effects.Response, error) {
	body, err := r.statement(ctx, t)
	if err != nil {
		return r.unchanged(ctx, t, err)
	}
	encoded, err := jsonvalue.Encode(body)
	if err != nil {
		return r.failedIn(ctx, t, tooLarge("the result cannot be encoded"))
	}
	there, err := t.finish(ctx, r, encoded)
	if err != nil {
		return r.unchanged(ctx, t, err)
	}
	if !there && r.mayEnd() {
		t.rollback()
		return effects.Response{}, endedByItself()
	}
	if err := t.commit(ctx); err != nil {
		return r.uncommitted(t, err)
	}
	return done(encoded)
}

// mayEnd reports whether a statement can end the transaction: a procedure of MySQL.
func (r *request) mayEnd() bool { return r.source.driver == "mysql" && firstWord(r.text) == "call" }

func endedByItself() error {
	return edda.Classify(edda.Permanent, "the statement has committed or rolled back by itself, and what came of it is not known")
}

// unchanged returns the answer of a statement that failed. If the statement committed before it
// failed, the row is committed too.
func (r *request) unchanged(ctx context.Context, t *transaction, err error) (effects.Response, error) {
	if !r.mayEnd() {
		return r.failedIn(ctx, t, err)
	}
	t.rollback()
	_, _, gone := t.find(ctx, r)
	switch {
	case gone == nil:
		return effects.Response{}, endedByItself()
	case errors.Is(gone, sql.ErrNoRows):
		return r.failedIn(ctx, t, err)
	}
	return effects.Response{}, edda.Classify(edda.Temporary, "no answer to the procedure, which may have committed: %s", cause(err))
}

// look runs a query that changes nothing. It needs no row.
func (r *request) look(ctx context.Context, t *transaction) (effects.Response, error) {
	body, err := r.statement(ctx, t)
	if err != nil {
		return r.failedIn(ctx, t, err)
	}
	t.rollback()
	return effects.Response{Status: statusDone, Body: body}, nil
}

// statement runs the manifest's statement.
func (r *request) statement(ctx context.Context, t *transaction) (map[string]any, error) {
	if r.rows {
		return r.query(ctx, t)
	}
	got, err := t.conn.ExecContext(ctx, r.text, r.args...)
	if err != nil {
		return nil, err
	}
	body := map[string]any{}
	affected, err := got.RowsAffected()
	if err == nil {
		body["affected"] = int(affected)
	}
	if id, err := got.LastInsertId(); err == nil && r.source.database.lastID(r.text, affected) && id != 0 {
		body["last_id"] = int(id)
	}
	return body, nil
}

// done answers with the encoded result, so that the first answer and its repetitions are equal.
func done(encoded json.RawMessage) (effects.Response, error) {
	body, err := jsonvalue.Decode(encoded)
	return effects.Response{Status: statusDone, Body: body}, err
}

// repeat answers with the result of an earlier call.
func (r *request) repeat(ctx context.Context, t *transaction) (effects.Response, error) {
	t.rollback()
	effect, result, err := t.find(ctx, r)
	switch {
	case errors.Is(err, sql.ErrNoRows): // deleted since the insert
		return r.answerTo(verdict{status: statusLater, code: "gone", message: "the row of the command is gone again"}), nil
	case err != nil:
		return r.failedIn(ctx, t, err)
	case effect != r.effect:
		return r.answerTo(verdict{status: statusConstraint, code: "key_in_use", message: "the idempotency key is another effect's: " + effect}), nil
	case !result.Valid:
		return effects.Response{}, endedByItself()
	}
	return done(json.RawMessage(result.String))
}

// verdictError is a server's answer as an error.
type verdictError struct{ verdict }

func (e *verdictError) Error() string { return e.message }

func tooLarge(message string) error {
	return &verdictError{verdict{status: statusTooLarge, code: "too_large", message: message}}
}

// failedIn rolls back and returns the answer of a call that was not committed. If the connection
// still works after that, the error was about the statement.
func (r *request) failedIn(ctx context.Context, t *transaction, err error) (effects.Response, error) {
	t.rollback()
	return r.failed(ctx, err, !t.broken)
}

// failed returns the answer of a call that surely was not committed. serves says that the
// connection still works.
func (r *request) failed(ctx context.Context, err error, serves bool) (effects.Response, error) {
	var definite *verdictError
	var missing *noTable
	switch {
	case errors.As(err, &missing):
		return effects.Response{}, err
	case errors.As(err, &definite):
		return r.answerTo(definite.verdict), nil
	case ctx.Err() != nil:
		return effects.Response{}, notSent(edda.Temporary, errors.Join(errEnded, ctx.Err()))
	}
	if v, answered := r.source.database.judge(err); answered {
		return r.answerTo(v), nil
	}
	if serves {
		return r.answerTo(verdict{status: statusBad, code: "arguments", message: unfit(err)}), nil
	}
	return effects.Response{}, unreached(err)
}

// unfit returns what a driver says about arguments, without their values.
func unfit(err error) string {
	if s := strings.TrimPrefix(err.Error(), "sql: "); strings.HasPrefix(s, "expected ") && len(s) < 60 {
		return s // expected 2 arguments, got 1
	}
	return "the arguments do not fit the statement"
}

// uncommitted returns the answer of a call whose COMMIT failed.
func (r *request) uncommitted(t *transaction, err error) (effects.Response, error) {
	t.rollback()
	if v, answered := r.source.database.judge(err); answered && !v.ending {
		return r.answerTo(v), nil
	}
	return effects.Response{}, edda.Classify(edda.Temporary, "no answer to the commit: %s", cause(err))
}

// answerTo makes the response of a verdict.
func (r *request) answerTo(v verdict) effects.Response {
	body := map[string]any{"code": v.code, "message": v.message}
	if v.constraint != "" {
		body["constraint"] = v.constraint
	}
	later := v.status == statusLater
	return effects.Response{Status: v.status, Body: body, Retry: later, Refused: later}
}
