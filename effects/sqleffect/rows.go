package sqleffect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"edda/internal/jsonvalue"
)

// query runs a statement that gives rows. More than asked for is a failure: a
// result that is cut short looks whole to who reads it.
func (r *request) query(ctx context.Context, t *transaction) (map[string]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := t.conn.QueryContext(ctx, r.text, r.args...)
	if err != nil {
		return nil, err
	}
	list, err := r.collect(rows)
	if err != nil {
		cancel() // or closing would read all the rest first
	}
	if closing := rows.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	body := map[string]any{"rows": list}
	if _, err := jsonvalue.Canonical(body); err != nil { // nobody could read it again
		return nil, tooDeep()
	}
	return body, nil
}

func (r *request) collect(rows *sql.Rows) ([]any, error) {
	columns, err := columnsOf(rows)
	if err != nil {
		return nil, err
	}
	list, size := []any{}, 0
	for rows.Next() {
		if len(list) == r.maxRows {
			return nil, tooLarge(fmt.Sprintf("there are more than %d rows, and nothing was changed: add a limit, or raise max_rows", r.maxRows))
		}
		row, n, err := r.row(rows, columns)
		if err != nil {
			return nil, err
		}
		if size += n; size > maxBytes {
			return nil, tooLarge("the rows are more than 256 KiB, and nothing was changed")
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// column of an answer.
type column struct{ name, kind string }

func columnsOf(rows *sql.Rows) ([]column, error) {
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	var out []column
	for _, t := range types {
		c := column{name: t.Name(), kind: t.DatabaseTypeName()}
		if slices.ContainsFunc(out, func(o column) bool { return o.name == c.name }) {
			return nil, &aDefinite{verdict{status: statusBad, code: "columns", message: "two columns are named " + c.name + ": name them with as"}}
		}
		out = append(out, c)
	}
	return out, nil
}

// row reads one, and tells how large it is.
func (r *request) row(rows *sql.Rows, columns []column) (map[string]any, int, error) {
	values := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return nil, 0, err
	}
	out := make(map[string]any, len(columns))
	for i, c := range columns {
		v, err := canonical(r.source.database.value(c.kind, values[i]))
		if err != nil {
			return nil, 0, &aDefinite{verdict{status: statusBad, code: "value", message: "column " + c.name + " holds a value that has no canonical form"}}
		}
		out[c.name] = v
	}
	encoded, err := jsonvalue.Encode(out)
	if errors.Is(err, jsonvalue.ErrTooDeep) {
		err = tooDeep()
	}
	return out, len(encoded), err
}

func tooDeep() error {
	return tooLarge("a column of JSON is nested too deep, and nothing was changed")
}
