package node

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// TestASplitBeginsAnew: what a command that was cut off has written is removed, and a folder that is there is not touched.
func TestASplitBeginsAnew(t *testing.T) {
	dir := t.TempDir()
	s := Settings{Config: Defaults()}
	s.Data, s.Cluster.Name = filepath.Join(dir, "one"), "shop"
	to := filepath.Join(dir, "two")
	split := func(s Settings, to string) error {
		_, err := SplitCluster(t.Context(), s, zap.NewNop(), to)
		return err
	}
	testkit.WantError(t, split(s, to), edda.Permanent, "there is no store")
	made := testkit.Value[*store.DB](t)(store.Open(s.storeDir(), store.Options{}))
	if err := made.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(to+splitting, shardFolder+"0", "store")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, store.FileName), []byte("half of a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	nameless := s
	nameless.Cluster.Name = ""
	testkit.WantError(t, split(nameless, to), edda.Permanent, "--cluster")
	if err := split(s, to); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		share := testkit.Value[edda.Share](t)(shareIn(filepath.Join(to, shardFolder+string(rune('0'+i)), "store")))
		if want := (edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: 2}}); share != want {
			t.Errorf("shard %d has %v", i, share)
		}
	}
	if _, err := os.Stat(to + splitting); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", to+splitting, err)
	}
	testkit.WantError(t, split(s, to), edda.Permanent, "is there already")
	lacking := s
	lacking.Data = to
	if err := os.RemoveAll(filepath.Join(to, shardFolder+"1")); err != nil {
		t.Fatal(err)
	}
	testkit.WantError(t, split(lacking, filepath.Join(dir, "three")), edda.Permanent, "must have all of a cluster")
}
