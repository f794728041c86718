package saga

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"edda"
	"edda/internal/jsonvalue"
)

// refunds is a saga of three steps; the test gives the undo of the second.
func refunds(undo string) string {
	return `saga: refunds
version: 1
key: event.id
on:
  Go: {start: true, do: [{seq: [{effect: a, undo: un_a}, {effect: b, undo: ` + undo + `}, {effect: c, undo: un_c}]}]}
  Stop: {do: [{fail: stopped}]}
  Back: {do: [{undo: b}]}
  b.undone: {do: [{event: Undone}]}
`
}

// refundsLine has run all three steps; result is the result of b.
func refundsLine(t *testing.T, text, result string) *line {
	t.Helper()
	l := newLine(t, setWith(t, []*Program{compiled(t, text, Options{})}, nil), "refunds")
	l.event("Go", `{"id":"K"}`)
	l.result("a", edda.Succeeded, `{}`)
	l.result("b", edda.Succeeded, result)
	l.result("c", edda.Succeeded, `{}`)
	return l
}

// verb sends an operator's verb about the undo of b, with data if it is not empty.
func (l *line) verb(verb, data string) []edda.Transition {
	return l.give(edda.Event{Kind: edda.KindOperator, Type: verb, Step: "b.undo", Payload: json.RawMessage(data)})
}

const dividing = "{effect: un_b, with: {n: =10 % result.n}}"

// TestAnUndoThatCannotBeEvaluatedHasFailed: the event is not poison and the key is not held. The
// other undos run once an operator skips this one.
func TestAnUndoThatCannotBeEvaluatedHasFailed(t *testing.T) {
	deep := nestedBy(jsonvalue.MaxDepth)
	for undo, tt := range map[string]struct{ result, says string }{
		"{effect: un_b, with: {r: =result}}":      {deep, "nested deeper than 128"},
		"{effect: un_b, with: [=result]}":         {deep, "nested deeper than 128"},
		dividing:                                  {`{"n":0}`, "10 % result.n"},
		"{effect: un_b, due: =result.n}":          {`{"n":"soon"}`, "duration"},
		"{command: Acc.Back, to: =result.to.x}":   {`{"to":1}`, "result.to.x"},
		"{command: A.B, to: =key, with: =result}": {`{"n":1}`, ""}, // this one is sent
	} {
		l := refundsLine(t, refunds(undo), tt.result)
		l.want(l.event("Stop", `{"id":"K"}`), "effect un_c")
		if tt.says == "" {
			l.want(l.result("c.undo", edda.Succeeded, `{}`), "command A.B, effect un_a")
			continue
		}
		trs := l.result("c.undo", edda.Succeeded, `{}`)
		l.want(trs, "incident b.undo failed")
		in := l.cell.Instance
		if in.Status != edda.StatusStuck || len(l.cell.Held) > 0 || len(in.Incidents) != 1 || !strings.Contains(string(in.Incidents[0].Error), tt.says) {
			t.Errorf("%s: %s, held %d, incidents %+v, want it to say %q", undo, in.Status, len(l.cell.Held), in.Incidents, tt.says)
		}
		wantReadable(t, undo, reflect.ValueOf(trs))
		l.want(l.verb(edda.VerbSkip, ""), "effect un_a")
		l.want(l.result("a.undo", edda.Succeeded, `{}`), "end failed stopped")
		if got := l.cell.Instance.Incomplete; len(got) != 1 || got[0] != "b" {
			t.Errorf("%s: incomplete %v", undo, got)
		}
	}
}

// TestOtherUndosRunBesideOneThatCannotBeEvaluated where all run at once.
func TestOtherUndosRunBesideOneThatCannotBeEvaluated(t *testing.T) {
	l := refundsLine(t, strings.Replace(refunds(dividing), "key:", "undo_order: parallel\nkey:", 1), `{"n":0}`)
	l.want(l.event("Stop", `{"id":"K"}`), "effect un_c, incident b.undo failed, effect un_a")
	l.result("a.undo", edda.Succeeded, `{}`)
	l.result("c.undo", edda.Succeeded, `{}`)
	l.want(l.verb(edda.VerbResolve, ""), "end undone stopped")
}

// TestAResultIsForTheUndoThatWasSent, and not for that of another round of the step.
func TestAResultIsForTheUndoThatWasSent(t *testing.T) {
	l := newLine(t, setWith(t, []*Program{compiled(t, `saga: rounds
version: 1
key: event.id
undo_order: parallel
on:
  Go: {start: true, do: [{effect: b, with: =event, undo: {effect: un_b, with: {n: =10 % input.n}}}]}
  Again: {do: [{effect: b, with: =event, undo: {effect: un_b, with: {n: =10 % input.n}}}]}
  Stop: {do: [{fail: stopped}]}
`, Options{})}, nil), "rounds")
	l.event("Go", `{"id":"K","n":3}`)
	l.result("b", edda.Succeeded, `{}`)
	l.event("Again", `{"id":"K","n":0}`)
	l.result("b", edda.Succeeded, `{}`)
	l.want(l.event("Stop", `{"id":"K"}`), "incident b.undo failed, effect un_b")
	l.want(l.result("b.undo", edda.Succeeded, `{}`), "")
	l.want(l.verb(edda.VerbResolve, ""), "end undone stopped")
}

// TestACancelIsNotRefusedForAnUndoThatCannotBeEvaluated, as it was when that made the event
// poison.
func TestACancelIsNotRefusedForAnUndoThatCannotBeEvaluated(t *testing.T) {
	l := refundsLine(t, strings.Replace(refunds("un_b"), "undo: un_c", "undo: {effect: un_c, with: {n: =result.n + 1}}", 1), `{}`)
	l.want(l.operator(edda.VerbCancel), "incident c.undo failed")
	if in := l.cell.Instance; in.Status != edda.StatusStuck || in.Reason != "cancelled" {
		t.Errorf("%s, %s", in.Status, in.Reason)
	}
}

// TestARetryEvaluatesAnUndoThatWasNotSent, under the id that it would have had.
func TestARetryEvaluatesAnUndoThatWasNotSent(t *testing.T) {
	l := refundsLine(t, refunds(dividing), `{"n":0}`)
	l.event("Stop", `{"id":"K"}`)
	l.result("c.undo", edda.Succeeded, `{}`)
	l.want(l.verb(edda.VerbRetry, ""), "incident b.undo failed")
	trs := l.verb(edda.VerbRetry, `{"n":3}`)
	l.want(trs, "effect un_b")
	u := l.cell.Instance.Undos[0]
	if w := trs[0].Work[0]; string(w.Payload) != `{"n":3}` || w.Attempt != 1 || w.ID != u.Command || w.IdempotencyKey != w.ID || len(l.cell.Instance.Incidents) > 0 {
		t.Errorf("sent %+v; incidents %+v", w, l.cell.Instance.Incidents)
	}
	sound := refundsLine(t, refunds(dividing), `{"n":5}`)
	sound.event("Stop", `{"id":"K"}`)
	if want := sound.result("c.undo", edda.Succeeded, `{}`)[0].Work[0].ID; u.Command != want {
		t.Errorf("command %s, want %s", u.Command, want)
	}
	l.want(l.result("b.undo", edda.Failed, `{}`), "incident b.undo failed")
	if trs := l.verb(edda.VerbRetry, ""); trs[0].Work[0].ID == u.Command || string(trs[0].Work[0].Payload) != `{"n":3}` {
		t.Errorf("the next try is %+v", trs[0].Work[0])
	}
	l.want(l.result("b.undo", edda.Succeeded, `{}`), "effect un_a")
	l.want(l.result("a.undo", edda.Succeeded, `{}`), "end undone stopped")
}

// TestARetryOfAnUndoTakesTheMendedText, as a redrive does, and only if the instance's own text
// fails.
func TestARetryOfAnUndoTakesTheMendedText(t *testing.T) {
	old := refunds(dividing)
	mended := strings.Replace(strings.Replace(old, "10 % result.n", "result.n", 1), "version: 1", "version: 2", 1)
	broken := strings.Replace(strings.Replace(old, "10 % result.n", "11 % result.n", 1), "version: 1", "version: 2", 1)
	for text, want := range map[string]string{mended: "upgraded refunds, effect un_b", broken: "incident b.undo failed"} {
		l := refundsLine(t, old, `{"n":0}`)
		l.event("Stop", `{"id":"K"}`)
		l.result("c.undo", edda.Succeeded, `{}`)
		l.set = setWith(t, []*Program{compiled(t, text, Options{})}, []*Program{compiled(t, old, Options{})})
		l.want(l.verb(edda.VerbRetry, ""), want)
		if up := l.cell.Instance.Version == 2; up != (text == mended) {
			t.Errorf("version %d after %s", l.cell.Instance.Version, want)
		}
	}
	l := refundsLine(t, old, `{"n":0}`)
	l.event("Stop", `{"id":"K"}`)
	l.result("c.undo", edda.Succeeded, `{}`)
	l.set = setWith(t, []*Program{compiled(t, mended, Options{})}, []*Program{compiled(t, old, Options{})})
	l.want(l.verb(edda.VerbRetry, `{"n":1}`), "effect un_b")
}

// TestARetriedCommandContinuesTheUnwinding, because a command gets no answer.
func TestARetriedCommandContinuesTheUnwinding(t *testing.T) {
	old := refunds("{command: Acc.Back, to: =result.to.x}")
	l := refundsLine(t, old, `{"to":1}`)
	l.event("Stop", `{"id":"K"}`)
	l.result("c.undo", edda.Succeeded, `{}`)
	mended := strings.Replace(strings.Replace(old, "result.to.x", "key", 1), "version: 1", "version: 2", 1)
	l.set = setWith(t, []*Program{compiled(t, mended, Options{})}, []*Program{compiled(t, old, Options{})})
	l.want(l.verb(edda.VerbRetry, ""), "upgraded refunds, command Acc.Back, effect un_a")
}

// TestAnExplicitUndoThatCannotBeEvaluated leaves the saga running. If that fails later, the frame
// is tried again in its order.
func TestAnExplicitUndoThatCannotBeEvaluated(t *testing.T) {
	l := refundsLine(t, refunds(dividing), `{"n":0}`)
	l.want(l.event("Back", `{"id":"K"}`), "incident b.undo failed")
	if in := l.cell.Instance; in.Status != edda.StatusRunning || len(in.Frames) != 2 {
		t.Errorf("%s with %d frames", in.Status, len(in.Frames))
	}
	l.want(l.verb(edda.VerbSkip, ""), "event Undone")

	l = refundsLine(t, refunds(dividing), `{"n":0}`)
	l.event("Back", `{"id":"K"}`)
	l.want(l.event("Stop", `{"id":"K"}`), "effect un_c")
	if in := l.cell.Instance; len(in.Frames) != 2 || len(in.Incidents) > 0 {
		t.Errorf("%d frames, incidents %+v", len(in.Frames), in.Incidents)
	}
	l.want(l.result("c.undo", edda.Succeeded, `{}`), "incident b.undo failed")
}

// TestAReplayRebuildsARetry: history records the version that the instance had then.
func TestAReplayRebuildsARetry(t *testing.T) {
	old := refunds(dividing)
	mended := strings.Replace(strings.Replace(old, "10 % result.n", "result.n", 1), "version: 1", "version: 2", 1)
	before := setWith(t, []*Program{compiled(t, old, Options{})}, nil)
	after := setWith(t, []*Program{compiled(t, mended, Options{})}, []*Program{compiled(t, old, Options{})})
	l := newLine(t, before, "refunds")
	trs := l.event("Go", `{"id":"K"}`)
	trs = append(trs, l.result("a", edda.Succeeded, `{}`)...)
	trs = append(trs, l.result("b", edda.Succeeded, `{"n":0}`)...)
	trs = append(trs, l.event("Stop", `{"id":"K"}`)...)
	trs = append(trs, l.result("c", edda.Failed, `{}`)...)
	trs = append(trs, l.verb(edda.VerbRetry, "")...)
	l.set = after
	trs = append(trs, l.verb(edda.VerbRetry, "")...)
	trs = append(trs, l.result("b.undo", edda.Succeeded, `{}`)...)
	trs = append(trs, l.result("a.undo", edda.Succeeded, `{}`)...)
	if in := l.cell.Instance; in.Status != edda.StatusUndone || in.Version != 2 {
		t.Fatalf("%s, version %d: %s", in.Status, in.Version, said(trs))
	}
	b := Rebuilder{Newest: Pin{Version: 2}, Decide: func(pins ...Pin) (Decider, error) {
		if slices.ContainsFunc(pins, func(p Pin) bool { return p.Version == 2 }) {
			return after, nil
		}
		return before, nil
	}}
	built, err := b.Rebuild(l.cell.Key, past(trs))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(Adopt(built.Cell, l.cell, false))
	want, err2 := json.Marshal(l.cell)
	if err != nil || err2 != nil || string(got) != string(want) {
		t.Errorf("built again it is\n%s\nand was\n%s", got, want)
	}
}
