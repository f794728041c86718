package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/s2"
)

// walBucket is the bucket that names the WAL and its start.
var walBucket = []byte("log")

// Its rows: the number of the last flushed transaction, a u64; that number and the sum of its [Point];
// the number of the last transaction of the memtable whose flush has begun, a u64; the id of the WAL
// beside the file, if it has one; and the ids of flushed WALs that may still be there.
var (
	rowFlushed  = []byte("folded")
	rowSum      = []byte("sum")
	rowFlushing = []byte("folding")
	rowID       = []byte("id")
	rowDone     = []byte("done")
)

// isWALBucket reports whether a top-level bucket is the WAL's.
func isWALBucket(name []byte) bool { return bytes.Equal(name, walBucket) }

// An entry is a byte for its version, a byte for the compression, a CRC-32C of the transaction's
// number and the rest, and the rest: its rows.
const (
	entryVersion = 1
	entryHeader  = 1 + 1 + 4

	plain      = 0
	compressed = 1 // one block of S2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(seq uint64, content []byte) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, seq), castagnoli)
	return crc32.Update(sum, castagnoli, content)
}

// leastGain is the least gain of compression: an eighth.
const leastGain = 8

// maxRows bounds the rows of an entry, and what a reader allocates for a damaged one.
const maxRows = 1 << 30

// maxScratch bounds the memory that is kept for the next entry. A transaction with a thousand
// instances needs as much.
const maxScratch = 8 << 20

// encoder encodes entries, one at a time, into memory that it uses again: an entry is valid until
// the next.
type encoder struct {
	rows, framed []byte
}

// encode encodes an entry, with room for the header of a record before it.
func (e *encoder) encode(seq uint64, rows []written) (framed []byte, err error) {
	if cap(e.rows)+cap(e.framed) > maxScratch {
		*e = encoder{}
	}
	e.rows = appendRows(slices.Grow(e.rows[:0], sizeOf(rows)), rows)
	if len(e.rows) > maxRows {
		return nil, fmt.Errorf("a transaction of %d bytes: at most %d go into the log", len(e.rows), maxRows)
	}
	need := recordHeader + entryHeader + s2.MaxEncodedLen(len(e.rows))
	if cap(e.framed) < need {
		e.framed = make([]byte, need)
	}
	entry := e.framed[recordHeader:need]
	block := s2.Encode(entry[entryHeader:], e.rows)
	how := byte(compressed)
	if len(block) > len(e.rows)-len(e.rows)/leastGain {
		how, block = plain, entry[entryHeader:entryHeader+copy(entry[entryHeader:], e.rows)]
	}
	entry[0], entry[1] = entryVersion, how
	binary.BigEndian.PutUint32(entry[2:], checksum(seq, block))
	return e.framed[:recordHeader+entryHeader+len(block)], nil
}

// hold copies an entry that another file wrote, with room for the header of a record before it.
func (e *encoder) hold(entry []byte) (framed []byte) {
	if cap(e.framed) > maxScratch {
		*e = encoder{}
	}
	e.framed = append(slices.Grow(e.framed[:0], recordHeader+len(entry))[:recordHeader], entry...)
	return e.framed
}

// poison overwrites the entry once it is in its file, in builds that do.
func (e *encoder) poison() {
	if Poison != nil {
		Poison(e.rows)
		Poison(e.framed)
	}
}

// inBucket begins the rows of another bucket.
const inBucket kind = 0

// appendRows appends rows in the order in which they were written, without those that the transaction
// wrote again: a byte for the kind, the key, and for a put the value, each after its length as
// uvarint. Before the rows of another bucket come a zero byte, its name and that of the inner bucket,
// empty for none.
func appendRows(b []byte, rows []written) []byte {
	var in *Bucket
	for _, w := range rows {
		if w.row.stale {
			continue
		}
		if w.bucket != in {
			in = w.bucket
			b = appendBytes(appendBytes(append(b, byte(inBucket)), in.space), in.inner)
		}
		b = appendBytes(append(b, byte(w.row.kind)), w.row.key())
		if w.row.kind == put {
			b = appendBytes(b, w.row.value())
		}
	}
	return b
}

// sizeOf bounds the bytes of rows without the names of buckets.
func sizeOf(rows []written) (n int) {
	const head = 1 + 2*binary.MaxVarintLen32
	for _, w := range rows {
		n += head + len(w.row.buf)
	}
	return n
}

func appendBytes(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

var errEntry = errors.New("malformed entry")

func cutBytes(b []byte) (part, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errEntry
	}
	return b[size : size+int(n)], b[size+int(n):], nil
}

// content checks an entry and returns its rows. They may be in room, which grows up to maxScratch.
func content(seq uint64, entry []byte, room *[]byte) ([]byte, error) {
	if len(entry) < entryHeader {
		return nil, errEntry
	}
	if entry[0] != entryVersion {
		return nil, otherVersion("entry", uint32(entry[0]), entryVersion)
	}
	rest := entry[entryHeader:]
	if binary.BigEndian.Uint32(entry[2:]) != checksum(seq, rest) {
		return nil, errors.New("its checksum is not that of its content")
	}
	switch entry[1] {
	case plain:
		return rest, nil
	case compressed:
		if n, err := s2.DecodedLen(rest); err != nil || n > maxRows {
			return nil, errEntry
		}
		rows, err := s2.Decode((*room)[:cap(*room)], rest)
		if err == nil && cap(rows) <= maxScratch {
			*room = rows[:0]
		}
		return rows, err
	}
	return nil, errEntry
}

// eachRow passes the rows of an entry.
func eachRow(b []byte, fn func(space, inner []byte, k kind, key, value []byte) error) error {
	var space, inner, key, value []byte
	var err error
	for len(b) > 0 {
		k := kind(b[0])
		if k > dropped {
			return errEntry
		}
		if key, b, err = cutBytes(b[1:]); err != nil {
			return err
		}
		value = nil
		if k == put || k == inBucket {
			if value, b, err = cutBytes(b); err != nil {
				return err
			}
		}
		if k == inBucket {
			space, inner = key, value
			if len(inner) == 0 {
				inner = nil
			}
			continue
		}
		if space == nil || len(key) == 0 {
			return errEntry
		}
		if err := fn(space, inner, k, key, value); err != nil {
			return err
		}
	}
	return nil
}
