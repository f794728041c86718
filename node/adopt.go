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
// them.
func (p *process) keepAdopted(ctx context.Context) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	if err := p.texts.Keep(ctx, p.set.Programs()); err != nil {
		return err
	}
	if err := p.keepRevision(ctx); err != nil {
		return err
	}
	return p.use(p.set) // a new text may change the names of versions
}

// prepare builds the set and stores new texts. If there are problems in the manifests, it
// stores nothing. The caller holds reloading.
func (p *process) prepare(ctx context.Context, l loaded) (*saga.Set, manifests.Problems, error) {
	set, problems, err := p.texts.Compose(p.set, l.programs)
	if err != nil || problems.Failed() {
		return nil, problems, err
	}
	return set, nil, p.texts.Keep(ctx, set.Programs())
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
