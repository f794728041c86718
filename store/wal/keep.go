package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a memtable wrote lies in its file of the WAL until the next memtable but one writes over
// it. Where [Options.Keep] says so, each file is kept for a while longer, under a name of
// its own: by a copy that is made when its memtable is flushed, or by its name where the WAL
// ends. Opening never reads what is kept; [DB.Past] does.

// keptSuffix and a number are added to the name of the bbolt file. The number is one more
// than that of the file that was kept before: transactions are counted anew in a compacted
// file.
const keptSuffix = "-kept-"

// maxKept bounds what is kept, in bytes. Beyond it the oldest goes, however young it is.
const maxKept = 1 << 30

// Kept lists the files that are kept beside a bbolt file, the oldest first. What ends with
// no number is somebody else's.
func Kept(path string) ([]string, error) {
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range all { // in the order of their names, which is that of their numbers
		if _, is := keptNumber(path, e.Name()); is {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return out, nil
}

// keptDigits are those of the number, in hexadecimal.
const keptDigits = 16

// keptNumber is the number in the name of a kept file.
func keptNumber(path, name string) (number uint64, is bool) {
	text, is := strings.CutPrefix(filepath.Base(name), filepath.Base(path)+keptSuffix)
	if !is || len(text) != keptDigits {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 16, 64)
	return number, err == nil
}

// nextKept is the name of the next file that is kept.
func nextKept(path string) (string, error) {
	all, err := Kept(path)
	if err != nil {
		return "", err
	}
	number := uint64(0)
	if n := len(all); n > 0 {
		number, _ = keptNumber(path, all[n-1])
	}
	return fmt.Sprintf("%s%s%0*x", path, keptSuffix, keptDigits, number+1), nil
}

// origin tells two files of WALs apart, of which one may be a copy of the other.
type origin struct {
	id    walID
	first uint64 // transaction; zero: there is none
}

// oldest is the time before which what was written last is not kept; everything: nothing
// is to be kept at all. See [Options.Keep].
func (db *DB) oldest() (until time.Time, everything bool) {
	if db.options.Keep == nil {
		return time.Time{}, true
	}
	until = db.options.Keep()
	return until, until.After(time.Now())
}

// keepFlushed copies the file of the memtable that was just flushed, before that is written over.
// The copy is durable when it returns. A failure keeps nothing from going on.
func (db *DB) keepFlushed(t *memtable) {
	if db.options.Keep == nil {
		return
	}
	db.keeping.Lock()
	defer db.keeping.Unlock()
	if _, nothing := db.oldest(); nothing || t.end == 0 {
		db.dropKept() // what was kept before
		return
	}
	if err := db.copyKept(walPath(db.path, t.slot), t.end); err != nil {
		db.options.Kept(fmt.Errorf("keep a file of the log: %w", err))
		return
	}
	db.dropKept()
}

func (db *DB) copyKept(path string, end int64) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it was only read
	name, err := nextKept(db.path)
	if err != nil {
		return err
	}
	// A file whose place another one took may end its last flush just now.
	to, err := db.options.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = to.ReadFrom(io.LimitReader(from, end))
	if err == nil && !db.raw.NoSync {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(name)) // half of it would be read as all
	}
	// gofail: var foldKept struct{}
	db.pass("foldKept")
	if db.raw.NoSync {
		return nil
	}
	return syncDir(filepath.Dir(name))
}

// originOf looks into a file of a WAL.
func originOf(path string) (o origin, err error) {
	f, err := os.Open(path)
	if err != nil {
		return o, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, headerSize+recordHeader+entryHeader)
	if _, err := f.ReadAt(b, 0); err != nil {
		return o, err
	}
	if o.id, _, err = cutHeader(b); err != nil {
		return o, err
	}
	r, _ := cutHead(b[headerSize:], o.id)
	o.first = r.seq
	return o, nil
}

// discard removes a file of a WAL that ended, or gives it the name of one that is kept.
// What cannot be kept is removed: commits wait for its place.
func (db *DB) discard(path string) error {
	_, nothing := db.oldest()
	if nothing {
		return os.Remove(path)
	}
	db.keeping.Lock()
	defer db.keeping.Unlock()
	if o, err := originOf(path); errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err != nil || o.first == 0 {
		return os.Remove(path)
	}
	name, err := nextKept(db.path)
	if err == nil {
		err = os.Rename(path, name)
	}
	if err != nil {
		db.options.Kept(fmt.Errorf("keep a file of the log: %w", err))
		return os.Remove(path)
	}
	db.dropKept()
	return nil
}

// discardWAL does so with both files of the WAL, where they are there, in the order of what
// is in them: that is the order of what is kept.
func (db *DB) discardWAL() error {
	paths := []string{walPath(db.path, 0), walPath(db.path, 1)}
	first := func(path string) uint64 {
		o, _ := originOf(path) // one that cannot be read is removed
		return o.first
	}
	if first(paths[0]) > first(paths[1]) {
		slices.Reverse(paths)
	}
	var all error
	for _, path := range paths {
		if err := db.discard(path); !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// dropKept removes what is too old, and the oldest where all is too much. Its caller
// holds the lock.
func (db *DB) dropKept() {
	if db.pinned > 0 {
		return
	}
	paths, err := Kept(db.path)
	if err != nil {
		db.options.Kept(fmt.Errorf("look for kept files of the log: %w", err))
		return
	}
	until, everything := db.oldest()
	room := int64(maxKept)
	if db.options.keptBytes > 0 {
		room = db.options.keptBytes
	}
	slices.Reverse(paths)
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue // somebody else removed it
		}
		room -= info.Size()
		if everything || !until.IsZero() && info.ModTime().Before(until) || room < 0 && i > 0 {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			db.options.Kept(fmt.Errorf("remove a kept file of the log: %w", err))
			return
		}
	}
	db.options.Kept(nil)
}

// Past passes the transactions that the files of the WAL still have, and those that are
// kept, in their order. What it gives is valid until fn returns. What is damaged is passed
// by: nothing else needs what is kept.
func (db *DB) Past(fn func(transaction uint64, v Values) error) error {
	db.pin(1)
	defer db.pin(-1)
	// The files of the WAL come first: what is written over later is kept before.
	var ends []walText
	for slot := range 2 {
		if t, err := readWAL(walPath(db.path, slot)); err == nil && len(t.records) > 0 {
			ends = append(ends, t)
		}
	}
	slices.SortFunc(ends, func(a, b walText) int { return cmp.Compare(a.records[0].seq, b.records[0].seq) })
	paths, err := Kept(db.path)
	if err != nil {
		return err
	}
	// One that is not written over yet may be there as a copy, too, or as half of one.
	whole := map[origin]string{}
	for _, path := range paths {
		if o, err := originOf(path); err == nil {
			whole[o] = path
		}
	}
	for _, e := range ends {
		delete(whole, origin{e.id, e.records[0].seq})
	}
	for _, path := range paths {
		if o, err := originOf(path); err != nil || whole[o] != path {
			continue
		}
		t, err := readWAL(path)
		if err != nil {
			continue
		}
		if err := t.pass(fn); err != nil {
			return err
		}
	}
	for i := range ends {
		if err := ends[i].pass(fn); err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) pin(n int) {
	db.keeping.Lock()
	defer db.keeping.Unlock()
	db.pinned += n
}

// Values passes the values that a transaction wrote into top-level buckets.
type Values func(visit func(space, key, value []byte) error) error

func (t *walText) pass(fn func(uint64, Values) error) error {
	for _, r := range t.records {
		rows, err := content(r.seq, r.entry)
		if err != nil {
			continue
		}
		if err := fn(r.seq, func(visit func(space, key, value []byte) error) error {
			return eachRow(rows, func(space, inner []byte, k kind, key, value []byte) error {
				if k != put || inner != nil {
					return nil
				}
				return visit(space, key, value)
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// RemoveKept removes what is kept beside a file.
func RemoveKept(path string) error {
	paths, err := Kept(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, path := range paths {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
