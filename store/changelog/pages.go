package changelog

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
)

// A page that is looked at through the map of the file is mapped with fifteen around it,
// and all of them count as the memory of the process until they are unmapped. Where keys
// lie all over a large file, that takes ten times as long as the look does; reading the
// page does not. This is bbolt's format, version 2, with numbers as the machine has them:
//
//	page    its number uint64, flags uint16, count uint16, pages behind it uint32, elements, keys and values
//	branch  place uint32, length of the key uint32, number of a page uint64
//	leaf    flags uint32, place uint32, length of the key uint32, length of the value uint32
//
// The place of a key counts from the first byte of its element; the value follows.
const (
	pageHead    = 16
	pageElement = 16
	branchPage  = 0x01
	leafPage    = 0x02
	// deepest is how deep a tree may be: a damaged one could go round in circles.
	deepest = 32
	// widest is how many pages a page may be together with those behind it: the map would
	// have as many mapped. Longer ones have a single long value, as a rule.
	widest = 16
)

// pageReader reads the pages of a bbolt file. It knows the usual ones alone and leaves
// to bbolt whatever else it finds, as it does with damage.
type pageReader struct {
	file io.ReaderAt
	size int       // of a page
	room sync.Pool // of *[]byte: a page each
}

func newPageReader(file io.ReaderAt, size int) *pageReader {
	p := &pageReader{file: file, size: size}
	p.room.New = func() any {
		b := make([]byte, size)
		return &b
	}
	return p
}

// get copies the value of a key out of the tree below a page; nil where there is none.
// Without ok nobody knows, and bbolt is to be asked. The tree must be that of a
// transaction that has not ended: what it sees is not written over.
func (p *pageReader) get(id uint64, key []byte) (value []byte, ok bool) {
	room := p.room.Get().(*[]byte)
	defer p.room.Put(room)
	for range deepest {
		page := p.read(id, room)
		if page == nil {
			return nil, false
		}
		i, found, ok := page.search(key)
		switch {
		case !ok:
			return nil, false
		case page.flags() == leafPage && found:
			return page.value(i)
		case page.flags() == leafPage:
			return nil, true
		case !found && i > 0:
			i-- // the last that begins before the key
		}
		if i >= page.count() {
			return nil, false
		}
		id = page.child(i)
	}
	return nil, false
}

// read reads one page, and those behind it that belong to it; nil where it is not what
// is expected there.
func (p *pageReader) read(id uint64, room *[]byte) rawPage {
	for pages := 1; ; {
		if len(*room) < pages*p.size {
			*room = make([]byte, pages*p.size)
		}
		page := rawPage((*room)[:pages*p.size])
		if _, err := p.file.ReadAt(page, int64(id)*int64(p.size)); err != nil || !page.usual(id) {
			return nil
		}
		all := 1 + int(page.behind())
		if all <= pages {
			return page
		}
		if all > widest {
			return nil
		}
		pages = all
	}
}

// rawPage is a page as it lies in the file, with those behind it.
type rawPage []byte

func (p rawPage) flags() uint16  { return binary.NativeEndian.Uint16(p[8:]) }
func (p rawPage) count() int     { return int(binary.NativeEndian.Uint16(p[10:])) }
func (p rawPage) behind() uint32 { return binary.NativeEndian.Uint32(p[12:]) }

// usual tells whether it is a branch or a leaf, and the one that it should be.
func (p rawPage) usual(id uint64) bool {
	return binary.NativeEndian.Uint64(p) == id && (p.flags() == branchPage || p.flags() == leafPage)
}

func (p rawPage) element(i int) []byte { return p[pageHead+i*pageElement:] }

func (p rawPage) child(i int) uint64 { return binary.NativeEndian.Uint64(p.element(i)[8:]) }

// key is nil where it would not be within the page.
func (p rawPage) key(i int) []byte {
	e := p.element(i)
	pos, size := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
	if p.flags() == leafPage {
		pos, size = size, binary.NativeEndian.Uint32(e[8:])
	}
	return cutPage(e, uint64(pos), uint64(size))
}

// value copies that of a row; ok is false for a bucket, and where it would not be within
// the page.
func (p rawPage) value(i int) (value []byte, ok bool) {
	value = p.held(i)
	return bytes.Clone(value), value != nil && binary.NativeEndian.Uint32(p.element(i)) == 0
}

// held is what an element of a leaf holds, a value or a bucket; nil where it would not be
// within the page.
func (p rawPage) held(i int) []byte {
	e := p.element(i)
	at := uint64(binary.NativeEndian.Uint32(e[4:])) + uint64(binary.NativeEndian.Uint32(e[8:]))
	return cutPage(e, at, uint64(binary.NativeEndian.Uint32(e[12:])))
}

// cutPage is nil where it would not be within the page, of which e is the rest.
func cutPage(e []byte, at, size uint64) []byte {
	if at+size > uint64(len(e)) {
		return nil
	}
	return e[at : at+size]
}

// search finds the first element that is not before a key.
func (p rawPage) search(key []byte) (i int, found, ok bool) {
	if pageHead+p.count()*pageElement > len(p) {
		return 0, false, false
	}
	from, to := 0, p.count()
	for from < to {
		mid := int(uint(from+to) / 2)
		k := p.key(mid)
		if k == nil {
			return 0, false, false
		}
		switch c := bytes.Compare(k, key); {
		case c == 0:
			return mid, true, true
		case c < 0:
			from = mid + 1
		default:
			to = mid
		}
	}
	return from, false, true
}
