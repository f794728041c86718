package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/node/versions"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/stream/wire"
)

// Reload reads the manifests again and swaps them in between two batches of the engine.
func (p *process) Reload(ctx context.Context, q server.ReloadOrder) (server.Reload, error) {
	check := testsMustPass
	if q.SkipTests {
		check = testsSkipped
	}
	problems, kept, err := p.reload(ctx, q.Operator, check)
	out := server.Reload{Problems: problemsOf(problems)}
	if kept != nil {
		out.Kept = kept.Error()
	}
	if err == nil && !problems.Failed() {
		out.Sagas, out.Effects = p.sagaInfo(), p.effectInfo()
		p.serving.RLock()
		out.Tenants = slices.AppendSeq([]string{}, slices.Values(p.tenants))
		p.serving.RUnlock()
		slices.Sort(out.Tenants)
		if p.stay != nil {
			out.Node = p.stay.node
		}
	}
	if err != nil {
		err = errors.Join(err, kept) // log both
	}
	return out, err
}

// reload reloads the tokens, the certificates and the manifests independently, because a
// revoked token must not stay valid when a manifest has an error. kept says which of the
// first two could not be reloaded, and why.
func (p *process) reload(ctx context.Context, who server.Operator, check testCheck) (problems manifests.Problems, kept, err error) {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	before := p.running()
	kept = p.guards.reload()
	problems, err = p.reloadManifests(ctx, taking{tests: check})
	p.audited(ctx, who, edda.ActReload, p.becameOf(before, taking{tests: check}, problems, errors.Join(err, kept)))
	return problems, kept, err
}

// taking says which manifests are taken in, and how they are judged.
type taking struct {
	next       *store.Deployment // the revision that a cluster is to run from now on; nil means the files that run already
	tests      testCheck
	acceptSkew bool // of shards; see [saga.Set.Skew]
	checkOnly  bool // nothing changes
}

// reloadManifests changes everything, or nothing if there are errors.
func (p *process) reloadManifests(ctx context.Context, in taking) (manifests.Problems, error) {
	pipe := p.pipeline.Load()
	if pipe == nil {
		return nil, errNoPipeline
	}
	c, l, err := p.read(in.next)
	if err != nil || l.problems.Failed() {
		return l.problems, err
	}
	if p.stay != nil && in.next == nil {
		in.tests = testsSkipped // they passed when the revision came
	}
	tests, err := p.test(ctx, l, in)
	if l.problems = append(tests, l.problems...); err != nil || l.problems.Failed() {
		return l.problems, err
	}
	if in.checkOnly {
		_, problems, err := p.compose(l, in)
		return append(l.problems, problems...), err
	}
	if err := p.reserve(ctx, pipe, c.Tenants, l.effects); err != nil {
		if !errors.Is(err, edda.Permanent) {
			return l.problems, err
		}
		return append(l.problems, manifests.Problem{Message: err.Error()}), nil
	}
	problems, err := p.swap(ctx, pipe, c, l, in)
	if err != nil || problems.Failed() {
		return problems, errors.Join(err, p.giveBack(ctx, pipe, c.Tenants, l.effects))
	}
	p.move(pipe, c.Tenants)
	p.log.Info("manifests reloaded", zap.Int("sagas", len(l.programs)))
	return problems, nil
}

// read reads the configuration, if there is one, and the manifests again, or those of a revision.
func (p *process) read(next *store.Deployment) (Config, loaded, error) {
	c, problems := p.reread()
	if problems.Failed() {
		return c, loaded{problems: problems}, nil
	}
	s := p.settings
	if next != nil {
		s = s.of(*next)
	} else {
		problems = append(problems, p.stay.notTaken(c)...)
	}
	l, err := startable(s, c.Manifests)
	if err != nil {
		return c, l, err
	}
	l.problems = append(problems, l.problems...)
	if err := s.checkSecrets(l.effects); err != nil {
		l.problems = append(l.problems, manifests.Problem{Message: err.Error()})
	}
	return c, l, nil
}

// rereading returns how all parts of a process read the configuration again. It is safe for concurrent use. With an
// error it returns the configuration that was read last without one.
func (s Settings) rereading() func() (Config, error) {
	if s.Reread == nil {
		return nil
	}
	var mu sync.Mutex // guards last
	last := s.Config
	return func() (Config, error) {
		mu.Lock()
		defer mu.Unlock()
		c, err := s.Reread()
		if err == nil {
			err = s.sameDefault(c)
		}
		if err == nil {
			last = c
		}
		return last, err
	}
}

// sameDefault refuses a configuration that changes the tenant of sources which name none.
func (s Settings) sameDefault(c Config) error {
	was, now := s.defaultTenant(), c.defaultTenant()
	if was == now || !slices.ContainsFunc(slices.Collect(maps.Values(c.Sources)), func(s sourceConfig) bool { return s.Tenant == "" }) {
		return nil
	}
	return configf("tenants: a source without tenant reads its events as those of %s, and after a start it would be %s: give each source a tenant, and start Edda again", was, now)
}

// reread returns the settings with what a reload takes in, read again: a process that follows another one on its store
// must not serve fewer tenants.
func (s Settings) reread(log *zap.Logger) Settings {
	if s.Reread == nil {
		return s
	}
	c, err := s.Reread()
	if err != nil {
		log.Error("the configuration cannot be read again: the tenants and manifests that it named last stay", zap.Error(err))
	}
	s.Manifests, s.Tenants = c.Manifests, c.Tenants
	return s
}

// reread reads the configuration again. It warns of changed settings that only the next start
// applies.
func (p *process) reread() (Config, manifests.Problems) {
	if p.settings.Reread == nil {
		return p.settings.Config, nil
	}
	c, err := p.settings.Reread()
	if err != nil {
		return c, manifests.Problems{{Message: err.Error()}}
	}
	var problems manifests.Problems
	for _, key := range p.settings.differs(c) {
		problems = append(problems, manifests.Problem{Warning: true, Message: key + " changed in the configuration: it takes effect at the next start"})
	}
	return c, problems
}

// swap installs the manifests and returns all problems, including warnings. Steps that may
// fail come first, so that a failure changes nothing.
func (p *process) swap(ctx context.Context, pipe *pipeline, c Config, l loaded, in taking) (manifests.Problems, error) {
	var set *saga.Set
	if p.settings.sagas() {
		next, problems, err := p.prepare(ctx, l, in)
		if l.problems = append(l.problems, problems...); err != nil || problems.Failed() {
			return l.problems, err
		}
		set = next
	}
	begin, err := p.beginNow(ctx, pipe, set, c.Tenants, in.next)
	if err != nil {
		return l.problems, err
	}
	if err := p.swapEffects(pipe, l.effects); err != nil {
		return l.problems, err
	}
	if p.mock != nil {
		p.mock.Learn(l.sagas(), l.effectManifests())
	}
	p.settings.Manifests = c.Manifests
	if set == nil {
		return l.problems, nil
	}
	return append(l.problems, begin.problems()...), p.swapSagas(ctx, pipe, set, begin, c.Tenants)
}

// beginNow finds where the new sagas of a set begin, and the new schedules of a revision.
func (p *process) beginNow(ctx context.Context, pipe *pipeline, set *saga.Set, tenants wire.Tenants, next *store.Deployment) (beginning, error) {
	if set == nil {
		return beginning{}, nil
	}
	held, err := p.db.Checkpoints()
	if err != nil {
		return beginning{}, fmt.Errorf("read the positions: %w", err)
	}
	b, err := p.begin(ctx, pipe, set, held)
	if err == nil && next != nil {
		b.deployed = next
		b.schedules, err = p.newSchedules(set, tenants, next.Time)
	}
	return b, err
}

// swapSagas installs the set in the engine. It ignores the end of ctx, because otherwise it
// would not know which set the engine has. It fails only if the process stops.
func (p *process) swapSagas(ctx context.Context, pipe *pipeline, set *saga.Set, begin beginning, tenants wire.Tenants) error {
	ctx = context.WithoutCancel(ctx)
	p.loadedSagas.Store(set) // first: a saga of the set that is behind is read for
	if begin.begun != nil || begin.deployed != nil {
		if err := p.db.Commit(ctx, begin.change()); err != nil {
			return fmt.Errorf("write where sagas begin: %w", err)
		}
		if begin.deployed != nil { // the next process runs it, even if this one ends before its engine does
			p.stay.runsFrom(*begin.deployed)
		}
		// gofail: var sagaBegun struct{}
		begin.tell(p.log)
	}
	if err := pipe.engine.Swap(ctx, p.deciders(set), begin.positions...); err != nil {
		return fmt.Errorf("swap sagas: %w", err)
	}
	pipe.scheduler.Swap(scheduled{set, tenants, p.settings.tenant()})
	return p.use(set)
}

// running lists the texts that start instances and the effects, so that the audit can say
// what a reload changed. The caller holds reloading.
func (p *process) running() map[string]string {
	out := map[string]string{}
	for t := range versions.Starting(p.set) {
		out["saga "+t.Saga] = fmt.Sprintf("%d+%.8s", t.Version, t.Hash)
	}
	for _, e := range p.effects {
		out["effect "+e.Name()] = fmt.Sprintf("%d+%.8s", e.Version(), e.Hash())
	}
	return out
}

// maxChanges bounds the changes that one audit entry names.
const maxChanges = 50

// becameOf describes the outcome of a reload for the audit.
func (p *process) becameOf(before map[string]string, in taking, problems manifests.Problems, err error) string {
	var parts []string
	switch {
	case problems.Failed():
		wrong := slices.DeleteFunc(slices.Clone(problems), func(p manifests.Problem) bool { return p.Warning })
		parts = append(parts, fmt.Sprintf("refused: %d errors in the manifests, the first: %s", len(wrong), wrong[0].Message))
	case err == nil:
		parts = append(parts, "taken in: "+changes(before, p.running()))
	}
	if err != nil {
		parts = append(parts, "failed: "+err.Error())
	}
	if in.tests == testsSkipped {
		parts = append(parts, "tests skipped")
	}
	if in.acceptSkew {
		parts = append(parts, "skew of shards accepted")
	}
	return strings.Join(parts, "; ")
}

// changes lists what was added, changed or removed.
func changes(before, after map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			out = append(out, name+" version "+after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] == "" {
			out = append(out, name+" gone")
		}
	}
	if len(out) == 0 {
		return "nothing changed"
	}
	if len(out) > maxChanges {
		out = append(out[:maxChanges], fmt.Sprintf("and %d more", len(out)-maxChanges))
	}
	return strings.Join(out, ", ")
}

// testCheck says how a reload treats failing tests.
type testCheck int

const (
	// testsMustPass refuses manifests with a failing test.
	testsMustPass testCheck = iota
	// testsSkipped does not run the tests; an operator gave a reason.
	testsSkipped
	// testsWarn only warns, because in edda dev a saga is often saved before its tests.
	testsWarn
)

// maxFailingTests bounds the failing tests that are named.
const maxFailingTests = 20

// testedRevision is the revision whose tests ran last, and what they found.
type testedRevision struct {
	mu       sync.Mutex // held while tests run
	hash     string
	problems manifests.Problems
}

// test runs the tests of manifests. Those of a revision run once: it is judged and then taken in, and all shards of a node
// judge it at the same time.
func (p *process) test(ctx context.Context, l loaded, in taking) (manifests.Problems, error) {
	if in.next == nil || in.tests != testsMustPass {
		return l.runTests(ctx, in)
	}
	last := &p.tested
	if f := p.settings.front; f != nil {
		last = &f.tested
	}
	last.mu.Lock()
	defer last.mu.Unlock()
	if hash := in.next.Hash(); hash != last.hash {
		problems, err := l.runTests(ctx, in)
		if err != nil {
			return problems, err
		}
		last.hash, last.problems = hash, problems
	}
	return last.problems, nil
}

// runTests runs the tests in the manifests, in virtual time. A problem is a failing test
// with the first lines of its difference.
func (l loaded) runTests(ctx context.Context, in taking) (manifests.Problems, error) {
	if in.tests == testsSkipped {
		return nil, nil
	}
	var out manifests.Problems
	failed := 0
	for _, m := range l.sagas() {
		if err := ctx.Err(); err != nil { // each saga takes milliseconds
			return nil, edda.Classify(edda.Temporary, "the tests of the manifests were cut off: %v; nothing changed", err)
		}
		results, _ := saga.RunTests(m, saga.Options{}) // it has compiled, so there are no problems
		for _, r := range results {
			if r.Passed {
				continue
			}
			if failed++; failed <= maxFailingTests {
				out = append(out, manifests.Problem{File: m.File, Pos: r.Pos, Warning: in.tests == testsWarn,
					Message: fmt.Sprintf("saga %s: the test %q fails: %s", r.Saga, r.Name, firstLines(r.Diff))})
			}
		}
	}
	if failed > 0 && in.tests == testsMustPass {
		command := "edda reload"
		if in.next != nil {
			command = "edda cluster deploy PATH"
		}
		out = append(out, manifests.Problem{Message: fmt.Sprintf("%s: nothing was taken in. edda test shows what differs; mend the saga or its tests, or take it in all the same with %s --skip-tests --why TEXT", tests(failed), command)})
	}
	return out, nil
}

func tests(n int) string {
	if n == 1 {
		return "1 test fails"
	}
	return fmt.Sprintf("%d tests fail", n)
}

// firstLines returns the start of a difference on one line, without the lines that match.
func firstLines(diff string) string {
	const most = 4
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(diff), "\n"), func(l string) bool { return strings.HasPrefix(l, "    ") })
	more := ""
	if len(lines) > most {
		lines, more = lines[:most], " …"
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ") + more
}
