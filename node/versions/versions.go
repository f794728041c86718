// Package versions keeps the texts of sagas in a store. An instance runs to its end on the text
// with which it started, so a text stays until no unfinished instance needs it. A version has
// one text, except in edda dev. A text that differs in its layout and comments only is the same one.
package versions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero/flowsaga"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// Text names one text of one version of a saga.
type Text struct {
	Saga    string
	Version int
	Hash    string
}

// TextOf returns the text of a program.
func TextOf(p *saga.Program) Text { return Text{p.Saga(), p.Version(), p.Hash()} }

// Texts keeps the texts of sagas in a store.
type Texts struct {
	db      *store.DB
	rewrite bool
	log     *zap.Logger
}

// New makes the texts of a store. With rewrite a version may change its text.
func New(db *store.DB, rewrite bool, log *zap.Logger) *Texts {
	return &Texts{db, rewrite, log}
}

// Compose builds the set of the loaded sagas and the stored versions that are in use. Until
// the set is installed, instances start on running, which may be nil. Problems are versions
// whose text has changed; then there is no set. Where only layout or comments have changed, the
// set has the stored text.
func (k *Texts) Compose(running *saga.Set, programs []*saga.Program) (*saga.Set, manifests.Problems, error) {
	kept, err := k.kept()
	if err != nil {
		return nil, nil, err
	}
	if programs, err = asKept(programs, kept); err != nil {
		return nil, nil, err
	}
	if problems := k.changed(programs, kept); problems.Failed() {
		return nil, problems, nil
	}
	older, err := k.older(running, programs, kept)
	if err != nil {
		return nil, nil, err
	}
	set, err := saga.NewSet(programs...)
	if err == nil {
		set, err = set.Keep(older...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load sagas: %w", err)
	}
	return set, nil, nil
}

func (k *Texts) kept() ([]edda.Manifest, error) {
	kept, err := k.db.Manifests()
	if err != nil {
		return nil, fmt.Errorf("read the kept manifests: %w", err)
	}
	return kept, nil
}

// asKept replaces each program by its stored text where the two differ in layout and
// comments only, so that edda fmt makes no other text of a version.
func asKept(programs []*saga.Program, kept []edda.Manifest) ([]*saga.Program, error) {
	out := slices.Clone(programs)
	for i, program := range programs {
		for _, old := range kept {
			if old.Saga != program.Saga() || old.Version != program.Version() || old.Hash == program.Hash() ||
				!manifests.SameButLayout(program.Manifest().Source, []byte(old.Text)) {
				continue
			}
			same, err := Recompile(old)
			if err != nil {
				return nil, err
			}
			out[i] = same
		}
	}
	return out, nil
}

// changed reports versions whose text differs from the stored text.
func (k *Texts) changed(programs []*saga.Program, kept []edda.Manifest) manifests.Problems {
	if k.rewrite {
		return nil
	}
	var problems manifests.Problems
	for _, program := range programs {
		for _, old := range kept {
			if old.Saga == program.Saga() && old.Version == program.Version() && old.Hash != program.Hash() {
				m := program.Manifest()
				problems = append(problems, manifests.Problem{File: m.File, Pos: m.Pos, Message: fmt.Sprintf(
					"saga %s version %d ran here with another text: a version never changes, give this one version %d", old.Saga, old.Version, newest(old.Saga, kept)+1)})
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

// Keep stores missing texts, and marks texts as used that were idle.
func (k *Texts) Keep(ctx context.Context, programs []*saga.Program) error {
	kept, err := k.kept()
	if err != nil {
		return err
	}
	have := map[Text]edda.Manifest{}
	for _, m := range kept {
		have[textOf(m)] = m
	}
	var change store.Change
	for _, program := range programs {
		m, ok := have[TextOf(program)]
		if ok && !m.Idle.IsZero() { // an older version runs again
			m.Idle = time.Time{}
			change.Manifests = append(change.Manifests, m)
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
	if err := k.db.Commit(ctx, change); err != nil {
		return fmt.Errorf("keep manifests: %w", err)
	}
	return nil
}

func textOf(m edda.Manifest) Text { return Text{m.Saga, m.Version, m.Hash} }

// older compiles the stored texts that unfinished instances use, except the loaded ones.
func (k *Texts) older(running *saga.Set, programs []*saga.Program, kept []edda.Manifest) ([]*saga.Program, error) {
	needed, err := k.needed(running, programs, kept)
	if err != nil {
		return nil, err
	}
	for _, program := range programs {
		delete(needed, TextOf(program))
	}
	var out []*saga.Program
	for _, m := range kept {
		if t := textOf(m); needed[t] {
			program, err := Recompile(m)
			if err != nil {
				return nil, err
			}
			out = append(out, program)
			delete(needed, t)
		}
	}
	for t := range needed {
		k.log.Error("instances wait for a saga whose text is not kept", zap.String("saga", t.Saga), zap.Int("version", t.Version))
	}
	return out, nil
}

// needed lists the texts that unfinished instances use, and those on which instances may
// start during the scan. It scans instances only of a version with several texts, which
// exists only in edda dev, because there may be very many instances.
func (k *Texts) needed(running *saga.Set, programs []*saga.Program, kept []edda.Manifest) (map[Text]bool, error) {
	needed, only := Starting(running), onlyTexts(programs, kept)
	seen := map[store.Query]bool{}
	for _, c := range k.db.Counts() {
		if c.Status.Finished() || c.N == 0 || c.Saga == flowsaga.Saga { // flows have no manifest
			continue
		}
		if t, ok := only[Text{Saga: c.Saga, Version: c.Version}]; ok {
			needed[t] = true
			continue
		}
		q := store.Query{Tenant: c.Tenant, Saga: c.Saga, Status: c.Status, Limit: pageSize}
		if seen[q] {
			continue
		}
		seen[q] = true
		if err := k.scan(q, needed); err != nil {
			return nil, err
		}
	}
	return needed, nil
}

// onlyTexts maps each version with a single known text to that text.
func onlyTexts(programs []*saga.Program, kept []edda.Manifest) map[Text]Text {
	known := map[Text]bool{}
	for _, m := range kept {
		known[textOf(m)] = true
	}
	for _, program := range programs {
		known[TextOf(program)] = true
	}
	out, several := map[Text]Text{}, map[Text]bool{}
	for t := range known {
		version := Text{Saga: t.Saga, Version: t.Version}
		if _, one := out[version]; one {
			several[version] = true
		}
		out[version] = t
	}
	maps.DeleteFunc(out, func(version, _ Text) bool { return several[version] })
	return out
}

// Starting lists the texts of a set on which instances start. The set may be nil.
func Starting(set *saga.Set) map[Text]bool {
	out := map[Text]bool{}
	if set == nil {
		return out
	}
	for _, program := range set.Programs() {
		if set.Starts(program.Saga()) == program {
			out[TextOf(program)] = true
		}
	}
	return out
}

// pageSize is how many instances scan reads at once.
const pageSize = 1000

func (k *Texts) scan(q store.Query, needed map[Text]bool) error {
	for {
		page, err := k.db.Instances(q)
		if err != nil {
			return fmt.Errorf("look for unfinished instances: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for _, i := range page {
			needed[Text{i.Key.Saga, i.Version, i.Hash}] = true
			q.After = i.Key
		}
	}
}

// Recompile compiles a stored text.
func Recompile(k edda.Manifest) (*saga.Program, error) {
	name := fmt.Sprintf("%s version %d, as kept", k.Saga, k.Version)
	file, problems := manifests.Parse(name, []byte(k.Text))
	if problems.Failed() || len(file.Sagas) != 1 {
		return nil, fmt.Errorf("%s: it does not parse any more: %s", name, problems.Count())
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{Kept: true})
	if program == nil {
		return nil, fmt.Errorf("%s: it does not compile any more: %s", name, problems.Count())
	}
	return program, nil
}
