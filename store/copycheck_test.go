package store

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda/keyset"
)

// cutCopy returns a store and a copy of it with four transactions. A power cut has erased the third from the copy.
func cutCopy(t *testing.T) (db *opened, log *shipped, dir string) {
	t.Helper()
	log = &shipped{}
	db = open(t, t.TempDir(), Options{Ship: log.ship})
	db.begun(t, key("1"), 1)
	kept := bootstrap(t, must(db.Snapshot()))
	for i := range 3 {
		db.commit(t, batch(i, 1))
	}
	r := openReplica(t, kept, Options{})
	if err := log.feed(r, len(log.entries)); err != nil {
		t.Fatal(err)
	}
	dir = copied(t, kept)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	lost, found := log.entries[3-log.first], 0
	for name, data := range filesOf(t, dir) {
		if at := bytes.Index(data, lost); at >= 0 {
			clear(data[at : at+len(lost)])
			write(t, filepath.Join(dir, name), string(data))
			found++
		}
	}
	same(t, "files with the third transaction", found, 1)
	return db, log, dir
}

// filesOf reads the files of a folder.
func filesOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, f := range must(os.ReadDir(dir)) {
		files[f.Name()] = must(os.ReadFile(filepath.Join(dir, f.Name())))
	}
	return files
}

// TestACopyThatItsNodeMendsIsSound: after a power cut, as often as it is checked, and its node finds it as it was.
func TestACopyThatItsNodeMendsIsSound(t *testing.T) {
	db, log, dir := cutCopy(t)
	defer db.stop()
	check := func() (*DB, error) {
		d, _, err := OpenToCheck(dir, Options{initialMap: 1 << 20})
		return d, err
	}
	if d, err := check(); err == nil {
		d.Close()
		t.Error("a store that is no copy is opened, and lacks what was committed")
	}
	if err := MarkReplicated(dir, []byte("of a cluster")); err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, dir)
	for range 2 {
		d, err := check()
		if err != nil {
			t.Fatal(err)
		}
		h, err := d.Doctor(context.Background(), nil)
		if err != nil || len(h.Findings) > 0 || h.Rows == 0 {
			t.Errorf("%d rows, findings %v, %v", h.Rows, h.Findings, err)
		}
		if cut := d.CutCopy(); !strings.Contains(cut, "lacks transactions after number 2") {
			t.Errorf("it says %q", cut)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.EqualFunc(filesOf(t, dir), before, bytes.Equal) {
		t.Error("the check has changed the copy")
	}
	r := openReplica(t, dir, Options{})
	defer r.Close()
	same(t, "the last transaction", r.LSN(), uint64(2))
	if err := log.feed(r, len(log.entries)); err != nil {
		t.Fatal(err)
	}
	equal(t, db.DB, r)
}

// TestACheckWithANewKeyWritesNothingToACopy: no other copy would have that transaction.
func TestACheckWithANewKeyWritesNothingToACopy(t *testing.T) {
	path, secret := keysetFile(t)
	dir := t.TempDir()
	db := open(t, dir, Options{Seal: secret})
	db.begun(t, key("1"), 1)
	before := db.Point()
	db.stop()
	if err := MarkReplicated(dir, []byte("of a cluster")); err != nil {
		t.Fatal(err)
	}
	if err := keyset.Rotate(path); err != nil {
		t.Fatal(err)
	}
	d, _, err := OpenToCheck(dir, Options{Seal: keysetOf(t, path), initialMap: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the point of the copy", d.Point(), before)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
