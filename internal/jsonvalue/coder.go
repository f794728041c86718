package jsonvalue

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Object is a struct of another package that names its fields to a coder, in
// the order in which they are declared: its JSON has them so.
type Object interface {
	Fields(c *Coder)
}

// keptRoom bounds the buffer that a coder keeps in the pool. The state of a saga may have as much.
const keptRoom = 256 << 10

// coders is the pool of the package. Nothing outside of it gets a pooled coder or its buffer.
var coders = sync.Pool{New: func() any { return new(Coder) }}

// pooled returns a coder of the pool. Call release when everything written is copied.
func pooled() *Coder { return coders.Get().(*Coder) }

// release returns a pooled coder, and written as its buffer.
func (c *Coder) release(written []byte) {
	if cap(written) <= keptRoom {
		c.room = written[:0]
	}
	poison(c.room)
	coders.Put(c)
}

// Marshal writes what v points to.
func Marshal(v any) ([]byte, error) {
	c := pooled()
	b, err := c.Append(c.room, v)
	defer c.release(b)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(b), nil
}

// Append writes what v points to behind b. On an error b is as it was.
func (c *Coder) Append(b []byte, v any) ([]byte, error) {
	c.writing, c.wrong, c.out = true, false, b
	c.whole(v)
	out := c.out
	c.out = nil
	if c.wrong {
		return appendOdd(b, v)
	}
	return out, nil
}

func appendOdd(b []byte, v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return b, err
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte{'\n'})...), nil
}

// Unmarshal reads data into *v, which is empty. It keeps no part of data.
func Unmarshal[T any](data []byte, v *T) error {
	return UnmarshalAny(data, v, func() { *v = *new(T) })
}

// UnmarshalAny is Unmarshal for a type that only reflection knows; empty makes *v empty again.
func UnmarshalAny(data []byte, v any, empty func()) error {
	if known(v) {
		c := pooled()
		defer c.release(c.room)
		if c.decode(data, v) {
			return nil
		}
		empty()
	}
	return json.Unmarshal(data, v)
}

// decode tells whether data is plain JSON of a known struct.
func (c *Coder) decode(data []byte, v any) bool {
	c.writing, c.reader = false, reader{scanner: scanner{data: data}, share: textShare}
	c.whole(v)
	plain := c.ended()
	c.reader = reader{} // what was read is the caller's
	return plain
}

// Coder goes through the fields of one value, either writing or reading. It is for
// one goroutine.
type Coder struct {
	writing bool
	out     []byte
	room    []byte // empty; the buffer of Marshal and Encode
	stamp   stamp
	reader
	object
}

// stamp is the time that was written last, as text: most of what one event changed has
// its time.
type stamp struct {
	time time.Time
	room [len(time.RFC3339Nano)]byte
	n    int
}

// object is the one being read.
type object struct {
	key    []byte // of the field that comes next; empty: it has ended
	field  int    // how many fields were named in this round
	seen   uint64 // a bit for each of the first fields that was read
	asking bool   // whether key is nearly a field's name
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

// is tells whether the field of that name comes next.
func (c *Coder) is(name string) bool {
	c.field++
	if string(c.key) == name {
		return c.first()
	}
	if c.asking {
		c.near(name)
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

// read reads an object. Fields mostly come in the order in which they are
// named, and one round finds them all; in another order it takes some more.
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

// nextField goes on behind a field's value.
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

// first leaves a field that comes twice to encoding/json, which may join the two, and one
// for which seen has no bit.
func (c *Coder) first() bool {
	bit := uint64(1) << (c.field - 1)
	c.wrong = c.wrong || bit == 0 || c.seen&bit != 0
	c.seen |= bit
	return !c.wrong
}

// unknown goes past a field that is not named. encoding/json takes Event_ID for
// event_id: what is nearly a name is left to it.
func (c *Coder) unknown(v any) {
	c.asking = true
	c.visit(v)
	c.asking = false
	if !c.wrong {
		c.skip(0)
		c.nextField()
	}
}

// near leaves a name that differs from a field's in case alone to encoding/json.
func (c *Coder) near(name string) { c.wrong = c.wrong || strings.EqualFold(string(c.key), name) }
