package changelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
	bolt "go.etcd.io/bbolt"
)

// The log is in segments, top-level buckets of their own. Below one bucket for
// all of them every commit would write a page more; and in one bucket for a whole
// table, which grows to a tree of three levels, another. A segment is dropped whole
// once all its transactions were folded.

// logName is the bucket that says where the log begins and ends.
var logName = []byte("log")

// Its rows: the last transaction that was folded, and the last there is. They
// are u64.
var (
	rowFolded = []byte("folded")
	rowLast   = []byte("last")
)

// segmentPrefix begins the name of a segment; then comes the number of its first
// transaction, in hexadecimal digits, so that they sort.
const segmentPrefix = "log-"

// segmentBytes is as much as a tree of two levels holds.
const segmentBytes = 512 << 10

// isLog tells whether a top-level bucket is the log's.
func isLog(name []byte) bool {
	return bytes.Equal(name, logName) || bytes.HasPrefix(name, []byte(segmentPrefix))
}

func segmentName(first uint64) []byte { return fmt.Appendf(nil, "%s%016x", segmentPrefix, first) }

// tail is the segment that is written; the zero value: none yet.
type tail struct {
	name  []byte
	bytes int
}

// partKey names a part of an entry: u64 transaction, u32 part.
func partKey(seq uint64, part uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(make([]byte, 0, partKeySize), seq), part)
}

const partKeySize = 12

// partSize is how large the parts of an entry are: four fill a page of bbolt's. It
// splits a page with more than four rows only, and rewrites all that are in one when
// another comes: of larger parts it would write each several times.
func partSize(page int) int {
	const pageHeader, rowHeader, rows = 16, 16, 4
	return (page-pageHeader)/rows - rowHeader - partKeySize
}

// append writes the transaction's rows to the log, and says what they weigh.
func (tx *Tx) append(next *progress) (wrote int, err error) {
	entry, err := tx.db.scratch.encode(tx.seq, tx.wrotes)
	if err != nil {
		return 0, err
	}
	segment, err := tx.segment(next, len(entry))
	if err != nil {
		return 0, err
	}
	size := partSize(tx.db.raw.Info().PageSize)
	for part, rest := uint32(0), entry; len(rest) > 0; part++ {
		n := min(size, len(rest))
		if err := segment.Put(partKey(tx.seq, part), rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	t := tx.table()
	t.last, t.logged = tx.seq, t.logged+len(entry)
	next.state.active = t
	return tx.weighs(), tx.raw.Bucket(logName).Put(rowLast, binary.BigEndian.AppendUint64(nil, tx.seq))
}

// segment is where the next entry goes.
func (tx *Tx) segment(next *progress, bytes int) (*bolt.Bucket, error) {
	if next.tail.name == nil || next.tail.bytes >= segmentBytes {
		next.tail = tail{name: segmentName(tx.seq)}
		if _, err := tx.raw.CreateBucket(next.tail.name); err != nil {
			return nil, fmt.Errorf("begin a segment of the log: %w", err)
		}
	}
	next.tail.bytes += bytes
	b := tx.raw.Bucket(next.tail.name)
	b.FillPercent = 1
	return b, nil
}

// dropSegments drops those that were folded. A new one began when the table was
// frozen, so that they end with its last transaction.
func (tx *Tx) dropSegments(until uint64) error {
	var names [][]byte
	c := tx.raw.Cursor()
	for k, _ := c.Seek([]byte(segmentPrefix)); bytes.HasPrefix(k, []byte(segmentPrefix)); k, _ = c.Next() {
		if string(k) <= string(segmentName(until)) {
			names = append(names, bytes.Clone(k))
		}
	}
	for _, name := range names {
		if err := tx.raw.DeleteBucket(name); err != nil {
			return err
		}
	}
	return tx.raw.Bucket(logName).Put(rowFolded, binary.BigEndian.AppendUint64(nil, until))
}

// An entry is a byte for its version, one that says how the rest is compressed,
// a CRC-32C of the rest behind the transaction's number, and the rest: its rows.
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

// leastGain is by how much an entry must become smaller to be compressed: an eighth.
const leastGain = 8

// maxRows is how large the rows of an entry may be: what says that it has more is not
// to take the memory.
const maxRows = 1 << 30

// maxScratch is how much memory is kept for the next entry.
const maxScratch = 4 << 20

// encoder encodes entries, one at a time. What it returns is valid until the next.
type encoder struct {
	rows, entry []byte
}

func (e *encoder) encode(seq uint64, rows []written) ([]byte, error) {
	if cap(e.rows)+cap(e.entry) > maxScratch {
		*e = encoder{}
	}
	e.rows = appendRows(e.rows[:0], rows)
	if len(e.rows) > maxRows {
		return nil, fmt.Errorf("a transaction of %d bytes: at most %d go into the log", len(e.rows), maxRows)
	}
	need := entryHeader + s2.MaxEncodedLen(len(e.rows))
	if cap(e.entry) < need {
		e.entry = make([]byte, need)
	}
	e.entry = e.entry[:need]
	block := s2.Encode(e.entry[entryHeader:], e.rows)
	how := byte(compressed)
	if len(block) > len(e.rows)-len(e.rows)/leastGain {
		how, block = plain, e.entry[entryHeader:entryHeader+copy(e.entry[entryHeader:], e.rows)]
	}
	e.entry[0], e.entry[1] = entryVersion, how
	binary.BigEndian.PutUint32(e.entry[2:], checksum(seq, block))
	return e.entry[:entryHeader+len(block)], nil
}

// inBucket begins rows of another bucket than those before.
const inBucket kind = 0

// appendRows writes rows in the order in which they were written, without those that
// the transaction wrote again: a byte for the kind, the key, and of a put the value,
// texts behind their length as uvarint. Where the bucket is another than before, a
// zero byte, its name and that of the bucket within, empty for none, come first.
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

// content checks an entry and returns its rows.
func content(seq uint64, entry []byte) ([]byte, error) {
	if len(entry) < entryHeader {
		return nil, errEntry
	}
	if entry[0] != entryVersion {
		return nil, fmt.Errorf("its version is %d, this edda reads %d", entry[0], entryVersion)
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
		return s2.Decode(nil, rest)
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
