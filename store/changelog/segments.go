package changelog

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
)

// Until version 3 of the store's format the log lay in the bbolt file, in buckets of
// their own: an entry in parts below u64 transaction and u32 part, and in the bucket
// of the log the number of the last. Such a log is read, and dropped once it is folded.

// rowLast is the last transaction there is in a log of that kind.
var rowLast = []byte("last")

// segmentPrefix begins the name of a segment; then comes the number of its first
// transaction, in hexadecimal digits, so that they sort.
const segmentPrefix = "log-"

const partKeySize = 12

// segmentVersion is the version of all entries in such a log: no newer edda writes it,
// and nothing but the entry itself says that its version is what was written.
const segmentVersion = 1

func partKey(seq uint64, part uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(make([]byte, 0, partKeySize), seq), part)
}

// inSegments tells whether a file has a log of that kind.
func inSegments(head *bolt.Bucket) bool { return head.Get(rowLast) != nil }

// dropSegments drops it.
func dropSegments(raw *bolt.Tx) error {
	var names [][]byte
	c := raw.Cursor()
	for k, _ := c.Seek([]byte(segmentPrefix)); bytes.HasPrefix(k, []byte(segmentPrefix)); k, _ = c.Next() {
		names = append(names, bytes.Clone(k))
	}
	for _, name := range names {
		if err := raw.DeleteBucket(name); err != nil {
			return err
		}
	}
	return raw.Bucket(logName).Delete(rowLast)
}

// eachInSegments passes its entries in order. One that is missing, or is not what was
// written, is an error.
func eachInSegments(raw *bolt.Tx, folded uint64, fn replayed) (last uint64, err error) {
	want, err := number(raw.Bucket(logName), rowLast)
	if err != nil {
		return 0, err
	}
	r := &segments{last: folded, fn: fn}
	c := raw.Cursor()
	for name, _ := c.Seek([]byte(segmentPrefix)); bytes.HasPrefix(name, []byte(segmentPrefix)); name, _ = c.Next() {
		if err := r.segment(name, raw.Bucket(name)); err != nil {
			return 0, err
		}
	}
	if r.last != want {
		return 0, damaged("it ends with transaction %d and not with %d", r.last, want)
	}
	return r.last, nil
}

// segments puts the parts of entries together.
type segments struct {
	last  uint64 // the entry that was passed last
	entry []byte
	fn    replayed
}

func (r *segments) segment(name []byte, b *bolt.Bucket) error {
	if want := segmentName(r.last + 1); b == nil || !bytes.Equal(name, want) {
		return damaged("there is %s where %s is to be", name, want)
	}
	c := b.Cursor()
	k, v := c.First()
	for k != nil {
		seq, part := r.last+1, uint32(0)
		r.entry = r.entry[:0]
		for ; k != nil && bytes.Equal(k, partKey(seq, part)); k, v = c.Next() {
			r.entry = append(r.entry, v...)
			part++
		}
		if part == 0 {
			return damaged("transaction %d is missing, or what follows is none: %x", seq, k)
		}
		if len(r.entry) > 0 && r.entry[0] != segmentVersion {
			return damaged("transaction %d: its version is %d, and a log in the file itself has no other than %d", seq, r.entry[0], segmentVersion)
		}
		if err := r.fn.pass(seq, r.entry); err != nil {
			return err
		}
		r.last = seq
	}
	return nil
}
