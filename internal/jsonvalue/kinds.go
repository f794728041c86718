package jsonvalue

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"edda"
)

// short is the capacity of a new list: most lists are no longer.
const short = 3

// A method names one field, by the kind of its value. A method that ends in If is
// for a field with omitempty or omitzero.

// Text names a string.
func (c *Coder) Text(name string, v *string) {
	if c.writing {
		c.name(name)
		c.writeText(*v)
	} else if c.is(name) {
		*v = c.text()
		c.nextField()
	}
}

// TextIf names a string.
func (c *Coder) TextIf(name string, v *string) {
	if !c.writing || *v != "" {
		c.Text(name, v)
	}
}

// Int names an int.
func (c *Coder) Int(name string, v *int) {
	if c.writing {
		c.name(name)
		c.out = strconv.AppendInt(c.out, int64(*v), 10)
	} else if c.is(name) {
		*v = int(c.int())
		c.nextField()
	}
}

// IntIf names an int.
func (c *Coder) IntIf(name string, v *int) {
	if !c.writing || *v != 0 {
		c.Int(name, v)
	}
}

// SpanIf names a duration.
func (c *Coder) SpanIf(name string, v *time.Duration) {
	if c.writing && *v != 0 {
		c.name(name)
		c.out = strconv.AppendInt(c.out, int64(*v), 10)
	} else if !c.writing && c.is(name) {
		*v = time.Duration(c.int())
		c.nextField()
	}
}

// Uint names a uint64.
func (c *Coder) Uint(name string, v *uint64) {
	if c.writing {
		c.name(name)
		c.out = strconv.AppendUint(c.out, *v, 10)
	} else if c.is(name) {
		*v = c.uint()
		c.nextField()
	}
}

// UintIf names a uint64.
func (c *Coder) UintIf(name string, v *uint64) {
	if !c.writing || *v != 0 {
		c.Uint(name, v)
	}
}

// TrueIf names a bool.
func (c *Coder) TrueIf(name string, v *bool) {
	if c.writing && *v {
		c.name(name)
		c.out = append(c.out, "true"...)
	} else if !c.writing && c.is(name) {
		*v = c.bool()
		c.nextField()
	}
}

// Time names a time.
func (c *Coder) Time(name string, v *time.Time) {
	if c.writing {
		c.name(name)
		c.writeTime(*v)
	} else if c.is(name) {
		part, _ := c.quoted() // no time has an escape in it
		c.wrong = c.wrong || v.UnmarshalText(part) != nil
		c.nextField()
	}
}

// TimeIf names a time.
func (c *Coder) TimeIf(name string, v *time.Time) {
	if !c.writing || !v.IsZero() {
		c.Time(name, v)
	}
}

// UTCIf names a time that is read as UTC.
func (c *Coder) UTCIf(name string, v *time.Time) {
	c.TimeIf(name, v)
	if !c.writing {
		*v = v.UTC()
	}
}

func (c *Coder) writeTime(t time.Time) {
	if c.stamp.n == 0 || c.stamp.time != t { // with the zone: the same instant in another zone has another text
		text, err := t.AppendText(c.stamp.room[:0])
		if err != nil {
			c.wrong, c.stamp.n = true, 0
			return
		}
		c.stamp.time, c.stamp.n = t, len(text)
	}
	c.out = append(c.out, '"')
	c.out = append(c.out, c.stamp.room[:c.stamp.n]...)
	c.out = append(c.out, '"')
}

// JSON names a value that is JSON itself.
func (c *Coder) JSON(name string, v *json.RawMessage) {
	if c.writing {
		c.name(name)
		c.writeJSON(*v)
	} else if c.is(name) {
		*v = c.raw()
		c.nextField()
	}
}

// JSONIf names a value that is JSON itself.
func (c *Coder) JSONIf(name string, v *json.RawMessage) {
	if !c.writing || len(*v) > 0 {
		c.JSON(name, v)
	}
}

// writeJSON writes a valid compact value unchanged.
func (c *Coder) writeJSON(raw json.RawMessage) {
	if raw == nil {
		c.out = append(c.out, "null"...)
		return
	}
	s := scanner{data: raw}
	if s.skip(0); !s.ended() || s.spaced {
		c.wrong = true
	}
	c.out = append(c.out, raw...)
}

// TextsIf names a list of strings.
func (c *Coder) TextsIf(name string, v *[]string) {
	if c.writing && len(*v) > 0 {
		c.name(name)
		c.out = append(c.out, '[')
		for i, s := range *v {
			c.comma(i)
			c.writeText(s)
		}
		c.out = append(c.out, ']')
	} else if !c.writing && c.is(name) {
		*v = make([]string, 0, short)
		for c.item(len(*v), '[', ']') {
			*v = append(*v, c.text())
		}
		c.nextField()
	}
}

func (c *Coder) comma(i int) {
	if i > 0 {
		c.out = append(c.out, ',')
	}
}

// Struct names a known struct, or an Object.
func (c *Coder) Struct(name string, v any) {
	if c.writing {
		c.name(name)
		c.write(v)
	} else if c.is(name) {
		c.read(v)
		c.nextField()
	}
}

// KeyIf names a key.
func (c *Coder) KeyIf(name string, v *edda.Key) {
	if !c.writing || *v != (edda.Key{}) {
		c.Struct(name, v)
	}
}

// Pointer names a struct that may be missing.
func Pointer[T any](c *Coder, name string, v **T) {
	switch {
	case !c.writing && c.is(name):
		*v = new(T)
		c.read(*v)
		c.nextField()
	case c.writing && *v == nil:
		c.name(name)
		c.out = append(c.out, "null"...)
	case c.writing:
		c.name(name)
		c.write(*v)
	}
}

// PointerIf names a struct that may be missing.
func PointerIf[T any](c *Coder, name string, v **T) {
	if !c.writing || *v != nil {
		Pointer(c, name, v)
	}
}

// List names a list of structs.
func List[T any](c *Coder, name string, v *[]T) {
	if c.writing {
		c.name(name)
		writeList(c, *v)
	} else if c.is(name) {
		*v = make([]T, 0, short)
		for c.item(len(*v), '[', ']') {
			var item T
			*v = append(*v, item)
			c.read(&(*v)[len(*v)-1])
		}
		c.nextField()
	}
}

// ListIf names a list of structs.
func ListIf[T any](c *Coder, name string, v *[]T) {
	if !c.writing || len(*v) > 0 {
		List(c, name, v)
	}
}

func writeList[T any](c *Coder, list []T) {
	if list == nil {
		c.out = append(c.out, "null"...)
		return
	}
	c.out = append(c.out, '[')
	for i := range list {
		c.comma(i)
		c.write(&list[i])
	}
	c.out = append(c.out, ']')
}

// ValuesIf names a map of JSON values.
func (c *Coder) ValuesIf(name string, v *map[string]json.RawMessage) {
	mapIf(c, name, v, c.writeJSON, c.raw)
}

// NotesIf names a map of strings.
func (c *Coder) NotesIf(name string, v *map[string]string) {
	mapIf(c, name, v, c.writeText, c.text)
}

func mapIf[V any](c *Coder, name string, v *map[string]V, write func(V), read func() V) {
	if c.writing && len(*v) > 0 {
		c.name(name)
		writeMap(c, *v, write)
	} else if !c.writing && c.is(name) {
		*v = map[string]V{}
		readMap(c, *v, read)
		c.nextField()
	}
}

// values writes or reads a map of JSON values as a whole document.
func (c *Coder) values(v *map[string]json.RawMessage) {
	switch {
	case c.writing && *v == nil:
		c.wrong = true
	case c.writing:
		writeMap(c, *v, c.writeJSON)
	default:
		*v = map[string]json.RawMessage{}
		readMap(c, *v, c.raw)
	}
}

func writeMap[V any](c *Coder, v map[string]V, write func(V)) {
	var few [8]string // most maps have no more: no allocation
	keys := few[:0]
	for key := range v {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	c.out = append(c.out, '{')
	for i, key := range keys {
		c.comma(i)
		c.writeText(key)
		c.out = append(c.out, ':')
		write(v[key])
	}
	c.out = append(c.out, '}')
}

func readMap[V any](c *Coder, v map[string]V, read func() V) {
	for n := 0; c.item(n, '{', '}'); n++ {
		name := c.text()
		c.expect(':')
		v[name] = read()
	}
}

func (c *Coder) writeText(s string) {
	out, err := AppendText(c.out, s)
	c.out, c.wrong = out, c.wrong || err != nil
}
