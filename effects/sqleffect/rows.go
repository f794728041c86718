package sqleffect

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"edda"
	"edda/internal/jsonvalue"
)

// query runs a statement that returns rows. More than max_rows is a failure, because a reader takes
// a cut result for the whole.
func (r *request) query(ctx context.Context, t *transaction) (map[string]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := t.conn.QueryContext(ctx, r.text, r.args...)
	if err != nil {
		return nil, err
	}
	list, err := r.collect(rows)
	if err != nil {
		cancel() // or Close would read the remaining rows
	}
	if closing := rows.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	body := map[string]any{"rows": list}
	if _, err := jsonvalue.Canonical(body); err != nil { // a repetition could not read it
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

// column is a column of a result.
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
			return nil, &verdictError{verdict{status: statusBad, code: "columns", message: "two columns are named " + c.name + ": name them with as"}}
		}
		out = append(out, c)
	}
	return out, nil
}

// row reads a row, and returns its encoded size.
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
			return nil, 0, &verdictError{verdict{status: statusBad, code: "value", message: "column " + c.name + " holds a value that has no canonical form"}}
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

// canonical converts a driver's value for expressions without loss: what is no number there becomes
// a text.
func canonical(v any) (any, error) {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case string:
		if !utf8.ValidString(v) {
			return base64.StdEncoding.EncodeToString([]byte(v)), nil
		}
		return v, nil
	case time.Time:
		return timeText(v), nil
	case uint64:
		if v > math.MaxInt64 {
			return strconv.FormatUint(v, 10), nil
		}
		return int(v), nil
	case float32:
		return shortest(float64(v))
	case float64:
		return float(v)
	}
	return jsonvalue.Canonical(v)
}

// timeText formats a time in RFC 3339 and UTC, with all its digits.
func timeText(t time.Time) string {
	if t = t.UTC(); t.Nanosecond()%int(time.Millisecond) == 0 {
		return edda.FormatTime(t)
	}
	return t.Format(time.RFC3339Nano)
}

// float returns a number, or a text for NaN and infinities.
func float(f float64) (any, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64), nil
	}
	return jsonvalue.Canonical(f)
}

// shortest returns the number that a float of 32 bits is written as: 0.1, not 0.10000000149011612.
func shortest(f float64) (any, error) {
	short, err := strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, 32), 64)
	if err != nil {
		return float(f)
	}
	return float(short)
}

// decoded decodes a JSON column. It returns the text if that has no canonical value, such as a
// number that would be rounded.
func decoded(text string) any {
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		return text
	}
	return v
}

// calendar formats a date.
func calendar(t time.Time) string { return t.Format(time.DateOnly) }

// without removes the quoted part of a message, which may be a value of a row.
func without(message, quote string) string {
	first, last := strings.Index(message, quote), strings.LastIndex(message, quote)
	if first < 0 || last == first {
		return message
	}
	return message[:first] + quote + "…" + quote + message[last+len(quote):]
}
