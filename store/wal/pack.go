package wal

import (
	_ "embed"

	"github.com/klauspost/compress/s2"
)

// A value is compressed when it comes to its bucket, each by itself. The WAL has many
// rows in one block, and needs it not; the memtables have them as they are read.

// packedMark begins a value that is not as it was put. No value of the store begins
// so; one that does all the same comes behind the mark and a zero.
const (
	packedMark  = 0xFE
	packedPlain = 0x00 // the value follows
	packedS2    = 0x01 // a block of S2 follows, made with the dictionary
	packedHead  = 2
)

const (
	// leastPacked is how long a value must be: a shorter one is a number, a pointer or
	// a name, and what opens the file reads some of them past the WAL.
	leastPacked = 64
	// mostPacked bounds what a damaged value can make a reader allocate. What is longer
	// has pages of its own.
	mostPacked = 1 << 20
)

// dictionary is what values have in common before anything was written: the names of
// their fields, in the order in which they are written, and the words that are in them.
// It is of the format: another one must have another number than packedS2.
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

	block []byte // what was packed, and room for more
}

// Pack returns the value where nothing is gained by compressing it.
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

// room is where n bytes may be written.
func (p *Packer) room(n int) []byte {
	if cap(p.block)-len(p.block) < n {
		p.block = make([]byte, 0, max(n, packBlock))
	}
	return p.block[len(p.block) : len(p.block)+n]
}

// keep takes the first bytes of it.
func (p *Packer) keep(n int) []byte {
	from := len(p.block)
	p.block = p.block[:from+n]
	return p.block[from : from+n : from+n]
}

// unpack is what was put. A value that is damaged comes as it is: whoever decodes it
// says so, since nothing that is stored begins with the mark.
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
