package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

// TestASplitIsRefused: a folder that is there is not touched, and what another split has written is never removed.
func TestASplitIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := Settings{Config: Defaults()}
	s.Data, s.Cluster.Name = filepath.Join(dir, "one"), "shop"
	to := filepath.Join(dir, "two")
	split := func(s Settings, to string) error {
		_, err := SplitCluster(t.Context(), s, zap.NewNop(), to)
		return err
	}
	testkit.WantError(t, split(s, to), edda.Permanent, "there is no store")
	emptyStore(t, s)
	if err := split(s, filepath.Join(to, "deeper")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder is made above the new one: %v", err)
	}
	left := filepath.Join(to+splitting, shardFolder+"0", "store", store.FileName)
	testkit.Must(t, os.MkdirAll(filepath.Dir(left), 0o700))
	testkit.Must(t, os.WriteFile(left, []byte("half of a store"), 0o600))
	remove := "remove " + to + splitting + " and split again"
	testkit.WantError(t, split(s, to), edda.Permanent, remove)
	for _, data := range []string{to, to + "/", to + splitting} {
		unready := s
		unready.Data = data
		testkit.WantError(t, split(unready, filepath.Join(dir, "three")), edda.Permanent, remove)
		_, err := InitCluster(t.Context(), unready, zap.NewNop())
		testkit.WantError(t, err, edda.Permanent, remove)
		testkit.WantError(t, Run(t.Context(), unready, quiet()), edda.Permanent, remove)
		unready.Cluster.Name = ""
		testkit.WantError(t, Run(t.Context(), unready, quiet()), edda.Permanent, remove)
	}
	if text, err := os.ReadFile(left); err != nil || string(text) != "half of a store" {
		t.Errorf("what the other split wrote is now %q: %v", text, err)
	}
	testkit.Must(t, os.RemoveAll(to+splitting))
	nameless := s
	nameless.Cluster.Name = ""
	testkit.WantError(t, split(nameless, to), edda.Permanent, "--cluster")
	testkit.Must(t, split(s, to))
	wantShards(t, to, 2)
	if _, err := os.Stat(to + splitting); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", to+splitting, err)
	}
	testkit.WantError(t, split(s, to), edda.Permanent, "is there already")
	lacking := s
	lacking.Data = to
	testkit.Must(t, os.RemoveAll(filepath.Join(to, shardFolder+"1")))
	testkit.WantError(t, split(lacking, filepath.Join(dir, "three")), edda.Permanent, "must have all of a cluster")
}

// TestASecondSplitRemovedTheStoresOfTheFirst: a split was repeated while the first one ran. The first one said that its
// stores were complete, and two of four were missing.
func TestASecondSplitRemovedTheStoresOfTheFirst(t *testing.T) {
	dir := t.TempDir()
	s := Settings{Config: Defaults()}
	s.Data, s.Cluster.Name = filepath.Join(dir, "one"), "shop"
	emptyStore(t, s)
	two, four := filepath.Join(dir, "two"), filepath.Join(dir, "four")
	testkit.Value[ClusterSplit](t)(SplitCluster(t.Context(), s, zap.NewNop(), two))
	s.Data = two
	begun := 0
	second := func(zapcore.Entry) error {
		if begun++; begun == 2 { // the halves of the first store are written
			_, err := SplitCluster(t.Context(), s, zap.NewNop(), four)
			testkit.WantError(t, err, edda.Permanent, "remove "+four+splitting+" and split again")
		}
		return nil
	}
	core, _ := observer.New(zap.InfoLevel)
	testkit.Value[ClusterSplit](t)(SplitCluster(t.Context(), s, zap.New(core, zap.Hooks(second)), four))
	if begun != 2 {
		t.Fatalf("%d stores were split", begun)
	}
	wantShards(t, four, 4)
}

// TestAClusterBeganWithoutAStore: edda cluster init on a folder without a store founded a cluster with a new one.
func TestAClusterBeganWithoutAStore(t *testing.T) {
	s := Settings{Config: Defaults()}
	s.Data, s.Cluster.Name = filepath.Join(t.TempDir(), "one"), "shop"
	_, err := InitCluster(t.Context(), s, zap.NewNop())
	testkit.WantError(t, err, edda.Permanent, "there is no store in folder "+s.storeDir())
}

// emptyStore makes the store of the settings.
func emptyStore(t *testing.T, s Settings) {
	t.Helper()
	testkit.Must(t, testkit.Value[*store.DB](t)(store.Open(s.storeDir(), store.Options{})).Close())
}

// wantShards expects the stores of all shards in a folder.
func wantShards(t *testing.T, folder string, n int) {
	t.Helper()
	for i := range n {
		share := testkit.Value[edda.Share](t)(shareIn(filepath.Join(folder, shardFolder+strconv.Itoa(i), "store")))
		if want := (edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: n}}); share != want {
			t.Errorf("shard %d has %v", i, share)
		}
	}
}
