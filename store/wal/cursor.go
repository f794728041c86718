package wal

import (
	"bytes"

	"github.com/tidwall/btree"
	bolt "go.etcd.io/bbolt"
)

// Cursor iterates over a bucket in the order of its keys, in both directions. After a change of the
// bucket it must be positioned again, as bbolt's. After the last key, and before the first, it has
// no position.
type Cursor struct {
	sides  [3]side // the memtables, the active one first, then the file
	n      int
	at     []byte // the last key it returned; nil: no position
	ahead  bool   // the sides are after that key, else before it
	pivots [2]row
}

// side iterates over the rows of a bucket in a memtable or in the file.
type side struct {
	rows  *btree.BTreeG[*row]
	iter  btree.IterG[*row]
	pivot *row

	raw *bolt.Cursor

	row        *row // the current row of a memtable
	key, value []byte
}

// Cursor makes a cursor without a position.
func (b *Bucket) Cursor() *Cursor {
	c := &Cursor{}
	for i, l := range [2]*layer{b.active, b.immutable} {
		if l == nil {
			continue
		}
		if l.rows.Len() > 0 {
			c.sides[c.n] = side{rows: l.rows, pivot: &c.pivots[i]}
			c.n++
		}
		if l.wiped {
			return c
		}
	}
	if raw := b.raw(); raw != nil {
		c.sides[c.n] = side{raw: raw.Cursor()}
		c.n++
	}
	return c
}

// First goes to the first key.
func (c *Cursor) First() (k, v []byte) {
	for i := range c.n {
		c.sides[i].first()
	}
	return c.forward()
}

// Last goes to the last key.
func (c *Cursor) Last() (k, v []byte) {
	for i := range c.n {
		c.sides[i].last()
	}
	return c.backward()
}

// Seek goes to the first key at or after a key.
func (c *Cursor) Seek(key []byte) (k, v []byte) {
	for i := range c.n {
		c.sides[i].seek(key)
	}
	return c.forward()
}

// Next goes to the next key.
func (c *Cursor) Next() (k, v []byte) {
	if c.at == nil {
		return nil, nil
	}
	if !c.ahead {
		for i := range c.n {
			if s := &c.sides[i]; s.seek(c.at) && bytes.Equal(s.key, c.at) {
				s.next()
			}
		}
	}
	return c.forward()
}

// Prev goes to the key before.
func (c *Cursor) Prev() (k, v []byte) {
	if c.at == nil {
		return nil, nil
	}
	if c.ahead {
		for i := range c.n {
			c.sides[i].seekBefore(c.at)
		}
	}
	return c.backward()
}

// forward returns the least current key of the sides, with the value of the first side that has it.
func (c *Cursor) forward() (k, v []byte) {
	c.ahead = true
	for {
		best := c.best(-1)
		if best == nil {
			c.at = nil
			return nil, nil
		}
		key, value, hidden := best.key, best.content(), best.hidden()
		for i := range c.n {
			if s := &c.sides[i]; s.key != nil && bytes.Equal(s.key, key) {
				s.next()
			}
		}
		if !hidden {
			c.at = key
			return key, value
		}
	}
}

// backward returns the greatest current key likewise.
func (c *Cursor) backward() (k, v []byte) {
	c.ahead = false
	for {
		best := c.best(1)
		if best == nil {
			c.at = nil
			return nil, nil
		}
		key, value, hidden := best.key, best.content(), best.hidden()
		for i := range c.n {
			if s := &c.sides[i]; s.key != nil && bytes.Equal(s.key, key) {
				s.prev()
			}
		}
		if !hidden {
			c.at = key
			return key, value
		}
	}
}

func (c *Cursor) best(order int) (best *side) {
	for i := range c.n {
		s := &c.sides[i]
		if s.key != nil && (best == nil || bytes.Compare(s.key, best.key) == order) {
			best = s
		}
	}
	return best
}

// content is the value as it was put.
func (s *side) content() []byte {
	if s.raw != nil {
		return unpack(s.value)
	}
	return s.value
}

// hidden reports whether the row is a tombstone.
func (s *side) hidden() bool {
	return s.row != nil && (s.row.kind == tombstone || s.row.kind == dropped)
}

// take notes the current row of the iterator.
func (s *side) take(ok bool) bool {
	s.row, s.key, s.value = nil, nil, nil
	if ok {
		s.row = s.iter.Item()
		s.key, s.value = s.row.key(), s.row.value()
	}
	return ok
}

func (s *side) give(k, v []byte) bool {
	s.key, s.value = k, v
	return k != nil
}

func (s *side) first() bool {
	if s.raw != nil {
		return s.give(s.raw.First())
	}
	s.iter = s.rows.Iter()
	return s.take(s.iter.First())
}

func (s *side) last() bool {
	if s.raw != nil {
		return s.give(s.raw.Last())
	}
	s.iter = s.rows.Iter()
	return s.take(s.iter.Last())
}

func (s *side) seek(key []byte) bool {
	if s.raw != nil {
		return s.give(s.raw.Seek(key))
	}
	s.iter = s.rows.Iter()
	s.pivot.buf, s.pivot.cut = key, len(key)
	return s.take(s.iter.Seek(s.pivot))
}

// seekBefore goes to the last key before one.
func (s *side) seekBefore(key []byte) bool {
	if s.seek(key) {
		return s.prev()
	}
	return s.last()
}

func (s *side) next() bool {
	if s.raw != nil {
		return s.give(s.raw.Next())
	}
	return s.take(s.iter.Next())
}

func (s *side) prev() bool {
	if s.raw != nil {
		return s.give(s.raw.Prev())
	}
	return s.take(s.iter.Prev())
}
