package node

import (
	"errors"
	"slices"

	"edda/effects"
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
	for _, m := range l.sagas() {
		p, more := saga.Compile(m, saga.Options{})
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
	problems := slices.Concat(l.problems, l.needsRedis(true), l.catchesUp())
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
