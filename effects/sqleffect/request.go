package sqleffect

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"edda/effects"
	"edda/internal/jsonvalue"
)

// The bounds of an answer.
const (
	defaultRows = 100
	maxRows     = 10_000    // more is an export, not an effect
	maxBytes    = 256 << 10 // encoded: what a result may be
)

// request is one command, ready to run.
type request struct {
	source    source
	tenant    string
	key       string
	effect    string
	text      string
	rows      bool // it is a query
	readonly  bool
	isolation string
	args      []any
	maxRows   int
}

// read reads the evaluated map of the manifest.
func read(c effects.Call) (*request, error) {
	r := &request{tenant: rowKey(c.Tenant), key: rowKey(c.Key), effect: rowKey(c.Effect), maxRows: defaultRows}
	r.readonly, _ = c.Config["readonly"].(bool)
	r.isolation, _ = c.Config["isolation"].(string)
	if n, given := c.Config["max_rows"].(int); given {
		r.maxRows = min(max(n, 1), maxRows)
	}
	r.text, r.rows = c.Config["query"].(string)
	if !r.rows {
		r.text, _ = c.Config["exec"].(string)
	}
	if err := statement(r.text); err != nil {
		return nil, err
	}
	if c.Asks && !r.rows {
		return nil, errors.New(onlyReads)
	}
	r.readonly = r.readonly || c.Asks // a row would answer what is asked again, and the command itself
	if _, known := levels()[r.isolation]; r.isolation != "" && !known {
		return nil, errors.New("isolation is none that there is")
	}
	var err error
	if r.source, err = sourceOf(c.Config, r.readonly); err != nil {
		return nil, err
	}
	r.args, err = arguments(r.source.database, c.Config["args"])
	return r, err
}

// onlyReads is what is said of a check that would change something.
const onlyReads = "a check only reads: give it query, without readonly: false"

// arguments are what the placeholders stand for.
func arguments(d database, given any) ([]any, error) {
	list, isList := given.([]any)
	if !isList && given != nil {
		return nil, errors.New("args is no list")
	}
	out := make([]any, len(list))
	for i, v := range list {
		arg, err := argument(d, v)
		if err != nil {
			return nil, fmt.Errorf("args[%d]: %w", i, err)
		}
		out[i] = arg
	}
	return out, nil
}

// argument writes maps and lists as JSON; the rest is the database's to write.
func argument(d database, v any) (any, error) {
	switch v := v.(type) {
	case []any, map[string]any:
		encoded, err := jsonvalue.Encode(v)
		return string(encoded), err
	case json.Number: // with all its digits, as the database reads it
		return string(v), nil
	case string:
		if !utf8.ValidString(v) {
			return nil, errors.New("is no text in UTF-8")
		}
		return v, nil
	default:
		return d.argument(v), nil
	}
}

// maxKey bytes of a key are stored as they are; every database can index that.
const maxKey = 200

// rowKey is a text as the table's key can hold it in every database: exactly,
// or its hash.
func rowKey(s string) string {
	if len(s) <= maxKey && utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
