package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
)

func backup(t testing.TB, db *opened) []byte {
	t.Helper()
	s := must(db.Snapshot())
	defer s.Close()
	var out bytes.Buffer
	if err := s.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != s.Bytes {
		t.Errorf("%d bytes, said %d", out.Len(), s.Bytes)
	}
	return out.Bytes()
}

func save(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBackupIsAConsistentSnapshot(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	want := dump(t, db.DB)
	s := must(db.Snapshot())
	defer s.Close()
	db.commit(t, Change{Transitions: []edda.Transition{step(key("later"), 1)}})
	var out bytes.Buffer
	if err := s.WriteTo(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new", "store")
	r, err := Restore(context.Background(), save(t, out.Bytes()), dir, false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what it says", []any{r.Commit, r.Committed, r.ID, r.Sum, len(r.Positions), r.Aside}, []any{uint64(3), noon, db.ID(), s.Sum, 1, ""})
	restored := open(t, dir, Options{})
	same(t, "rows", dump(t, restored.DB), want)
	restored.commit(t, Change{})
	restored.check(t)
	same(t, "it has to catch up", must(restored.Restored()), true)
	same(t, "the other has", must(db.Restored()), false)
	for range 2 {
		if err := restored.CaughtUp(); err != nil {
			t.Fatal(err)
		}
		same(t, "it has to catch up", must(restored.Restored()), false)
	}
}

func TestRestoreRefusesADamagedBackup(t *testing.T) {
	db := open(t, t.TempDir(), Options{plain: true})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	db.flush(t)
	good := backup(t, db)
	pages := good[:len(good)-footerSize]
	unsound := bytes.Replace(bytes.Clone(pages), []byte(`"armed":"2026-03-01T12:01`), []byte(`"armed":"2026-03-01T12:31`), -1)
	if bytes.Equal(unsound, pages) {
		t.Fatal("nothing to damage")
	}
	tests := map[string]struct {
		data []byte
		want string
	}{
		"a changed byte": {append(bytes.Replace(bytes.Clone(pages), []byte("charge"), []byte("chasge"), 1), good[len(pages):]...), "its checksum is not that of its content"},
		"cut off":        {good[:len(good)/2], "is cut off"},
		"no store":       {[]byte(strings.Repeat("hello", 10_000)), "is not a store"},
		"empty":          {nil, "is not a store"},
		"unsound rows":   {unsound, "no due row at"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Restore(context.Background(), save(t, test.data), filepath.Join(dir, "data", "store"), false, nil, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if left := must(os.ReadDir(dir)); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	t.Run("a plain copy is taken", func(t *testing.T) {
		if _, err := Restore(context.Background(), save(t, pages), t.TempDir(), false, nil, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestRestoreOfAnEncryptedBackupNamesTheBackup(t *testing.T) {
	_, sealing := keysetFile(t)
	db := open(t, t.TempDir(), Options{Seal: sealing})
	fillFormat(t, db)
	file, dir := save(t, backup(t, db)), t.TempDir()
	_, other := keysetFile(t)
	for said, secret := range map[string]AEAD{
		" is encrypted: name its keyset with EDDA_ENCRYPTION_KEYSET, or --config with encryption.keyset":                                                nil,
		" was encrypted with another keyset: name that one, with the older keys in it, with EDDA_ENCRYPTION_KEYSET, or --config with encryption.keyset": other,
	} {
		if _, err := Restore(context.Background(), file, filepath.Join(dir, "new"), false, secret, nil); err == nil || err.Error() != file+said {
			t.Errorf("%v", err)
		}
	}
	if left := must(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Restore(context.Background(), file, filepath.Join(dir, "new"), false, sealing, nil); err != nil {
		t.Error(err)
	}
}

func TestAFailedRestoreKeepsTheFoldersThatWereThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(context.Background(), save(t, nil), filepath.Join(dir, "store"), false, nil, nil); err == nil {
		t.Fatal("restored from nothing")
	}
	if left := must(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRestoreDoesNotReplaceAStoreUnasked(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	db := open(t, dir, Options{})
	db.commit(t, formatChanges()[0])
	file := save(t, backup(t, db))
	if _, err := Restore(context.Background(), file, dir, false, nil, nil); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	if _, err := Restore(context.Background(), file, dir, true, nil, nil); !Held(err) {
		t.Errorf("a store that is in use: %v", err)
	}
	db.commit(t, Change{Transitions: []edda.Transition{step(key("later"), 1)}})
	db.stop()
	r, err := Restore(context.Background(), file, dir, true, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	old := must(openFile(r.Aside, Options{initialMap: 1 << 15}))
	defer old.Close()
	same(t, "aside", must(old.Meta()).Commit, uint64(2))
	same(t, "in place", must(open(t, dir, Options{}).Meta()).Commit, uint64(1))
}

func TestBackupEndsWithItsContext(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{})
	s := must(db.Snapshot())
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	cancel()
	if err := s.WriteTo(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestRestoreOverAStoreThatWasKilled moves its WAL aside with it.
func TestRestoreOverAStoreThatWasKilled(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	file := save(t, backup(t, db))
	db.commit(t, Change{Transitions: []edda.Transition{step(key("later"), 1)}})
	killed, want := crashed(t, db), dump(t, db.DB)
	r, err := Restore(context.Background(), file, filepath.Dir(killed), true, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	restored := open(t, filepath.Dir(killed), Options{})
	same(t, "in place", must(restored.Meta()).Commit, uint64(1))
	restored.commit(t, Change{Transitions: []edda.Transition{step(key("new"), 1)}})
	old := must(openFile(r.Aside, Options{initialMap: 1 << 15}))
	defer old.Close()
	same(t, "aside", dump(t, old), want)
}

// TestRestoreTakesACopyWithItsWAL: as a snapshot of the file system has both.
func TestRestoreTakesACopyWithItsWAL(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	for _, c := range formatChanges() {
		db.commit(t, c)
	}
	killed, want, dir := crashed(t, db), dump(t, db.DB), t.TempDir()
	if _, err := Restore(context.Background(), killed, dir, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range must(os.ReadDir(dir)) {
		names = append(names, f.Name())
	}
	same(t, "files", names, []string{FileName, restoredName})
	same(t, "rows", dump(t, open(t, dir, Options{}).DB), want)

	// A log whose store was moved away for a moment stays where it is.
	left := t.TempDir()
	copyFile(t, killed+"-log-1", filepath.Join(left, FileName+"-log-1"))
	if _, err := Restore(context.Background(), killed, left, false, nil, nil); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "move it to where that is, or put that back") {
		t.Errorf("beside another's log: %v", err)
	}
	if err := os.Remove(killed + "-log-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(context.Background(), killed, t.TempDir(), false, nil, nil); err == nil || !strings.Contains(err.Error(), "-log-0 is missing, which has the last transactions") {
		t.Errorf("half a copy: %v", err)
	}
}

// TestARestoreAfterAKilledRestore: it finds a copy beside the WAL of another file.
func TestARestoreAfterAKilledRestore(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	file, dir := save(t, backup(t, db)), t.TempDir()
	db.commit(t, Change{Transitions: []edda.Transition{step(key("later"), 1)}})
	killed := crashed(t, db)
	for _, end := range []string{"", "-log-0", "-log-1"} {
		copyFile(t, killed+end, filepath.Join(dir, restoring+end))
	}
	if _, err := Restore(context.Background(), file, dir, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	same(t, "in place", must(open(t, dir, Options{}).Meta()).Commit, uint64(1))
}

// TestReplaceStoreRefusesAnOpenFile: an opened file could create a WAL under the name of the old
// one.
func TestReplaceStoreRefusesAnOpenFile(t *testing.T) {
	t.Parallel() // it waits
	db := open(t, t.TempDir(), Options{})
	db.commit(t, formatChanges()[0])
	dir := filepath.Dir(crashed(t, db))
	temp := filepath.Join(dir, restoring)
	if err := os.WriteFile(temp, backup(t, db), 0o600); err != nil {
		t.Fatal(err)
	}
	other := must(openBolt(temp, Options{}))
	defer other.Close()
	if _, err := replaceStore(dir, removing, temp); !Held(err) {
		t.Errorf("it is put in place without being held: %v", err)
	}
}
