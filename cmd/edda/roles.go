package main

import (
	"slices"
	"strings"
)

// The roles a process may have, one or several. They differ only in what is
// started.
const (
	roleSaga        = "saga"        // sagas, timers, outbox
	roleEffect      = "effect"      // effect workers
	roleCombined    = "combined"    // both
	roleCoordinator = "coordinator" // flows of jobs: the coordinator's methods, the router, and the engine that runs them
	roleRunner      = "runner"      // runs jobs
)

func roles() []string {
	return []string{roleSaga, roleEffect, roleCombined, roleCoordinator, roleRunner}
}

// roleList reads saga,coordinator.
func roleList(text string) []string {
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// checkRoles complains of a word that is no role.
func checkRoles(text string) error {
	list := roleList(text)
	if len(list) == 0 {
		return usagef("role: want one or several of %s", strings.Join(roles(), ", "))
	}
	for _, word := range list {
		if !slices.Contains(roles(), word) {
			return usagef("role %q: want one or several of %s%s", word, strings.Join(roles(), ", "), hint(word, roles()))
		}
	}
	return nil
}

func (c config) has(role string) bool { return slices.Contains(roleList(c.Role), role) }

// sagas tells whether the engine runs: flows are instances, too.
func (c config) sagas() bool {
	return c.has(roleSaga) || c.has(roleCombined) || c.coordinator()
}

func (c config) effects() bool     { return c.has(roleEffect) || c.has(roleCombined) }
func (c config) coordinator() bool { return c.has(roleCoordinator) }
func (c config) runner() bool      { return c.has(roleRunner) }

// manifested tells whether the process needs manifests: flows and jobs do not.
func (c config) manifested() bool {
	return c.has(roleSaga) || c.has(roleEffect) || c.has(roleCombined)
}

// streams tells whether the process works on the streams; a runner alone does not.
func (c config) streams() bool { return c.sagas() || c.effects() }

// storeFolder is where the store is within the data folder. A runner that is alone
// has one of its own: the one beside it may be a coordinator's.
func (c config) storeFolder() string {
	if c.streams() {
		return "store"
	}
	return "runner"
}

// served are the tenants of the process; that of the flows is one of a
// coordinator's.
func (c config) served() []string {
	switch {
	case !c.coordinator() || !c.Tenancy.Enabled:
		return c.Tenants
	case !c.manifested():
		return []string{c.Hero.Tenant}
	case len(c.Tenants) == 0 || slices.Contains(c.Tenants, c.Hero.Tenant):
		return c.Tenants
	}
	return append(slices.Clone(c.Tenants), c.Hero.Tenant)
}
