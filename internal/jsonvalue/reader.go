package jsonvalue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Texts and JSON values that are read share pieces of memory: few allocations,
// and none for the names of fields. A piece has room for a share of what is still
// to be read, and is small, because a kept text keeps its whole piece. What is large
// has memory of its own.
const (
	textShare  = 3 // of a struct, which consists mostly of values
	jsonShare  = 2
	mostShared = 2 << 10
)

// reader makes values of one document. What is wrong for it is left to encoding/json.
type reader struct {
	scanner
	share int // of the rest of the document that a piece for texts has room for
	texts strings.Builder
	jsons []byte
}

// text reads a text that the caller may keep.
func (r *reader) text() string {
	part, escaped := r.quoted()
	switch {
	case r.wrong:
		return ""
	case escaped:
		return r.unescaped(r.data[r.at-len(part)-2 : r.at])
	case !utf8.Valid(part):
		r.wrong = true
		return ""
	}
	return r.kept(part)
}

// unescaped stands apart so that only texts with escapes need memory of their own.
func (r *reader) unescaped(quoted []byte) (s string) {
	r.wrong = json.Unmarshal(quoted, &s) != nil
	return s
}

// kept is a text that the caller may keep.
func (r *reader) kept(part []byte) string {
	n := len(part)
	if n > mostShared {
		return string(part)
	}
	if r.texts.Cap()-r.texts.Len() < n {
		r.texts = strings.Builder{}
		r.texts.Grow(max(n, min(n+(len(r.data)-r.at)/r.share, mostShared)))
	}
	r.texts.Write(part)
	return r.texts.String()[r.texts.Len()-n:]
}

// keptJSON is a JSON value that the caller may keep.
func (r *reader) keptJSON(raw []byte) json.RawMessage {
	n := len(raw)
	if n > mostShared {
		return bytes.Clone(raw)
	}
	if cap(r.jsons)-len(r.jsons) < n {
		r.jsons = make([]byte, 0, max(n, min((n+len(r.data)-r.at)/jsonShare, mostShared)))
	}
	begin := len(r.jsons)
	r.jsons = append(r.jsons, raw...)
	return r.jsons[begin:len(r.jsons):len(r.jsons)]
}

// value makes a value that has so many lists and objects around it.
func (r *reader) value(depth int) any {
	c := r.next()
	if depth > MaxDepth {
		r.wrong = true
	}
	if r.wrong {
		return nil
	}
	switch c {
	case '{':
		out := map[string]any{}
		for n := 0; r.item(n, '{', '}'); n++ {
			name := r.text()
			r.expect(':')
			out[name] = r.value(depth + 1)
		}
		return out
	case '[':
		out := []any{}
		for n := 0; r.item(n, '[', ']'); n++ {
			out = append(out, r.value(depth+1))
		}
		return out
	case '"':
		return r.text()
	case 't':
		r.word("true")
		return true
	case 'f':
		r.word("false")
		return false
	case 'n':
		r.word("null")
		return nil
	}
	return r.number()
}

func (r *reader) number() any {
	text := r.numeral()
	if r.wrong {
		return nil
	}
	v, err := parseNumber(string(text))
	r.wrong = err != nil
	return v
}

func (r *reader) int() int64 {
	r.next()
	n, err := strconv.ParseInt(string(r.numeral()), 10, 64)
	r.wrong = r.wrong || err != nil
	return n
}

func (r *reader) uint() uint64 {
	r.next()
	n, err := strconv.ParseUint(string(r.numeral()), 10, 64)
	r.wrong = r.wrong || err != nil
	return n
}

func (r *reader) bool() bool {
	if r.next() == 't' {
		r.word("true")
		return true
	}
	r.word("false")
	return false
}

// raw goes past any value, and returns its text, which the caller may keep.
func (r *reader) raw() json.RawMessage {
	r.next()
	begin := r.at
	r.skip(0)
	if r.wrong {
		return nil
	}
	return r.keptJSON(r.data[begin:r.at])
}
