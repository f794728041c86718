package saga

import (
	"strings"
	"testing"

	"edda/manifests"
)

const diffSaga = `saga: trip
key: event.id
deadline: 1h
on:
  Started:
    start: true
    do:
      - {event: Asked, with: {n: 1, text: "a: b", deep: {x: 1, y: 2}}}
      - {effect: charge, with: {amount: 25, to: =key}, due: 2h}
      - {timer: t, after: 30m}
      - {command: Order.Ship, to: =key, with: {list: [1, 2]}}
tests:
  - name: one
    steps:
      - {event: Started, data: {id: K}, expect: EXPECT}
`

// TestOnlyWhatDiffersLooksDifferent holds the notation of a failure: that of the manifest.
func TestOnlyWhatDiffersLooksDifferent(t *testing.T) {
	t.Parallel()
	const begin = "step 1 (event Started): - expected, + got\n"
	for _, tt := range []struct{ name, expect, want string }{
		{"nothing", "[{event: Asked}, {effect: charge, due: 120m}, {timer: t}, {command: Order.Ship, with: {list: [1, 2]}}]", ""},
		{"one output was not expected", "[{event: Asked}, {effect: charge}, {command: Order.Ship}]",
			"    {event: Asked}\n    {effect: charge}\n  + {timer: t, for: 30m}\n    {command: Order.Ship}\n"},
		{"one output did not come", "[{event: Asked}, {revoke: x}, {effect: charge}, {timer: t}, {command: Order.Ship}]",
			"    {event: Asked}\n  - {revoke: x}\n    {effect: charge}\n    {timer: t}\n    {command: Order.Ship}\n"},
		{"a field of the same output", `[{event: Asked, with: {text: "a: c", deep: {y: 2}}}, {effect: charge, with: {amount: 24}, due: 120m}, {timer: t, for: 1h}, {command: Order.Ship, to: K, with: {list: [1]}}]`,
			"  - {event: Asked, with: {text: \"a: c\", deep: {y: 2}}}\n  + {event: Asked, with: {text: \"a: b\", deep: {y: 2}}}\n" +
				"  - {effect: charge, with: {amount: 24}, due: 120m}\n  + {effect: charge, with: {amount: 25}, due: 120m}\n" +
				"  - {timer: t, for: 1h}\n  + {timer: t, for: 30m}\n" +
				"  - {command: Order.Ship, to: K, with: {list: [1]}}\n  + {command: Order.Ship, to: K, with: {list: [1, 2]}}\n"},
		{"no output at all", "[]", "  + {event: Asked, with: {deep: {x: 1, y: 2}, n: 1, text: \"a: b\"}}\n  + {effect: charge, with: {amount: 25, to: K}, due: 2h}\n" +
			"  + {timer: t, for: 30m}\n  + {command: Order.Ship, to: K, with: {list: [1, 2]}}\n"},
		{"a field that the output lacks", "[{event: Asked}, {effect: charge, undoes: x}, {timer: t}, {command: Order.Ship}]",
			"    {event: Asked}\n  - {effect: charge, undoes: x}\n  + {effect: charge}\n    {timer: t}\n    {command: Order.Ship}\n"},
	} {
		got := failureOf(t, strings.Replace(diffSaga, "EXPECT", tt.expect, 1))
		if want := tt.want; want != "" && got != begin+want || want == "" && got != "" {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, begin+want)
		}
	}
}

// TestTheEndOfATestIsComparedInOneNotation shows the fields that match beside those that do not.
func TestTheEndOfATestIsComparedInOneNotation(t *testing.T) {
	t.Parallel()
	got := failureOf(t, `saga: a
key: event.id
state: {n: 1, s: "yes"}
on: {Started: {start: true, do: [{done: {x: 1}}]}}
tests:
  - name: one
    steps: [{event: Started, data: {id: K}}]
    end: {status: done, state: {n: 2, s: "yes"}, result: {x: 1}}
`)
	const want = "end: - expected, + got\n    status: done\n  - state: {n: 2, s: \"yes\"}\n  + state: {n: 1, s: \"yes\"}\n    result: {x: 1}\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestALongDiffIsCut shows three matching lines around what differs.
func TestALongDiffIsCut(t *testing.T) {
	t.Parallel()
	lines := make([]diffLine, 20)
	for i := range lines {
		lines[i] = diffLine{' ', "same"}
	}
	lines[10] = diffLine{'+', "new"}
	want := "x: - expected, + got\n    …\n" + strings.Repeat("    same\n", 3) + "  + new\n" + strings.Repeat("    same\n", 3) + "    …\n"
	if got := showDiff("x", lines); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// failureOf runs the only test of the only saga.
func failureOf(t *testing.T, source string) string {
	t.Helper()
	f, ps := manifests.Parse("a.yaml", []byte(source))
	if ps.Failed() {
		t.Fatal(ps[0].Error())
	}
	results, problems := RunTests(f.Sagas[0], Options{})
	if len(results) != 1 {
		t.Fatal(problems)
	}
	return results[0].Diff
}
