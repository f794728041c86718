package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ledger is what the file must hold after each transaction, by its number.
type ledger struct {
	t    *testing.T
	rnd  *rand.Rand
	db   *DB
	now  contents
	past map[uint64]contents
	slot int // of the file of the WAL that was written last
}

func newLedger(t *testing.T, db *DB) *ledger {
	return &ledger{t: t, rnd: rand.New(rand.NewPCG(3, 4)), db: db, now: contents{}, past: map[uint64]contents{0: {}}}
}

// write commits a transaction of some rows, of which some are in a bucket within that is
// dropped and made again now and then.
func (l *ledger) write() error {
	next := maps.Clone(l.now)
	tx, err := l.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	b, n := tx.Bucket([]byte(nested)), tx.seq
	if _, there := next["nested/0001/"]; there && l.rnd.IntN(6) == 0 {
		err = b.DeleteBucket([]byte("0001"))
		maps.DeleteFunc(next, func(k, _ string) bool { return strings.HasPrefix(k, "nested/0001/") })
	} else if !there {
		_, err = b.CreateBucket([]byte("0001"))
		next["nested/0001/"] = ""
	}
	if err != nil {
		return err
	}
	for range 3 {
		k, v := fmt.Sprintf("k%02d", l.rnd.IntN(12)), strings.Repeat(fmt.Sprint(n), 1+l.rnd.IntN(12))
		at, in := "flat/", tx.Bucket([]byte(flat))
		if inner := b.Bucket([]byte("0001")); inner != nil && l.rnd.IntN(2) == 0 {
			at, in = "nested/0001/", inner
		}
		if next[at+k] = v; l.rnd.IntN(4) == 0 {
			delete(next, at+k)
			err = errors.Join(err, in.Delete([]byte(k)))
			continue
		}
		err = errors.Join(err, in.Put([]byte(k), []byte(v)))
	}
	l.past[n] = next
	if err := errors.Join(err, tx.Commit()); err != nil {
		return err
	}
	l.now = next
	return nil
}

// read is all that a file holds.
func read(t *testing.T, db *DB) contents {
	t.Helper()
	out := contents{}
	if err := db.View(func(tx *Tx) error {
		return tx.ForEach(func(space []byte, b *Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				at := string(space) + "/" + string(k)
				if v != nil {
					out[at] = string(v)
					return nil
				}
				out[at+"/"] = ""
				return b.Bucket(k).ForEach(func(k, v []byte) error {
					out[at+"/"+string(k)] = string(v)
					return nil
				})
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

var byHand = Options{Bound: 2 << 10, byHand: true, chunkLimit: chunkLimit{bytes: 300, rows: 3}, Spaces: map[string]Space{nested: {Nested: true}}}

// image is a file and its WAL, by the ends of their names.
type image map[string][]byte

func take(t *testing.T, path string) image {
	t.Helper()
	i := image{}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		i[strings.TrimPrefix(f, path)] = data
	}
	return i
}

// put lays it into a folder of its own.
func (i image) put(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.db")
	for end, data := range i {
		if err := os.WriteFile(path+end, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func crashAtAnyStep(t *testing.T, o Options) {
	path := filepath.Join(t.TempDir(), "x.db")
	var l *ledger
	seen := map[string]int{}
	answered := func() uint64 {
		if s := l.db.version.Load(); s != nil {
			return s.active.last
		}
		return 0
	}
	var synced image
	opening := o // without what is called at each step
	checked := 0
	o.passed = func(point string) {
		if l.db == nil { // it is being opened
			return
		}
		seen[point]++
		now := take(t, path)
		images := map[string]image{"all": now}
		most := answered()
		switch point {
		case "logWritten":
			most++
			torn := maps.Clone(now)
			slot := walPath("", l.db.wal.slot)
			torn[slot] = now[slot][:int(l.db.wal.end)+l.rnd.IntN(40)]
			images["without what was not synced"], images["torn"] = synced, torn
		case "logSynced": // before readers see it
			most++
			synced = now
		default:
			synced = now
		}
		for what, i := range images {
			least := answered()
			if point == "logSynced" {
				least++
			}
			l.survives(fmt.Sprintf("%s, the %d. time, %s", point, seen[point], what), opening, i, least, most)
			checked++
		}
	}
	l = newLedger(t, nil)
	for range 3 {
		db, err := openFile(path, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.db = db
		for i := range 45 {
			if err := l.write(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				if _, err := db.flushChunk(); err != nil {
					t.Fatal(err)
				}
			}
			if i == 25 {
				tx, err := db.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				_ = tx.Rollback() // it only read
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, point := range []string{"logCreated", "logMade", "logBegun", "logWritten", "logSynced", "logTurned", "foldChunked", "foldDropping", "foldCommitted", "foldFinished", "logFolded", "logSettled"} {
		if seen[point] < 3 {
			t.Errorf("%s was passed %d times", point, seen[point])
		}
	}
	if kept := seen["foldKept"]; o.Keep != nil && kept < 3 {
		t.Errorf("a file was kept %d times", kept)
	}
	t.Logf("%d images, %v", checked, seen)
}

// survives opens what a crash left, twice, with a transaction and another crash between.
func (l *ledger) survives(what string, o Options, i image, least, most uint64) {
	l.t.Helper()
	path := i.put(l.t)
	for range 2 {
		db, err := openFile(path, o, nil)
		if err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		last := db.Memtables().Transactions
		if last < least || last > most {
			l.t.Fatalf("%s: the last transaction is %d, want %d to %d", what, last, least, most)
		}
		if got, want := read(l.t, db), l.past[last]; !maps.Equal(got, want) {
			l.t.Fatalf("%s: after transaction %d it is\n%v, want\n%v", what, last, got, want)
		}
		if err := db.CheckWAL(); err != nil {
			l.t.Fatalf("%s: %v", what, err)
		}
		l.kept(what, o, db, last)
		other := &ledger{t: l.t, rnd: rand.New(rand.NewPCG(last, 5)), db: db, now: maps.Clone(l.past[last]), past: map[uint64]contents{}}
		for range 3 {
			if err := other.write(); err != nil {
				l.t.Fatalf("%s: %v", what, err)
			}
		}
		again := take(l.t, path).put(l.t)
		third, err := openFile(again, o, nil)
		if err != nil {
			l.t.Fatalf("%s: after another crash: %v", what, err)
		}
		if got := read(l.t, third); !maps.Equal(got, other.now) {
			l.t.Fatalf("%s: after another crash it is\n%v, want\n%v", what, got, other.now)
		}
		l.kept(what+", after another crash", o, third, last+3)
		if err := errors.Join(third.Close(), db.Close()); err != nil {
			l.t.Fatal(err)
		}
		l.kept(what+", closed", o, third, last+3)
		path = i.put(l.t) // as it was, and then with every row in its place
		if o.Bound = 1; l.rnd.IntN(8) > 0 {
			return
		}
	}
}

// kept wants every transaction to be found in the WAL, or in what is kept of it.
func (l *ledger) kept(what string, o Options, db *DB, last uint64) {
	l.t.Helper()
	if o.Keep == nil {
		return
	}
	found := map[uint64]int{}
	if err := db.Past(func(n uint64, v Values) error {
		found[n]++
		return v(func(_, _, _ []byte) error { return nil })
	}); err != nil {
		l.t.Fatalf("%s: %v", what, err)
	}
	for n := uint64(1); n <= last; n++ {
		if found[n] != 1 {
			l.t.Fatalf("%s: transaction %d of %d is found %d times", what, n, last, found[n])
		}
	}
}

// twoTables is a store with transactions in both files. The older file was written before.
func twoTables(t *testing.T) (*ledger, image) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openFile(path, byHand, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := newLedger(t, db)
	for s := db.version.Load(); s.rotations < 3 || s.active.last-immutableLast(s) < 4; s = db.version.Load() {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
		for more := s.rotations < 2; more; {
			if more, err = db.flushChunk(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.slot = db.wal.slot
	return l, take(t, path)
}

func immutableLast(s *version) uint64 {
	if s.immutable == nil {
		return s.active.last
	}
	return s.immutable.last
}

// places are where the records of a file of the WAL begin, and where the last ends.
func places(t *testing.T, i image, slot int) (at []int, seqs []uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, i[walPath("", slot)], 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := readWAL(path)
	if err != nil || len(text.records) < 4 {
		t.Fatalf("%d records, %v", len(text.records), err)
	}
	end := headerSize
	for _, r := range text.records {
		at, seqs = append(at, end), append(seqs, r.seq)
		end += recordHeader + len(r.entry)
	}
	return append(at, end), seqs
}

// opened is the last transaction of what an image opens as, or why it does not.
func (l *ledger) opened(i image) (last uint64, err error) {
	l.t.Helper()
	db, err := openFile(i.put(l.t), byHand, nil)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	last = db.Memtables().Transactions
	if got := read(l.t, db); !maps.Equal(got, l.past[last]) {
		l.t.Errorf("after transaction %d it is\n%v, want\n%v", last, got, l.past[last])
	}
	return last, nil
}

func with(i image, end string, data []byte) image {
	c := maps.Clone(i)
	c[end] = data
	return c
}

// TestDamageBeforeTheLastRecordIsReported: for any byte, because later records were acknowledged.
func TestDamageBeforeTheLastRecordIsReported(t *testing.T) {
	l, i := twoTables(t)
	for slot := range 2 {
		at, seqs := places(t, i, slot)
		name, until := walPath("", slot), len(seqs)
		if slot == l.slot {
			until-- // the last
		}
		for flip := 0; flip < at[until]; flip += 3 {
			if flip >= headerUsed+4 && flip < headerSize {
				continue // nothing is there
			}
			damaged := bytes.Clone(i[name])
			damaged[flip] ^= 0x10
			if got, err := l.opened(with(i, name, damaged)); err == nil || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("byte %d of file %d: it opens with transaction %d, %v", flip, slot, got, err)
			}
		}
		if slot != l.slot {
			for cut := 0; cut < at[until]; cut += 7 {
				if got, err := l.opened(with(i, name, i[name][:cut])); err == nil {
					t.Errorf("the older file ends at %d: it opens with transaction %d", cut, got)
				}
			}
		}
	}
}

// TestAWALOfAnotherFileIsRefused: also one of an earlier time, or none. The error says what to do.
func TestAWALOfAnotherFileIsRefused(t *testing.T) {
	l, i := twoTables(t)
	_, other := twoTables(t)
	newest := l.slot
	without := func(ends ...string) image {
		c := maps.Clone(i)
		for _, end := range ends {
			delete(c, end)
		}
		return c
	}
	older := func() image {
		path := filepath.Join(t.TempDir(), "x.db")
		db, err := openFile(path, byHand, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l := newLedger(t, db)
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
		before := take(t, path)
		for db.version.Load().rotations < 4 {
			if err := errors.Join(l.write(), db.Flush()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.write(); err != nil {
					t.Fatal(err)
				}
			}
		}
		now := take(t, path)
		now[""] = before[""]
		return now
	}
	for what, test := range map[string]struct {
		i    image
		want string
	}{
		"no log":            {without("-log-0", "-log-1"), "-log-0 is missing, which has the last transactions: put it where it was, beside the file, or restore a backup"},
		"half a log":        {without("-log-1"), "-log-1 is missing"},
		"another's log":     {image{"": i[""], "-log-0": other["-log-0"], "-log-1": other["-log-1"]}, "-log-0 is the log of another file: put the one back that was beside this one, or restore a backup"},
		"half another's":    {with(i, walPath("", newest), other[walPath("", newest)]), "is the log of another file"},
		"no header":         {with(i, "-log-1", make([]byte, 4096)), "-log-1: its header is not that of a log: restore a backup"},
		"nothing in a file": {with(i, "-log-0", nil), "-log-0: its header is not that of a log: restore a backup"},
		"exchanged":         {image{"": i[""], "-log-0": i["-log-1"], "-log-1": i["-log-0"]}, "-log-1 was: give each of the two its name again, or restore a backup"},
		"one twice":         {with(i, "-log-1", i["-log-0"]), "-log-0 was: give each of the two its name again, or restore a backup"},
		"the other twice":   {with(i, "-log-0", i["-log-1"]), "-log-1 was: give each of the two its name again, or restore a backup"},
		"an older file":     {older(), "an older copy of the file lies in its place; put the newest one back, or restore a backup"},
	} {
		if last, err := l.opened(test.i); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: it opens with transaction %d, %v, want %s", what, last, err, test.want)
		}
	}
}

// TestTheWALOfAnotherFileIsNotRemoved: beside a file that needs none. Its own is removed.
func TestTheWALOfAnotherFileIsNotRemoved(t *testing.T) {
	_, crashed := twoTables(t)
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openFile(path, byHand, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(t, db)
	if err := l.write(); err != nil {
		t.Fatal(err)
	}
	own := take(t, path)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	stopped := take(t, path)
	if len(stopped) != 1 {
		t.Errorf("%d files are left of a store that was stopped", len(stopped))
	}
	mixed := func(wal image) image { return image{"": stopped[""], "-log-0": wal["-log-0"], "-log-1": wal["-log-1"]} }

	path = mixed(own).put(t) // as where it was killed before they were removed
	if db, err = openFile(path, byHand, nil); err != nil {
		t.Fatal(err)
	}
	if got := take(t, path); len(got) != 1 || !maps.Equal(read(t, db), l.now) {
		t.Errorf("its own log is left: %d files", len(got))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	path = mixed(crashed).put(t)
	before := take(t, path)
	_, err = openFile(path, byHand, nil)
	if want := "is the log of another file, and has transactions that are nowhere else: move it away with the file that it belongs to, or put that back"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if got := take(t, path); !bytes.Equal(got["-log-0"], before["-log-0"]) || !bytes.Equal(got["-log-1"], before["-log-1"]) {
		t.Error("it was changed")
	}
}

// TestAReusedWALFileHidesOldRecords: records of an earlier memtable are never taken for new ones,
// wherever these end.
func TestAReusedWALFileHidesOldRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	often := byHand
	often.Bound = 400
	db, err := openFile(path, often, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := newLedger(t, db)
	for i := range 60 {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
		for more := true; more; {
			if more, err = db.flushChunk(); err != nil {
				t.Fatal(err)
			}
		}
		last, err := l.opened(take(t, path))
		if err != nil || last != uint64(i+1) {
			t.Fatalf("transaction %d, %v, want %d", last, err, i+1)
		}
	}
	if db.version.Load().rotations < 4 {
		t.Errorf("only %d tables were frozen", db.version.Load().rotations)
	}
}

// TestCloseIsBoundedAndLeavesTheWAL: and loses nothing.
func TestCloseIsBoundedAndLeavesTheWAL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openFile(path, byHand, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := newLedger(t, db)
	for range 20 {
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.settle(time.Now().Add(-1)); !errors.Is(err, errLate) || db.wal == nil {
		t.Errorf("%v", err)
	}
	if last, err := l.opened(take(t, path)); err != nil || last != 20 {
		t.Errorf("transaction %d, %v", last, err)
	}
}

// FuzzAWAL reads what anybody may have put into the files: transactions, or an error.
func FuzzAWAL(f *testing.F) {
	id := walID{1}
	var e encoder
	framed, err := e.encode(1, []written{{&Bucket{space: []byte(flat)}, newRow(put, []byte("k"), []byte("v"), 1)}})
	if err != nil {
		f.Fatal(err)
	}
	frame(framed, id, 1, 7)
	whole := append(header(id, 0), framed...)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(header(id, 0))
	f.Add(binary.BigEndian.AppendUint32(header(id, 0), 1<<31))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		text, err := readWAL(path)
		if err != nil {
			return
		}
		text.beyond(1)
		for i, r := range text.records {
			if i > 0 && r.seq != text.records[i-1].seq+1 {
				t.Errorf("%d follows %d", r.seq, text.records[i-1].seq)
			}
		}
	})
}
