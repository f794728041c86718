package wal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// What the model is about: two spaces, of which one has buckets within.
const (
	flat   = "flat"
	nested = "nested"
)

var modelOptions = Options{Bound: 2 << 10, byHand: true, chunkLimit: chunkLimit{bytes: 100, rows: 2}, Spaces: map[string]Space{nested: {Nested: true, Fill: 0.95}}}

// content of one bucket: its rows, and the buckets within. A sorted map of paths
// to values is all that a store is: "space/key", or "space/inner/key", and
// "space/inner/" for a bucket.
type contents map[string]string

func (c contents) under(prefix string) (keys []string) {
	for k := range c {
		if rest, ok := strings.CutPrefix(k, prefix); ok && rest != "" && !strings.Contains(strings.TrimSuffix(rest, "/"), "/") {
			keys = append(keys, rest)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return strings.Compare(strings.TrimSuffix(a, "/"), strings.TrimSuffix(b, "/")) })
	return keys
}

// seen is a snapshot that is held over commits, and what it must show.
type seen struct {
	tx   *Tx
	want contents
}

// machine draws what happens to a file, and compares after each step.
type machine struct {
	t       *rapid.T
	options Options
	path    string
	db      *DB
	disk    disk
	want    contents
	past    map[uint64]contents // after each transaction
	held    []seen
	lives   int
}

func newMachine(t *rapid.T, path string, o Options) *machine {
	m := &machine{t: t, options: o, path: path, want: contents{}, past: map[uint64]contents{0: {}}}
	m.open()
	return m
}

func openFile(path string, o Options, file func(string, int, os.FileMode) (*os.File, error)) (*DB, error) {
	var first *os.File
	raw, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, InitialMmapSize: 1 << 22, OpenFile: func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		if file == nil {
			first, err = os.OpenFile(name, flag, mode)
		} else {
			first, err = file(name, flag, mode)
		}
		return first, err
	}})
	if err != nil {
		return nil, err
	}
	if err := raw.Update(func(tx *bolt.Tx) error {
		for _, space := range []string{flat, nested} {
			if _, err := tx.CreateBucketIfNotExists([]byte(space)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	o.OpenFile, o.File = file, first
	db, err := Load(raw, o)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return db, nil
}

func (m *machine) open() {
	db, err := openFile(m.path, m.options, m.disk.open)
	if err != nil {
		m.t.Fatal(err)
	}
	m.db = db
}

// disk has the files of a machine, which can be swapped for a device that fails every
// write, while they stay open.
type disk struct{ files, good []*os.File }

func (d *disk) open(name string, flag int, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Dup(int(f.Fd()))
	d.files, d.good = append(d.files, f), append(d.good, os.NewFile(uintptr(fd), name))
	return f, err
}

// open tells whether the i-th file is.
func (d *disk) isOpen(i int) bool { return d.files[i].Fd() != ^uintptr(0) }

// become puts a device into the place of all files, or heals them.
func (d *disk) become(f *os.File) (err error) {
	for i := range d.files {
		if with := f; d.isOpen(i) {
			if with == nil {
				with = d.good[i]
			}
			err = errors.Join(err, unix.Dup3(int(with.Fd()), int(d.files[i].Fd()), 0))
		}
	}
	return err
}

func (d *disk) close() (err error) {
	for _, f := range d.good {
		err = errors.Join(err, f.Close())
	}
	d.files, d.good = nil, nil
	return err
}

func (m *machine) close() { m.end((*DB).Close) }

func (m *machine) leave() { m.end((*DB).Leave) }

func (m *machine) end(by func(*DB) error) {
	for _, s := range m.held {
		_ = s.tx.Rollback()
	}
	m.held = nil
	if err := errors.Join(by(m.db), m.disk.close()); err != nil {
		m.t.Fatal(err)
	}
}

var (
	modelKeys  = []string{"a", "ab", "b", "c", "d\x00", "e", "f"}
	modelInner = []string{"0001", "0002", "a"} // one that a row may have, too
)

// bucket draws one that is there.
func (m *machine) bucket(tx *Tx, want contents) (*Bucket, string) {
	space := rapid.SampledFrom([]string{flat, nested}).Draw(m.t, "space")
	b, prefix := tx.Bucket([]byte(space)), space+"/"
	if space == nested {
		inner := rapid.SampledFrom(append([]string{""}, modelInner...)).Draw(m.t, "inner")
		if _, there := want[prefix+inner+"/"]; there {
			return b.Bucket([]byte(inner)), prefix + inner + "/"
		}
	}
	return b, prefix
}

// act changes the transaction and the model alike, and compares what each said.
func (m *machine) act(tx *Tx, want contents) {
	b, at := m.bucket(tx, want)
	if b == nil {
		m.t.Fatalf("there is no %s", at)
	}
	key := rapid.SampledFrom(append(modelKeys, modelInner...)).Draw(m.t, "key")
	top := at == nested+"/"
	_, isBucket := want[at+key+"/"]
	value, isRow := want[at+key]
	switch rapid.IntRange(0, 9).Draw(m.t, "act") {
	default:
		value := strings.Repeat(fmt.Sprint(tx.seq), rapid.IntRange(0, 40).Draw(m.t, "size"))
		m.same("put", b.Put([]byte(key), []byte(value)) != nil, isBucket)
		if !isBucket {
			want[at+key] = value
		}
	case 0, 1, 2:
		m.same("delete", b.Delete([]byte(key)) != nil, isBucket)
		if !isBucket {
			delete(want, at+key)
		}
	case 3:
		got := b.Get([]byte(key))
		m.same("get", got != nil, isRow)
		m.same("value", string(got), value)
	case 4:
		_, err := b.CreateBucket([]byte(key))
		m.same("create a bucket", err == nil, top && !isBucket && !isRow)
		if err == nil {
			want[at+key+"/"] = ""
		}
	case 5:
		m.same("delete a bucket", b.DeleteBucket([]byte(key)) == nil, isBucket)
		if isBucket {
			for k := range want {
				if strings.HasPrefix(k, at+key+"/") {
					delete(want, k)
				}
			}
		}
	}
}

func (m *machine) same(what string, got, want any) {
	m.t.Helper()
	if got != want {
		m.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

// transaction commits, or gives up, some acts.
func (m *machine) transaction(*rapid.T) {
	tx, err := m.db.Begin(true)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // where the comparison failed
	want := maps.Clone(m.want)
	for range rapid.IntRange(0, 6).Draw(m.t, "acts") {
		if rapid.IntRange(0, 3).Draw(m.t, "beside") == 0 {
			m.chunk(nil)
		}
		m.act(tx, want)
	}
	m.compare(tx, want)
	if rapid.IntRange(0, 5).Draw(m.t, "commit") == 0 {
		m.same("rollback", tx.Rollback(), nil)
		return
	}
	m.same("commit", tx.Commit(), nil)
	m.want = want
	m.past[m.db.Point().Transaction] = want
}

// failing commits to a full disk: nothing changes, and what comes next finds the
// file, the WAL and the flush where they were.
func (m *machine) failing(*rapid.T) {
	tx, err := m.db.Begin(true)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	m.act(tx, maps.Clone(m.want))
	nothing := len(tx.wrotes) == 0
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	defer full.Close()
	m.same("a full disk", m.disk.become(full), nil)
	m.same("commits", tx.Commit() == nil, nothing)
	_, flushes := m.db.flushChunk()
	m.same("folds", flushes == nil, m.db.version.Load().immutable == nil)
	m.same("a good disk", m.disk.become(nil), nil)
}

// chunk flushes a little, as the goroutine that the machine does not have would.
func (m *machine) chunk(*rapid.T) {
	_, err := m.db.flushChunk()
	m.same("fold a chunk", err, nil)
}

func (m *machine) snapshot(*rapid.T) {
	tx, err := m.db.Snapshot()
	m.same("snapshot", err, nil)
	m.compare(tx, m.want)
	m.same("rollback", tx.Rollback(), nil)
}

func (m *machine) flush(*rapid.T) { m.same("fold", m.db.Flush(), nil) }

func (m *machine) reopen(*rapid.T) {
	m.close()
	m.open()
}

// killed goes on with what a kill leaves: a copy of the files as they are.
func (m *machine) killed(*rapid.T) {
	to := filepath.Join(filepath.Dir(m.path), fmt.Sprint(m.lives), "x.db")
	m.lives++
	m.same("copy", copyAll(m.path, to), nil)
	m.close()
	m.path = to
	m.open()
}

// copyAll copies a file and its WAL, as they lie.
func copyAll(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := RemoveWAL(to); err != nil {
		return err
	}
	copyOne := func(from, to string) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o600)
	}
	return errors.Join(copyOne(from, to), EachWAL(from, to, copyOne))
}

func (m *machine) hold(*rapid.T) {
	if len(m.held) > 3 {
		m.same("end a snapshot", m.held[0].tx.Rollback(), nil)
		m.held = m.held[1:]
	}
	tx, err := m.db.Begin(false)
	if err != nil {
		m.t.Fatal(err)
	}
	m.held = append(m.held, seen{tx, m.want})
}

// look compares everything, after every step.
func (m *machine) look(*rapid.T) {
	if err := m.db.View(func(tx *Tx) error {
		m.compare(tx, m.want)
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	m.same("the log", m.db.CheckWAL(), nil)
	m.same("the pages", m.db.CheckPages(func(err error) { m.t.Fatal(err) }), nil)
	for _, s := range m.held {
		m.compare(s.tx, s.want)
	}
}

func (m *machine) compare(tx *Tx, want contents) {
	m.t.Helper()
	var spaces []string
	if err := tx.ForEach(func(name []byte, b *Bucket) error {
		spaces = append(spaces, string(name))
		m.compareBucket(b, string(name)+"/", want)
		return nil
	}); err != nil {
		m.t.Fatal(err)
	}
	m.same("spaces", fmt.Sprint(spaces), fmt.Sprint([]string{flat, nested}))
}

func (m *machine) compareBucket(b *Bucket, at string, want contents) {
	m.t.Helper()
	keys := want.under(at)
	m.walk(b, at, keys, want)
	for _, k := range append(append([]string{}, modelKeys...), modelInner...) {
		_, isRow := want[at+k]
		m.same("get "+at+k, b.Get([]byte(k)) != nil, isRow)
		m.same("value "+at+k, string(b.Get([]byte(k))), want[at+k])
		_, isBucket := want[at+k+"/"]
		inner := b.Bucket([]byte(k))
		m.same("bucket "+at+k, inner != nil, isBucket)
		if inner != nil {
			m.compareBucket(inner, at+k+"/", want)
		}
	}
}

// walk moves a cursor at random, beside an index into the keys.
func (m *machine) walk(b *Bucket, at string, keys []string, want contents) {
	m.t.Helper()
	c := b.Cursor()
	n := 0
	for k, v := c.First(); k != nil; k, v = c.Next() {
		m.step(at, keys, n, k, v, want)
		n++
	}
	m.same("rows of "+at, n, len(keys))
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		n--
		m.step(at, keys, n, k, v, want)
	}
	m.same("rows of "+at+" backwards", n, 0)
	if len(keys) == 0 {
		return
	}
	key := rapid.SampledFrom(append(append([]string{"", "bb", "z"}, modelKeys...), modelInner...)).Draw(m.t, "seek")
	k, v := c.Seek([]byte(key))
	n, _ = slices.BinarySearchFunc(keys, key, func(a, b string) int { return strings.Compare(strings.TrimSuffix(a, "/"), b) })
	m.step(at, keys, n, k, v, want)
	for range 6 {
		if k == nil {
			return
		}
		if rapid.Bool().Draw(m.t, "forward") {
			k, v = c.Next()
			n++
		} else {
			k, v = c.Prev()
			n--
		}
		m.step(at, keys, n, k, v, want)
	}
}

func (m *machine) step(at string, keys []string, n int, k, v []byte, want contents) {
	m.t.Helper()
	if n < 0 || n >= len(keys) {
		m.same("behind the end of "+at, string(k), "")
		return
	}
	m.same("key in "+at, string(k), strings.TrimSuffix(keys[n], "/"))
	m.same("a bucket", v == nil, strings.HasSuffix(keys[n], "/"))
	m.same("value of "+at+keys[n], string(v), want[at+keys[n]])
}
