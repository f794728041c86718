package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda"
	"edda/internal/testkit"
	"edda/keyset"
	"edda/store"
)

// TestADoctorSaysWhatTheNodeOfACopyMends: after a power cut, with the exit code of a sound store.
func TestADoctorSaysWhatTheNodeOfACopyMends(t *testing.T) {
	var entries [][]byte
	ship := func(_ uint64, entry []byte) func() error {
		entries = append(entries, bytes.Clone(entry))
		return func() error { return nil }
	}
	dir, data := t.TempDir(), t.TempDir()
	kept := filepath.Join(data, "store")
	db, stop := testkit.OpenStore(t, dir, store.Options{Ship: ship})
	for seq := range uint64(3) {
		testkit.Commit(t, db, store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: seq + 1}}})
	}
	testkit.Must(t, os.CopyFS(kept, os.DirFS(dir)))
	stop()
	wal := filepath.Join(kept, store.FileName+"-log-0")
	text := testkit.Value[[]byte](t)(os.ReadFile(wal))
	lost := bytes.Index(text, entries[1])
	if lost < 0 {
		t.Fatal("the WAL lacks the second transaction")
	}
	clear(text[lost : lost+len(entries[1])])
	testkit.Must(t, os.WriteFile(wal, text, 0o600))
	if code, out := held(t, "doctor", "--data", data); code != 1 || !strings.Contains(out, "the log is damaged") {
		t.Errorf("a store that is no copy: %d %s", code, out)
	}
	testkit.Must(t, store.MarkReplicated(kept, []byte(`{"cluster":"shop"}`)))
	if code, out := held(t, "gc", "--data", data); code != 1 || !strings.Contains(out, "is one of the copies that a cluster keeps") || strings.Contains(out, "damaged") {
		t.Errorf("gc: %d %s", code, out)
	}
	code, out := held(t, "doctor", "--data", data)
	if code != 0 || !strings.Contains(out, "edda: "+wal+" lacks transactions after number 1") || !strings.Contains(out, " 0 findings ") {
		t.Errorf("%d %s", code, out)
	}
}

// TestARefusedCommandWritesNothingToACopy: with a new key, an open to write has a transaction that no other copy has.
func TestARefusedCommandWritesNothingToACopy(t *testing.T) {
	data, keys := t.TempDir(), filepath.Join(t.TempDir(), "keyset.json")
	dir := filepath.Join(data, "store")
	testkit.Must(t, keyset.Create(keys))
	db, stop := testkit.OpenStore(t, dir, store.Options{Seal: testkit.Value[store.AEAD](t)(keyset.Open(keys))})
	testkit.Commit(t, db, store.Change{Checkpoints: []edda.Checkpoint{{Stream: "S", Seq: 1}}})
	before := db.Point()
	stop()
	testkit.Must(t, store.MarkReplicated(dir, []byte(`{"cluster":"shop"}`)))
	testkit.Must(t, keyset.Rotate(keys))
	for _, args := range [][]string{{"gc"}, {"compact"}, {"backup", filepath.Join(t.TempDir(), "backup")}, {"doctor"}} {
		code, out, said := shell(t, []string{"USER=ann", "EDDA_ENCRYPTION_KEYSET=" + keys}, append(args, "--data", data)...)
		if (code == 0) != (args[0] == "doctor") || strings.Contains(said, "a cluster keeps") != (code != 0) {
			t.Errorf("%s: %d %s%s", args, code, out, said)
		}
	}
	r := testkit.Value[*store.Replica](t)(store.OpenReplica(dir, store.Options{}))
	defer r.Close()
	if is := r.Point(); is != before {
		t.Errorf("it is at %+v, and was at %+v", is, before)
	}
}
