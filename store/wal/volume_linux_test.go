//go:build !race

package wal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestACrashAtAnyStep: of writing, flushing, creating a WAL, copying, closing and opening. The test
// copies the file as it is, and also without unsynced writes. Every acknowledged transaction is
// there, and the one in progress entirely or not at all.
func TestACrashAtAnyStep(t *testing.T) {
	t.Run("nothing is kept", func(t *testing.T) { crashAtAnyStep(t, byHand) })
	t.Run("all is kept", func(t *testing.T) {
		o := byHand
		o.Keep = func() time.Time { return time.Time{} }
		crashAtAnyStep(t, o)
	})
}

// TestATornLastRecordIsDropped: wherever the WAL is cut in the last two records, and whichever byte
// of the last one changes. All earlier records are there.
func TestATornLastRecordIsDropped(t *testing.T) {
	l, i := twoTables(t)
	slot := l.slot
	at, seqs := places(t, i, slot)
	name, n := walPath("", slot), len(seqs)
	data := i[name]
	for cut := at[n-2]; cut <= at[n]; cut++ {
		want := seqs[n-1] // what lies behind the cut is as it was before: nothing, or zeros
		for k := n; k > 0 && at[k] > cut; k-- {
			want = seqs[k-1] - 1
		}
		for what, cutOff := range map[string][]byte{"cut": data[:cut], "zeros": append(bytes.Clone(data[:cut]), make([]byte, len(data)-cut)...)} {
			got, err := l.opened(with(i, name, cutOff))
			// That the last byte of a record is zero anyway is no loss.
			if err != nil || got != want && (what == "cut" || got > seqs[n-1] || got < want) {
				t.Errorf("%s at %d: transaction %d, %v, want %d", what, cut, got, err, want)
			}
		}
	}
	for flip := at[n-1]; flip < at[n]; flip++ {
		damaged := bytes.Clone(data)
		damaged[flip] ^= 0x10
		if got, err := l.opened(with(i, name, damaged)); err != nil || got != seqs[n-1]-1 {
			t.Errorf("byte %d of the last record is another: transaction %d, %v, want %d", flip-at[n-1], got, err, seqs[n-1]-1)
		}
	}
}

// TestOpenAfterEveryStepOfAFlush copies the file after every commit, as a kill
// leaves it, and opens the copy.
func TestOpenAfterEveryStepOfAFlush(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	byHand := small
	byHand.byHand = true
	db, err := openFile(path, byHand, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	immutable, flushing, written := 0, 0, newBook()
	for i := range 200 {
		written.write(t, db, 1+i%2)
		if _, err := db.flushChunk(); err != nil {
			t.Fatal(err)
		}
		if s := db.version.Load(); s.immutable != nil {
			immutable++
			if db.flushing.after != nil {
				flushing++
			}
		}
		opens(t, path, filepath.Join(dir, "copy.db"), db.Memtables().Transactions)
	}
	if immutable < 20 || flushing < 20 {
		t.Errorf("%d times a table was frozen, %d times half folded", immutable, flushing)
	}
}

// TestDBIsASortedMap: random transactions, flushes, reopens and snapshots are compared with a map
// after each step.
func TestDBIsASortedMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(r, filepath.Join(t.TempDir(), "x.db"), modelOptions)
		defer m.close()
		r.Repeat(map[string]func(*rapid.T){
			"transaction": m.transaction, "another": m.transaction, "a third": m.transaction, "fold": m.flush, "failing": m.failing, "chunk": m.chunk, "another chunk": m.chunk, "snapshot": m.snapshot,
			"killed": m.killed,
			"reopen": m.reopen, "hold": m.hold, "": m.look,
		})
	})
}

// TestAnUnsureTransactionIsRewound: wherever the memtables and their flushes are, after a kill and after a
// close, the file loses it and nothing else, also for the next opening, and goes on with another one.
func TestAnUnsureTransactionIsRewound(t *testing.T) {
	alone, flushing := 0, 0
	for n := uint64(1); n <= 70; n++ {
		l := unsureAfter(t, n, byHand)
		before := l.db.Point()
		if s := l.db.version.Load(); s.immutable != nil {
			flushing++
		}
		killed := take(t, l.db.path)
		if err := l.db.Close(); err != nil {
			t.Fatal(err)
		}
		for how, i := range map[string]image{"killed": killed, "closed": take(t, l.db.path)} {
			what, path := fmt.Sprintf("transaction %d, %s", n, how), i.put(t)
			db := openStandby(t, path, byHand)
			if db.Point().Transaction != n {
				t.Fatalf("%s: it is not in the WAL: %v", what, db.Point())
			}
			if _, at, _ := lastRecord(t, db); at == headerSize {
				alone++
			}
			tx, err := db.Begin(false)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Rewind(before)
			at := tx.Point().Transaction
			if err := errors.Join(err, tx.Rollback()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if at != n {
				t.Errorf("%s: an open snapshot is at transaction %d", what, at)
			}
			checkAt(t, what, l, db, before)
			checkAt(t, what+", and then again", l, openStandby(t, take(t, path).put(t), byHand), before)
			owner, err := openFile(take(t, path).put(t), byHand, nil)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			checkAt(t, what+", as an owner", l, owner, before)
			other := newLedger(t, owner)
			other.now = l.past[before.Transaction]
			if err := errors.Join(other.write(), owner.CheckWAL(), owner.Close()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := read(t, openStandby(t, owner.path, byHand)); !maps.Equal(got, other.now) {
				t.Fatalf("%s: with another transaction it is\n%v, want\n%v", what, got, other.now)
			}
		}
	}
	if alone < 10 || flushing < 10 {
		t.Errorf("%d were alone, %d beside a flush", alone, flushing)
	}
}

// TestARecordErasedInPartIsTorn: after a crash of a rewind the file has the transaction or has it not.
func TestARecordErasedInPartIsTorn(t *testing.T) {
	l := unsureAfter(t, 40, byHand)
	before, unsure := l.db.Point(), take(t, l.db.path)
	db := openStandby(t, unsure.put(t), byHand)
	was := db.Point()
	path, at, size := lastRecord(t, db)
	end := path[len(db.path):]
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[uint64]int{}
	for range 400 {
		i := maps.Clone(unsure)
		i[end] = append([]byte(nil), i[end]...)
		from := rnd.Int64N(size)
		until := from + rnd.Int64N(size-from+1)
		if rnd.IntN(2) == 0 {
			from = 0
		}
		clear(i[end][at+from : at+until])
		for _, o := range []Options{{Standby: true, byHand: true, Spaces: byHand.Spaces}, byHand} {
			db, err := openFile(i.put(t), o, nil)
			if err != nil {
				t.Fatalf("without the bytes %d to %d of %d: %v", from, until, size, err)
			}
			want := before
			if db.Point() == was {
				want = was
			}
			seen[want.Transaction]++
			checkAt(t, "erased in part", l, db, want)
			if db.Cut() != nil {
				t.Errorf("it is taken for a file without its end: %+v", db.Cut())
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen[before.Transaction] < 300 || seen[was.Transaction] == 0 {
		t.Errorf("seen %v", seen)
	}
}

// TestAStandbyIsItsOwner: whatever is flushed, closed, killed or lost, on either side, the standby has
// the rows that the owner had after the same transaction.
func TestAStandbyIsItsOwner(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := &replicas{}
		owner, standby := modelOptions, modelOptions
		owner.Ship, standby.Standby = p.log.ship, true
		p.owner = newMachine(r, filepath.Join(t.TempDir(), "x.db"), owner)
		defer p.owner.close()
		p.standby = newMachine(r, filepath.Join(t.TempDir(), "x.db"), standby)
		defer p.standby.close()
		r.Repeat(map[string]func(*rapid.T){
			"transaction": p.owner.transaction, "another": p.owner.transaction, "fold": p.owner.flush, "chunk": p.owner.chunk, "snapshot": p.owner.snapshot,
			"killed": p.owner.killed, "reopen": p.owner.reopen,
			"apply": p.apply, "apply more": p.apply, "apply much": p.apply, "apply again": p.again, "apply an altered one": p.altered,
			"fold the standby": p.standby.flush, "chunk of the standby": p.standby.chunk, "another chunk of the standby": p.standby.chunk,
			"snapshot of the standby": p.standby.snapshot, "reopen the standby": p.standby.reopen, "kill the standby": p.standby.killed,
			"sync": func(*rapid.T) { p.standby.same("sync", p.standby.db.Sync(), nil) }, "power cut": p.powerCut,
			"bootstrap": p.bootstrap, "promote": p.promote, "": p.look,
		})
	})
}

// TestAStandbySurvivesACrashAtAnyStep: with any of the records that were not synced, and goes on to the end.
func TestAStandbySurvivesACrashAtAnyStep(t *testing.T) {
	l, log := writtenBefore(t, 70)
	rnd, path := rand.New(rand.NewPCG(7, 8)), filepath.Join(t.TempDir(), "x.db")
	o := byHand
	o.Standby = true
	opening := o
	seen := map[string]int{}
	var db *DB
	check := func(what string, i image, least, most uint64) {
		t.Helper()
		after, err := openFile(i.put(t), opening, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer after.Close()
		last := after.Point().Transaction
		if last < least || last > most {
			t.Fatalf("%s: the last transaction is %d, want %d to %d", what, last, least, most)
		}
		if got, want := read(t, after), l.past[last]; !maps.Equal(got, want) {
			t.Fatalf("%s: after transaction %d it is\n%v, want\n%v", what, last, got, want)
		}
		for ; last < uint64(len(log)); last++ {
			if err := after.Apply(last+1, log[last]); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if rnd.IntN(3) == 0 {
				if _, err := after.flushChunk(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		if got, want := read(t, after), l.past[last]; !maps.Equal(got, want) {
			t.Fatalf("%s: at the end it is\n%v, want\n%v", what, got, want)
		}
	}
	o.passed = func(point string) {
		if db == nil { // it is being opened
			return
		}
		seen[point]++
		what := fmt.Sprintf("%s, the %d. time", point, seen[point])
		durable, most := db.durable.Load(), db.Point().Transaction+1
		now := take(t, path)
		check(what, now, durable, most)
		lossy := now.put(t)
		if err := loseUnsynced(lossy, durable, func() bool { return rnd.IntN(2) == 0 }); err != nil && point != "logCreated" {
			t.Fatal(err)
		}
		check(what+", without some records", take(t, lossy), durable, most)
	}
	var err error
	if db, err = openFile(path, o, nil); err != nil {
		t.Fatal(err)
	}
	for i, entry := range log {
		if err := db.Apply(uint64(i+1), entry); err != nil {
			t.Fatal(err)
		}
		switch i % 9 {
		case 0, 3, 4:
			_, err = db.flushChunk()
		case 7:
			err = db.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, point := range []string{"logCreated", "logMade", "logBegun", "logWritten", "logSynced", "logTurned", "foldChunked", "foldDropping", "foldCommitted", "foldFinished", "logFolded", "logSettled"} {
		if seen[point] == 0 {
			t.Errorf("%s was not passed", point)
		}
	}
}
