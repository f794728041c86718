package node

import (
	"fmt"

	"edda/hero/flowsaga"
	"edda/manifests"
)

// needsRedis reports every message in the sagas if there is no Redis, because it could never
// be sent. That is an error at a start only; the saga itself is valid.
func (l loaded) needsRedis(warning bool) manifests.Problems {
	var out manifests.Problems
	for _, m := range l.sagas() {
		m.Walk(manifests.Visitor{Action: func(a *manifests.Action) {
			if a.Kind == "message" {
				out = append(out, manifests.Problem{File: m.File, Pos: a.Pos, Warning: warning,
					Message: "a message goes out through Redis, and none is configured: name one with --redis, or redis.url in the configuration"})
			}
		}})
	}
	return out
}

// reserved reports a saga with the name reserved for flows of jobs.
func (l loaded) reserved() manifests.Problems {
	var out manifests.Problems
	for _, m := range l.sagas() {
		if m.Name.Text == flowsaga.Saga {
			out = append(out, manifests.Problem{File: m.File, Pos: m.Name.Pos,
				Message: "saga " + flowsaga.Saga + ": flows of jobs are kept under this name; give the saga another"})
		}
	}
	return out
}

// needsTenants reports every schedule without a tenant if the process has no default
// tenant.
func (l loaded) needsTenants(s Settings) manifests.Problems {
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

// startable loads manifests and checks that a process can run them.
func startable(s Settings, paths []string) (loaded, error) {
	if len(paths) == 0 && !s.manifested() {
		return loaded{}, nil // flows and jobs need no manifests
	}
	if s.Find != nil {
		found, err := s.Find()
		if err != nil {
			return loaded{}, err
		}
		paths = found
	}
	l, err := load(paths)
	if err != nil {
		return l, err
	}
	if !s.usesRedis() {
		l.problems = append(l.problems, l.needsRedis(false)...)
	}
	l.problems = append(l.problems, l.needsTenants(s)...)
	l.problems = append(l.problems, l.reserved()...)
	l.problems.Sort()
	return l, nil
}
