package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero/flowsaga"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// adopt installs the loaded sagas and the older versions that unfinished instances need.
// keepAdopted stores their texts only after the lease is acquired, because a refused
// start must not bind a version to a text.
func (p *process) adopt(l loaded) error {
	if !p.settings.sagas() {
		return nil
	}
	p.reloading.Lock()
	defer p.reloading.Unlock()
	set, _, problems, err := p.compose(l)
	if err == nil && problems.Failed() {
		err = problems[0]
	}
	if err != nil {
		return err
	}
	return p.use(set)
}

// keepAdopted stores the missing texts of the installed sagas before any instance uses
// them.
func (p *process) keepAdopted(ctx context.Context) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	kept, err := p.db.Manifests()
	if err != nil {
		return fmt.Errorf("read the kept manifests: %w", err)
	}
	if err := p.keep(ctx, p.set.Programs(), kept); err != nil {
		return err
	}
	return p.use(p.set) // a new text may change the names of versions
}

// prepare builds the set and stores new texts. If there are problems in the manifests, it
// stores nothing.
func (p *process) prepare(ctx context.Context, l loaded) (*saga.Set, manifests.Problems, error) {
	set, kept, problems, err := p.compose(l)
	if err != nil || problems.Failed() {
		return nil, problems, err
	}
	return set, nil, p.keep(ctx, l.programs, kept)
}

// compose builds the set from the loaded sagas and the stored versions that are in use.
func (p *process) compose(l loaded) (*saga.Set, []edda.Manifest, manifests.Problems, error) {
	kept, err := p.db.Manifests()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the kept manifests: %w", err)
	}
	if problems := p.changed(l.programs, kept); problems.Failed() {
		return nil, nil, problems, nil
	}
	older, err := p.older(l.programs, kept)
	if err != nil {
		return nil, nil, nil, err
	}
	set, err := saga.NewSet(l.programs...)
	if err == nil {
		set, err = set.Keep(older...)
	}
	if err != nil {
		return nil, nil, nil, fmt.Errorf("load sagas: %w", err)
	}
	return set, kept, nil, nil
}

// changed reports versions whose text differs from the stored text.
func (p *process) changed(programs []*saga.Program, kept []edda.Manifest) manifests.Problems {
	if p.settings.Dev {
		return nil
	}
	var problems manifests.Problems
	for _, program := range programs {
		for _, k := range kept {
			if k.Saga == program.Saga() && k.Version == program.Version() && k.Hash != program.Hash() {
				m := program.Manifest()
				problems = append(problems, manifests.Problem{File: m.File, Pos: m.Pos, Message: fmt.Sprintf(
					"saga %s version %d ran here with another text: a version never changes, give this one version %d", k.Saga, k.Version, newest(k.Saga, kept)+1)})
			}
		}
	}
	return problems
}

func newest(saga string, kept []edda.Manifest) int {
	n := 0
	for _, k := range kept {
		if k.Saga == saga {
			n = max(n, k.Version)
		}
	}
	return n
}

// text names one text of one version.
type text struct {
	saga    string
	version int
	hash    string
}

// keep stores missing texts, and marks texts as used that were idle.
func (p *process) keep(ctx context.Context, programs []*saga.Program, kept []edda.Manifest) error {
	have := map[text]edda.Manifest{}
	for _, k := range kept {
		have[text{k.Saga, k.Version, k.Hash}] = k
	}
	var change store.Change
	for _, program := range programs {
		k, ok := have[text{program.Saga(), program.Version(), program.Hash()}]
		if ok && !k.Idle.IsZero() { // an older version runs again
			k.Idle = time.Time{}
			change.Manifests = append(change.Manifests, k)
		}
		if !ok {
			change.Manifests = append(change.Manifests, edda.Manifest{
				Saga: program.Saga(), Version: program.Version(), Hash: program.Hash(),
				Text: string(program.Manifest().Source), Loaded: time.Now(),
			})
		}
	}
	if len(change.Manifests) == 0 {
		return nil
	}
	if err := p.db.Commit(ctx, change); err != nil {
		return fmt.Errorf("keep manifests: %w", err)
	}
	return nil
}

// older compiles the stored texts that unfinished instances use, except the loaded ones.
func (p *process) older(programs []*saga.Program, kept []edda.Manifest) ([]*saga.Program, error) {
	needed, err := p.needed(programs, kept)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		delete(needed, text{program.Saga(), program.Version(), program.Hash()})
	}
	var out []*saga.Program
	for _, k := range kept {
		if t := (text{k.Saga, k.Version, k.Hash}); needed[t] {
			program, err := recompile(k)
			if err != nil {
				return nil, err
			}
			out = append(out, program)
			delete(needed, t)
		}
	}
	for t := range needed {
		p.log.Error("instances wait for a saga whose text is not kept", zap.String("saga", t.saga), zap.Int("version", t.version))
	}
	return out, nil
}

// needed lists the texts that unfinished instances use, and those on which instances may
// start during the scan. It scans instances only of a version with several texts, which
// exists only in edda dev, because there may be very many instances.
func (p *process) needed(programs []*saga.Program, kept []edda.Manifest) (map[text]bool, error) {
	needed, only := p.starting(), onlyTexts(programs, kept)
	seen := map[store.Query]bool{}
	for _, c := range p.db.Counts() {
		if c.Status.Finished() || c.N == 0 || c.Saga == flowsaga.Saga { // flows have no manifest
			continue
		}
		if t, ok := only[text{saga: c.Saga, version: c.Version}]; ok {
			needed[t] = true
			continue
		}
		q := store.Query{Tenant: c.Tenant, Saga: c.Saga, Status: c.Status, Limit: pageSize}
		if seen[q] {
			continue
		}
		seen[q] = true
		if err := p.scan(q, needed); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

// onlyTexts maps each version with a single known text to that text.
func onlyTexts(programs []*saga.Program, kept []edda.Manifest) map[text]text {
	known := map[text]bool{}
	for _, k := range kept {
		known[text{k.Saga, k.Version, k.Hash}] = true
	}
	for _, program := range programs {
		known[text{program.Saga(), program.Version(), program.Hash()}] = true
	}
	out, several := map[text]text{}, map[text]bool{}
	for t := range known {
		version := text{saga: t.saga, version: t.version}
		if _, one := out[version]; one {
			several[version] = true
		}
		out[version] = t
	}
	maps.DeleteFunc(out, func(version, _ text) bool { return several[version] })
	return out
}

// starting lists the texts on which instances start until the next swap.
func (p *process) starting() map[text]bool {
	out := map[text]bool{}
	if p.set == nil {
		return out
	}
	for _, program := range p.set.Programs() {
		if p.set.Starts(program.Saga()) == program {
			out[text{program.Saga(), program.Version(), program.Hash()}] = true
		}
	}
	return out
}

// pageSize is how many instances scan reads at once.
const pageSize = 1000

func (p *process) scan(q store.Query, needed map[text]bool) error {
	for {
		page, err := p.db.Instances(q)
		if err != nil {
			return fmt.Errorf("look for unfinished instances: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, i := range page {
			needed[text{i.Key.Saga, i.Version, i.Hash}] = true
			q.After = i.Key
		}
	}
}

func recompile(k edda.Manifest) (*saga.Program, error) {
	name := fmt.Sprintf("%s version %d, as kept", k.Saga, k.Version)
	file, problems := manifests.Parse(name, []byte(k.Text))
	if problems.Failed() || len(file.Sagas) != 1 {
		return nil, fmt.Errorf("%s: it does not parse any more: %s", name, problems.Count())
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{})
	if program == nil {
		return nil, fmt.Errorf("%s: it does not compile any more: %s", name, problems.Count())
	}
	return program, nil
}
