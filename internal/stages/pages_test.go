//go:build linux && !race

package stages

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

// What a page of a bbolt file says in its first bytes: what it is, how many elements
// it has and how many pages it goes on for. An element of a branch has 16 bytes, at
// the end of them the page below; one of a leaf has 16, too: what it is, where its key
// begins, and how long key and value are.
const (
	pageHeader  = 16
	pageElement = 16
	// A bucket begins with its page, none for one that lies in its parent's, and a counter.
	bucketHeader = 16

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10

	leafIsBucket = 1
	noFreelist   = 0xFFFF // more free pages than this, and the count comes first
)

// diskPages tells, commit by commit, what pages of a bbolt file were written. It
// reads nothing but the pages that are new: a commit leaves none in its place that it
// changed.
type diskPages struct {
	tb      testing.TB
	file    *os.File
	size    int
	known   map[uint64]bool
	written map[string]int // bytes, by what they hold
	parts   map[string][]byte
	last    []byte // the key of the log's last part that was seen
	folded  uint64 // the last transaction that is in the log no more
}

func watchPages(tb testing.TB, path string) *diskPages {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return &diskPages{tb: tb, file: f, size: os.Getpagesize(), known: map[uint64]bool{}, written: map[string]int{}, parts: map[string][]byte{}}
}

func (d *diskPages) page(id uint64) []byte {
	head := make([]byte, d.size)
	if _, err := d.file.ReadAt(head, int64(id)*int64(d.size)); err != nil {
		d.tb.Fatal(err)
	}
	more := int(binary.LittleEndian.Uint32(head[12:]))
	if more == 0 {
		return head
	}
	all := make([]byte, (1+more)*d.size)
	if _, err := d.file.ReadAt(all, int64(id)*int64(d.size)); err != nil {
		d.tb.Fatal(err)
	}
	return all
}

// committed looks what the last commit wrote.
func (d *diskPages) committed() {
	meta := d.newest()
	d.written["meta page"] += d.size
	free := binary.LittleEndian.Uint64(meta[32:])
	page := d.page(free)
	d.written["free list"] += len(page)
	d.forget(page)
	d.walk(binary.LittleEndian.Uint64(meta[16:]), "")
}

// newest is the content of the meta page that counts.
func (d *diskPages) newest() []byte {
	a, b := d.page(0)[pageHeader:], d.page(1)[pageHeader:]
	if binary.LittleEndian.Uint64(a[48:]) > binary.LittleEndian.Uint64(b[48:]) {
		return a
	}
	return b
}

// forget takes what is free out of what is known: it may be written anew.
func (d *diskPages) forget(page []byte) {
	n, ids := int(binary.LittleEndian.Uint16(page[10:])), page[pageHeader:]
	if n == noFreelist {
		n, ids = int(binary.LittleEndian.Uint64(ids)), ids[8:]
	}
	for i := range n {
		delete(d.known, binary.LittleEndian.Uint64(ids[8*i:]))
	}
}

// walk counts a page that is new, and those below of it that are. The space is the
// top-level bucket that it is of; none: the page of these buckets.
func (d *diskPages) walk(id uint64, space string) {
	if d.known[id] {
		return
	}
	d.known[id] = true
	page := d.page(id)
	n := int(binary.LittleEndian.Uint16(page[10:]))
	branch := binary.LittleEndian.Uint16(page[8:])&pageBranch != 0
	d.written[holds(space, branch)] += len(page)
	for i := range n {
		e := page[pageHeader+i*pageElement:]
		if branch {
			d.walk(binary.LittleEndian.Uint64(e[8:]), space)
			continue
		}
		key, value := leaf(page, i)
		switch {
		case binary.LittleEndian.Uint32(e)&leafIsBucket != 0:
			d.bucket(space, string(key), value)
		case isSegment(space):
			d.part(key, value)
		}
	}
}

// bucket goes on in the pages of a bucket; a small one lies in its parent's.
func (d *diskPages) bucket(space, name string, value []byte) {
	if space == "" {
		space = name
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		d.walk(root, space)
	} else if name == "log" {
		d.head(value[bucketHeader:])
	}
}

// head reads how far the log was folded.
func (d *diskPages) head(page []byte) {
	for i := range int(binary.LittleEndian.Uint16(page[10:])) {
		if key, value := leaf(page, i); string(key) == "folded" {
			d.folded = binary.BigEndian.Uint64(value)
		}
	}
}

func leaf(page []byte, i int) (key, value []byte) {
	e := page[pageHeader+i*pageElement:]
	at, k, v := binary.LittleEndian.Uint32(e[4:]), binary.LittleEndian.Uint32(e[8:]), binary.LittleEndian.Uint32(e[12:])
	return e[at : at+k], e[at+k : at+k+v]
}

func isSegment(space string) bool { return strings.HasPrefix(space, "log-") }

func holds(space string, branch bool) string {
	switch {
	case space == "":
		return "page of the buckets"
	case isSegment(space) && branch:
		return "log: branch"
	case isSegment(space):
		return "log: leaves"
	case branch:
		return space + ": branches"
	}
	return space + ": leaves"
}

// part keeps a part of the log that was not there before.
func (d *diskPages) part(key, value []byte) {
	if string(key) > string(d.last) {
		d.parts[string(key)] = append([]byte(nil), value...)
	}
}

// entries are the entries of the log that were written since the last call: how long
// they are, and their rows as they were before they were compressed.
func (d *diskPages) entries(row func(space string, kind byte, key, value []byte)) (size int) {
	for len(d.parts) > 0 {
		entry := d.next()
		size += len(entry)
		rows := entry[6:] // behind its version, how it is compressed, and its checksum
		if entry[1] == 1 {
			var err error
			if rows, err = s2.Decode(nil, rows); err != nil {
				d.tb.Fatal(err)
			}
		}
		eachRow(rows, row)
	}
	return size
}

// next takes the parts of the first entry.
func (d *diskPages) next() (entry []byte) {
	first := ""
	for k := range d.parts {
		if first == "" || k < first {
			first = k
		}
	}
	key := []byte(first)
	for n := uint32(0); ; n++ {
		binary.BigEndian.PutUint32(key[8:], n)
		part, ok := d.parts[string(key)]
		if !ok {
			return entry
		}
		entry = append(entry, part...)
		delete(d.parts, string(key))
		d.last = append(d.last[:0], key...)
	}
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
