package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rogpeppe/go-internal/diff"

	"edda/manifests"
	"edda/saga"
)

// updateTests rewrites the expect lists of failing tests in their files, and prints the changes. A
// file that it leaves alone is reported; the others are written all the same.
func (t *terminal) updateTests(files []*manifests.File, problems manifests.Problems) error {
	var refused []error
	for _, f := range files {
		after, err := updated(f, problems)
		if err != nil {
			refused = append(refused, err)
			continue
		}
		if after == nil {
			continue
		}
		if err := replaceFile(f.Name, after); err != nil {
			return errors.Join(append(refused, err)...)
		}
		_, _ = t.out.Write(diff.Diff(f.Name, f.Source, f.Name, after)) // a failed write has no place to be reported
	}
	return errors.Join(refused...)
}

// updated returns the new source of a file; nil if nothing changes.
func updated(f *manifests.File, problems manifests.Problems) ([]byte, error) {
	if broken(f, problems) {
		return nil, fmt.Errorf("%s has errors and is not rewritten: edda lint shows them", f.Name)
	}
	var changes []manifests.ExpectChange
	passed := map[string]bool{}
	for _, m := range f.Sagas {
		results, more := saga.RunTests(m, saga.Options{})
		if more.Failed() {
			return nil, fmt.Errorf("%s has errors and is not rewritten: edda lint shows them", f.Name)
		}
		for _, r := range results {
			passed[testName(m, r)] = r.Passed
		}
		changes = append(changes, saga.UpdatedExpects(m, saga.Options{})...)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	after, err := f.RewriteExpects(changes)
	if err != nil {
		return nil, err
	}
	return after, sound(f, after, changes, passed)
}

func testName(m *manifests.Saga, r saga.TestResult) string {
	return fmt.Sprintf("%s %d: %s", r.Saga, m.Version, r.Name)
}

// sound checks a rewritten file before it is written: its tests are the same, none fails that
// passed, and no list differs any more.
func sound(f *manifests.File, after []byte, changes []manifests.ExpectChange, passed map[string]bool) error {
	now, problems := manifests.Parse(f.Name, after)
	unsound := func(why string) error {
		return fmt.Errorf("%s is not rewritten: %s; write the expect of %d steps by hand", f.Name, why, len(changes))
	}
	if problems.Failed() || len(now.Sagas) != len(f.Sagas) {
		return unsound("it would have errors")
	}
	for i, m := range now.Sagas {
		if !slices.EqualFunc(m.Tests, f.Sagas[i].Tests, sameInputs) {
			return unsound("the inputs of its tests would change")
		}
		if len(saga.UpdatedExpects(m, saga.Options{})) > 0 {
			return unsound("its lists would still differ")
		}
		results, _ := saga.RunTests(m, saga.Options{})
		for _, r := range results {
			if !r.Passed && passed[testName(m, r)] {
				return unsound(fmt.Sprintf("the test %q would fail", r.Name))
			}
		}
	}
	return nil
}

func sameInputs(a, b *manifests.Test) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Steps, b.Steps, func(x, y *manifests.TestStep) bool {
		return x.Input == y.Input && x.Name == y.Name && x.HasExpect == y.HasExpect
	})
}
