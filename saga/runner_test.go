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

// TestAFailureAfterAnAdvanceShowsTheClock: why a timer did not fire is seen from what comes due when.
func TestAFailureAfterAnAdvanceShowsTheClock(t *testing.T) {
	const begin = `saga: a
key: event.id
deadline: 90d
schedule: {nightly: {cron: "0 2 * * *"}}
on:
  schedule.nightly: {start: true, key: event.due, do: [{done: }]}
  Started: {start: true, do: [{timer: pay_by, after: 30m}, {effect: ship}]}
  Early: {key: event.id, missing: park}
  timer.pay_by: {do: [{done: }]}
tests:
  - name: one
    steps:
      - {event: Started, data: {id: K}}
`
	const clock = "  the clock of the test is at "
	for _, tt := range []struct{ name, steps, want string }{
		{"too early", "- {advance: 29m, expect: [{fired: pay_by}]}", clock + "2026-01-01T00:29:00.000Z, 29m after its start\n" +
			"    due in 1m, at 2026-01-01T00:30:00.000Z: timer pay_by\n" +
			"    due in 1h31m, at 2026-01-01T02:00:00.000Z: schedule nightly\n" +
			"    due in 23h31m, at 2026-01-02T00:00:00.000Z: step ship\n" +
			"    due in 2159h31m, at 2026-04-01T00:00:00.000Z: the deadline\n"},
		{"a later step", "- {advance: 29m}\n      - {ok: ship, expect: [{end: done}]}", "29m after its start\n    due in 1m, at"},
		{"a later step that is none", "- {advance: 29m}\n      - {ok: shp}", "29m after its start\n    due in 1m, at"},
		{"the end", "- {advance: 29m}\n    end: {status: done}", "29m after its start\n    due in 1m, at"},
		{"another instance", "- {event: Early, data: {id: X}}\n      - {advance: 1m, expect: [{fired: x}]}", ": the parked Early of default/a/X expires\n"},
		{"before any advance", "- {ok: ship, expect: [{end: done}]}", ""},
		{"no failure", "- {advance: 29m, expect: []}", ""},
	} {
		f, ps := manifests.Parse("a.yaml", []byte(begin+"      "+tt.steps+"\n"))
		if ps.Failed() {
			t.Fatalf("%s: %v", tt.name, ps)
		}
		results, problems := RunTests(f.Sagas[0], Options{})
		if len(results) != 1 || !strings.Contains(results[0].Diff, tt.want) || strings.Contains(results[0].Diff, clock) != (tt.want != "") {
			t.Errorf("%s: %v %v\nwant %s", tt.name, results, problems, tt.want)
		}
	}
}
