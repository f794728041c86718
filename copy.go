package edda

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// AppendMember writes the member that [Find] would give as [Encode] would, behind b, without
// making a value of it. Where ok is false nothing is said, and b is as it was.
func AppendMember(b []byte, text string, path []string) (out []byte, ok bool) {
	c := newCopier(text)
	defer c.over()
	out, ok = c.member(b, path, 0)
	if c.space(); !ok || c.at < len(c.text) {
		return b, false
	}
	return out, true
}

// Member is one of an object: a name, and its value as [Encode] writes it.
type Member struct {
	Name  string
	Value json.RawMessage
}

// WithMembers is the object in text with these members instead of its own of the same
// name, as [Encode] would write it; of two of them with one name the last counts. No text
// is an empty object. Where ok is false nothing is said: the text is no plain object, or
// the new one would be nested too deep.
func WithMembers(text string, with []Member) (object json.RawMessage, ok bool) {
	if text == "" {
		text = "{}"
	}
	c := newCopier(text)
	defer c.over()
	if c.space(); c.at == len(text) || text[c.at] != '{' {
		return nil, false
	}
	b := append(make([]byte, 0, len(text)+size(with)), '{')
	ok = c.members(func(name string) (ok bool) {
		if slices.ContainsFunc(with, func(m Member) bool { return m.Name == name }) {
			return c.skip(1)
		}
		b, ok = c.part(b, 0, name, 1)
		return ok
	})
	if c.space(); !ok || c.at < len(text) {
		return nil, false
	}
	for i, m := range with {
		if !Fits(m.Value, 1) {
			return nil, false
		}
		if slices.ContainsFunc(with[i+1:], func(later Member) bool { return later.Name == m.Name }) {
			continue
		}
		from := len(b)
		if b, ok = c.begin(b, 0, m.Name); !ok {
			return nil, false
		}
		b = append(b, m.Value...)
		c.parts = append(c.parts, part{m.Name, from, len(b)})
	}
	return c.end(b, 0, 0)
}

func size(members []Member) (n int) {
	for i := range members {
		n += len(members[i].Name) + len(members[i].Value) + len(`"":,`)
	}
	return n
}

// copier goes through a document as a reader does, and writes what it reads.
type copier struct {
	reader
	parts []part // of the objects that it is in, the innermost last
	room  []byte
}

// part is one member that was written, with the comma before it.
type part struct {
	name     string
	from, to int
}

// copiers are those that are over, for their memory.
var copiers = sync.Pool{New: func() any { return new(copier) }}

// keptParts is how many members there is room for in a copier that is kept: most documents
// have fewer.
const keptParts = 256

func newCopier(text string) *copier {
	c := copiers.Get().(*copier)
	c.reader = reader{text: text}
	return c
}

func (c *copier) over() {
	if cap(c.parts) > keptParts || cap(c.room) > keptBuffer {
		return
	}
	clear(c.parts[:cap(c.parts)])
	*c = copier{parts: c.parts[:0], room: c.room[:0]}
	copiers.Put(c)
}

// member goes as that of a reader does.
func (c *copier) member(b []byte, path []string, depth int) (_ []byte, ok bool) {
	if len(path) == 0 {
		return c.value(b, depth)
	}
	c.space()
	switch {
	case c.at == len(c.text) || depth > MaxDepth:
		return b, false
	case c.text[c.at] == 'n':
		return append(b, "null"...), c.word("null")
	case c.text[c.at] != '{':
		return b, false
	}
	begin := len(b)
	ok = c.members(func(name string) (ok bool) {
		if name != path[0] {
			return c.skip(depth + 1)
		}
		b, ok = c.member(b[:begin], path[1:], depth+1)
		return ok
	})
	if len(b) == begin {
		b = append(b, "null"...)
	}
	return b, ok
}

// value writes what a reader would make of it.
func (c *copier) value(b []byte, depth int) ([]byte, bool) {
	c.space()
	if c.at == len(c.text) || depth > MaxDepth {
		return b, false
	}
	switch c.text[c.at] {
	case '{':
		return c.object(b, depth)
	case '[':
		return c.list(b, depth)
	case '"':
		return c.string(b)
	case 't':
		return append(b, "true"...), c.word("true")
	case 'f':
		return append(b, "false"...), c.word("false")
	case 'n':
		return append(b, "null"...), c.word("null")
	}
	return c.number(b)
}

func (c *copier) list(b []byte, depth int) (_ []byte, ok bool) {
	c.at++
	b = append(b, '[')
	if c.take(']') {
		return append(b, ']'), true
	}
	for {
		if b, ok = c.value(b, depth+1); !ok {
			return b, false
		}
		if c.take(']') {
			return append(b, ']'), true
		}
		if !c.take(',') {
			return b, false
		}
		b = append(b, ',')
	}
}

func (c *copier) string(b []byte) ([]byte, bool) {
	s, ok := c.name()
	if !ok {
		return b, false
	}
	b, err := AppendText(b, s)
	return b, err == nil
}

// sureDigits is how many digits, with a sign, always fit an integer.
const sureDigits = 18

func (c *copier) number(b []byte) ([]byte, bool) {
	text, ok := c.numeral()
	if ok && len(text) <= sureDigits && isIntegerText(text) && text != "-0" {
		return append(b, text...), true
	}
	if !ok {
		return b, false
	}
	v, err := parseNumber(text)
	if err != nil {
		return b, false
	}
	return appendValue(b, v, 0)
}

func (c *copier) object(b []byte, depth int) ([]byte, bool) {
	begin, first := len(b), len(c.parts)
	b = append(b, '{')
	ok := c.members(func(name string) (ok bool) {
		b, ok = c.part(b, first, name, depth+1)
		return ok
	})
	if !ok {
		return b, false
	}
	return c.end(b, begin, first)
}

// part writes a member of the object whose first part is that.
func (c *copier) part(b []byte, first int, name string, depth int) (_ []byte, ok bool) {
	from := len(b)
	if b, ok = c.begin(b, first, name); !ok {
		return b, false
	}
	b, ok = c.value(b, depth)
	c.parts = append(c.parts, part{name, from, len(b)})
	return b, ok
}

// begin writes a member's name.
func (c *copier) begin(b []byte, first int, name string) ([]byte, bool) {
	if len(c.parts) > first {
		b = append(b, ',')
	}
	b, err := AppendText(b, name)
	return append(b, ':'), err == nil
}

// end ends the object that begins there, with its members in the order of their names. Two
// of one name are for Decode to tell.
func (c *copier) end(b []byte, begin, first int) (_ []byte, ok bool) {
	parts := c.parts[first:]
	c.parts = c.parts[:first]
	if slices.IsSortedFunc(parts, byName) {
		return append(b, '}'), unique(parts)
	}
	head := parts[0].from
	slices.SortFunc(parts, byName)
	c.room = append(c.room[:0], b[begin:]...)
	b = append(b[:begin], '{')
	for i, p := range parts {
		if i > 0 {
			b = append(b, ',')
		}
		if p.from > head {
			p.from++ // without its comma
		}
		b = append(b, c.room[p.from-begin:p.to-begin]...)
	}
	return append(b, '}'), unique(parts)
}

func byName(a, b part) int { return strings.Compare(a.name, b.name) }

func unique(sorted []part) bool {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].name == sorted[i-1].name {
			return false
		}
	}
	return true
}
