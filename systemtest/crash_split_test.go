//go:build !race

package systemtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/internal/harness"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
	"edda/store"
)

// splitPoints are in edda cluster split.
var splitPoints = []string{"splitBegun", "splitCopied", "splitHalved", "splitStored", "splitSynced", "splitRenamed"}

// splitInstances have more than 8 MiB of history in each half, so that a half takes several transactions.
const (
	splitInstances = 300
	splitNote      = 64 << 10
)

// TestAHalfWrittenSplitIsUsed: edda cluster split is killed at each of its points. The new folder is whole, or each command
// refuses it and says what to do. The stores that are split stay as they are, and the next split has each instance once.
func TestAHalfWrittenSplitIsUsed(t *testing.T) {
	beside(t)
	w := newSplitWorld(t)
	for _, at := range []struct {
		from   string
		shards int // that the split makes
		point  string
		passes []int // before the kill
	}{
		{"one", 2, "splitBegun", []int{0}},
		{"one", 2, "splitCopied", []int{0, 7, 20}}, // the 7th is after a part of the history
		{"one", 2, "splitHalved", []int{0, 1}},
		{"one", 2, "splitStored", []int{0}},
		{"one", 2, "splitSynced", []int{0}},
		{"one", 2, "splitRenamed", []int{0}},
		{"two", 4, "splitCopied", []int{40}}, // of the second store
		{"two", 4, "splitHalved", []int{2}},
		{"two", 4, "splitStored", []int{0, 1}},
		{"two", 4, "splitRenamed", []int{0}},
	} {
		for _, passes := range at.passes {
			t.Run(fmt.Sprintf("%s, %s %d", at.from, at.point, passes), func(t *testing.T) {
				s := w.in(t, at.from, at.shards)
				s.killedAt(at.point, passes)
				renamed := at.point == "splitRenamed"
				if there := exists(t, s.to); there != renamed {
					t.Fatalf("the new folder is there: %t", there)
				}
				if !renamed {
					s.refused()
					s.again()
				}
				s.whole()
				if renamed {
					s.begins()
				}
			})
		}
	}
}

// TestASplitThatCannotWriteLeavesAFolder: the disk has no room. The split removes what it has written, and no cluster
// begins without stores.
func TestASplitThatCannotWriteLeavesAFolder(t *testing.T) {
	beside(t)
	s := newSplitWorld(t).in(t, "one", 2)
	cmd := exec.Command("sh", append([]string{"-c", `ulimit -f 128 && exec "$0" "$@"`, tortured.get(t)}, s.split()...)...)
	cmd.Env = harness.Environ()
	c := runCommand(t, cmd)
	if code := c.code(); code != 1 || !strings.Contains(c.err.String(), "file too large") {
		t.Errorf("split ends with %d: %s", code, c.err)
	}
	for _, folder := range []string{s.to, s.to + ".splitting"} {
		if exists(t, folder) {
			t.Errorf("%s is left", folder)
		}
	}
	s.fails("there is no store in folder "+s.to, "cluster", "init", "--cluster", "shop", "--node", "n1", "--nats-url", s.nats, "--data", s.to)
	s.unchanged()
	s.succeeds(s.split()...)
	s.whole()
}

// splitWorld has a store of all keys in the folder one, and its halves in two.
type splitWorld struct {
	dir      string
	nats     string
	manifest string
	was      map[string][]splitHash // of the stores of a folder
}

// splitHash is what a store has.
type splitHash struct {
	transaction uint64
	sum         [sha256.Size]byte
}

func newSplitWorld(t *testing.T) *splitWorld {
	t.Helper()
	w := &splitWorld{dir: t.TempDir(), nats: natscluster.Start(t).URLs(), was: map[string][]splitHash{}}
	w.manifest = write(t, w.dir, "small.yaml", smallSaga)
	set := testkit.Set(t, smallSaga)
	note := strings.Repeat("0123456789abcdef", splitNote/16)
	db, stop := testkit.OpenStore(t, filepath.Join(w.dir, "one", "store"), store.Options{})
	for i := range splitInstances {
		k := splitKey(i)
		ev := edda.Event{Kind: edda.KindEvent, ID: "begin-" + k.Correlation, Tenant: k.Tenant, Type: "Begin", AggregateType: "Order", AggregateID: k.Correlation,
			Time: time.Now().UTC(), Payload: fmt.Appendf(nil, `{"k":%q,"note":%q}`, k.Correlation, note)}
		_, trs := set.Apply(edda.Cell{Key: k}, set.Route(ev)[0], ev)
		testkit.Commit(t, db, store.Change{Transitions: trs})
	}
	stop()
	s := w.in(t, "one", 2)
	s.to = filepath.Join(w.dir, "two")
	s.succeeds(s.split()...)
	for from, shards := range map[string]int{"one": 1, "two": 2} {
		w.was[from] = w.in(t, from, 2*shards).hashes()
	}
	return w
}

func splitKey(i int) edda.Key {
	return edda.Key{Tenant: "default", Saga: "small", Correlation: fmt.Sprintf("K%04d", i)}
}

// splitFolder is one split of a folder into another.
type splitFolder struct {
	*splitWorld
	t        *testing.T
	name     string
	from, to string
	shards   int // that the split makes
}

func (w *splitWorld) in(t *testing.T, from string, shards int) *splitFolder {
	return &splitFolder{w, t, from, filepath.Join(w.dir, from), filepath.Join(t.TempDir(), "next"), shards}
}

func (s *splitFolder) split() []string {
	return []string{"cluster", "split", "--cluster", "shop", "--data", s.from, "--to", s.to}
}

// killedAt kills the split when it has passed a point so often.
func (s *splitFolder) killedAt(point string, passes int) {
	s.t.Helper()
	at := freeAddr(s.t)
	term := `sleep("1h")`
	if passes > 0 {
		term = fmt.Sprintf("%d*off->%s", passes, term)
	}
	c := launchOf(s.t, tortured.get(s.t), []string{"GOFAIL_HTTP=" + at, "GOFAIL_FAILPOINTS=" + point + "=" + term}, s.split()...)
	until(s.t, "the split comes to "+point, func() bool {
		if testkit.Closed(c.Ended()) {
			s.t.Fatalf("it ended before %s: %s%s", point, c.out, c.err)
		}
		text, _ := ask("http://" + at + "/" + point + "/count")
		n, _ := strconv.Atoi(text) // it does not answer yet
		return n > passes
	})
	c.kill()
}

// refused expects that no command takes the folder, under its name or the one that it has meanwhile.
func (s *splitFolder) refused() {
	s.t.Helper()
	does := "remove " + s.to + ".splitting and split again"
	for _, data := range []string{s.to, s.to + ".splitting"} {
		for _, args := range [][]string{
			{"cluster", "init", "--cluster", "shop", "--node", "n1", "--nats-url", s.nats},
			{"cluster", "split", "--cluster", "shop", "--to", s.to + "-more"},
			{"run", "--cluster", "shop", "--node", "n1", "--nats-url", s.nats, "--addr", freeAddr(s.t), s.manifest},
			{"run", "--role", "saga", "--nats-url", s.nats, "--addr", freeAddr(s.t), s.manifest},
		} {
			s.fails(does, append(args, "--data", data)...)
		}
	}
	s.fails(does, s.split()...)
	if exists(s.t, s.to) {
		s.t.Error("a refused command has made the folder")
	}
	s.unchanged()
}

// again removes the folder of the killed split, and splits.
func (s *splitFolder) again() {
	s.t.Helper()
	testkit.Must(s.t, os.RemoveAll(s.to+".splitting"))
	s.succeeds(s.split()...)
}

// whole expects each instance in one of the new stores.
func (s *splitFolder) whole() {
	s.t.Helper()
	s.unchanged()
	s.fails("is there already", s.split()...)
	s.fails("name their cluster with --cluster", "run", "--role", "saga", "--nats-url", s.nats, "--data", s.to, "--addr", freeAddr(s.t), s.manifest)
	found := map[edda.Key]int{}
	for i := range s.shards {
		share := edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: s.shards}}
		db, stop := testkit.OpenStore(s.t, filepath.Join(s.to, fmt.Sprint("shard-", i), "store"), store.Options{})
		if db.Share() != share {
			s.t.Errorf("shard %d has %v", i, db.Share())
		}
		for _, in := range testkit.Value[[]edda.Instance](s.t)(db.Instances(store.Query{Tenant: "default", Limit: 2 * splitInstances})) {
			found[in.Key]++
			if !share.Shard.Has(in.Key) {
				s.t.Errorf("shard %d has %v", i, in.Key)
			}
		}
		for _, err := range db.Check(s.t.Context()) {
			s.t.Errorf("shard %d: %v", i, err)
		}
		stop()
	}
	for i := range splitInstances {
		if n := found[splitKey(i)]; n != 1 {
			s.t.Errorf("%v is there %d times", splitKey(i), n)
		}
	}
}

// begins expects that a cluster begins with the new stores.
func (s *splitFolder) begins() {
	s.t.Helper()
	s.succeeds("cluster", "init", "--cluster", "shop", "--node", "n1", "--nats-url", s.nats, "--data", s.to)
	s.succeeds("cluster", "end", "--cluster", "shop", "--node", "n1", "--nats-url", s.nats)
}

// unchanged expects what the stores that are split had before.
func (s *splitFolder) unchanged() {
	s.t.Helper()
	for i, got := range s.hashes() {
		if want := s.was[s.name][i]; got != want {
			s.t.Errorf("store %d of %s is at transaction %d with %x, and was at %d with %x", i, s.name, got.transaction, got.sum, want.transaction, want.sum)
		}
	}
}

// hashes opens the stores that are split.
func (s *splitFolder) hashes() (out []splitHash) {
	s.t.Helper()
	folders := []string{filepath.Join(s.from, "store")}
	if s.shards > 2 {
		folders = nil
		for i := range s.shards / 2 {
			folders = append(folders, filepath.Join(s.from, fmt.Sprint("shard-", i), "store"))
		}
	}
	for _, folder := range folders {
		if !store.Exists(folder) {
			s.t.Fatalf("there is no store in %s", folder)
		}
		db, stop := testkit.OpenStore(s.t, folder, store.Options{})
		at, sum, err := db.Hash(s.t.Context())
		testkit.Must(s.t, err)
		stop()
		out = append(out, splitHash{at.Transaction, sum})
	}
	return out
}

// fails runs a command that refuses, and says so with the words.
func (s *splitFolder) fails(words string, args ...string) {
	s.t.Helper()
	c := launchOf(s.t, tortured.get(s.t), nil, args...)
	if code := c.code(); code != 1 || !strings.Contains(c.err.String(), words) {
		s.t.Errorf("edda %s ends with %d, want 1 and %q: %s%s", strings.Join(args, " "), code, words, c.out, c.err)
	}
}

func (s *splitFolder) succeeds(args ...string) {
	s.t.Helper()
	c := launchOf(s.t, tortured.get(s.t), nil, args...)
	if code := c.code(); code != 0 {
		s.t.Fatalf("edda %s ends with %d: %s%s", strings.Join(args, " "), code, c.out, c.err)
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
