package replay

import (
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/engine"
	"edda/saga"
)

// Programs gives access to every version of a saga that was ever loaded here. Its methods may be
// called concurrently.
type Programs interface {
	// Set returns the programs that decide now.
	Set() *saga.Set
	// Kept returns the manifests in the store, of all sagas.
	Kept() ([]edda.Manifest, error)
	// Compile compiles a stored manifest.
	Compile(edda.Manifest) (*saga.Program, error)
}

// versions are the versions of one saga, compiled on demand. It is not safe for concurrent use.
type versions struct {
	name     string
	set      *saga.Set
	kept     []edda.Manifest // of the saga, the latest version first
	compile  func(edda.Manifest) (*saga.Program, error)
	compiled map[saga.Pin]*saga.Program
	deciders map[[2]saga.Pin]saga.Decider
}

func newVersions(p Programs, name string) (*versions, error) {
	all, err := p.Kept()
	if err != nil {
		return nil, fmt.Errorf("read the kept manifests: %w", err)
	}
	v := &versions{name: name, set: p.Set(), compile: p.Compile, compiled: map[saga.Pin]*saga.Program{}, deciders: map[[2]saga.Pin]saga.Decider{}}
	for i := len(all) - 1; i >= 0; i-- { // all is in the order of versions, the latest last
		if all[i].Saga == name {
			v.kept = append(v.kept, all[i])
		}
	}
	if len(v.kept) == 0 && v.set.Newest(name) == nil {
		return nil, edda.Classify(edda.Permanent, "no saga %s was ever loaded here", name)
	}
	return v, nil
}

// newest is the version that new instances start with, or the latest stored one.
func (v *versions) newest() saga.Pin {
	if p := v.set.Newest(v.name); p != nil {
		return saga.Pin{Version: p.Version(), Hash: p.Hash()}
	}
	return saga.Pin{Version: v.kept[0].Version, Hash: v.kept[0].Hash}
}

// known returns all stored versions, the latest first.
func (v *versions) known() []saga.Pin {
	var out []saga.Pin
	for _, k := range v.kept {
		out = append(out, saga.Pin{Version: k.Version, Hash: k.Hash})
	}
	return out
}

// find completes a pin without a hash, and fails if the version is not stored.
func (v *versions) find(pin saga.Pin) (saga.Pin, error) {
	p, err := v.program(pin)
	if err != nil {
		return pin, err
	}
	return saga.Pin{Version: p.Version(), Hash: p.Hash()}, nil
}

// loaded reports whether the version is in the set that decides now.
func (v *versions) loaded(pin saga.Pin) bool {
	return slices.ContainsFunc(v.set.Programs(), func(p *saga.Program) bool { return p.Saga() == v.name && fits(pin, p.Version(), p.Hash()) })
}

func fits(pin saga.Pin, version int, hash string) bool {
	return pin.Version == version && (pin.Hash == "" || pin.Hash == hash)
}

// program returns the program of a version: the loaded one, or else a stored one.
func (v *versions) program(pin saga.Pin) (*saga.Program, error) {
	if p := v.compiled[pin]; p != nil {
		return p, nil
	}
	p, err := v.search(pin)
	if err == nil {
		v.compiled[pin] = p
	}
	return p, err
}

func (v *versions) search(pin saga.Pin) (*saga.Program, error) {
	for _, p := range v.set.Programs() {
		if p.Saga() == v.name && fits(pin, p.Version(), p.Hash()) {
			return p, nil
		}
	}
	for _, k := range v.kept {
		if fits(pin, k.Version, k.Hash) {
			return v.compile(k)
		}
	}
	return nil, edda.Classify(edda.Permanent, "version %d of saga %s: %w: choose one that is with --version, or --newest", pin.Version, v.name, saga.ErrNoVersion)
}

// decide returns a decider that has the given one or two versions.
func (v *versions) decide(pins ...saga.Pin) (saga.Decider, error) {
	var name [2]saga.Pin
	copy(name[:], pins)
	if d := v.deciders[name]; d != nil {
		return d, nil
	}
	var programs []*saga.Program
	for _, pin := range pins {
		p, err := v.program(pin)
		if err != nil {
			return nil, err
		}
		if len(programs) == 0 || programs[0] != p {
			programs = append(programs, p)
		}
	}
	set, err := saga.NewSet(programs...)
	if err != nil {
		return nil, err
	}
	v.deciders[name] = decider{set}
	return v.deciders[name], nil
}

// decider handles a panic of a program as the engine does.
type decider struct{ set *saga.Set }

func (d decider) Apply(cell edda.Cell, t saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	return engine.Apply(d.set, cell, t, ev)
}

func (d decider) Wake(cell edda.Cell, row, horizon time.Time) (next edda.Cell, out []edda.Transition) {
	defer func() {
		if recover() != nil { // history records a wake that panicked as one that did nothing
			next, out = cell, nil
		}
	}()
	return d.set.Wake(cell, row, horizon)
}
