// Package fields writes and reads the JSON of known structs field by field,
// without reflection. Each struct has one list of its fields, by which it is both
// written and read.
//
// What [Marshal] and [Coder.Append] write is byte for byte what encoding/json writes with HTML
// characters not escaped, and what [Decode] reads is what encoding/json reads.
// Whatever is not plain, and all that is wrong, is left to encoding/json: it
// alone says what an error is. It refuses nothing that encoding/json takes.
package fields

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// Object is a struct of another package that names its fields to a coder, in
// the order in which they are declared: its JSON has them so.
type Object interface {
	Fields(c *Coder)
}

// keptRoom is how large the memory in which values are written may be to be kept
// for the next: as large as the state of a saga may be.
const keptRoom = 256 << 10

// coders are kept for the next value, as their memory is.
var coders = sync.Pool{New: func() any { return new(Coder) }}

// Marshal writes what v points to.
func Marshal(v any) ([]byte, error) {
	c := coders.Get().(*Coder)
	defer coders.Put(c)
	b, err := c.Append(c.room, v)
	c.checked = checked{}
	if cap(b) <= keptRoom {
		c.room = b[:0]
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(b), nil
}

// Append writes what v points to behind b. On an error b is as it was. The JSON values of
// what one coder appends do not change as long as it appends more.
func (c *Coder) Append(b []byte, v any) ([]byte, error) {
	c.writing, c.odd, c.out = true, false, b
	c.whole(v)
	out := c.out
	c.out = nil
	if c.odd {
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

// Decode reads data into *v, which is empty. It keeps no part of data.
func Decode[T any](data []byte, v *T) error {
	return Read(data, v, func() { *v = *new(T) })
}

// Read is Decode for a type that only reflection knows; empty makes *v empty again.
func Read(data []byte, v any, empty func()) error {
	if known(v) {
		c := coders.Get().(*Coder)
		defer coders.Put(c)
		if c.decode(data, v) {
			return nil
		}
		empty()
	}
	return json.Unmarshal(data, v)
}

// decode tells whether data is plain JSON of a known struct.
func (c *Coder) decode(data []byte, v any) bool {
	c.writing, c.odd, c.reader = false, false, reader{data: data}
	c.whole(v)
	c.space()
	plain := !c.odd && c.at == len(c.data)
	c.reader = reader{} // what was read is the caller's
	return plain
}

// Coder goes through the fields of one value, either writing or reading. It is for
// one goroutine.
type Coder struct {
	writing bool
	odd     bool // not for us: encoding/json does it
	out     []byte
	room    []byte // of Marshal
	checked checked
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

// checked are the JSON values that were found right last: a step's input is its
// command's payload, too, and what its frame keeps. A value is told by where it lies, so
// values must not change while a coder writes one object after the other.
type checked struct {
	values [8]json.RawMessage
	next   int
}

func (k *checked) has(raw json.RawMessage) bool {
	for i := range k.values {
		if v := k.values[i]; len(v) == len(raw) && len(raw) > 0 && &v[0] == &raw[0] {
			return true
		}
	}
	return false
}

func (k *checked) add(raw json.RawMessage) {
	k.values[k.next] = raw
	k.next = (k.next + 1) % len(k.values)
}

// object is the one being read.
type object struct {
	key    []byte // of the field that comes next; empty: it has ended
	field  int    // how many fields were named in this round
	seen   uint64 // a bit for each field that was read: a struct has no more than that
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
		c.odd = true
	} else if !c.take('}') {
		c.begin()
	}
	for len(c.key) > 0 && !c.odd {
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
	c.space()
	key, escaped, ok := c.quoted()
	if !ok || escaped || len(key) == 0 || !c.take(':') {
		c.odd = true
		return
	}
	c.space()
	c.key = key
}

// next goes on behind a field's value.
func (c *Coder) next() {
	c.key = nil
	switch {
	case c.odd:
	case c.take(','):
		c.begin()
	case !c.take('}'):
		c.odd = true
	}
}

// first leaves a field that comes twice to encoding/json: it may join the two.
func (c *Coder) first() bool {
	bit := uint64(1) << (c.field - 1)
	c.odd = c.odd || c.seen&bit != 0
	c.seen |= bit
	return !c.odd
}

// unknown goes past a field that is not named. encoding/json takes Event_ID for
// event_id: what is nearly a name is left to it.
func (c *Coder) unknown(v any) {
	c.asking = true
	c.visit(v)
	c.asking = false
	if !c.odd {
		c.value()
		c.next()
	}
}

// near leaves a name that differs from a field's in case alone to encoding/json.
func (c *Coder) near(name string) { c.odd = c.odd || strings.EqualFold(string(c.key), name) }
