package jsonvalue

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Texts and JSON values of one document share chunks of memory, so that there are few
// allocations, and none for the names of fields. A chunk has room for a share of the
// unread input. It is small, because a text that a caller keeps retains its whole chunk.
// A large text has memory of its own.
const (
	textShare  = 3 // of a struct, which consists mostly of values
	jsonShare  = 2
	mostShared = 2 << 10
)

// reader builds the values of one document. If it sets wrong, encoding/json reads the document.
type reader struct {
	scanner
	share int // a chunk of texts has room for 1/share of the unread input
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

// unescaped is a function of its own so that only texts with escapes move s to the heap.
func (r *reader) unescaped(quoted []byte) (s string) {
	r.wrong = json.Unmarshal(quoted, &s) != nil
	return s
}

// kept copies a text, so that the caller may keep it.
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

// keptJSON copies a JSON value, so that the caller may keep it.
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

// value builds a value. depth counts the lists and objects around it.
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

// raw moves past any value and returns a copy of its text.
func (r *reader) raw() json.RawMessage {
	r.next()
	begin := r.at
	r.skip(0)
	if r.wrong {
		return nil
	}
	return r.keptJSON(r.data[begin:r.at])
}
