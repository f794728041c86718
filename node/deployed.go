package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/stream/clusternodes"
	"edda/stream/wire"
)

// The manifests of a cluster are rows of its store, so each copy has those with which its sagas ran. The files that the
// founder's configuration names are the first revision. Files that a configuration names later are not used.

// revisionEvery is how often a standby looks for a new revision.
const revisionEvery = time.Second

// revisionsDir is the folder of revisions that are written out to be loaded.
func (c Config) revisionsDir() string { return filepath.Join(c.storeDir(), "manifests") }

func (c Config) revisionDir(revision uint64) string {
	return filepath.Join(c.revisionsDir(), strconv.FormatUint(revision, 10))
}

// writeRevision writes a revision out.
func (c Config) writeRevision(d store.Deployment) error {
	dir := c.revisionDir(d.Revision)
	next := dir + ".new"
	var all []manifests.Source
	for _, f := range d.Files {
		all = append(all, manifests.Source(f))
	}
	if err := errors.Join(os.RemoveAll(next), os.RemoveAll(dir), manifests.WriteSources(next, all)); err != nil {
		return err
	}
	return os.Rename(next, dir)
}

// keepRevisions removes all written revisions but this one and the one before it, whose files effects may still read.
func (c Config) keepRevisions(revision uint64) error {
	entries, err := os.ReadDir(c.revisionsDir())
	for _, e := range entries {
		if n, errOf := strconv.ParseUint(e.Name(), 10, 64); errOf != nil || n+1 < revision || n > revision {
			err = errors.Join(err, os.RemoveAll(filepath.Join(c.revisionsDir(), e.Name())))
		}
	}
	return err
}

// named returns the files that the configuration names, as the first revision of a cluster.
func (c Config) named(node string) (d store.Deployment, err error) {
	if len(c.Manifests) == 0 {
		return d, edda.Classify(edda.Permanent, "the cluster has no manifests yet, and this node names none: edda cluster deploy PATH takes them in")
	}
	all, err := manifests.Sources(server.MaxDeployment, c.Manifests...)
	if err != nil {
		return d, err
	}
	d = store.Deployment{Revision: 1, Time: time.Now().UTC(), By: "edda", Why: "the files that node " + node + " was started with"}
	for _, f := range all {
		d.Files = append(d.Files, store.DeployedFile(f))
	}
	return d, nil
}

// revision is what a stay knows of the manifests.
type revision struct {
	store.Deployment
	kept  bool   // the store has it; else it is what this node would begin with
	unfit string // why this node cannot run it
}

// able reports whether this node could run the manifests of the cluster.
func (t *stay) able() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision.Revision > 0 && t.revision.unfit == ""
}

// unfit returns why this node cannot run the manifests of the cluster; empty if it can.
func (t *stay) unfit() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision.unfit
}

// deployed lists the manifests that the process of this stay runs.
func (t *stay) deployed() ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return []string{t.settings.revisionDir(t.revision.Revision)}, nil
}

// watchManifests looks for new revisions in a copy until ctx ends.
func (t *stay) watchManifests(ctx context.Context, r *store.Replica) {
	tick := time.NewTicker(revisionEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.lookAtManifests(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// lookAtManifests finds the newest revision in a copy, and whether this node can run it. One that it cannot run is
// judged again each time, because a secret may be missing that an operator adds.
func (t *stay) lookAtManifests(ctx context.Context, r *store.Replica) {
	t.mu.Lock()
	was := t.revision
	t.mu.Unlock()
	var now revision
	var err error
	now.Deployment, now.kept, err = r.Deployed()
	if err == nil && was.unfit == "" && was.Revision > 0 && (!now.kept || was.kept && now.Revision == was.Revision) {
		return
	}
	switch {
	case err != nil:
	case now.kept:
		now.Files, err = r.DeployedFiles()
	default:
		now.Deployment, err = t.first(ctx)
	}
	if err == nil {
		err = t.settings.runnable(now.Deployment)
	}
	if err != nil {
		now.unfit = err.Error()
	}
	t.mu.Lock()
	t.revision = now
	t.said.Revision, t.said.Manifests, t.said.Problem = now.Revision, now.Hash(), now.unfit
	t.said.Following = t.said.Following && now.unfit == ""
	t.mu.Unlock()
	at := zap.Uint64("revision", now.Revision)
	if err := t.settings.keepRevisions(now.Revision); err != nil {
		t.log.Warn("old revisions of the manifests stay in the folder", at, zap.Error(err))
	}
	switch {
	case now.unfit != "" && now.unfit != was.unfit:
		t.log.Error("this node cannot run the manifests of the cluster and does not take over", at, zap.String("error", now.unfit))
	case now.unfit == "" && was.unfit != "":
		t.log.Info("this node can run the manifests of the cluster", at)
	}
	if now.kept && !was.kept && t.settings.differ(now.Deployment) {
		t.log.Warn("the files that this node names are not the manifests of the cluster: edda cluster deploy PATH takes them in, and nothing else does",
			at, zap.Strings("files", t.settings.Manifests))
	}
}

// runnable returns why this node cannot run a revision, which it writes out.
func (s Settings) runnable(d store.Deployment) error {
	if err := s.writeRevision(d); err != nil {
		return err
	}
	l, err := startable(s.of(d), nil)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(l.problems, func(p manifests.Problem) bool { return !p.Warning }); i >= 0 {
		return l.problems[i]
	}
	return s.checkSecrets(l.effects)
}

// of returns the settings of a process that runs a revision.
func (s Settings) of(d store.Deployment) Settings {
	s.Find = func() ([]string, error) { return []string{s.revisionDir(d.Revision)}, nil }
	return s
}

// first returns the files with which this node would begin. In a cluster with shards they must be those of the first one,
// once that runs.
func (t *stay) first(ctx context.Context) (store.Deployment, error) {
	d, err := t.settings.named(t.node)
	if err != nil || t.settings.share.Whole() {
		return d, err
	}
	begun, known, err := clusternodes.BegunManifests(ctx, t.js, t.settings.Cluster.Name)
	if err == nil && known && begun.Hash != d.Hash() {
		err = edda.Classify(edda.Temporary, "%w", t.settings.notFirst(begun, d))
	}
	return d, err
}

// differ reports whether the files that the configuration names have other texts than a revision.
func (c Config) differ(d store.Deployment) bool {
	if len(c.Manifests) == 0 {
		return false
	}
	named, err := c.named("")
	byContent := func(a, b store.DeployedFile) int { return bytes.Compare(a.Content, b.Content) }
	a, b := slices.SortedFunc(slices.Values(named.Files), byContent), slices.SortedFunc(slices.Values(d.Files), byContent)
	return err != nil || !slices.EqualFunc(a, b, func(a, b store.DeployedFile) bool { return byContent(a, b) == 0 })
}

// notTaken returns a warning if the configuration names other files than the cluster runs.
func (t *stay) notTaken(c Config) manifests.Problems {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	runs := t.revision.Deployment
	t.mu.Unlock()
	if !c.differ(runs) {
		return nil
	}
	return manifests.Problems{{Warning: true, Message: fmt.Sprintf("revision %d of the manifests stays: in a cluster edda cluster deploy PATH takes files in, and a reload does not", runs.Revision)}}
}

// keepRevision stores the first revision of a cluster. A process that is alone removes the revision of an earlier
// cluster from its store, so that a later cluster begins with the files which its founder names.
func (p *process) keepRevision(ctx context.Context) error {
	_, kept, err := p.db.Deployed()
	if err != nil || kept == (p.stay != nil) {
		if err == nil && kept && p.settings.share.Index == 0 && p.stay.runs().Revision == 1 {
			_, err = p.sameAsFirst(ctx, p.stay.runs()) // the bucket may be a new one, and other shards wait for this
		}
		return err
	}
	change := store.Change{Deployed: &store.Deployment{}}
	if p.stay != nil {
		d := p.stay.runs()
		if d.Time, err = p.sameAsFirst(ctx, d); err != nil {
			return err
		}
		p.stay.runsFrom(d)
		change.Deployed = &d
		if change.Schedules, err = p.newSchedules(p.set, p.settings.Tenants, d.Time); err != nil {
			return err
		}
	}
	if err := p.db.Commit(ctx, change); err != nil {
		return fmt.Errorf("write the revision of the manifests: %w", err)
	}
	return nil
}

// newSchedules returns rows of the schedules that the store has not seen. They start since the time of a revision, which is
// that of all shards, and not since this one took it in: the first due time may lie between.
func (p *process) newSchedules(set *saga.Set, tenants wire.Tenants, since time.Time) (rows []edda.ScheduleState, err error) {
	seen, err := p.db.Schedules()
	if err != nil {
		return nil, fmt.Errorf("read the schedules: %w", err)
	}
	for _, spec := range (scheduled{set, tenants, p.settings.tenant()}).Schedules() {
		for _, tenant := range spec.Tenants {
			row := edda.ScheduleState{Tenant: tenant, Saga: spec.Saga, Name: spec.Name, Last: since}
			if !slices.ContainsFunc(seen, func(s edda.ScheduleState) bool {
				return s.Tenant == tenant && s.Saga == spec.Saga && s.Name == spec.Name
			}) {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// sameAsFirst returns the time of a cluster's first revision. All shards begin with the same one, also those that are founded
// or taken over later, when the files of a node may be others.
func (p *process) sameAsFirst(ctx context.Context, d store.Deployment) (time.Time, error) {
	if p.settings.share.Whole() {
		return d.Time, nil
	}
	first, err := clusternodes.BeginManifests(ctx, p.stay.js, p.settings.Cluster.Name, clusternodes.FirstManifests{Hash: d.Hash(), Time: d.Time})
	if err == nil && first.Hash != d.Hash() {
		err = edda.Classify(edda.Permanent, "%w", p.settings.notFirst(first, d))
	}
	return first.Time, err
}

// notFirst is the error of a node whose files are not those with which the cluster has begun.
func (s Settings) notFirst(first clusternodes.FirstManifests, d store.Deployment) error {
	return fmt.Errorf("cluster %s has begun with manifests of the hash %s, and the files that this node names now have %s: name those again "+
		"(edda cluster manifests --to DIR writes them), and deploy the others when all shards run", s.Cluster.Name, first.Hash, d.Hash())
}

// runs is the revision that the process of this stay runs.
func (t *stay) runs() store.Deployment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revision.Deployment
}

// runsFrom notes a new revision.
func (t *stay) runsFrom(d store.Deployment) {
	t.mu.Lock()
	t.revision = revision{Deployment: d, kept: true}
	t.said.Revision, t.said.Manifests = d.Revision, d.Hash()
	t.mu.Unlock()
}

// Deploy makes files the next revision of the cluster's manifests, or changes nothing if they have errors.
func (p *process) Deploy(ctx context.Context, q server.DeployOrder) (out server.Deployed, err error) {
	if p.stay == nil {
		return out, server.ErrNoCluster
	}
	next := store.Deployment{Time: q.Time.UTC(), By: q.By, Why: q.Why}
	if q.Time.IsZero() {
		next.Time = time.Now().UTC()
	}
	for _, f := range q.Body.Files {
		next.Files = append(next.Files, store.DeployedFile(f))
	}
	in := taking{next: &next, acceptSkew: q.AcceptSkew, checkOnly: q.Check}
	if q.SkipTests {
		in.tests = testsSkipped
	}
	p.reloading.Lock()
	defer p.reloading.Unlock()
	runs := p.stay.runs()
	next.Revision, out.Revision, out.Hash, out.Time = runs.Revision+1, runs.Revision, runs.Hash(), runs.Time
	if out.Hash == next.Hash() {
		out.Since = runs.Time
		return out, nil
	}
	if q.On != "" && q.On != out.On() { // the shards before may have taken in what this one was not asked about
		return out, edda.Classify(edda.Permanent, "another deployment came meanwhile: revision %s was to run, and revision %s runs; to have these files, deploy them again", q.On, out.On())
	}
	if err := p.settings.writeRevision(next); err != nil {
		return out, err
	}
	before := p.running()
	problems, err := p.reloadManifests(ctx, in)
	if !q.Check || err != nil || problems.Failed() { // of a cluster with shards, a refused deployment ends with the check
		p.audited(ctx, q.Operator, edda.ActDeploy, fmt.Sprintf("revision %d %s", next.Revision, p.becameOf(before, in, problems, err)))
	}
	out.Problems = problemsOf(problems)
	for i := range out.Problems { // the caller knows the names that it sent
		if name, err := filepath.Rel(p.settings.revisionDir(next.Revision), out.Problems[i].File); err == nil && filepath.IsLocal(name) {
			out.Problems[i].File = filepath.ToSlash(name)
		}
	}
	switch {
	case p.stay.runs().Revision != next.Revision: // not taken in
		return out, errors.Join(err, os.RemoveAll(p.settings.revisionDir(next.Revision)))
	case err != nil:
		return out, err
	}
	out.Revision, out.Changed, out.Hash, out.Time, out.Since = next.Revision, true, next.Hash(), next.Time, next.Time
	if err := p.settings.keepRevisions(next.Revision); err != nil {
		p.log.Warn("old revisions of the manifests stay in the folder", zap.Error(err))
	}
	return out, nil
}

// Deployed returns the revision that runs.
func (p *process) Deployed() (out server.Revision, err error) {
	if p.stay == nil {
		return out, server.ErrNoCluster
	}
	d := p.stay.runs()
	out = server.Revision{Revision: d.Revision, Time: d.Time, By: d.By, Why: d.Why}
	for _, f := range d.Files {
		out.Files = append(out.Files, server.ManifestFile(f))
	}
	return out, nil
}
