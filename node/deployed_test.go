package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
	"edda/server"
	"edda/store"
	"edda/stream/clusternodes"
	"edda/stream/kv"
)

func TestWrittenRevisionsDoNotPileUp(t *testing.T) {
	c := Config{Data: t.TempDir(), Role: "saga"}
	files := []store.DeployedFile{{Name: "shop/order.yaml", Content: []byte("saga: order\n")}}
	for n := range uint64(4) {
		if err := c.writeRevision(store.Deployment{Revision: n + 1, Files: files}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.revisionDir(9)+".new", 0o700); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	if err := c.keepRevisions(3); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(c.revisionsDir())
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || !slices.Equal(left, []string{"2", "3"}) {
		t.Errorf("%q, %v are left; want the one that runs and the one before", left, err)
	}
	if err := c.writeRevision(store.Deployment{Revision: 3, Files: []store.DeployedFile{{Name: "other.yaml"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.revisionDir(3), "shop")); !os.IsNotExist(err) {
		t.Errorf("a revision that is written again has old files: %v", err)
	}
}

func TestNamedFilesDifferByTheirTextsAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "order.yaml"), []byte("saga: order\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Manifests: []string{dir}}
	of := func(texts ...string) (d store.Deployment) {
		for _, text := range texts {
			d.Files = append(d.Files, store.DeployedFile{Name: "elsewhere/" + text, Content: []byte(text)})
		}
		return d
	}
	for name, tt := range map[string]struct {
		c    Config
		d    store.Deployment
		want bool
	}{
		"the same":        {c, of("saga: order\n"), false},
		"another text":    {c, of("saga: trip\n"), true},
		"one more":        {c, of("saga: order\n", "saga: trip\n"), true},
		"no files named":  {Config{}, of("saga: order\n"), false},
		"files that went": {Config{Manifests: []string{filepath.Join(dir, "none")}}, of("saga: order\n"), true},
	} {
		if got := tt.c.differ(tt.d); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestADeploymentIsTakenInOnlyBesideTheRevisionItWasJudgedWith: two at once, in several shards, would both succeed.
func TestADeploymentIsTakenInOnlyBesideTheRevisionItWasJudgedWith(t *testing.T) {
	runs := store.Deployment{Revision: 3, Time: time.Unix(7, 0).UTC(), Files: []store.DeployedFile{{Name: "b.yaml", Content: []byte("saga: b\n")}, {Name: "a.yaml"}}}
	p := &process{settings: Settings{Config: Config{Data: t.TempDir()}}, stay: &stay{revision: revision{Deployment: runs, kept: true}}}
	var q server.DeployOrder
	q.On = "2-0123456789abcdef"
	q.Body.Files = []server.ManifestFile{{Name: "a.yaml"}, {Name: "b.yaml", Content: []byte("saga: b\n")}}
	d, err := p.Deploy(t.Context(), q)
	if err != nil || d.Changed || d.Hash != runs.Hash() || !d.Since.Equal(runs.Time) || !d.Time.Equal(runs.Time) || d.On() != "3-"+runs.Hash() {
		t.Errorf("the files that run: %+v, %v", d, err)
	}
	q.Body.Files[0].Content = []byte("saga: a\n")
	if d, err := p.Deploy(t.Context(), q); !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "deploy them again") || !d.Since.IsZero() || !d.Time.Equal(runs.Time) {
		t.Errorf("other files: %+v, %v", d, err)
	}
}

// TestARevisionThatIsCommittedIsTheNextOne that the node runs, also if its process ends before the engine takes it in.
func TestARevisionThatIsCommittedIsTheNextOne(t *testing.T) {
	p := stored(t)
	p.set, p.stay = testkit.Set(t, nightly), &stay{revision: revision{Deployment: store.Deployment{Revision: 1}, kept: true}}
	ended := engine.New(noSource{}, p.db, p.set, engine.Options{})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	_ = ended.Run(stopped)
	next := store.Deployment{Revision: 2, Time: time.Unix(70, 0).UTC(), Files: []store.DeployedFile{{Name: "a.yaml", Content: []byte(nightly)}}}
	err := p.swapSagas(t.Context(), &pipeline{engine: ended}, p.set, beginning{deployed: &next}, nil)
	d, _, errOf := p.db.Deployed()
	if testkit.Must(t, errOf); err == nil || d.Revision != 2 || p.stay.runs().Revision != 2 {
		t.Errorf("%v: the store has revision %d, and the next process runs %d", err, d.Revision, p.stay.runs().Revision)
	}
}

// noSource has no events.
type noSource struct{}

func (noSource) Ready() <-chan struct{}                     { return nil }
func (noSource) Take(int) engine.Fetched                    { return engine.Fetched{} }
func (noSource) Hold(bool)                                  {}
func (noSource) Ends(context.Context) ([]engine.End, error) { return nil, nil }

// TestTheTestsOfARevisionRunOnce: over shards it is judged and then taken in, within one call.
func TestTheTestsOfARevisionRunOnce(t *testing.T) {
	shard := func(f *front) *process {
		p := stored(t)
		p.settings.Data, p.settings.front, p.set, p.stay = t.TempDir(), f, testkit.Set(t, nightly), &stay{}
		p.pipeline.Store(&pipeline{})
		return p
	}
	p := shard(nil)
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	judge := func(ctx context.Context, text string, tests testCheck) error {
		next := store.Deployment{Revision: 2, Files: []store.DeployedFile{{Name: "a.yaml", Content: []byte(text)}}}
		testkit.Must(t, p.settings.writeRevision(next))
		problems, err := p.reloadManifests(ctx, taking{next: &next, tests: tests, checkOnly: true})
		if len(problems) > 0 {
			t.Error(problems)
		}
		return err
	}
	testkit.Must(t, judge(t.Context(), nightly, testsSkipped))
	if err := judge(cut, nightly, testsMustPass); !errors.Is(err, edda.Temporary) {
		t.Errorf("the tests were skipped before, and must run: %v", err)
	}
	testkit.Must(t, judge(t.Context(), nightly, testsMustPass))
	if err := judge(cut, nightly, testsMustPass); err != nil {
		t.Errorf("the tests have passed: %v", err)
	}
	if err := judge(cut, nightly+"# edited\n", testsMustPass); !errors.Is(err, edda.Temporary) {
		t.Errorf("other files: %v", err)
	}
	node := &front{}
	p = shard(node)
	testkit.Must(t, judge(t.Context(), nightly, testsMustPass))
	p = shard(node)
	if err := judge(cut, nightly, testsMustPass); err != nil {
		t.Errorf("the tests have passed in another shard of this node: %v", err)
	}
}

// TestAllShardsBeginWithTheManifestsOfTheFirst: the founder reads its files for each shard, and they may have changed
// meanwhile. A schedule of the first revision starts in all shards since the same time.
func TestAllShardsBeginWithTheManifestsOfTheFirst(t *testing.T) {
	nats := testkit.Value[*kv.Embedded](t)(kv.StartEmbedded(t.Context(), kv.EmbeddedOptions{Dir: t.TempDir()}))
	t.Cleanup(nats.Close)
	file := filepath.Join(t.TempDir(), "nightly.yaml")
	edit := func(text string) { testkit.Must(t, os.WriteFile(file, []byte(text), 0o600)) }
	edit(nightly)
	var stays []*stay
	var processes []*process
	for i := range 2 {
		st := joined(t, nats, "n1")
		st.settings.Role, st.settings.Manifests, st.settings.Data = roleSaga, []string{file}, t.TempDir()
		st.settings.share = edda.Share{Cluster: "shop", Shard: edda.Shard{Index: i, Of: 2}}
		p := stored(t)
		p.settings, p.stay, p.set = st.settings, st, testkit.Set(t, nightly)
		stays, processes = append(stays, st), append(processes, p)
	}
	testkit.Value[clusternodes.Agreed](t)(stays[0].nodes.Load().Found(t.Context(), clusternodes.Agreed{Founder: "n1", Shards: 2}))
	reads := func(i int) {
		d := testkit.Value[store.Deployment](t)(stays[i].settings.named("n1"))
		d.Time = time.Unix(int64(1000+i), 0).UTC()
		stays[i].runsFrom(d)
	}
	refused := func(err, class error, says string) {
		t.Helper()
		if !errors.Is(err, class) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	refused(stays[1].mayFound(t.Context()), edda.Temporary, "the first shard of cluster shop does not run yet")
	reads(0)
	if n := stays[0].Status(t.Context()).Nodes; len(n) != 1 || n[0].Manifests != stays[0].runs().Hash() || n[0].Revision != 1 {
		t.Errorf("the node says %+v of its manifests", n)
	}
	testkit.Must(t, processes[0].keepRevision(t.Context()))
	testkit.Must(t, stays[1].mayFound(t.Context()))

	edit(nightly + "# edited\n")
	refused(stays[1].mayFound(t.Context()), edda.Temporary, "name those again")
	reads(1)
	refused(processes[1].keepAdopted(t.Context()), edda.Permanent, "name those again")
	if texts, err := processes[1].db.Manifests(); err != nil || len(texts) > 0 {
		t.Errorf("it has kept %v, %v", texts, err)
	}
	stays[1].revision = revision{}
	folder := t.TempDir()
	_, stop := testkit.OpenStore(t, folder, store.Options{})
	stop()
	copied := testkit.Value[*store.Replica](t)(store.OpenReplica(folder, store.Options{}))
	stays[1].lookAtManifests(t.Context(), copied)
	if stays[1].able() || !strings.Contains(stays[1].unfit(), "name those again") {
		t.Errorf("it would take over: %q", stays[1].unfit())
	}
	testkit.Must(t, copied.Close())
	edit(nightly)
	reads(1)
	testkit.Must(t, processes[1].keepRevision(t.Context()))
	bucket := testkit.Value[jetstream.Stream](t)(stays[0].js.Stream(t.Context(), "KV_EDDA_CLUSTER_shop"))
	testkit.Must(t, bucket.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.EDDA_CLUSTER_shop.manifests"))) // as one that is made again
	refused(stays[1].mayFound(t.Context()), edda.Temporary, "the first shard of cluster shop does not run yet")
	testkit.Must(t, processes[0].keepRevision(t.Context()))
	testkit.Must(t, stays[1].mayFound(t.Context()))
	for i, p := range processes {
		d, kept, err := p.db.Deployed()
		rows, errOf := p.db.Schedules()
		if err != nil || errOf != nil || !kept || d.Time.Unix() != 1000 || len(rows) != 2 || rows[1].Tenant != "beta" || rows[1].Last.Unix() != 1000 {
			t.Errorf("shard %d: %+v, schedules %+v", i, d, rows)
		}
	}
}

// TestNewSchedulesStartSinceTheDeployment: those that the store has seen go on.
func TestNewSchedulesStartSinceTheDeployment(t *testing.T) {
	p := stored(t)
	seen := edda.ScheduleState{Tenant: "acme", Saga: "nightly", Name: "run", Last: time.Unix(50, 0).UTC()}
	testkit.Must(t, p.db.Commit(t.Context(), store.Change{Schedules: []edda.ScheduleState{seen}}))
	at := time.Unix(70, 0).UTC()
	p.set = testkit.Set(t, nightly)
	b, err := p.beginNow(t.Context(), nil, p.set, nil, &store.Deployment{Revision: 2, Time: at})
	want := []edda.ScheduleState{{Tenant: "beta", Saga: "nightly", Name: "run", Last: at}}
	if c := b.change(); err != nil || c.Deployed == nil || !slices.Equal(c.Schedules, want) {
		t.Errorf("%+v, %v", c, err)
	}
}
