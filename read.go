package edda

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// shareable is the size of a document up to which its texts are parts of one
// copy of it: one allocation for all, and no large document kept for a small text.
const shareable = 4 << 10

// read is Decode of what is plain JSON, in one pass and without reflection. What
// it does not know, and all that is wrong, it leaves to encoding/json: ok is
// false, and nothing is said of why.
func read(data []byte) (v any, ok bool) {
	r := reader{text: string(data)}
	v, ok = r.value(0)
	r.space()
	return v, ok && r.at == len(r.text)
}

// reader goes through one document.
type reader struct {
	text string
	at   int
}

func (r *reader) space() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// take goes past c, and the space before it, if it is next.
func (r *reader) take(c byte) bool {
	r.space()
	if r.at == len(r.text) || r.text[r.at] != c {
		return false
	}
	r.at++
	return true
}

func (r *reader) value(depth int) (any, bool) {
	r.space()
	if r.at == len(r.text) || depth > MaxDepth {
		return nil, false
	}
	switch r.text[r.at] {
	case '{':
		return r.object(depth)
	case '[':
		return r.list(depth)
	case '"':
		return r.string()
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	}
	return r.number()
}

func (r *reader) word(w string) bool {
	if !strings.HasPrefix(r.text[r.at:], w) {
		return false
	}
	r.at += len(w)
	return true
}

func (r *reader) object(depth int) (any, bool) {
	r.at++
	out := map[string]any{}
	if r.take('}') {
		return out, true
	}
	for {
		r.space()
		key, ok := r.plain()
		if !ok || !r.take(':') {
			return nil, false
		}
		if out[key], ok = r.value(depth + 1); !ok {
			return nil, false
		}
		if r.take('}') {
			return out, true
		}
		if !r.take(',') {
			return nil, false
		}
	}
}

func (r *reader) list(depth int) (any, bool) {
	r.at++
	out := []any{}
	if r.take(']') {
		return out, true
	}
	for {
		item, ok := r.value(depth + 1)
		if !ok {
			return nil, false
		}
		out = append(out, item)
		if r.take(']') {
			return out, true
		}
		if !r.take(',') {
			return nil, false
		}
	}
}

// skip goes past a value that value would read.
func (r *reader) skip(depth int) bool {
	r.space()
	if r.at == len(r.text) || depth > MaxDepth {
		return false
	}
	switch r.text[r.at] {
	case '{':
		return r.each('}', func() bool {
			r.space()
			return r.skipText() && r.take(':') && r.skip(depth+1)
		})
	case '[':
		return r.each(']', func() bool { return r.skip(depth + 1) })
	case '"':
		return r.skipText()
	case 't':
		return r.word("true")
	case 'f':
		return r.word("false")
	case 'n':
		return r.word("null")
	}
	_, ok := r.numeral()
	return ok
}

// each goes past the items of a list or an object.
func (r *reader) each(end byte, item func() bool) bool {
	r.at++
	if r.take(end) {
		return true
	}
	for item() {
		if r.take(end) {
			return true
		}
		if !r.take(',') {
			return false
		}
	}
	return false
}

func (r *reader) skipText() bool {
	begin := r.at
	escaped, _, ok := r.quoted()
	if ok && escaped {
		_, ok = unescaped(r.text[begin:r.at])
	}
	return ok
}

func (r *reader) string() (any, bool) {
	s, ok := r.plain()
	if !ok {
		return nil, false
	}
	return s, true
}

// plain reads a text. One with escapes is read by encoding/json.
func (r *reader) plain() (string, bool) {
	begin := r.at
	escaped, ascii, ok := r.quoted()
	if !ok {
		return "", false
	}
	return r.part(begin, r.at, escaped, ascii)
}

// quoted goes past a text, and tells what has to be known of it to read it.
func (r *reader) quoted() (escaped, ascii, ok bool) {
	if r.at == len(r.text) || r.text[r.at] != '"' {
		return false, false, false
	}
	ascii = true
	for i := r.at + 1; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			r.at = i + 1
			return escaped, ascii, true
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return false, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return false, false, false
}

// part is the text between two quotes.
func (r *reader) part(begin, end int, escaped, ascii bool) (string, bool) {
	if escaped {
		return unescaped(r.text[begin:end])
	}
	s := r.text[begin+1 : end-1]
	if !ascii && !utf8.ValidString(s) {
		return "", false
	}
	if len(r.text) > shareable {
		s = strings.Clone(s)
	}
	return s, true
}

// unescaped stands apart so that only texts with escapes need memory of their own.
func unescaped(quoted string) (s string, ok bool) {
	err := json.Unmarshal([]byte(quoted), &s)
	return s, err == nil
}

func (r *reader) number() (any, bool) {
	text, ok := r.numeral()
	if !ok {
		return nil, false
	}
	v, err := parseNumber(text)
	return v, err == nil
}

// numeral goes past a number.
func (r *reader) numeral() (text string, ok bool) {
	begin := r.at
	if r.at < len(r.text) && r.text[r.at] == '-' {
		r.at++
	}
	if r.at < len(r.text) && r.text[r.at] == '0' {
		r.at++
	} else if !r.digits() {
		return "", false
	}
	if r.at < len(r.text) && r.text[r.at] == '.' {
		if r.at++; !r.digits() {
			return "", false
		}
	}
	if r.at < len(r.text) && r.text[r.at]|0x20 == 'e' {
		if r.at++; r.at < len(r.text) && (r.text[r.at] == '+' || r.text[r.at] == '-') {
			r.at++
		}
		if !r.digits() {
			return "", false
		}
	}
	return r.text[begin:r.at], true
}

// digits goes past one digit or more.
func (r *reader) digits() bool {
	begin := r.at
	for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at > begin
}
