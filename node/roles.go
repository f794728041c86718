package node

import (
	"fmt"
	"slices"
	"strings"
)

// The roles of a process, one or several. They decide which parts start.
const (
	roleSaga        = "saga"        // sagas, timers, outbox
	roleEffect      = "effect"      // effect workers
	roleCombined    = "combined"    // both
	roleCoordinator = "coordinator" // flows of jobs: the coordinator's methods, the router, and the engine that runs them
	roleRunner      = "runner"      // runs jobs
)

// Roles lists the roles.
func Roles() []string {
	return []string{roleSaga, roleEffect, roleCombined, roleCoordinator, roleRunner}
}

// roleList splits a list of roles such as saga,coordinator.
func roleList(text string) []string {
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	return out
}

// checkRoles refuses an unknown role.
func checkRoles(text string) error {
	list := roleList(text)
	if len(list) == 0 {
		return configf("role: want one or several of %s", strings.Join(Roles(), ", "))
	}
	for _, word := range list {
		if !slices.Contains(Roles(), word) {
			return configf("role %q: want one or several of %s%s", word, strings.Join(Roles(), ", "), hint(word, Roles()))
		}
	}
	return nil
}

func (c Config) has(role string) bool { return slices.Contains(roleList(c.Role), role) }

// sagas reports whether the engine runs. A coordinator needs it too, because flows are
// instances.
func (c Config) sagas() bool {
	return c.has(roleSaga) || c.has(roleCombined) || c.coordinator()
}

func (c Config) effects() bool     { return c.has(roleEffect) || c.has(roleCombined) }
func (c Config) coordinator() bool { return c.has(roleCoordinator) }
func (c Config) runner() bool      { return c.has(roleRunner) }

// owning is what a node of a cluster does as the owner, in one spelling.
func (c Config) owning() string {
	if c.effects() {
		return roleSaga + "," + roleEffect
	}
	return roleSaga
}

// otherRole is the problem of a node that does something else as the owner than the owner does; empty if it has none. It
// may still take over: a rolling change of the role passes such a state.
func otherRole(node, owner string) string {
	if node == owner || node == "" || owner == "" { // one that has not said it is of an earlier version
		return ""
	}
	return fmt.Sprintf("its role is %s, and that of the owner is %s: give all nodes of a cluster one role", node, owner)
}

// manifested reports whether the process needs manifests. Flows and jobs need none.
func (c Config) manifested() bool {
	return c.has(roleSaga) || c.has(roleEffect) || c.has(roleCombined)
}

// streams reports whether the process works on the streams. A mere runner does not.
func (c Config) streams() bool { return c.sagas() || c.effects() }

// storeFolder is the folder of the store in the data folder. A mere runner has another one,
// because a coordinator may use the same data folder.
func (c Config) storeFolder() string {
	if c.streams() {
		return "store"
	}
	return "runner"
}

// served returns the tenants of the process. A coordinator also serves the tenant of the
// flows.
func (c Config) served() []string {
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
