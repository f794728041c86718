//go:build linux && !race

package costbudget

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/klauspost/compress/s2"
)

// What store/FORMAT.md says of a log: the header of its files, of its records and of
// their entries.
const (
	logHeader    = 64
	recordHeader = 20
	entryHeader  = 6
)

// diskLog reads, commit by commit, what was added to the log of a store.
type diskLog struct {
	tb   testing.TB
	path string
	last uint64   // transaction that was read
	slot int      // the file that it is in
	at   [2]int64 // where the next record would be in each
	// files are opened once: what go test notes of every file that is opened would be
	// counted with what the store writes.
	files [2]*os.File
}

func watchLog(tb testing.TB, path string) *diskLog {
	return &diskLog{tb: tb, path: path, at: [2]int64{logHeader, logHeader}}
}

// records passes the rows of what was written since the last call, and says how many
// bytes the records have.
func (d *diskLog) records(row func(space string, kind byte, key, value []byte)) (size int) {
	for {
		entry := d.next()
		if entry == nil {
			return size
		}
		size += recordHeader + len(entry)
		rows := entry[entryHeader:]
		if entry[1] == 1 {
			var err error
			if rows, err = s2.Decode(nil, rows); err != nil {
				d.tb.Fatal(err)
			}
		}
		eachRow(rows, row)
	}
}

// next is the entry behind the last, in the same file or at the beginning of the other.
func (d *diskLog) next() []byte {
	if entry := d.read(d.slot, d.at[d.slot]); entry != nil {
		return entry
	}
	return d.read(1-d.slot, logHeader)
}

func (d *diskLog) read(slot int, at int64) []byte {
	f := d.file(slot)
	if f == nil {
		return nil
	}
	var head [recordHeader]byte
	if _, err := f.ReadAt(head[:], at); err != nil || binary.BigEndian.Uint64(head[4:]) != d.last+1 {
		return nil
	}
	entry := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := f.ReadAt(entry, at+recordHeader); err != nil {
		d.tb.Fatal(err)
	}
	d.last, d.slot, d.at[slot] = d.last+1, slot, at+recordHeader+int64(len(entry))
	return entry
}

// file is nil where none was made yet.
func (d *diskLog) file(slot int) *os.File {
	if d.files[slot] == nil {
		f, err := os.Open(fmt.Sprint(d.path, "-log-", slot))
		if err != nil {
			return nil
		}
		d.tb.Cleanup(func() { _ = f.Close() })
		d.files[slot] = f
	}
	return d.files[slot]
}

func eachRow(b []byte, row func(space string, kind byte, key, value []byte)) {
	cut := func() []byte {
		n, size := binary.Uvarint(b)
		part := b[size : size+int(n)]
		b = b[size+int(n):]
		return part
	}
	for space := ""; len(b) > 0; {
		kind := b[0]
		b = b[1:]
		key, value := cut(), []byte(nil)
		if kind == 0 || kind == 1 {
			value = cut()
		}
		if kind == 0 {
			space = string(key)
			continue
		}
		row(space, kind, key, value)
	}
}
