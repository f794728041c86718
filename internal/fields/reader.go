package fields

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Texts and JSON values that are read share pieces of memory: few allocations,
// and none for the names of fields. A piece has room for a share of what is still
// to be read, and is small: whoever keeps a text keeps the piece. What is large
// has memory of its own.
const (
	textShare = 3
	jsonShare = 2
	large     = 2 << 10
)

// reader goes through one document.
type reader struct {
	data  []byte
	at    int
	texts strings.Builder
	jsons []byte
}

func (r *reader) space() {
	for r.at < len(r.data) && r.data[r.at] <= ' ' {
		switch r.data[r.at] {
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
	if r.at == len(r.data) || r.data[r.at] != c {
		return false
	}
	r.at++
	return true
}

// quoted reads a text as it stands between its quotes. escaped tells whether
// encoding/json must make of it what it says.
func (r *reader) quoted() (part []byte, escaped, ok bool) {
	if r.at == len(r.data) || r.data[r.at] != '"' {
		return nil, false, false
	}
	begin, ascii := r.at+1, true
	for i := begin; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c == '"':
			r.at = i + 1
			part = r.data[begin:i]
			return part, escaped, ascii || escaped || utf8.Valid(part)
		case c == '\\':
			escaped = true
			i++
		case c < ' ':
			return nil, false, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false, false
}

// unescape stands apart so that only texts with escapes need memory of their own.
func unescape(part []byte) (s string, ok bool) {
	err := json.Unmarshal(bytes.Join([][]byte{{'"'}, part, {'"'}}, nil), &s)
	return s, err == nil
}

// kept is a text that the caller may keep.
func (r *reader) kept(part []byte) string {
	n := len(part)
	if n > large {
		return string(part)
	}
	if r.texts.Cap()-r.texts.Len() < n {
		r.texts = strings.Builder{}
		r.texts.Grow(max(n, min((len(r.data)-r.at)/textShare, large)))
	}
	r.texts.Write(part)
	return r.texts.String()[r.texts.Len()-n:]
}

// keptJSON is a JSON value that the caller may keep.
func (r *reader) keptJSON(raw []byte) json.RawMessage {
	n := len(raw)
	if n > large {
		return bytes.Clone(raw)
	}
	if cap(r.jsons)-len(r.jsons) < n {
		r.jsons = make([]byte, 0, max(n, min((n+len(r.data)-r.at)/jsonShare, large)))
	}
	begin := len(r.jsons)
	r.jsons = append(r.jsons, raw...)
	return r.jsons[begin:len(r.jsons):len(r.jsons)]
}

// integer is the digits of a number that is nothing more.
func (r *reader) integer() []byte {
	begin := r.at
	if r.at < len(r.data) && r.data[r.at] == '-' {
		r.at++
	}
	first := r.at
	for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
		r.at++
	}
	if r.at > first+1 && r.data[first] == '0' {
		return nil
	}
	return r.data[begin:r.at]
}

// word goes past w if it is next.
func (r *reader) word(w string) bool {
	if len(r.data)-r.at < len(w) || string(r.data[r.at:r.at+len(w)]) != w {
		return false
	}
	r.at += len(w)
	return true
}

// string reads a text.
func (c *Coder) string() (s string) {
	part, escaped, ok := c.quoted()
	switch {
	case !ok:
	case escaped:
		s, ok = unescape(part)
	default:
		s = c.kept(part)
	}
	c.odd = c.odd || !ok
	return s
}

func (c *Coder) int() int64 {
	n, err := strconv.ParseInt(string(c.integer()), 10, 64)
	c.odd = c.odd || err != nil
	return n
}

func (c *Coder) uint() uint64 {
	n, err := strconv.ParseUint(string(c.integer()), 10, 64)
	c.odd = c.odd || err != nil
	return n
}

func (c *Coder) bool() bool {
	yes := c.word("true")
	c.odd = c.odd || !yes && !c.word("false")
	return yes
}

// value goes past any value, and is its text.
func (c *Coder) value() []byte {
	s := scan{text: c.data, at: c.at}
	s.value(0)
	raw := c.data[c.at:s.at]
	c.at, c.odd = s.at, c.odd || s.wrong
	return raw
}

// json reads any value.
func (c *Coder) json() json.RawMessage {
	raw := c.value()
	if c.odd {
		return nil
	}
	return c.keptJSON(raw)
}
