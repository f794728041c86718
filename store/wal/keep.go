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

// The transactions of a memtable are in their file of the WAL until the next memtable but one writes
// over them. With [Options.Keep] each file is kept longer under another name: as a copy that is made
// when its memtable is flushed, or renamed when the WAL ends. Opening never reads kept files;
// [DB.Past] does.

// keptSuffix and a number are added to the name of the bbolt file. The number is one more than that
// of the last kept file.
const keptSuffix = "-kept-"

// maxKept bounds the bytes of kept files. Beyond it the oldest is removed.
const maxKept = 1 << 30

// Kept lists the kept files beside a bbolt file, the oldest first.
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

// keptDigits is the number of hexadecimal digits.
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

// nextKept is the name of the next kept file.
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

// oldest is the time before which kept files are removed; everything says to remove all. See
// [Options.Keep].
func (db *DB) oldest() (until time.Time, everything bool) {
	if db.options.Keep == nil {
		return time.Time{}, true
	}
	until = db.options.Keep()
	return until, until.After(time.Now())
}

// keepFlushed copies the file of a flushed memtable before it is written over. The copy is durable
// when it returns. A failure is only reported.
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
	// O_EXCL, because a file that was replaced may end its last flush at this moment.
	to, err := db.options.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = to.ReadFrom(io.LimitReader(from, end))
	if err == nil && !db.raw.NoSync {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(name)) // a part would be read as the whole
	}
	// gofail: var foldKept struct{}
	db.pass("foldKept")
	if db.raw.NoSync {
		return nil
	}
	return syncDir(filepath.Dir(name))
}

// firstIn reads the number of the first transaction in a file of the WAL; zero: there is none.
func firstIn(path string) (seq uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b := make([]byte, headerSize+recordHeader+entryHeader)
	if _, err := f.ReadAt(b, 0); err != nil {
		return 0, err
	}
	id, _, err := cutHeader(b)
	if err != nil {
		return 0, err
	}
	r, _ := cutHead(b[headerSize:], id)
	return r.seq, nil
}

// discard keeps a file of a WAL that has ended, or removes it. It removes a file that it cannot keep,
// because commits wait for its name.
func (db *DB) discard(path string) error {
	_, nothing := db.oldest()
	if nothing {
		return os.Remove(path)
	}
	db.keeping.Lock()
	defer db.keeping.Unlock()
	if first, err := firstIn(path); errors.Is(err, fs.ErrNotExist) {
		return err
	} else if err != nil || first == 0 {
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

// discardWAL discards the files of the WAL in the order of their transactions, which is the order of
// the kept files.
func (db *DB) discardWAL() error {
	paths := []string{walPath(db.path, 0), walPath(db.path, 1)}
	first := func(path string) uint64 {
		seq, _ := firstIn(path) // an unreadable file is removed
		return seq
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

// dropKept removes kept files that are too old, and the oldest beyond the bound. The caller holds
// keeping.
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
			continue // removed by another process
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

// Past passes the transactions in the kept files and in the files of the WAL, in order. The rows
// are valid until fn returns. It skips damaged content, because nothing else needs kept files.
func (db *DB) Past(fn func(transaction uint64, v Values) error) error {
	db.pin(1)
	defer db.pin(-1)
	// Open the files of the WAL first, because a file is kept before it is overwritten.
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
	// A file that is not overwritten yet may have a kept copy, too, or half of one: a transaction counts
	// where it is found first. Numbers are compared within a WAL, because they began again in a file
	// that an older Edda compacted.
	last := map[walID]uint64{}
	pass := func(t walText) error {
		if t.after(last[t.id]); len(t.records) == 0 {
			return nil
		}
		last[t.id] = t.records[len(t.records)-1].seq
		return t.pass(fn)
	}
	for _, path := range paths {
		t, err := readWAL(path)
		if err != nil {
			continue
		}
		if err := pass(t); err != nil {
			return err
		}
	}
	for _, t := range ends {
		if err := pass(t); err != nil {
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
		rows, err := content(r.seq, r.entry, new([]byte))
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

// RemoveKept removes the kept files of a file.
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
