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

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"

	"edda"
	"edda/keyset"
	"edda/store/format"
)

// keysetFile makes a keyset and opens it.
func keysetFile(t testing.TB) (string, AEAD) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyset.json")
	if err := keyset.Create(path); err != nil {
		t.Fatal(err)
	}
	return path, keysetOf(t, path)
}

func keysetOf(t testing.TB, path string) AEAD {
	t.Helper()
	a, err := keyset.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fillFormat commits one value of every kind.
func fillFormat(t *testing.T, db *opened) {
	t.Helper()
	for _, c := range formatChanges() {
		if err := db.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// payloads are texts of the format's values that only their readers may see.
var payloads = []string{"12345678901234567", `"ok"`, "no such field", "by hand"}

func TestAnEncryptedFileContainsNoPayload(t *testing.T) {
	_, key := keysetFile(t)
	for name, o := range map[string]Options{"plain": {plain: true}, "sealed": {plain: true, Seal: key}} {
		dir := t.TempDir()
		db := open(t, dir, o)
		fillFormat(t, db)
		checkIndex(t, db.DB)
		if found := db.Check(t.Context()); found != nil {
			t.Errorf("%s: %v", name, found)
		}
		db.flush(t) // in the log they are compressed
		log := string(must(os.ReadFile(filepath.Join(dir, FileName+"-log-0")))) + string(must(os.ReadFile(filepath.Join(dir, FileName+"-log-1"))))
		db.stop()
		raw, err := os.ReadFile(filepath.Join(dir, FileName))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range payloads {
			if name == "sealed" && strings.Contains(log, text) {
				t.Errorf("%q in the log", text)
			}
			if bytes.Contains(raw, []byte(text)) == (name == "sealed") {
				t.Errorf("%s: %q in the file", name, text)
			}
		}
	}
}

// The same reads as of a plain store, of every keyspace.
func TestASealedStoreReadsAsAPlainOneDoes(t *testing.T) {
	_, key := keysetFile(t)
	plain, sealed := open(t, t.TempDir(), Options{}), open(t, t.TempDir(), Options{Seal: key})
	fillFormat(t, plain)
	fillFormat(t, sealed)
	same(t, "everything", everything(t, sealed.DB), everything(t, plain.DB))
}

// everything is what can be read, by a name for it.
func everything(t *testing.T, db *DB) map[string]any {
	t.Helper()
	out := map[string]any{}
	var errs []error
	note := func(name string, v any, err error) { out[name] = v; errs = append(errs, err) }
	rows, err := db.Outbox(ulid.ULID{}, 10)
	for i := range rows {
		rows[i].ID = ulid.ULID{}
	}
	note("outbox", rows, err)
	work, found := db.Waiting("c1")
	out["waiting"], out["found"] = work, found
	audits, err := db.Audits(10)
	note("audits", audits, err)
	claim, _, err := db.Claim("", "c0")
	note("claim", claim, err)
	dead, err := db.DeadLetters("", 10)
	note("dead", dead, err)
	letter, _, err := db.DeadLetter("d1")
	note("letter", letter, err)
	for _, k := range []edda.Key{formatKey, formatParked, formatHeld} {
		history, err := db.History(k, 10)
		note("history "+k.String(), history, err)
		list, err := db.Instances(Query{Tenant: k.Tenant})
		note("instances "+k.Tenant, list, err)
		v, err := db.View()
		if err != nil {
			t.Fatal(err)
		}
		cell, err := v.Cell(k)
		v.Close()
		note("cell "+k.String(), cell, err)
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAPlainStoreStaysReadableWithAKeyset(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	fillFormat(t, db)
	want := everything(t, db.DB)
	db.stop()
	path, key := keysetFile(t)
	db = open(t, dir, Options{Seal: key})
	same(t, "what was plain", everything(t, db.DB), want)
	if err := db.Commit(t.Context(), formatChanges()[2]); err != nil {
		t.Fatal(err)
	}
	want = everything(t, db.DB)
	db.stop()

	// After a rotation the old key still reads, and the new one writes.
	if err := keyset.Rotate(path); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Options{Seal: keysetOf(t, path)})
	same(t, "after a rotation", everything(t, db.DB), want)
	fresh := formatInstance(1)
	fresh.Key.Correlation = "new"
	change := Change{Transitions: []edda.Transition{{Key: edda.Key{Tenant: "acme", Saga: "order", Correlation: "new"}, Event: formatEvent("e9"), Fate: edda.FateHandled, Instance: fresh, Arm: []time.Time{noon.Add(time.Minute)}}}}
	if err := db.Commit(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if found := db.Check(t.Context()); found != nil {
		t.Error(found)
	}
	db.stop()
	if _, err := Open(dir, Options{Seal: key, initialMap: 1 << 20}); err == nil || !strings.Contains(err.Error(), "encryption.keyset") {
		t.Errorf("a keyset without the newest key: %v", err)
	}
}

func TestAWrongOrMissingKeysetIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	_, key := keysetFile(t)
	db := open(t, dir, Options{Seal: key})
	fillFormat(t, db)
	db.stop()
	_, other := keysetFile(t)
	for name, o := range map[string]Options{"missing": {}, "another": {Seal: other}} {
		o.initialMap = 1 << 20
		if _, err := Open(dir, o); err == nil || !strings.Contains(err.Error(), "encryption.keyset") || !strings.Contains(err.Error(), "encrypted") {
			t.Errorf("%s: %v", name, err)
		}
	}
	db = open(t, dir, Options{Seal: key}) // nothing changed by the attempts
	if found := db.Check(t.Context()); found != nil {
		t.Error(found)
	}
}

// Who may write to the file, and has no key, can neither change a value nor put
// it in another's place.
func TestAValueIsBoundToItsPlace(t *testing.T) {
	dir := t.TempDir()
	_, key := keysetFile(t)
	db := open(t, dir, Options{Seal: key})
	one, two := edda.Key{Tenant: "acme", Saga: "order", Correlation: "one"}, edda.Key{Tenant: "beta", Saga: "order", Correlation: "two"}
	for _, k := range []edda.Key{one, two} {
		in := formatInstance(1)
		in.Key = k
		if err := db.Commit(t.Context(), Change{Transitions: []edda.Transition{{Key: k, Event: formatEvent("e1"), Fate: edda.FateHandled, Instance: in}}}); err != nil {
			t.Fatal(err)
		}
	}
	db.flush(t)
	db.stop()
	file, err := bolt.Open(filepath.Join(dir, FileName), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(format.Saga))
		return b.Put(format.InstanceKey(two), bytes.Clone(b.Get(format.InstanceKey(one))))
	}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, Options{Seal: key})
	v, err := db.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Cell(one); err != nil {
		t.Error(err)
	}
	if cell, err := v.Cell(two); !errors.Is(err, format.ErrKeyset) {
		t.Errorf("beta reads acme's: %+v %v", cell.Instance, err)
	}
	if found := db.Check(context.Background()); len(found) == 0 {
		t.Error("the check finds nothing")
	}
}

// TestAKeysetWritesOnce: for a new key, and never where the store is only opened. What it writes is shipped.
func TestAKeysetWritesOnce(t *testing.T) {
	path, secret := keysetFile(t)
	log, dir := &shipped{}, t.TempDir()
	db := open(t, dir, Options{Ship: log.ship})
	db.begun(t, key("1"), 1)
	replica := openReplica(t, bootstrap(t, must(db.Snapshot())), Options{})
	defer replica.Close()
	at := func(want uint64, o Options) {
		t.Helper()
		db.stop()
		db = open(t, dir, o)
		same(t, "transactions", db.Point().Transaction, want)
		if err := log.feed(replica, len(log.entries)); err != nil {
			t.Fatal(err)
		}
		equal(t, db.DB, replica)
	}
	first := db.Point().Transaction
	at(first+1, Options{Ship: log.ship, Seal: secret})
	at(first+1, Options{Ship: log.ship, Seal: secret})
	db.begun(t, key("2"), 1)
	at(first+2, Options{Seal: secret}) // as an offline command does
	if err := keyset.Rotate(path); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		at(first+3, Options{Ship: log.ship, Seal: keysetOf(t, path)})
	}
	db.stop()
	if _, err := Open(dir, Options{Seal: secret, initialMap: 1 << 20}); err == nil || !strings.Contains(err.Error(), "encryption.keyset") {
		t.Errorf("a keyset without the newest key: %v", err)
	}
}

// TestAReadOnlyStoreWithANewKeyWritesNothing, because it cannot.
func TestAReadOnlyStoreWithANewKeyWritesNothing(t *testing.T) {
	path, secret := keysetFile(t)
	dir := t.TempDir()
	db := open(t, dir, Options{Seal: secret})
	db.begun(t, key("1"), 1)
	db.stop()
	if err := keyset.Rotate(path); err != nil {
		t.Fatal(err)
	}
	before := listed(t, dir)
	read := must(openFile(filepath.Join(dir, FileName), Options{Seal: keysetOf(t, path), ReadOnly: true}))
	if _, err := read.Outbox(ulid.ULID{}, 1); err != nil {
		t.Error(err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	same(t, "files", listed(t, dir), before)
}

// BenchmarkSealed shows what encryption costs a group of commits.
func BenchmarkSealed(b *testing.B) {
	_, key := keysetFile(b)
	for name, a := range map[string]AEAD{"plain": nil, "sealed": key} {
		b.Run(name, func(b *testing.B) {
			db := open(b, b.TempDir(), Options{Seal: a, noSync: true, initialMap: 1 << 30})
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				var c Change
				for i := range 100 {
					k := edda.Key{Tenant: "acme", Saga: "order", Correlation: ulid.Make().String()}
					in := formatInstance(1)
					in.Key = k
					c.Transitions = append(c.Transitions, edda.Transition{Key: k, Event: formatEvent(string(rune('a' + i%26))), Fate: edda.FateHandled, Instance: in})
				}
				if err := db.Commit(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
