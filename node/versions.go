package node

import (
	"fmt"
	"slices"
	"strconv"

	"edda"
	"edda/saga"
)

// shownHash is how many digits of a hash distinguish the texts of one version.
const shownHash = 8

// versionNames names later texts of a version, which exist in edda dev: N+dev.<hash>.
func versionNames(kept []edda.Manifest) map[text]string {
	type number struct {
		saga    string
		version int
	}
	first, names := map[number]string{}, map[text]string{}
	for _, k := range slices.SortedStableFunc(slices.Values(kept), func(a, b edda.Manifest) int { return a.Loaded.Compare(b.Loaded) }) {
		n := number{k.Saga, k.Version}
		if first[n] == "" {
			first[n] = k.Hash
		}
		if k.Hash != first[n] {
			names[text{k.Saga, k.Version, k.Hash}] = fmt.Sprintf("%d+dev.%.*s", k.Version, shownHash, k.Hash)
		}
	}
	return names
}

// use installs a set as the running one. The caller holds reloading.
func (p *process) use(set *saga.Set) error {
	kept, err := p.db.Manifests()
	if err != nil {
		return fmt.Errorf("read the kept manifests: %w", err)
	}
	names := versionNames(kept)
	p.set = set
	p.hearing.Store(set)
	p.versions.Store(&names)
	return nil
}

// VersionName names a version for people.
func (p *process) VersionName(saga string, version int, hash string) string {
	if names := p.versions.Load(); names != nil {
		if name := (*names)[text{saga, version, hash}]; name != "" {
			return name
		}
	}
	return strconv.Itoa(version)
}
