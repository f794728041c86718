package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"edda"
	"edda/store/format"
)

func sameLayouts(t *testing.T, r *rapid.T, all []*opened) {
	t.Helper()
	want, rows := everything(t, all[0].DB), dump(t, all[0].DB)
	for _, db := range all {
		same(t, "everything", everything(t, db.DB), want)
		got := dump(t, db.DB)
		for _, own := range []string{`meta/"id"`, `meta/"created"`} {
			got[own] = rows[own]
		}
		same(t, "rows", got, rows)
		for _, err := range db.examine(context.Background(), nil, true).Findings {
			t.Error(err)
		}
	}
	if t.Failed() {
		r.Fatal("the layouts differ")
	}
}

// TestTheWALSurvivesReopening: at any length.
func TestTheWALSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	for revision := range uint64(40) {
		db := open(t, dir, Options{noSync: true, flushAt: 8 << 10})
		if revision > 0 {
			same(t, "revision", db.cell(t, key("1")).Instance.Revision, revision)
		}
		db.check(t)
		checkIndex(t, db.DB)
		db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), revision+1), step(key("2"), revision+1)}})
		db.stop()
	}
}

// TestAnOlderEddaDoesNotOpenAWAL: because it reads the format from the bucket itself.
func TestAnOlderEddaDoesNotOpenAWAL(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, formatChanges()[0])
	db.stop()
	raw := must(bolt.Open(filepath.Join(dir, FileName), 0o600, nil))
	defer raw.Close()
	if err := raw.View(func(tx *bolt.Tx) error {
		same(t, "format", string(tx.Bucket([]byte(format.Meta)).Get(format.MetaFormat)), "4")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestADamagedWALRecordIsReported: when the store opens.
func TestADamagedWALRecordIsReported(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	path := crashed(t, db)
	log := path + "-log-0"
	before := must(os.ReadFile(log))
	damaged := bytes.Clone(before)
	damaged[64+40] ^= 0x40 // in the first record, behind the header of the file
	write(t, log, string(damaged))
	_, err := Open(filepath.Dir(path), Options{})
	want := path + ": the log is damaged: transaction 1 is missing in " + log + ", or not what was written, and 2 follows: restore a backup"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if string(damaged) != string(must(os.ReadFile(log))) {
		t.Error("the log was changed")
	}
	write(t, log, string(before))
	again := open(t, filepath.Dir(path), Options{})
	same(t, "undamaged", dump(t, again.DB), dump(t, db.DB))
}

// crashed is the store in a folder of its own as a kill would leave it now.
func crashed(t testing.TB, db *opened) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range must(os.ReadDir(filepath.Dir(db.path))) {
		copyFile(t, filepath.Join(filepath.Dir(db.path), f.Name()), filepath.Join(dir, f.Name()))
	}
	return filepath.Join(dir, FileName)
}

// TestAStoppedStoreIsOneFile: which can be copied alone.
func TestAStoppedStoreIsOneFile(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, Change{Transitions: []edda.Transition{step(key("1"), 1)}})
	rows := dump(t, db.DB)
	path := crashed(t, db)
	db.stop()
	same(t, "files", len(must(os.ReadDir(dir))), 1)
	db = open(t, dir, Options{})
	same(t, "rows", dump(t, db.DB), rows)
	db.check(t)

	// One that was not is three.
	if err := os.Remove(path + "-log-1"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Dir(path), Options{})
	want := path + ": " + path + "-log-1 is missing, which has the last transactions: put it where it was, beside the file, or restore a backup"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestTombstonesAreFlushedSoon: a scan of due rows passes the tombstones of fired ones. A memtable
// is flushed at 2048 tombstones, long before it is full of bytes.
func TestTombstonesAreFlushedSoon(t *testing.T) {
	const rows, each, most = 20_000, 64, 2048 + 64
	db := open(t, t.TempDir(), Options{noSync: true})
	var c Change
	for i := range rows {
		c.Arm = append(c.Arm, Due{Time: noon.Add(time.Duration(i)), Key: key(fmt.Sprint(i))})
	}
	db.commit(t, c)
	db.flush(t)
	passed, left := 0, rows
	for left > 0 {
		due, _, err := db.Due(noon.Add(time.Hour), each)
		if err != nil || len(due) == 0 {
			t.Fatalf("%d rows left, %v", left, err)
		}
		left -= len(due)
		db.commit(t, Change{Disarm: due})
		passed = max(passed, db.file.Memtables().Tombstones)
		// How many are deleted while a table is flushed depends on how busy the machine is,
		// so the test deletes none meanwhile.
		for deadline := time.Now().Add(time.Minute); db.file.Memtables().Immutable > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("a table with deleted rows is not folded: %+v", db.file.Memtables())
			}
		}
	}
	if passed > most {
		t.Errorf("up to %d deleted rows lie before the first, more than %d of %d", passed, most, rows)
	}
	db.check(t)
}
