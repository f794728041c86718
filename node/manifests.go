package node

import (
	"errors"
	"fmt"
	"slices"

	"edda/effects"
	"edda/hero/flowsaga"
	"edda/manifests"
	"edda/saga"
)

// loaded holds the compiled manifests of a list of paths. If the problems contain errors,
// the rest is incomplete and must not run.
type loaded struct {
	files    []*manifests.File
	problems manifests.Problems
	programs []*saga.Program
	effects  []*effects.Effect
	compiled []*manifests.Effect // those of effects
}

// load reads and compiles all manifests at the paths. The error is about reading. The
// problems list everything that is wrong in the files.
func load(paths []string) (loaded, error) {
	files, problems, err := manifests.ParseFiles(paths...)
	if err != nil {
		return loaded{}, err
	}
	l := loaded{files: files, problems: problems}
	if len(l.sagas())+len(l.effectManifests()) == 0 && !problems.Failed() {
		return loaded{}, errors.New("there is no saga and no effect in these files")
	}
	o := saga.Options{Effects: l.effectsByName()}
	for _, m := range l.sagas() {
		p, more := saga.Compile(m, o)
		l.problems = append(l.problems, more...)
		if p != nil {
			l.programs = append(l.programs, p)
		}
	}
	l.compileEffects()
	l.problems = append(l.problems, saga.Lint(files)...)
	l.problems.Sort()
	l.problems = l.problems.Limited()
	return l, nil
}

// Lint reads and compiles all manifests at the paths, and returns what is wrong with them and
// what a process would warn of. The error is about reading.
func Lint(paths []string) (manifests.Problems, error) {
	l, err := load(paths)
	if err != nil {
		return nil, err
	}
	problems := slices.Concat(l.problems, slices.Concat(l.needsRedis(true), l.catchesUp()).Named(manifests.RuleProcess))
	problems.Sort()
	return problems, nil
}

func (l loaded) sagas() []*manifests.Saga {
	var out []*manifests.Saga
	for _, f := range l.files {
		out = append(out, f.Sagas...)
	}
	return out
}

func (l loaded) effectManifests() []*manifests.Effect {
	var out []*manifests.Effect
	for _, f := range l.files {
		out = append(out, f.Effects...)
	}
	return out
}

// effectsByName returns the first effect of each name; the parser reports another one.
func (l loaded) effectsByName() map[string]*manifests.Effect {
	out := map[string]*manifests.Effect{}
	for _, e := range l.effectManifests() {
		if out[e.Name.Text] == nil {
			out[e.Name.Text] = e
		}
	}
	return out
}

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
	if s.Mock {
		l.mockEffects()
	}
	if !s.usesRedis() {
		l.problems = append(l.problems, l.needsRedis(false)...)
	}
	l.problems = append(l.problems, l.needsTenants(s)...)
	l.problems = append(l.problems, l.reserved()...)
	l.problems.Sort()
	return l, nil
}
