package saga

import (
	"strings"
	"testing"

	"edda/manifests"
)

// TestAFailureNamesTheStepBefore wants the reason why nothing began in the failure of a later step.
func TestAFailureNamesTheStepBefore(t *testing.T) {
	const begin = `saga: a
key: event.id
on:
  Started: {start: true, do: [{timer: t, at: "=addTime(now, event.wait)"}, {effect: charge}]}
  timer.t: {}
  signal.stop: {}
  Order.Paid: {}
tests:
  - name: one
    steps:
`
	for _, tt := range []struct{ name, steps, want string }{
		{"an unknown event", "- {event: Startd, data: {id: K}}",
			"step 1 (event Startd): was ignored: no handler takes Startd: did you mean \"Started\"?\n" +
				"  if that is meant, say expect: [{ignored: Startd}]"},
		{"an unknown signal", "- {event: Started, data: {id: K, wait: 1h}}\n      - {signal: stp}", "step 2 (signal stp): was ignored: no handler takes signal.stp: did you mean \"signal.stop\"?"},
		{"an unknown event of an aggregate", "- {event: Order.Payd, data: {id: K}}", "step 1 (event Payd): was ignored: no handler takes Order.Payd: did you mean \"Order.Paid\"?"},
		{"an expected output", "- {event: Startd, data: {id: K}, expect: [{effect: charge}]}", "because: was ignored: no handler takes Startd: did you mean \"Started\"?"},
		{"a start that died", "- {event: Started, data: {id: K, wait: 1 month}}\n      - {ok: charge}",
			"step 2 (ok charge): there is no instance default/a/K\n  step 1 died: poison: "},
		{"a start that died says why", "- {event: Started, data: {id: K, wait: 1 month}}\n      - {ok: charge}", `addTime: "1 month" is not a duration`},
		{"a diff of a later step", "- {event: Started, data: {id: K, wait: 1 month}}\n      - {advance: 1h, expect: [{fired: t}]}", "\n  step 1 died: poison: "},
		{"the end", "- {event: Started, data: {id: K, wait: 1 month}}\n    end: {status: running}", "\n  step 1 died: poison: "},
		{"a start without a key", "- {event: Started, data: {}}\n      - {ok: charge}", "step 1 died: no-key: "},
	} {
		f, ps := manifests.Parse("a.yaml", []byte(begin+"      "+tt.steps+"\n"))
		if ps.Failed() {
			t.Fatalf("%s: %v", tt.name, ps)
		}
		results, problems := RunTests(f.Sagas[0], Options{})
		if len(results) != 1 || !strings.Contains(results[0].Diff, tt.want) {
			t.Errorf("%s: %v %v\nwant %s", tt.name, results, problems, tt.want)
		}
	}
}

// TestAKnownFateIsNotRepeated: a step that expects its output has no surprise.
func TestAKnownFateIsNotRepeated(t *testing.T) {
	f, ps := manifests.Parse("a.yaml", []byte(`saga: a
key: event.id
on:
  Started: {start: true}
tests:
  - name: one
    steps:
      - {event: Startd, data: {id: K}, expect: [{ignored: Startd}]}
      - {event: Started, data: {}, expect: [{dead: Started, reason: no-key}]}
      - {ok: charge}
`))
	results, problems := RunTests(f.Sagas[0], Options{})
	if len(results) != 1 || strings.Contains(results[0].Diff, "step 1") || !strings.Contains(results[0].Diff, "step 3") {
		t.Errorf("%v %v %v", ps, results, problems)
	}
}
