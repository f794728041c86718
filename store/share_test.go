package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

// TestAStoreKeepsItsShare: a replica, a backup and the backup of one tenant have the share of their store.
func TestAStoreKeepsItsShare(t *testing.T) {
	share := edda.Share{Cluster: "shop", Shard: edda.Shard{Index: 1, Of: 4}}
	other := edda.Share{Cluster: "shop", Shard: edda.Shard{Index: 2, Of: 4}}
	db := ofTwo(t, Options{Share: share, plain: true})
	meta, err := db.Meta()
	if err != nil {
		t.Fatal(err)
	}
	same(t, "a new store", []any{db.Share(), meta.Share}, []any{share, share})
	for name, raw := range map[string][]byte{"of all": backup(t, db), "of a tenant": tenantBackup(t, db, "acme"), "of a tenant of other shards": tenantBackup(t, db, "nobody")} {
		dir := t.TempDir()
		if _, err := Restore(t.Context(), save(t, raw), dir, false, nil, nil); err != nil {
			t.Fatal(err)
		}
		restored := must(Open(dir, Options{Share: other}))
		same(t, "a backup "+name, restored.Share(), share)
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
		r := must(OpenReplica(dir, Options{}))
		same(t, "a replica", r.Share(), share)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheBackupOfAnotherShardIsNotRestored: also not over a store that is there.
func TestTheBackupOfAnotherShardIsNotRestored(t *testing.T) {
	shard := edda.Shard{Index: 1, Of: 4}
	file := save(t, backup(t, ofTwo(t, Options{Share: edda.Share{Cluster: "shop", Shard: shard}, plain: true})))
	dir := filepath.Join(t.TempDir(), "new")
	for _, other := range []edda.Shard{{Index: 0, Of: 4}, {Index: 1, Of: 2}, {}} {
		if _, err := RestoreShard(t.Context(), file, dir, other, false, nil, nil); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "has shard 1 of 4 of cluster shop, and not") {
			t.Errorf("as %+v: %v", other, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("as %+v: a folder is left", other)
		}
	}
	for _, replace := range []bool{false, true} {
		r, err := RestoreShard(t.Context(), file, dir, shard, replace, nil, nil)
		if err != nil || r.Share.Shard != shard || (r.Aside != "") != replace {
			t.Errorf("%+v %v", r, err)
		}
	}
	before := must(os.ReadFile(filepath.Join(dir, FileName)))
	if _, err := RestoreShard(t.Context(), file, dir, edda.Shard{Index: 2, Of: 4}, true, nil, nil); err == nil {
		t.Error("it replaces the store of another shard")
	}
	same(t, "the store that is there", must(os.ReadFile(filepath.Join(dir, FileName))), before)
}

func TestAShareThatCannotBeIsRefused(t *testing.T) {
	for _, text := range []string{"{", `{"cluster":"shop","index":4,"of":4}`, `{"cluster":"shop","index":-1,"of":4}`, `{"cluster":"shop"}`} {
		dir := t.TempDir()
		d := must(Open(dir, Options{}))
		if err := errors.Join(d.file.Update(func(tx *wal.Tx) error {
			return tx.Bucket([]byte(format.Meta)).Put(format.MetaShare, []byte(text))
		}), d.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, Options{}); !errors.Is(err, edda.Permanent) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
