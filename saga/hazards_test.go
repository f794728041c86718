package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

// line drives one key of a set.
type line struct {
	t    *testing.T
	set  *Set
	cell edda.Cell
	now  time.Time
	n    int
}

func newLine(t *testing.T, set *Set, saga string) *line {
	return &line{t: t, set: set, now: testStart, cell: edda.Cell{Key: edda.Key{Tenant: "t", Saga: saga, Correlation: "K"}}}
}

func limited(t *testing.T, text string, o Options) *line {
	p := compiled(t, text, o)
	set, err := NewSet(p)
	if err != nil {
		t.Fatal(err)
	}
	return newLine(t, set, p.Saga())
}

func (l *line) give(ev edda.Event) []edda.Transition {
	l.n++
	ev.ID, ev.Tenant, ev.Time = fmt.Sprintf("e%d", l.n), "t", l.now
	if ev.Kind != edda.KindEvent {
		ev.Key = l.cell.Key
	}
	var out []edda.Transition
	for _, target := range l.set.Route(ev) {
		var trs []edda.Transition
		l.cell, trs = l.set.Apply(l.cell, target, ev)
		out = append(out, trs...)
	}
	return out
}

func (l *line) event(name, data string) []edda.Transition {
	return l.give(edda.Event{Kind: edda.KindEvent, Type: name, Payload: json.RawMessage(data)})
}

func (l *line) operator(verb string) []edda.Transition {
	return l.give(edda.Event{Kind: edda.KindOperator, Type: verb})
}

func (l *line) result(step string, o edda.Outcome, data string) []edda.Transition {
	return l.give(edda.Event{Kind: edda.KindResult, Step: step, CommandID: commandOf(l.cell.Instance, step), Outcome: o, Payload: json.RawMessage(data)})
}

func (l *line) wake(at time.Time) []edda.Transition {
	var out []edda.Transition
	row := at
	if in := l.cell.Instance; in != nil && !in.Armed.IsZero() {
		row = in.Armed
	}
	l.cell, out = l.set.Wake(l.cell, row, at)
	return out
}

// said formats the outputs of transitions, one on each line.
func said(trs []edda.Transition) string {
	var out []string
	for _, tr := range trs {
		for _, o := range tr.Outputs {
			out = append(out, strings.TrimSpace(o.Word+" "+o.Name+" "+o.Reason))
		}
	}
	return strings.Join(out, ", ")
}

func (l *line) want(trs []edda.Transition, want string) {
	l.t.Helper()
	if got := said(trs); got != want {
		l.t.Errorf("got %s\nwant %s", got, want)
	}
}

const bulky = `saga: bulky
key: event.id
on:
  Go: {start: true, do: [{seq: [{effect: a, undo: un_a}, {effect: b}]}]}
  Grow: {set: {text: "=event.text"}}
  Many: {do: [{each: event.list, do: [{effect: w}]}]}
  saga.failed: {set: {text: "=repeat('x', 100)"}, do: [{event: One}, {event: Two}, {event: Three}, {event: Four}]}
`

func TestStateBeyondItsLimitIsPoisonAndCanBeUndone(t *testing.T) {
	l := limited(t, bulky, Options{MaxState: 64, MaxActions: 3})
	l.event("Go", `{"id":"K"}`)
	l.result("a", edda.Succeeded, `{}`)
	trs := l.event("Grow", `{"id":"K","text":"`+strings.Repeat("x", 100)+`"}`)
	l.want(trs, "dead Grow poison")
	if d := trs[0].Dead; !strings.Contains(d.Error, "more than the limit of 64") {
		t.Errorf("error %q", d.Error)
	}
	l.want(l.operator(edda.VerbCancel), "revoke b")
	l.want(l.result("b", edda.Failed, `{}`), "held b.failed")
	l.want(l.operator(edda.VerbDrop), "effect un_a")
	l.want(l.result("a.undo", edda.Succeeded, `{}`), "event One, event Two, event Three, event Four, end undone cancelled")
}

func TestTooManyActionsArePoisonAndTheSagaCanBeTerminated(t *testing.T) {
	l := limited(t, bulky, Options{MaxState: 64, MaxActions: 3})
	l.event("Go", `{"id":"K"}`)
	trs := l.event("Many", `{"id":"K","list":[1,2,3]}`)
	l.want(trs, "dead Many poison")
	if d := trs[0].Dead; !strings.Contains(d.Error, "more than 3 actions") || len(trs[0].Work) > 0 {
		t.Errorf("error %q, work %v", d.Error, trs[0].Work)
	}
	l.want(l.operator(edda.VerbTerminate), "end failed terminated")
	l.want(l.operator(edda.VerbRedrive), "refused redrive nothing is held")
}

func TestCancelIgnoresTheLimitOfActions(t *testing.T) {
	l := limited(t, bulky, Options{MaxState: 64, MaxActions: 3})
	l.event("Go", `{"id":"K"}`)
	l.result("a", edda.Failed, `{}`)
	if in := l.cell.Instance; in.Status != edda.StatusFailed || in.Reason != "a.failed" {
		t.Errorf("status %s, reason %s", in.Status, in.Reason)
	}
}

func TestALetCycleIsPrinted(t *testing.T) {
	f, _ := manifests.Parse("m.yaml", []byte("saga: s\nkey: event.id\non:\n  Go:\n    start: true\n    let: {a: b, b: \"[c]\", c: len(a)}\n    do: [{done: =a}]\n"))
	_, ps := Compile(f.Sagas[0], Options{})
	if len(ps) != 1 || !strings.Contains(ps[0].Error(), "m.yaml:6:11: error: let needs itself: a → b → c → a") {
		t.Errorf("problems %v", ps)
	}
}

func TestExpressionErrorsPointIntoTheFile(t *testing.T) {
	f, _ := manifests.Parse("m.yaml", []byte("saga: s\nkey: event.id\non:\n  Go:\n    start: true\n    when: |\n      true and\n        nope > 1\n    do: [{done: \"a ${step.x}\"}]\n"))
	_, ps := Compile(f.Sagas[0], Options{})
	ps.Sort()
	var got []string
	for _, p := range ps {
		got = append(got, p.Error())
	}
	text := strings.Join(got, "\n")
	if len(ps) != 2 || !strings.Contains(text, "m.yaml:8:") || !strings.Contains(text, "m.yaml:9:22: error: no action makes a step \"x\"") {
		t.Errorf("problems:\n%s", text)
	}
}

func TestPoisonSaysWhereAndWithWhat(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{effect: a, with: {n: =event.n + 1}}]}\n", Options{})
	trs := l.event("Go", `{"id":"K","n":null}`)
	if d := trs[0].Dead; d == nil || d.Path != "Go/effect:a" || d.Source != "event.n + 1" || !strings.Contains(d.Inputs, `"n":null`) {
		t.Errorf("dead letter %+v", trs[0].Dead)
	}
}

func TestBigIntegersReachTheUndoExactly(t *testing.T) {
	const big = "9007199254740993"
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, set: {n: =event.n}, do: [{effect: a, with: {n: =state.n}, undo: {effect: u, with: {i: =input.n, r: =result.n}}}]}\n  a.ok: {do: [{fail: x}]}\n", Options{})
	l.event("Go", `{"id":`+big+`,"n":`+big+`}`)
	trs := l.result("a", edda.Succeeded, `{"n":`+big+`}`)
	if got := string(trs[0].Work[0].Payload); got != `{"i":`+big+`,"r":`+big+`}` {
		t.Errorf("undo with %s", got)
	}
}

// TestANumberBeyond64BitsReachesTheUndoExactly in events, states, results and keys. An expression that
// computes with it is poison that names the expression.
func TestANumberBeyond64BitsReachesTheUndoExactly(t *testing.T) {
	for _, big := range []string{"18446744073709551615", "-99999999999999999999", "1e999"} {
		l := limited(t, "saga: s\nkey: event.id\nschema: {properties: {n: {type: number}}}\non:\n  Go: {start: true, set: {n: =event.n}, do: [{effect: a, with: {n: =state.n}, undo: {effect: u, with: {i: =input.n, r: =result.n}}}]}\n"+
			"  More: {set: {sum: =state.n + 1}}\n  a.ok: {do: [{fail: x}]}\n", Options{})
		trs := l.event("Go", `{"id":18446744073709551615,"n":`+big+`}`)
		if got := string(trs[0].Work[0].Payload); trs[0].Key.Correlation != "18446744073709551615" || got != `{"n":`+big+`}` {
			t.Errorf("%s: %s with %s", big, trs[0].Key, got)
		}
		if dead := l.event("More", `{"id":18446744073709551615}`)[0].Dead; dead == nil || dead.Reason != edda.DeadPoison || !strings.Contains(dead.Error, "does not fit 64 bits") || dead.Source != "state.n + 1" {
			t.Errorf("%s: %+v", big, dead)
		}
		l.operator(edda.VerbDrop)
		trs = l.result("a", edda.Succeeded, `{"n":`+big+`}`)
		if got := string(trs[0].Work[0].Payload); got != `{"i":`+big+`,"r":`+big+`}` {
			t.Errorf("%s: undo with %s", big, got)
		}
	}
	l := limited(t, "saga: s\nkey: event.id\nschema: {properties: {n: {type: number}}}\non: {Go: {start: true, set: {n: =event.n}}}\n", Options{})
	l.want(l.event("Go", `{"id":"K","n":1e1000000}`), "dead Go poison")
	l.want(l.event("Go", `{"id":1e999}`), "dead Go no-key")
}

func TestAResultOutOfRangeIsPoisonAtOnce(t *testing.T) {
	l := limited(t, bulky, Options{})
	l.event("Go", `{"id":"K"}`)
	l.want(l.result("a", edda.Succeeded, strings.Repeat("[", 200)+strings.Repeat("]", 200)), "dead a.ok poison")
	l.want(l.operator(edda.VerbDrop), "")
	l.want(l.operator(edda.VerbCancel), "revoke a")
}

func TestNaNIsPoison(t *testing.T) {
	for _, source := range []string{"0.0 / 0", "1.5e308 * 10", "float('na' + 'n')"} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, set: {n: \"="+source+"\"}}\n", Options{})
		l.want(l.event("Go", `{"id":"K"}`), "dead Go poison")
	}
}

func TestDeepNestingIsPoison(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	l := limited(t, "saga: s\nkey: meta.correlation_id\non:\n  Go: {start: true, set: {n: =event.deep}}\n", Options{})
	l.want(l.give(edda.Event{Kind: edda.KindEvent, Type: "Go", Correlation: "K", Payload: json.RawMessage(`{"deep":` + deep + `}`)}), "dead Go poison")
}

func TestALateEventOfAMissingVersionHoldsNothing(t *testing.T) {
	l := newLine(t, setOf(t, "saga: s\nversion: 1\nkey: event.id\non:\n  Go: {start: true, do: [{done: }]}\n  More: {}\n"), "s")
	l.event("Go", `{"id":"K"}`)
	l.set = setOf(t, "saga: s\nversion: 2\nkey: event.id\non:\n  Go: {start: true}\n  More: {}\n")
	l.want(l.event("More", `{"id":"K"}`), "late More")
	l.want(l.event("More", `{"id":"K"}`), "late More")
}

func TestOlderVersionsHandleTheEventsThatTheyRoute(t *testing.T) {
	one := "saga: s\nversion: 1\nkey: event.id\non:\n  Go: {start: true}\n  Old: {do: [{event: OldSeen}]}\n  Both: {key: event.old, do: [{event: One}]}\n"
	two := "saga: s\nversion: 2\nkey: event.id\non:\n  Go: {start: true}\n  New: {do: [{event: NewSeen}]}\n  Both: {key: event.new, do: [{event: Two}]}\n"
	l := newLine(t, setOf(t, one), "s")
	l.event("Go", `{"id":"K"}`)
	l.set = setOf(t, one, two)
	l.want(l.event("Old", `{"id":"K"}`), "event OldSeen")
	l.want(l.event("New", `{"id":"K"}`), "ignored New")
	targets := l.set.Route(edda.Event{Kind: edda.KindEvent, Tenant: "t", Type: "Both", Payload: json.RawMessage(`{"old":"K","new":"L"}`)})
	if len(targets) != 2 || targets[0].Key.Correlation != "L" || targets[1].Key.Correlation != "K" {
		t.Fatalf("targets %v", targets)
	}
	_, trs := l.set.Apply(l.cell, targets[1], edda.Event{Kind: edda.KindEvent, ID: "b", Tenant: "t", Type: "Both", Time: l.now})
	l.want(trs, "event One")
	_, trs = l.set.Apply(l.cell, Target{Key: l.cell.Key, Versions: []int{2}}, edda.Event{Kind: edda.KindEvent, ID: "b", Type: "Both", Time: l.now})
	l.want(trs, "ignored Both")
}

func TestAnEventNewerThanKnownIsADeadVersionAndHoldsNothing(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\nevents: {Paid: {version: 2}}\non:\n  Go: {start: true}\n  Paid: {do: [{done: }]}\n", Options{})
	l.event("Go", `{"id":"K"}`)
	l.want(l.give(edda.Event{Kind: edda.KindEvent, Type: "Paid", Version: 3, Payload: json.RawMessage(`{"id":"K"}`)}), "dead Paid version")
	l.want(l.give(edda.Event{Kind: edda.KindEvent, Type: "Paid", Version: 2, Payload: json.RawMessage(`{"id":"K"}`)}), "end done")
}

func TestAnEventNamedLikeAStepsOutcomeRunsNoHandlerOfTheStep(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{effect: charge}, {timer: t, after: 1h}]}\n  charge.ok: {do: [{done: }]}\n  timer.t: {do: [{done: }]}\n", Options{})
	l.event("Go", `{"id":"K"}`)
	for _, ev := range []edda.Event{{AggregateType: "charge", Type: "ok"}, {AggregateType: "timer", Type: "t"}, {Type: "charge.ok"}} {
		ev.Kind, ev.Payload = edda.KindEvent, json.RawMessage(`{"id":"K"}`)
		if trs := l.give(ev); len(trs) > 0 {
			t.Errorf("%s.%s does %s", ev.AggregateType, ev.Type, said(trs))
		}
	}
}

const clocks = `saga: clocks
key: event.id
on:
  Go: {start: true, do: [{timer: beat, every: 1h}, {timer: each, every: 1h, catchup: all}, {timer: punctual, every: 1h, catchup: none}, {timer: once, after: 90m}]}
  timer.beat: {}
  timer.each: {}
  timer.punctual: {}
  timer.once: {}
`

func TestMissedTimesOfARepeatingTimerFireInOrder(t *testing.T) {
	l := limited(t, clocks, Options{})
	l.event("Go", `{"id":"K"}`)
	l.want(l.wake(testStart.Add(3*time.Hour+30*time.Minute)), "fired each, fired once, fired each, fired beat, fired each")
	for _, timer := range l.cell.Instance.Timers {
		if timer.Due != testStart.Add(4*time.Hour) {
			t.Errorf("timer %s at %s", timer.Name, timer.Due)
		}
	}
	if got := l.cell.Instance.Armed; got != testStart.Add(4*time.Hour) {
		t.Errorf("armed for %s", got)
	}
}

func TestATimerThatArmsItselfForNowDoesNotBlockAWorker(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, after: 0s}]}\n  timer.t: {do: [{timer: t, after: 0s}]}\n", Options{})
	l.event("Go", `{"id":"K"}`)
	trs := l.wake(testStart)
	if len(trs) != maxFired || l.cell.Instance.Armed != testStart {
		t.Fatalf("%d transitions, armed for %s", len(trs), l.cell.Instance.Armed)
	}
	for _, tr := range trs {
		if len(tr.Disarm) > 0 {
			t.Errorf("the row that is still needed is removed")
		}
	}
}

func TestAnEndlessTimerFailsItsTest(t *testing.T) {
	f, _ := manifests.Parse("m.yaml", []byte("saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, after: 0s}]}\n  timer.t: {do: [{timer: t, after: 0s}]}\ntests:\n  - name: endless\n    steps: [{event: Go, data: {id: K}}, {advance: 1h}]\n"))
	res, _ := RunTests(f.Sagas[0], Options{})
	if len(res) != 1 || res[0].Passed || !strings.Contains(res[0].Diff, "does one arm itself for now?") {
		t.Errorf("results %+v", res)
	}
}

func TestParkedEventsAreAppliedBeforeTheHeldOnes(t *testing.T) {
	l := newLine(t, setOf(t, "saga: s\nversion: 1\nkey: event.id\non:\n  Go: {start: true, set: {n: \"=1 + nil\"}}\n  Add: {do: [{event: Added, with: {n: =event.n}}]}\n"), "s")
	l.event("Add", `{"id":"K","n":1}`)
	l.event("Go", `{"id":"K"}`)
	l.event("Add", `{"id":"K","n":2}`)
	l.set = setOf(t, "saga: s\nversion: 2\nkey: event.id\non:\n  Go: {start: true}\n  Add: {do: [{event: Added, with: {n: =event.n}}]}\n")
	trs := l.operator(edda.VerbRedrive)
	l.want(trs, "unparked Add, event Added, event Added")
	if got := string(trs[len(trs)-1].Outputs[0].With); got != `{"n":2}` || len(l.cell.Held) > 0 || len(l.cell.Parked) > 0 {
		t.Errorf("last %s, held %v, parked %v", got, l.cell.Held, l.cell.Parked)
	}
}

func TestAViolatedSchemaDoesNotHideTheKey(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\nevents: {Go: {schema: {required: [n]}}}\non:\n  Go: {start: true}\n", Options{})
	l.want(l.event("Go", `{"id":"K"}`), "dead Go poison")
}

func TestAWholeNumberIsAKeyAndAFractionIsNone(t *testing.T) {
	set := setOf(t, "saga: s\nkey: event.id\non:\n  Go: {start: true}\n")
	for payload, want := range map[string]string{`{"id":12}`: "12", `{"id":12.0}`: "12", `{"id":"a b/é"}`: "a b/é", `{"id":1.5}`: "", `{"id":true}`: "", `{"id":""}`: "", `{}`: "", `[`: ""} {
		targets := set.Route(edda.Event{Kind: edda.KindEvent, Type: "Go", Payload: json.RawMessage(payload)})
		if len(targets) != 1 || targets[0].Key.Correlation != want || (targets[0].Dead != nil) != (want == "") {
			t.Errorf("%s goes to %+v", payload, targets)
		}
	}
}

func TestWithoutAKeyTheCorrelationIDIsTheKey(t *testing.T) {
	set := setOf(t, "saga: s\non:\n  Go: {start: true}\n")
	targets := set.Route(edda.Event{Kind: edda.KindEvent, Type: "Go", Correlation: "C"})
	if len(targets) != 1 || targets[0].Key.Correlation != "C" || targets[0].Dead != nil {
		t.Errorf("targets %+v", targets)
	}
	if targets = set.Route(edda.Event{Kind: edda.KindEvent, Type: "Go"}); targets[0].Dead == nil || targets[0].Dead.Reason != edda.DeadNoKey {
		t.Errorf("targets %+v", targets)
	}
}

// TestAKeyBeyondItsLimitStartsNothing: such a key starts no instance and parks no event.
// An instance that exists continues.
func TestAKeyBeyondItsLimitStartsNothing(t *testing.T) {
	const text = "saga: s\nkey: event.id\non:\n  Go: {start: true}\n  More: {set: {n: 1}}\n  signal.go: {start: true}\n"
	longest, long := strings.Repeat("é", edda.MaxKey/2), strings.Repeat("é", edda.MaxKey/2)+"x"
	id := func(key string) string { return `{"id":"` + key + `"}` }
	l := limited(t, text, Options{})
	l.want(l.event("Go", id(longest)), "")
	if l.cell.Instance == nil {
		t.Fatal("the longest key starts nothing")
	}
	for name, event := range map[string]string{"a start": "Go", "what would be parked": "More"} {
		l := limited(t, text, Options{})
		trs := l.event(event, id(long))
		d := trs[0].Dead
		if l.cell.Instance != nil || len(l.cell.Parked) > 0 || d == nil || d.Reason != edda.DeadNoKey || d.Key.Correlation != "" || !strings.Contains(d.Error, "the key has 2049 bytes, more than 2048") {
			t.Errorf("%s: %+v", name, trs)
		}
		again := limited(t, text, Options{})
		if twice := again.event(event, id(long))[0].Dead; twice.ID != d.ID {
			t.Errorf("%s: the dead letters of one event are %s and %s", name, d.ID, twice.ID)
		}
	}
	k := edda.Key{Tenant: "t", Saga: "s", Correlation: long}
	apply := func(cell edda.Cell, ev edda.Event) (edda.Cell, edda.Transition) {
		ev.ID, ev.Tenant, ev.Key, ev.Time = "e1", "t", k, testStart
		cell, trs := l.set.Apply(cell, l.set.Route(ev)[0], ev)
		return cell, trs[0]
	}
	if cell, tr := apply(edda.Cell{}, edda.Event{Kind: edda.KindSignal, Type: "go"}); cell.Instance != nil || tr.Dead == nil || tr.Dead.Reason != edda.DeadNoKey {
		t.Errorf("a signal that starts: %+v", tr)
	}
	child := edda.Event{Kind: edda.KindStart, Type: "Go", CommandID: "c1", Parent: edda.Key{Tenant: "t", Saga: "p", Correlation: "P"}, Payload: json.RawMessage(`{}`)}
	if cell, tr := apply(edda.Cell{}, child); cell.Instance != nil || len(tr.Work) != 1 || tr.Work[0].Outcome != edda.Failed || !strings.Contains(string(tr.Work[0].Payload), `"no-key"`) {
		t.Errorf("a child: %+v", tr)
	}
	old := edda.Cell{Key: k, Instance: &edda.Instance{Key: k, Version: 1, Hash: l.set.Newest("s").Hash(), Status: edda.StatusRunning, State: json.RawMessage(`{}`)}}
	if cell, tr := apply(old, edda.Event{Kind: edda.KindEvent, Type: "More", Payload: json.RawMessage(id(long))}); tr.Dead != nil || string(cell.Instance.State) != `{"n":1}` {
		t.Errorf("an existing instance: %+v, %s", tr, cell.Instance.State)
	}
}

const childText = `
saga: child
version: 1
key: meta.correlation_id
on:
  Begun: {start: true}
  Noted: {set: {n: 1}}
`

func startedChild(t *testing.T) *line {
	l := limited(t, childText, Options{})
	l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-1", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "P"}})
	if l.cell.Instance == nil {
		t.Fatal("the child did not start")
	}
	return l
}

// TestAParentCannotCancelAnInstanceThatItDidNotStart: a parent that fails before
// it hears that the key is in use sends a cancel after its refused start.
func TestAParentCannotCancelAnInstanceThatItDidNotStart(t *testing.T) {
	l := startedChild(t)
	l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-2", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "Q"}})
	out := l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbCancel, CommandID: "start-2", By: "parent"})
	if got := l.cell.Instance.Status; got != edda.StatusRunning || out[0].Fate != edda.FateLate {
		t.Errorf("a stranger's cancel left the child %s, fate %s", got, out[0].Fate)
	}
	l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbCancel, CommandID: "start-1", By: "parent"})
	if got := l.cell.Instance.Status; !got.Finished() {
		t.Errorf("its own parent's cancel left the child %s", got)
	}
}

// TestAStartSentAgainMuchLaterIsADuplicate: the relay died after sending and before recording
// it, and the child has forgotten the message's id meanwhile.
func TestAStartSentAgainMuchLaterIsADuplicate(t *testing.T) {
	l := startedChild(t)
	for range recentIDs + 1 {
		l.give(edda.Event{Kind: edda.KindEvent, Type: "Noted", Correlation: "K"})
	}
	out := l.give(edda.Event{Kind: edda.KindStart, CommandID: "start-1", Parent: edda.Key{Tenant: "t", Saga: "parent", Correlation: "P"}})
	if out[0].Fate != edda.FateDuplicate || len(out[0].Work) > 0 {
		t.Errorf("fate %s with %d pieces of work, want a duplicate without", out[0].Fate, len(out[0].Work))
	}
}

// TestAHoldLeavesTheNowOfTheInstance unchanged: a redriven event is applied as of its own
// time, however long it was held, and so are the events behind it.
func TestAHoldLeavesTheNowOfTheInstance(t *testing.T) {
	l := limited(t, `saga: s
key: event.id
on:
  Go: {start: true}
  Count: {set: {n: "=event.n + 1"}, do: [{timer: t, after: 1h}]}
  More: {do: [{timer: u, after: 1h}]}
  timer.t: {}
  timer.u: {}
`, Options{})
	l.event("Go", `{"id":"K"}`)
	began := l.cell.Instance.Updated
	l.now = l.now.Add(time.Minute)
	poison := l.now
	l.event("Count", `{"id":"K"}`)
	l.now = l.now.Add(time.Minute)
	behind := l.now
	l.event("More", `{"id":"K"}`)
	if in := l.cell.Instance; !in.Updated.Equal(began) || in.Held == "" {
		t.Errorf("updated %v, want it at %v; held by %q", in.Updated, began, in.Held)
	}
	if why := strings.Join(Why(l.cell), ""); !strings.Contains(why, "holds it since "+edda.FormatTime(poison)+", 1 events behind it") {
		t.Errorf("it waits for %s", why)
	}
	l.now = l.now.Add(time.Hour)
	data, err := json.Marshal(edda.Redrive{DeadLetter: l.cell.Held[0].DeadLetter, Data: json.RawMessage(`{"id":"K","n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRedrive, Payload: data})
	in := l.cell.Instance
	if in.Held != "" || !in.Updated.Equal(behind) || len(in.Timers) != 2 || !in.Timers[0].Due.Equal(poison.Add(time.Hour)) || !in.Timers[1].Due.Equal(behind.Add(time.Hour)) {
		t.Errorf("held %q, updated %v, timers %+v", in.Held, in.Updated, in.Timers)
	}
}

// A late timer sends a command whose result came before it. The result is needed when it comes
// again.
func TestALateResultIsAppliedOnceItsCommandIsSent(t *testing.T) {
	set := setOf(t, "saga: s\nversion: 1\nkey: event.id\non:\n  Go: {start: true, do: [{timer: t, after: 1h}]}\n  timer.t: {do: [{effect: charge}]}\n  charge.ok: {do: [{done: }]}\n")
	start := edda.Event{Kind: edda.KindEvent, ID: "e1", Tenant: "t", Type: "Go", Time: testStart, Payload: json.RawMessage(`{"id":"K"}`)}
	began, _ := set.Apply(edda.Cell{}, one(t, set, start), start)
	due := testStart.Add(time.Hour)
	_, fired := set.Wake(began, began.Instance.Armed, due)
	charge := fired[0].Work[0]
	if sent := CommandTime(charge.ID); !sent.Equal(due) {
		t.Errorf("the command says that it was sent at %v", sent)
	}
	result := edda.Event{
		Kind: edda.KindResult, ID: "r1", Tenant: "t", Key: charge.From, Outcome: edda.Succeeded, Time: due.Add(time.Second),
		Step: charge.Step, CommandID: charge.ID, Payload: json.RawMessage(`{}`),
	}
	early, trs := set.Apply(began, one(t, set, result), result)
	if trs[0].Fate != edda.FateLate {
		t.Fatalf("before its command the result is %s", trs[0].Fate)
	}
	sent, _ := set.Wake(early, early.Instance.Armed, due)
	for i, want := range []edda.Fate{edda.FateHandled, edda.FateDuplicate} {
		var trs []edda.Transition
		if sent, trs = set.Apply(sent, one(t, set, result), result); trs[0].Fate != want {
			t.Errorf("time %d after its command the result is %s, not %s", i+1, trs[0].Fate, want)
		}
	}
	if sent.Instance.Status != edda.StatusDone {
		t.Errorf("the saga is %s", sent.Instance.Status)
	}
}

func TestAForeignIDHasNoTime(t *testing.T) {
	for _, id := range []string{"", "x", "0b3c5a1e-0000-4000-8000-000000000000", "01ARZ3NDEKTSV4RRFFQ69G5FAV"} {
		if at := CommandTime(id); !at.IsZero() {
			t.Errorf("%q: %v", id, at)
		}
	}
}

// TestARetryOfAnUnknownOutcomeKeepsItsIdempotencyKey, so that the provider sees the same call. A
// retry after a failure is another call.
func TestARetryOfAnUnknownOutcomeKeepsItsIdempotencyKey(t *testing.T) {
	for outcome, same := range map[edda.Outcome]bool{edda.TimedOut: true, edda.Failed: false} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{effect: pay, must: true}]}\n", Options{})
		first := l.event("Go", `{"id":"K"}`)[0].Work[0]
		l.result("pay", outcome, `{}`)
		second := l.give(edda.Event{Kind: edda.KindOperator, Type: edda.VerbRetry, Step: "pay"})[0].Work[0]
		if first.ID == second.ID || first.IdempotencyKey != first.ID || (second.IdempotencyKey == first.IdempotencyKey) != same {
			t.Errorf("%s: the key %s of %s became %s of %s", outcome, first.IdempotencyKey, first.ID, second.IdempotencyKey, second.ID)
		}
	}
}

func TestAStepThatIsEmittedTwiceInOneTransitionIsPoison(t *testing.T) {
	for what, do := range map[string]string{
		`step "a"`:  "{effect: a, if: event.twice}, {effect: a, if: event.twice}",
		`group "g"`: "{each: event.list, id: g, if: event.twice, do: [{effect: b}]}, {each: event.list, id: g, if: event.twice, do: [{effect: c}]}",
		`step "c"`:  "{command: A.B, id: c, to: x, if: event.twice}, {command: A.B, id: c, to: x, if: event.twice}",
	} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: ["+do+"]}\n", Options{})
		trs := l.event("Go", `{"id":"K","twice":true,"list":[1]}`)
		if d := trs[0].Dead; d == nil || !strings.Contains(d.Error, what+" is emitted twice in one transition") {
			t.Errorf("%s: %+v", what, trs[0])
		}
	}
}

// TestASkippedUndoLeavesItsStepOK, because nothing took it back.
func TestASkippedUndoLeavesItsStepOK(t *testing.T) {
	for verb, want := range map[string]edda.StepStatus{edda.VerbSkip: edda.StepOK, edda.VerbResolve: edda.StepUndone} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{effect: a, undo: un_a}]}\n  Stop: {do: [{fail: stopped}]}\n", Options{})
		l.event("Go", `{"id":"K"}`)
		l.result("a", edda.Succeeded, `{}`)
		l.event("Stop", `{"id":"K"}`)
		l.result("a.undo", edda.Failed, `{}`)
		l.give(edda.Event{Kind: edda.KindOperator, Type: verb, Step: "a.undo"})
		if got := l.cell.Instance.Steps[0].Status; got != want {
			t.Errorf("%s: the step is %s, want %s", verb, got, want)
		}
	}
}
