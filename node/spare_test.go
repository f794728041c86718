package node

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/internal/testkit"
)

// TestANodeWithoutACopyHearsTheOthersFirst: a fourth node of one store copied it, and became a spare only later. A node
// that has a copy may have to take over at once.
func TestANodeWithoutACopyHearsTheOthersFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		empty bool
		waits time.Duration
	}{"an empty folder": {true, heardWithin}, "a copy": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := stayWith(t, time.Unix(200, 0), time.Time{}, cluster.Last{})
				st.settings.Cluster.Copies, st.met = defaultCopies, map[string]time.Time{}
				if tt.empty {
					testkit.Must(t, os.RemoveAll(st.dir()))
				}
				began := time.Now()
				testkit.Must(t, st.rest(t.Context(), newSystemd(zap.NewNop())))
				if waits := time.Since(began); waits != tt.waits {
					t.Errorf("it waits for %s", waits)
				}
			})
		})
	}
}

// TestASpareTakesItsBeatWithIt, although it has beaten before and its folder has an old copy: it says that it has nothing.
func TestASpareTakesItsBeatWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		st := stayWith(t, time.Unix(200, 0), time.Unix(200, 0), cluster.Last{})
		st.node, st.gaveUp, st.settings.Cluster.Copies = "n9", true, defaultCopies
		st.met = map[string]time.Time{"n1": now, "n2": now, "n3": now}
		testkit.Must(t, os.RemoveAll(st.dir()))
		st.more.Store(true)
		ctx, stop := context.WithTimeout(t.Context(), heardWithin+spareEvery)
		defer stop()
		if err := st.rest(ctx, newSystemd(zap.NewNop())); err == nil || !st.beat().Spare || st.more.Load() {
			t.Errorf("%v: it says %+v, and its beat stays: %t", err, st.beat(), st.more.Load())
		}
	})
}

// TestTwoSparesGaveUpTheLastCopies: each counted the other one, and the owner's copy was the only one for a while.
func TestTwoSparesGaveUpTheLastCopies(t *testing.T) {
	node := func(id string, dead bool, b cluster.Beat) cluster.Member {
		return cluster.Member{Node: cluster.Node{ID: id, Dead: dead}, Beat: b}
	}
	owns, follows := cluster.Beat{Owner: true}, cluster.Beat{Following: true}
	holders := cluster.Holders(0, 2, []string{"n1", "n2", "n3", "n4"})
	for name, tt := range map[string]struct {
		sees []cluster.Member // by n4
		want bool
	}{
		"the holder follows":          {[]cluster.Member{node("n1", false, owns), node("n2", false, follows), node("n3", false, follows)}, true},
		"the holder copies the store": {[]cluster.Member{node("n1", false, owns), node("n2", false, cluster.Beat{Needs: 7}), node("n3", false, follows)}, false},
		"the holder is dead":          {[]cluster.Member{node("n1", false, owns), node("n2", true, follows), node("n3", false, follows)}, false},
		"a spare owns":                {[]cluster.Member{node("n1", false, follows), node("n3", false, owns)}, true},
		"nobody owns":                 {[]cluster.Member{node("n1", true, owns), node("n2", false, follows)}, false},
	} {
		if got := enough(tt.sees, holders, 2); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
