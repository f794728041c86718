package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

// CheckPages checks the pages of the file, as bbolt's Check does but without its map, and calls fn
// with each error. Flushes wait meanwhile, because they change which pages are free. The caller must
// have no transaction open.
func (db *DB) CheckPages(fn func(error)) error {
	db.flushes.Lock()
	defer db.flushes.Unlock()
	return db.raw.View(func(*bolt.Tx) error {
		f := db.options.File
		if f == nil {
			var err error
			if f, err = os.Open(db.raw.Path()); err != nil {
				return err
			}
			defer f.Close()
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return checkPages(f, info.Size(), db.raw.Info().PageSize, fn)
	})
}

// CheckWAL reads the WAL and reports a record that is damaged or missing, and rows of no bucket.
// Commits wait meanwhile. The caller must have no transaction open.
func (db *DB) CheckWAL() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	return db.raw.View(func(raw *bolt.Tx) error {
		last, err := db.replay(raw, func(_ uint64, _, rows []byte) error {
			return eachRow(rows, func(space, _ []byte, _ kind, _, _ []byte) error {
				if isWALBucket(space) || raw.Bucket(space) == nil {
					return fmt.Errorf("%w %q", errNoBucket, space)
				}
				return nil
			})
		})
		if want := db.version.Load().active.last; err == nil && last != want {
			err = damaged("it ends with transaction %d and not with %d", last, want)
		}
		return err
	})
}

// The check reads the pages from the file and never through bbolt's map. A page number with a flipped
// bit may lead out of the map, which kills the process in a goroutine of bbolt's own check, or into a
// cycle. Here it is a finding.
//
//	page      its number uint64, flags uint16, count uint16, pages behind it uint32, elements, keys and values
//	branch    element: place uint32, length of the key uint32, number of a page uint64
//	leaf      element: flags uint32, place uint32, length of the key uint32, length of the value uint32
//	meta      page header, then magic uint32, version uint32, page size uint32, flags uint32,
//	          root uint64, sequence uint64, freelist uint64, pages uint64, transaction uint64,
//	          FNV-1a of all that uint64
//	freelist  page header, count of numbers; where that is 0xFFFF the first number is the count
//	bucket    value of a leaf element: root uint64, sequence uint64; where root is 0 a page follows
//
// Numbers have the byte order of the machine. The place of a key counts from the first byte of its
// element; the value follows.
const (
	pageHead     = 16
	pageElement  = 16
	branchPage   = 0x01
	leafPage     = 0x02
	metaFlag     = 0x04
	freelistFlag = 0x10
	bucketFlag   = 0x01
	metaMagic    = 0xED0CDAED
	metaSize     = 64
	bucketHead   = 16
	noFreelist   = math.MaxUint64
	manyFree     = math.MaxUint16
	// deepest bounds the depth of a tree, because a damaged one may be a cycle.
	deepest = 32
	// maxPageFindings ends the check of a badly damaged file.
	maxPageFindings = 100
)

var errManyPages = errors.New("and more pages are damaged")

// pageCheck checks all pages of a file. The file must not be written meanwhile.
type pageCheck struct {
	file  io.ReaderAt
	size  int    // of a page
	pages uint64 // number of pages
	// reached and free are indexed by page.
	reached, free []bool
	tell          func(error)
	told          int
}

// checkPages reports contradictions in the pages of a bbolt file. The error is about reading the
// file, or says that there were too many.
func checkPages(file io.ReaderAt, bytes int64, size int, tell func(error)) error {
	c := &pageCheck{file: file, size: size, tell: tell}
	m, err := c.meta()
	if err != nil {
		return err
	}
	if c.pages = m.pages; c.pages > uint64(bytes)/uint64(size) {
		if err := c.wrong("the file has %d pages, and ends after %d bytes", c.pages, bytes); err != nil {
			return err
		}
		c.pages = uint64(bytes) / uint64(size)
	}
	c.reached, c.free = make([]bool, c.pages), make([]bool, c.pages)
	for id := range min(2, c.pages) {
		c.reached[id] = true
	}
	if m.freelist != noFreelist {
		if err := c.freelist(m.freelist); err != nil {
			return err
		}
	}
	if err := c.walk(m.root, nil, nil, 0); err != nil || m.freelist == noFreelist {
		return err
	}
	for id, reached := range c.reached {
		if !reached && !c.free[id] {
			if err := c.wrong("page %d: unreachable unfreed", id); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrong reports a finding; its error ends the check.
func (c *pageCheck) wrong(format string, args ...any) error {
	if c.told++; c.told > maxPageFindings {
		return errManyPages
	}
	c.tell(fmt.Errorf(format, args...))
	return nil
}

type fileMeta struct{ root, freelist, pages, tx uint64 }

// meta returns the newer valid meta page.
func (c *pageCheck) meta() (last fileMeta, err error) {
	found := false
	for id := range 2 {
		b := make([]byte, pageHead+metaSize)
		if _, err := c.file.ReadAt(b, int64(id)*int64(c.size)); err != nil {
			return last, fmt.Errorf("read page %d: %w", id, err)
		}
		h := fnv.New64a()
		_, _ = h.Write(b[pageHead : pageHead+metaSize-8]) // never fails
		body := b[pageHead:]
		if binary.NativeEndian.Uint64(body[metaSize-8:]) != h.Sum64() || binary.NativeEndian.Uint32(body) != metaMagic {
			if err := c.wrong("page %d: the checksum of this meta page is wrong", id); err != nil {
				return last, err
			}
			continue
		}
		if rawPage(b).flags() != metaFlag {
			if err := c.wrong("page %d: invalid type: %x instead of a meta page", id, rawPage(b).flags()); err != nil {
				return last, err
			}
		}
		m := fileMeta{
			root: binary.NativeEndian.Uint64(body[16:]), freelist: binary.NativeEndian.Uint64(body[32:]),
			pages: binary.NativeEndian.Uint64(body[40:]), tx: binary.NativeEndian.Uint64(body[48:]),
		}
		if !found || m.tx > last.tx {
			last, found = m, true
		}
	}
	if !found {
		return last, errors.New("no meta page is whole")
	}
	return last, nil
}

// page reads a page with its overflow pages. It reports an invalid page and returns nil.
func (c *pageCheck) page(id uint64) (rawPage, error) {
	if id < 2 || id >= c.pages {
		return nil, c.wrong("page %d: out of bounds: %d", id, c.pages)
	}
	head := make(rawPage, pageHead)
	if _, err := c.file.ReadAt(head, int64(id)*int64(c.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	if got := binary.NativeEndian.Uint64(head); got != id {
		return nil, c.wrong("page %d: it says that it is page %d", id, got)
	}
	behind := uint64(head.behind())
	if id+behind >= c.pages {
		return nil, c.wrong("page %d: out of bounds: %d pages behind it, of %d", id, behind, c.pages)
	}
	p := make(rawPage, int(1+behind)*c.size)
	if _, err := c.file.ReadAt(p, int64(id)*int64(c.size)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	for i := id; i <= id+behind; i++ {
		if c.reached[i] {
			return nil, c.wrong("page %d: multiple references", i)
		}
	}
	for i := id; i <= id+behind; i++ {
		c.reached[i] = true
		if c.free[i] {
			return nil, c.wrong("page %d: reachable freed", i)
		}
	}
	return p, nil
}

func (c *pageCheck) freelist(id uint64) error {
	p, err := c.page(id)
	if p == nil {
		return err
	}
	if p.flags() != freelistFlag {
		return c.wrong("page %d: invalid type: %x instead of the freelist", id, p.flags())
	}
	ids, n := p[pageHead:], uint64(p.count())
	if n == manyFree {
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return c.wrong("page %d: the freelist has %d numbers, more than it holds", id, n)
	}
	for ; n > 0; n, ids = n-1, ids[8:] {
		free := binary.NativeEndian.Uint64(ids)
		switch {
		case free < 2 || free >= c.pages:
			err = c.wrong("page %d: out of bounds: %d, and free", free, c.pages)
		case c.free[free]:
			err = c.wrong("page %d: already freed", free)
		case c.reached[free]:
			err = c.wrong("page %d: reachable freed", free)
		default:
			c.free[free] = true
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walk checks the tree below a page. Its keys must be at least from and less than to.
func (c *pageCheck) walk(id uint64, from, to []byte, depth int) error {
	if depth > deepest {
		return c.wrong("page %d: it lies deeper than %d pages", id, deepest)
	}
	p, err := c.page(id)
	if p == nil {
		return err
	}
	switch {
	case p.flags() != branchPage && p.flags() != leafPage:
		return c.wrong("page %d: invalid type: %x", id, p.flags())
	case pageHead+p.count()*pageElement > len(p):
		return c.wrong("page %d: it has %d elements, more than it holds", id, p.count())
	case p.flags() == branchPage && p.count() == 0:
		return c.wrong("page %d: a branch without elements", id)
	}
	if ok, err := c.keys(id, p, from, to); !ok {
		return err
	}
	for i := range p.count() {
		if p.flags() == leafPage {
			err = c.row(id, p, i)
		} else {
			next := to
			if i+1 < p.count() {
				next = p.key(i + 1)
			}
			err = c.walk(p.child(i), p.key(i), next, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keys checks that the keys of a page are within the page and sorted.
func (c *pageCheck) keys(id uint64, p rawPage, from, to []byte) (ok bool, err error) {
	before := from
	for i := range p.count() {
		key := p.key(i)
		switch {
		case key == nil:
			return false, c.wrong("page %d: the key of element %d lies outside of it", id, i)
		case i == 0 && bytes.Compare(key, before) < 0, i > 0 && bytes.Compare(key, before) <= 0, to != nil && bytes.Compare(key, to) >= 0:
			return false, c.wrong("page %d: the key of element %d is not in order", id, i)
		}
		before = key
	}
	return true, nil
}

// row checks the value of a leaf element.
func (c *pageCheck) row(id uint64, p rawPage, i int) error {
	flags := binary.NativeEndian.Uint32(p.element(i))
	value := p.held(i)
	switch {
	case value == nil:
		return c.wrong("page %d: the value of element %d lies outside of it", id, i)
	case flags == 0:
		return nil
	case flags != bucketFlag:
		return c.wrong("page %d: element %d is of an unknown kind, %x", id, i, flags)
	case len(value) < bucketHead:
		return c.wrong("page %d: element %d is a bucket of %d bytes", id, i, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.walk(root, nil, nil, 0)
	}
	inline := rawPage(value[bucketHead:])
	if len(inline) < pageHead || inline.flags() != leafPage || pageHead+inline.count()*pageElement > len(inline) {
		return c.wrong("page %d: the bucket in element %d is no page", id, i)
	}
	if ok, err := c.keys(id, inline, nil, nil); !ok {
		return err
	}
	for j := range inline.count() {
		if inline.held(j) == nil || binary.NativeEndian.Uint32(inline.element(j)) != 0 {
			return c.wrong("page %d: in the bucket in element %d the value of element %d lies outside of it, or is no value", id, i, j)
		}
	}
	return nil
}

// rawPage is a page of the file with its overflow pages.
type rawPage []byte

func (p rawPage) flags() uint16  { return binary.NativeEndian.Uint16(p[8:]) }
func (p rawPage) count() int     { return int(binary.NativeEndian.Uint16(p[10:])) }
func (p rawPage) behind() uint32 { return binary.NativeEndian.Uint32(p[12:]) }

func (p rawPage) element(i int) []byte { return p[pageHead+i*pageElement:] }

func (p rawPage) child(i int) uint64 { return binary.NativeEndian.Uint64(p.element(i)[8:]) }

// key returns nil if the key would be outside the page.
func (p rawPage) key(i int) []byte {
	e := p.element(i)
	pos, size := binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:])
	if p.flags() == leafPage {
		pos, size = size, binary.NativeEndian.Uint32(e[8:])
	}
	return cutPage(e, uint64(pos), uint64(size))
}

// held returns the value or the bucket of a leaf element; nil if it would be outside the page.
func (p rawPage) held(i int) []byte {
	e := p.element(i)
	at := uint64(binary.NativeEndian.Uint32(e[4:])) + uint64(binary.NativeEndian.Uint32(e[8:]))
	return cutPage(e, at, uint64(binary.NativeEndian.Uint32(e[12:])))
}

// cutPage returns size bytes of e from at; nil if they end after the page. e is the page from an
// element on.
func cutPage(e []byte, at, size uint64) []byte {
	if at+size > uint64(len(e)) {
		return nil
	}
	return e[at : at+size]
}

// DamageError says that a file is not as bbolt wrote it: a page led out of the file, or to what is
// no page.
type DamageError struct {
	Path  string
	Found any    // the panic of bbolt
	Stack []byte // of the panic
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged (%v): restore a backup", e.Path, e.Found)
}

// Guard turns the panic of bbolt on a damaged page, or its fault beyond the end of the file, into a
// [DamageError]. Without it the fault ends the process. It does not close what fn has opened.
func Guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = &DamageError{Path: path, Found: v, Stack: debug.Stack()}
		}
	}()
	return fn()
}
