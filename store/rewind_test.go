package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/store/wal"
)

var errAway = errors.New("nobody answers")

// notShipped commits once more while nobody acknowledges, and returns the point before.
func notShipped(t *testing.T, db *opened, log *shipped) wal.Point {
	t.Helper()
	before := db.Point()
	log.fail(errAway)
	tr := step(key("1"), 2)
	tr.Work = []edda.Work{{ID: "unsure", Kind: edda.WorkFact, From: tr.Key, Name: "Paid", Time: noon}}
	if err := db.Commit(context.Background(), Change{Transitions: []edda.Transition{tr}}); !errors.Is(err, errAway) {
		t.Fatal(err)
	}
	log.fail(nil)
	return before
}

// TestAnUnshippedCommitIsRewound: after a close and after a kill, beside a flush and after a compaction.
func TestAnUnshippedCommitIsRewound(t *testing.T) {
	keep := func() time.Time { return time.Unix(1, 0) }
	for what, prepare := range map[string]func(db *opened){
		"nothing": func(*opened) {},
		"flushes": func(db *opened) {
			for i := 0; !db.Written().Folding; i++ {
				db.commit(t, batch(i, 4))
			}
		},
		"a compaction": func(db *opened) { must(db.Compact(context.Background(), nil)) },
	} {
		log, dir := &shipped{}, t.TempDir()
		o := Options{Ship: log.ship, KeepSent: keep, flushAt: 8 << 10}
		db := open(t, dir, o)
		db.begun(t, key("1"), 1)
		prepare(db)
		before := notShipped(t, db, log)
		_, want, err := db.Hash(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		killed := copied(t, dir)
		db.stop()
		for how, dir := range map[string]string{"killed": killed, "closed": dir} {
			r := openReplica(t, dir, Options{KeepSent: keep})
			same(t, what+", "+how+": the last transaction", r.LSN(), before.Transaction+1)
			if err := r.Close(); err != nil { // it flushes nothing
				t.Fatal(err)
			}
			r = openReplica(t, dir, Options{KeepSent: keep})
			if err := r.Rewind(before); err != nil {
				t.Fatalf("%s, %s: %v", what, how, err)
			}
			at, is, err := r.Hash(context.Background())
			if err != nil || at != before || is != want {
				t.Errorf("%s, %s: at %+v, want %+v, the rows are the same: %t, %v", what, how, at, before, is == want, err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			again := open(t, dir, o)
			again.check(t)
			same(t, what+", "+how+": revision", again.cell(t, key("1")).Instance.Revision, uint64(1))
			if err := again.Sent(time.Unix(1, 0), func(row Row) error {
				if row.Work.ID == "unsure" {
					t.Errorf("%s, %s: it was sent", what, how)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			again.commit(t, Change{})
			again.stop()
			log.entries = nil // the next goes on from here, too
		}
	}
}

// TestAnUnshippedCommitIsRewoundAfterADoctor: the command on a stopped store, which writes nothing.
func TestAnUnshippedCommitIsRewoundAfterADoctor(t *testing.T) {
	_, secret := keysetFile(t)
	for what, seal := range map[string]AEAD{"plain": nil, "encrypted": secret} {
		log, dir := &shipped{}, t.TempDir()
		db := open(t, dir, Options{Ship: log.ship, Seal: seal})
		db.begun(t, key("1"), 1)
		before := notShipped(t, db, log)
		db.stop()
		d, _, err := OpenToCheck(dir, Options{Seal: seal, initialMap: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := d.Doctor(context.Background(), nil)
		if len(h.Findings) > 0 {
			t.Errorf("%s: %v", what, h.Findings)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		r := openReplica(t, dir, Options{})
		if err := r.Rewind(before); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAMarkedStoreIsReplicated until another is restored in its place, or the mark is taken away.
func TestAMarkedStoreIsReplicated(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, Change{})
	file := save(t, backup(t, db))
	db.stop()
	for _, unmark := range []func(){
		func() { must(Restore(context.Background(), file, dir, true, nil, nil)) },
		func() {
			if err := UnmarkReplicated(dir); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if err := Replicated(dir); err != nil {
			t.Errorf("a store that nobody has marked: %v", err)
		}
		for _, of := range []string{"one", "another"} {
			if err := MarkReplicated(dir, []byte(of)); err != nil {
				t.Fatal(err)
			}
			same(t, "the mark", string(must(ReplicatedOf(dir))), of)
		}
		if err := Replicated(dir); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "--addr") {
			t.Errorf("a marked store: %v", err)
		}
		unmark()
	}
	if of := must(ReplicatedOf(dir)); of != nil {
		t.Errorf("the mark is still there: %s", of)
	}
}

// TestACompactionDoesNotEndAnUnsureStore: the file in its place would lack a transaction that the log may have,
// and the old WAL would be kept as if that had been committed.
func TestACompactionDoesNotEndAnUnsureStore(t *testing.T) {
	log, dir := &shipped{}, t.TempDir()
	db := open(t, dir, Options{Ship: log.ship})
	db.begun(t, key("1"), 1)
	before := notShipped(t, db, log)
	if _, err := db.Compact(context.Background(), nil); !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "nothing has changed") {
		t.Errorf("it is compacted: %v", err)
	}
	db.stop()
	r := openReplica(t, dir, Options{})
	defer r.Close()
	same(t, "the last transaction", r.LSN(), before.Transaction+1)
}
