package wal

import (
	_ "embed"

	"github.com/klauspost/compress/s2"
)

// A value is compressed alone when it is flushed into its bucket. The WAL compresses the rows of a
// transaction as one block, and memtables have values as they are read.

// packedMark begins an encoded value. No value of the store begins with it; one that does is encoded
// as plain.
const (
	packedMark  = 0xFE
	packedPlain = 0x00 // the value follows
	packedS2    = 0x01 // a block of S2 follows, made with the dictionary
	packedHead  = 2
)

const (
	// leastPacked is the length from which values are compressed. Shorter ones are numbers, pointers or
	// names, and opening the file reads some of them as they are.
	leastPacked = 64
	// mostPacked bounds what a reader allocates for a damaged value. Longer values have pages of
	// their own.
	mostPacked = 1 << 20
)

// dictionary has what values have in common: the names of their fields in the order in which they are
// written, and the words in them. It is part of the format: another dictionary needs another number
// than packedS2.
//
//go:embed dictionary.txt
var dictionaryText []byte

var dictionary = s2.MakeDictManual(dictionaryText, 0)

// packBlock is how much memory a Packer allocates at once: most chunks need no more.
const packBlock = 256 << 10

// Packer encodes values as their buckets have them, for a writer that bypasses the DB. The zero
// value works. It is for one goroutine.
type Packer struct {
	// Plain leaves values as they are: they are read all the same.
	Plain bool

	block []byte // encoded values, and room for more
}

// Pack encodes a value. It returns the value itself where compression gains nothing.
func (p *Packer) Pack(value []byte) []byte {
	if !p.Plain && len(value) >= leastPacked && len(value) <= mostPacked {
		room := p.room(packedHead + s2.MaxEncodedLen(len(value)))
		if block := dictionary.Encode(room[packedHead:], value); packedHead+len(block) <= len(value)-len(value)/leastGain {
			room[0], room[1] = packedMark, packedS2
			return p.keep(packedHead + len(block))
		}
	}
	if len(value) > 0 && value[0] == packedMark {
		room := p.room(packedHead + len(value))
		room[0], room[1] = packedMark, packedPlain
		return p.keep(packedHead + copy(room[packedHead:], value))
	}
	return value
}

// room is memory for n bytes.
func (p *Packer) room(n int) []byte {
	if cap(p.block)-len(p.block) < n {
		p.block = make([]byte, 0, max(n, packBlock))
	}
	return p.block[len(p.block) : len(p.block)+n]
}

// keep keeps the first n bytes of it.
func (p *Packer) keep(n int) []byte {
	from := len(p.block)
	p.block = p.block[:from+n]
	return p.block[from : from+n : from+n]
}

// unpack decodes a value. It returns a damaged value as it is, which its reader then cannot decode,
// because no value begins with the mark.
func unpack(v []byte) []byte {
	if len(v) < packedHead || v[0] != packedMark {
		return v
	}
	switch v[1] {
	case packedPlain:
		return v[packedHead:]
	case packedS2:
		if n, err := s2.DecodedLen(v[packedHead:]); err != nil || n > mostPacked {
			return v
		}
		if out, err := dictionary.Decode(nil, v[packedHead:]); err == nil {
			return out
		}
	}
	return v
}
