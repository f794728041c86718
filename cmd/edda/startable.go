package main

import (
	"fmt"

	"edda/manifests"
)

// needsRedis complains of every message in the sagas: messages go to Redis, and
// without one they could never be sent. To start so is an error; to write such a
// saga is not.
func (l loaded) needsRedis(warning bool) manifests.Problems {
	var out manifests.Problems
	for _, m := range l.sagas() {
		m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
			if a.Kind == "message" {
				out = append(out, manifests.Problem{File: m.File, Pos: a.Pos, Warning: warning,
					Message: "a message goes out through Redis, and none can be configured yet: edda dev and edda run refuse the saga until the action is left out"})
			}
		}})
	}
	return out
}

// needsTenants complains of every schedule that names no tenant, where the
// process has none of its own to mean.
func (l loaded) needsTenants(s settings) manifests.Problems {
	var out manifests.Problems
	if !s.Tenancy.Enabled || s.tenant() != "" {
		return nil
	}
	for _, m := range l.sagas() {
		for _, sc := range m.Schedule {
			if len(sc.Tenants) == 0 {
				out = append(out, manifests.Problem{File: m.File, Pos: sc.Name.Pos,
					Message: fmt.Sprintf("schedule %s names no tenants, and tenancy is on: say for whom it runs, such as tenants: [acme]", sc.Name.Text)})
			}
		}
	}
	return out
}

// startable is load for a process that is to run what it finds.
func startable(s settings, paths []string) (loaded, error) {
	l, err := load(paths)
	if err != nil {
		return l, err
	}
	l.problems = append(l.problems, l.needsRedis(false)...)
	l.problems = append(l.problems, l.needsTenants(s)...)
	l.problems.Sort()
	return l, nil
}
