package node

import (
	"context"
	"fmt"
	"strings"

	"edda"
	"edda/manifests"
	"edda/saga"
)

// testCheck says how a reload treats failing tests.
type testCheck int

const (
	// testsMustPass refuses manifests with a failing test.
	testsMustPass testCheck = iota
	// testsSkipped does not run the tests; an operator gave a reason.
	testsSkipped
	// testsWarn only warns, because in edda dev a saga is often saved before its tests.
	testsWarn
)

// maxFailingTests bounds the failing tests that are named.
const maxFailingTests = 20

// runTests runs the tests in the manifests, in virtual time. A problem is a failing test
// with the first lines of its difference.
func (l loaded) runTests(ctx context.Context, check testCheck) (manifests.Problems, error) {
	if check == testsSkipped {
		return nil, nil
	}
	var out manifests.Problems
	failed := 0
	for _, m := range l.sagas() {
		if err := ctx.Err(); err != nil { // each saga takes milliseconds
			return nil, edda.Classify(edda.Temporary, "the tests of the manifests were cut off: %v; nothing changed", err)
		}
		results, _ := saga.RunTests(m, saga.Options{}) // it has compiled, so there are no problems
		for _, r := range results {
			if r.Passed {
				continue
			}
			if failed++; failed <= maxFailingTests {
				out = append(out, manifests.Problem{File: m.File, Pos: r.Pos, Warning: check == testsWarn,
					Message: fmt.Sprintf("saga %s: the test %q fails: %s", r.Saga, r.Name, firstLines(r.Diff))})
			}
		}
	}
	if failed > 0 && check == testsMustPass {
		out = append(out, manifests.Problem{Message: fmt.Sprintf("%s: nothing was taken in. edda test shows what differs; mend the saga or its tests, or take it in all the same with edda reload --skip-tests --why TEXT", tests(failed))})
	}
	return out, nil
}

func tests(n int) string {
	if n == 1 {
		return "1 test fails"
	}
	return fmt.Sprintf("%d tests fail", n)
}

// firstLines returns the start of a difference on one line.
func firstLines(diff string) string {
	const most = 4
	lines := strings.Split(strings.TrimSpace(diff), "\n")
	more := ""
	if len(lines) > most {
		lines, more = lines[:most], " …"
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " ") + more
}
