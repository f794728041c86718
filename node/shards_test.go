package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/access"
	"edda/internal/testkit"
	"edda/store"
	"edda/stream/kv"
)

// shardsSettings are those of a node with two shards, whose NATS does not answer.
func shardsSettings(t *testing.T) Settings {
	t.Helper()
	s := devSettings(t, loanSaga)
	s.Dev, s.NATS.URL, s.Cluster.Name, s.Cluster.Node, s.Cluster.Shards = false, "nats://127.0.0.1:1", "shop", "n1", 2
	return s
}

// TestANodeEndsWithTheServerOfItsShards: nobody could reach it any more.
func TestANodeEndsWithTheServerOfItsShards(t *testing.T) {
	s, h := shardsSettings(t), quiet()
	f := testkit.Value[*front](t)(newFront(s, 2, h.Log))
	testkit.Must(t, f.server.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	testkit.WantError(t, runBehind(ctx, f, s, 2, h, newSystemd(h.Log)), nil, "server of all shards: serve")
	if ctx.Err() != nil {
		t.Error("it ended with the test")
	}
}

// TestSystemdIsToldOfAnEndOnly: else it would kill a node that begins again with the number of shards that it has learnt.
func TestSystemdIsToldOfAnEndOnly(t *testing.T) {
	for cause, want := range map[error]int{context.Canceled: 1, errShardEnded: 1, fmt.Errorf("shard 1: %w", &shardsError{"shop", 4, 2}): 0} {
		s, states := told()
		if tellEnd(s, cause); len(*states) != want {
			t.Errorf("%v: systemd is told %v", cause, *states)
		}
	}
}

// TestTheFoldersOfANodeTellItsShards, also if one of them is lost: its cluster has another copy. Where all of them are needed,
// some are refused.
func TestTheFoldersOfANodeTellItsShards(t *testing.T) {
	for _, tt := range []struct {
		folders       string
		told, assumed int
		all           bool
	}{
		{"", 0, 1, true}, {"0", 0, 2, false}, {"1", 0, 2, false}, {"0 1", 0, 2, true}, {"0 2 3", 0, 4, false}, {"1 2 3", 0, 4, false},
		{"0 1 2", 0, 4, false}, {"0 1 2 3", 0, 4, true}, {"0 1 2 3 4 5 6", 0, 8, false}, {"0 1 2", 8, 8, false}, {"0 1 2 3", 2, 2, true},
		{"64 01 x -1", 0, 1, true}, {"63", 0, 64, false},
	} {
		s := shardsSettings(t)
		s.Cluster.Shards = tt.told
		for _, i := range strings.Fields(tt.folders) {
			testkit.Must(t, os.MkdirAll(filepath.Join(s.Data, shardFolder+i), 0o700))
		}
		n, err := s.assumedShards()
		if _, lacking := s.shardsIn(); n != tt.assumed || err != nil || (lacking == nil) != tt.all {
			t.Errorf("%q, told %d: %d shards, %v, %v; want %d", tt.folders, tt.told, n, err, lacking, tt.assumed)
		}
	}
}

// TestAProcessThatIsAloneRefusesTheStoresOfShards: it would begin with no instances beside them.
func TestAProcessThatIsAloneRefusesTheStoresOfShards(t *testing.T) {
	s := shardsSettings(t)
	s.Cluster.Name = ""
	for _, name := range []string{"shard-0", "shard-1"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(s.Data, name), 0o700))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	testkit.WantError(t, Run(ctx, s, quiet()), edda.Permanent, "the stores of 2 shards")
	if store.Exists(s.storeDir()) {
		t.Error("a store has begun")
	}
}

// TestAClusterBeginsWithTheStoresOfAllShards, and with none while one lacks.
func TestAClusterBeginsWithTheStoresOfAllShards(t *testing.T) {
	s := shardsSettings(t)
	for _, name := range []string{"shard-0", "shard-1"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(s.Data, name), 0o700))
	}
	made := testkit.Value[*store.DB](t)(store.Open(s.ofShard(edda.Shard{Index: 0, Of: 2}).storeDir(), store.Options{}))
	testkit.Must(t, made.Close())
	_, err := InitCluster(t.Context(), s, zap.NewNop())
	testkit.WantError(t, err, edda.Permanent, "no store in folder "+s.ofShard(edda.Shard{Index: 1, Of: 2}).storeDir())
}

// TestShardsBeginAgainUnderAnotherName: what the stores of the former cluster have claimed was refused to those beside them.
func TestShardsBeginAgainUnderAnotherName(t *testing.T) {
	embedded := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(embedded.Close)
	conn, js, err := kv.Connect(kv.Connection{Server: embedded.Server()})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	s := shardsSettings(t)
	var stores [2]*store.DB
	for i := range stores { // each has worked in cluster shop
		one := s.ofShard(edda.Shard{Index: i, Of: 2})
		stores[i] = testkit.Value[*store.DB](t)(store.Open(one.storeDir(), store.Options{Share: one.share}))
		defer stores[i].Close()
		testkit.Must(t, leased(t, js, stores[i], one.share))
	}
	s.Cluster.Name = "mall"
	one := s.ofShard(edda.Shard{Index: 0, Of: 2})
	testkit.Must(t, (&stay{settings: one, js: js}).mayBegin(t.Context(), stores[0]))
	p := &process{settings: one, stay: &stay{}}
	testkit.Must(t, p.takeShare(stores[0].Share()))
	testkit.Must(t, leased(t, js, stores[0], p.settings.share))
	testkit.WantError(t, p.takeShare(stores[1].Share()), edda.Permanent, "shard 1 of 2")
}

// leased takes the lease of a store for all tenants, and gives it back.
func leased(t *testing.T, js jetstream.JetStream, db *store.DB, share edda.Share) error {
	t.Helper()
	l, err := kv.AcquireLease(t.Context(), js, kv.LeaseOptions{Store: db.ID(), Host: "h", Process: ulid.Make().String(), Share: share, Log: zap.NewNop()})
	if err != nil {
		return err
	}
	return l.Release(t.Context())
}

// TestAReloadOfAShardIsOneOfItsNode: else a token that was revoked would still open what the node answers for all shards.
func TestAReloadOfAShardIsOneOfItsNode(t *testing.T) {
	s, h := shardsSettings(t), quiet()
	s.Tokens.File = filepath.Join(t.TempDir(), "tokens")
	revoked, kept := access.NewToken(), access.NewToken()
	book := func(tokens ...string) {
		t.Helper()
		var text []byte
		for i, token := range tokens {
			e := access.Entry{Name: fmt.Sprint("t", i), Role: access.Viewer, Tenants: []string{access.Everyone}, Hash: access.Hash(token)}
			text = testkit.Value[[]byte](t)(access.Add(text, e))
		}
		testkit.Must(t, os.WriteFile(s.Tokens.File, text, 0o600))
	}
	book(kept, revoked)
	f := testkit.Value[*front](t)(newFront(s, 2, h.Log))
	t.Cleanup(func() { testkit.Must(t, f.server.Close()) })
	part := s.ofShard(edda.Shard{Index: 1, Of: 2})
	part.front = f
	g := testkit.Value[guards](t)(part.openGuards(h.Log))
	book(kept)
	testkit.Must(t, g.reload())
	for token, want := range map[string]bool{kept: true, revoked: false} {
		if _, known := f.guards.tokens.Book().Bearer(token); known != want {
			t.Errorf("the node knows the token: %t, want %t", known, want)
		}
	}
}
