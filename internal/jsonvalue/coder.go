package jsonvalue

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Object is a struct of another package that names its fields to a coder, in the
// order of their declaration, which is their order in JSON.
type Object interface {
	Fields(c *Coder)
}

// usualSize is the memory that an encoding begins with: most rows and messages fit in it.
const usualSize = 512

// Marshal encodes the struct that v points to.
func Marshal(v any) ([]byte, error) {
	b, err := new(Coder).Append(make([]byte, 0, usualSize), v)
	if err != nil {
		return nil, err
	}
	return fitted(b), nil
}

// fitted copies an encoding that fills less than half of its memory, because it may be kept for long.
func fitted(b []byte) []byte {
	if len(b) < cap(b)/2 {
		return bytes.Clone(b)
	}
	return b
}

// Append encodes the struct that v points to and appends it to b. On an error it returns b.
func (c *Coder) Append(b []byte, v any) ([]byte, error) {
	c.writing, c.wrong, c.out = true, false, b
	c.whole(v)
	out := c.out
	c.out = nil
	if !c.wrong {
		return out, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, err
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...), nil
}

// Unmarshal decodes data into *v, which is empty. It retains no part of data.
func Unmarshal[T any](data []byte, v *T) error {
	return UnmarshalAny(data, v, func() { *v = *new(T) })
}

// UnmarshalAny is Unmarshal for a type that is known by reflection only; empty empties *v again.
func UnmarshalAny(data []byte, v any, empty func()) error {
	if known(v) {
		if new(Coder).decode(data, v) {
			return nil
		}
		empty()
	}
	return json.Unmarshal(data, v)
}

// decode reports whether data is plain JSON of a known struct.
func (c *Coder) decode(data []byte, v any) bool {
	c.writing, c.reader = false, reader{scanner: scanner{data: data}, share: textShare}
	c.whole(v)
	plain := c.ended()
	c.reader = reader{} // the caller owns the memory of the values
	return plain
}

// Coder writes or reads the fields of one value. One goroutine uses it.
type Coder struct {
	writing bool
	out     []byte
	stamp   stamp
	reader
	object
}

// stamp is the text of the time that was written last. Most records of one event have its time.
type stamp struct {
	time time.Time
	room [len(time.RFC3339Nano)]byte
	n    int
}

// object is the JSON object being read.
type object struct {
	key    []byte // name of the next field; empty at the end
	field  int    // fields named in this round
	seen   uint64 // a bit for each of the first 64 fields that was read
	asking bool   // the round only looks for a field whose name is nearly key
}

// name writes the name of a field, and the comma before it.
func (c *Coder) name(name string) {
	if c.out[len(c.out)-1] == '{' {
		c.out = append(c.out, '"')
	} else {
		c.out = append(c.out, ',', '"')
	}
	c.out = append(c.out, name...)
	c.out = append(c.out, '"', ':')
}

// is reports whether the field of that name is next.
func (c *Coder) is(name string) bool {
	c.field++
	if string(c.key) == name {
		return c.first()
	}
	if c.asking { // a name that differs in case only is for encoding/json
		c.wrong = c.wrong || strings.EqualFold(string(c.key), name)
	}
	return false
}

// whole writes or reads a document.
func (c *Coder) whole(v any) {
	values, ok := v.(*map[string]json.RawMessage)
	switch {
	case ok:
		c.values(values)
	case c.writing:
		c.write(v)
	default:
		c.read(v)
	}
}

func (c *Coder) write(v any) {
	c.out = append(c.out, '{')
	c.visit(v)
	c.out = append(c.out, '}')
}

// read reads an object in rounds over the named fields. One round reads all fields if they
// come in the order of their names; another order takes more rounds.
func (c *Coder) read(v any) {
	outer := c.object
	c.object = object{}
	if !c.take('{') {
		c.wrong = true
	} else if !c.take('}') {
		c.begin()
	}
	for len(c.key) > 0 && !c.wrong {
		was := c.at
		c.field = 0
		if c.visit(v); c.at == was {
			c.unknown(v)
		}
	}
	c.object = outer
}

// begin reads a field's name.
func (c *Coder) begin() {
	key, escaped := c.quoted()
	c.expect(':')
	if c.wrong = c.wrong || escaped || len(key) == 0 || !utf8.Valid(key); !c.wrong {
		c.key = key
	}
}

// nextField moves to the next field after a field's value.
func (c *Coder) nextField() {
	c.key = nil
	switch {
	case c.wrong:
	case c.take(','):
		c.begin()
	case !c.take('}'):
		c.wrong = true
	}
}

// first reports whether the field comes for the first time. encoding/json, which may join two
// values, reads a field that comes twice, and one for which seen has no bit.
func (c *Coder) first() bool {
	bit := uint64(1) << (c.field - 1)
	c.wrong = c.wrong || bit == 0 || c.seen&bit != 0
	c.seen |= bit
	return !c.wrong
}

// unknown skips a field that is not named. encoding/json takes Event_ID for event_id, so it reads
// a name that differs from a field's in case only.
func (c *Coder) unknown(v any) {
	c.asking = true
	c.visit(v)
	c.asking = false
	if !c.wrong {
		c.skip(0)
		c.nextField()
	}
}
