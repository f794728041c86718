package sqleffect

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// request is one command, checked and ready to run.
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

// read reads the manifest's evaluated map.
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
	r.readonly = r.readonly || c.Asks // a row would answer later checks, and the command itself
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

// onlyReads is the message about a check that could change something.
const onlyReads = "a check only reads: give it query, without readonly: false"

// arguments reads the values of the placeholders.
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

// argument encodes maps and lists as JSON. The database converts the other types.
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

// maxKey bounds the bytes of a key that is stored unchanged. Every database can index as many.
const maxKey = 200

// rowKey returns a text as every database can store it in a key: unchanged, or its hash.
func rowKey(s string) string {
	if len(s) <= maxKey && utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// maxStatement bounds a statement. A longer one is a program, which belongs in the database.
const maxStatement = 64 << 10

// begins lists the first words of statements that read or change rows within a transaction. Others
// commit by themselves (DDL in MySQL), end the transaction, or reach another database (ATTACH).
func begins() []string {
	return []string{"insert", "update", "delete", "merge", "replace", "select", "with", "values", "call"}
}

// statement returns what is wrong with a statement. It does not parse SQL, because each database
// has its own. It refuses a semicolon anywhere, because it could end the statement.
func statement(text string) error {
	text = strings.TrimRight(text, " \t\r\n;")
	switch {
	case text == "":
		return fmt.Errorf("sql needs exec or query: the statement")
	case len(text) > maxStatement:
		return fmt.Errorf("the statement is longer than %d bytes", maxStatement)
	case strings.ContainsRune(text, ';'):
		return fmt.Errorf("one statement a command, and ; would end it: give a text that holds one in args")
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("the statement holds a zero byte")
	case !slices.Contains(begins(), firstWord(text)):
		return fmt.Errorf("a statement begins with one of %s: what else there is commits by itself, or is for people", strings.Join(begins(), ", "))
	}
	return nil
}

// firstWord returns a statement's first word in lower case. Parentheses may precede it.
func firstWord(text string) string {
	text = strings.TrimLeft(text, " \t\r\n(")
	end := strings.IndexFunc(text, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
	if end >= 0 {
		text = text[:end]
	}
	return strings.ToLower(text)
}
