package node

import (
	"context"

	"edda/manifests"
	"edda/node/versions"
	"edda/saga"
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
	set, problems, err := p.texts.Compose(p.set, l.programs)
	if err == nil && problems.Failed() {
		err = problems[0]
	}
	if err != nil {
		return err
	}
	return p.use(set)
}

// keepAdopted stores the missing texts of the installed sagas before any instance uses
// them. The revision comes first, because it may be refused.
func (p *process) keepAdopted(ctx context.Context) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	if err := p.keepRevision(ctx); err != nil {
		return err
	}
	if err := p.texts.Keep(ctx, p.set.Programs()); err != nil {
		return err
	}
	return p.use(p.set) // a new text may change the names of versions
}

// prepare builds the set and stores new texts. If there are problems in the manifests, it
// stores nothing. The caller holds reloading.
func (p *process) prepare(ctx context.Context, l loaded, in taking) (*saga.Set, manifests.Problems, error) {
	set, problems, err := p.compose(l, in)
	if err != nil || problems.Failed() {
		return nil, problems, err
	}
	return set, nil, p.texts.Keep(ctx, set.Programs())
}

// compose builds the set of all versions, and judges a revision beside the running one: shards take it in one after the
// other. The caller holds reloading.
func (p *process) compose(l loaded, in taking) (*saga.Set, manifests.Problems, error) {
	set, problems, err := p.texts.Compose(p.set, l.programs)
	if err != nil || problems.Failed() || in.acceptSkew || in.next == nil || p.settings.share.Whole() {
		return set, problems, err
	}
	if problems = set.Skew(p.set); problems.Failed() {
		problems = append(problems, manifests.Problem{Message: "the shards of a cluster take a revision in one after the other. " +
			"If you know that nothing of this comes meanwhile, deploy it with --accept-skew --why TEXT"})
	}
	return set, problems, nil
}

// use installs a set as the running one. The caller holds reloading.
func (p *process) use(set *saga.Set) error {
	names, err := p.texts.Names()
	if err != nil {
		return err
	}
	p.set = set
	p.loadedSagas.Store(set)
	p.names.Store(&names)
	return nil
}

// VersionName names a version for people.
func (p *process) VersionName(saga string, version int, hash string) string {
	t := versions.Text{Saga: saga, Version: version, Hash: hash}
	if names := p.names.Load(); names != nil {
		return names.Of(t)
	}
	return versions.Names(nil).Of(t)
}
