//go:build !quick

package saga

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"edda"
)

// dear is an expression that uses about half of its own bound.
const dear = "len(map(1..350, sum(map(1..350, 1))))"

// TestManyCostlyExpressionsInOneEventArePoison: each is within its own bound, but together they delay
// other events too long. The instance is held, and can be ended.
func TestManyCostlyExpressionsInOneEventArePoison(t *testing.T) {
	var set, lets, acts, payloads, keeps strings.Builder
	for i := range 300 {
		fmt.Fprintf(&set, "a%d: \"=%s\", ", i, dear)
		fmt.Fprintf(&lets, "a%d: \"%s\", ", i, dear)
		fmt.Fprintf(&acts, "{if: \"%s > 1e9\", event: Never}, ", dear)
		fmt.Fprintf(&payloads, "{command: A.B, to: x, with: {doc: =event.doc}}, ")
		fmt.Fprintf(&keeps, "{effect: a, id: a%d, with: {}, undo: {effect: u, with: {doc: =event.doc}}}, ", i)
	}
	doc := `"` + strings.Repeat("x", 600<<10) + `"`
	many := "[" + strings.Repeat("1,", 300_000) + "1]"
	for name, tt := range map[string]struct{ handler, doc string }{
		"set":      {"set: {" + set.String() + "}", "1"},
		"let":      {"let: {" + lets.String() + "}, set: {n: =" + sumOfLets(300) + "}", "1"},
		"if":       {"do: [" + acts.String() + "]", "1"},
		"payloads": {"do: [" + payloads.String() + "]", doc},
		"lists":    {"do: [" + strings.ReplaceAll(payloads.String(), "=event.doc", "'=concat(event.doc, [])'") + "]", many},
		"texts":    {"do: [" + strings.ReplaceAll(payloads.String(), "=event.doc", "'a ${event.doc}'") + "]", doc},
		"kept":     {"do: [" + keeps.String() + "]", doc},
		"steps":    {"set: {" + strings.ReplaceAll(set.String(), dear, "len(step.first.result.doc) + len(step.first.result)") + "}", doc},
	} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true, do: [{effect: first, with: {}}]}\n  first.ok: {}\n  Much: {"+tt.handler+"}\n  More: {set: {n: 1}}\n", Options{})
		l.event("Go", `{"id":"K"}`)
		if name == "steps" {
			l.result("first", edda.Succeeded, `{"doc":`+many+`}`)
		}
		trs := l.event("Much", `{"id":"K","doc":`+tt.doc+`}`)
		dead := trs[0].Dead
		if dead == nil || dead.Reason != edda.DeadPoison || !strings.Contains(dead.Error, "budget of 4000000 steps") || len(trs[0].Work) > 0 {
			t.Fatalf("%s: %.400s", name, fmt.Sprint(trs[0].Fate, dead))
		}
		l.want(l.event("More", `{"id":"K"}`), "held More")
		if len(l.cell.Held) == 0 {
			t.Errorf("%s: nothing is held", name)
		}
		l.operator(edda.VerbTerminate)
		if !l.cell.Instance.Status.Finished() {
			t.Errorf("%s: %s", name, l.cell.Instance.Status)
		}
	}
}

func sumOfLets(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("a", i)
	}
	return strings.Join(names, " + ")
}

// TestAnOrdinaryEventIsFarFromItsBudget uses the largest fan-out and a payload that is not small.
func TestAnOrdinaryEventIsFarFromItsBudget(t *testing.T) {
	l := limited(t, "saga: s\nkey: event.id\non: {Go: {start: true, do: [{each: event.items, as: i, id: g, do: [{effect: a, with: {item: =i, total: '=sum(event.items, .price * .qty)'}}]}]}}\n", Options{})
	item := `{"sku":"` + strings.Repeat("x", 100) + `","price":7,"qty":2}`
	trs := l.event("Go", `{"id":"K","items":[`+strings.Repeat(item+",", 99)+item+`]}`)
	if len(trs[0].Work) != 100 {
		t.Errorf("%.300v", trs[0].Dead)
	}
}

// TestAnEndingInstanceHasNoBudget, so that every instance can be ended.
func TestAnEndingInstanceHasNoBudget(t *testing.T) {
	for verb, end := range map[string]edda.Status{edda.VerbCancel: edda.StatusFailed, edda.VerbTerminate: edda.StatusFailed} {
		l := limited(t, "saga: s\nkey: event.id\non:\n  Go: {start: true}\n  saga.failed: {do: [{event: Ended, with: {n: '="+dear+"'}}]}\n", Options{MaxEvaluation: 100})
		l.event("Go", `{"id":"K"}`)
		l.operator(verb)
		if l.cell.Instance.Status != end {
			t.Errorf("%s: %s", verb, l.cell.Instance.Status)
		}
	}
}

// TestTheBudgetEndsAtTheSameStepInAReplay for any part of the event that was decoded
// before, and with any spacing.
func TestTheBudgetEndsAtTheSameStepInAReplay(t *testing.T) {
	const upcasts, text = "events: {Go: {upcast: {1: {set: {up: '=len(event.list)'}}}}}\n", "saga: s\nkey: 'event[\"i\" + \"d\"]'\non:\n  Go:\n    start: true\n    let: {n: 'sum(event.list)', all: event}\n" +
		"    set: {n: =n, part: =event.deep.a, text: 'x ${event.deep}'}\n    do:\n      - {command: A.B, to: =key, with: {all: =event, deep: =event.deep.a, let: =all, n: =n, s: =state.part, computed: '=concat(event.list, [1])'}}\n" +
		"      - {effect: a, with: {d: =event.deep}, undo: {effect: u, with: {d: =event.deep, n: =n}}}\n      - seq: [{effect: b, with: =event.deep}, {event: Late, with: {d: =event.deep}}]\n" +
		"  a.ok: {set: {r: =step.a.result.x}, do: [{event: Done, with: {r: =event, s: =step.a}}]}\n"
	compact := `{"deep":{"a":{"b":[1,2,{"c":"text"}],"d":null}},"id":"K","list":[1,2,3,4,5,6,7,8]}`
	var spaced strings.Builder
	for _, c := range compact {
		spaced.WriteRune(c)
		if strings.ContainsRune("{}[],:", c) {
			spaced.WriteString(" \n\t ")
		}
	}
	read := strings.NewReplacer(", all: event", "", ", let: =all", "", "text: 'x ${event.deep}'", "text: 'x ${key}'", ", computed: '=concat(event.list, [1])'", "", ", deep: =event.deep.a, n: =n, s: =state.part", "")
	for _, text := range []string{text, text + upcasts, read.Replace(text)} {
		if last := firstThatDoes(t, text, compact, spaced.String()); last < 20 {
			t.Errorf("all is done within a budget of %d", last)
		}
	}
}

// firstThatDoes is the smallest sufficient budget. With each smaller one all variants must give
// the same.
func firstThatDoes(t *testing.T, text string, payloads ...string) int {
	for budget := 1; budget < 400; budget++ {
		var seen []string
		for _, payload := range payloads {
			for _, decodedBefore := range []bool{true, false} {
				l := limited(t, text, Options{MaxEvaluation: budget})
				ev := edda.Event{Kind: edda.KindEvent, ID: "e", Tenant: "t", Type: "Go", Time: l.now, Payload: json.RawMessage(payload)}
				target := l.set.Route(ev)[0]
				if !decodedBefore {
					target.payload = nil
				}
				cell, trs := l.set.Apply(edda.Cell{}, target, ev)
				told := []string{}
				note := func(trs []edda.Transition) {
					for _, tr := range trs {
						why := ""
						if tr.Dead != nil {
							why = tr.Dead.Error
						}
						told = append(told, fmt.Sprint(tr.Fate, len(tr.Work), why))
					}
				}
				note(trs)
				if cell.Instance != nil {
					ok := edda.Event{Kind: edda.KindResult, ID: "r", Tenant: "t", Key: cell.Key, Time: l.now, Step: "a", CommandID: commandOf(cell.Instance, "a"), Outcome: edda.Succeeded, Payload: json.RawMessage(payload)}
					_, trs = l.set.Apply(cell, l.set.Route(ok)[0], ok)
					note(trs)
				}
				seen = append(seen, strings.Join(told, "; "))
			}
		}
		for i, s := range seen {
			if !reflect.DeepEqual(s, seen[0]) {
				t.Fatalf("budget %d: way %d ends with %s, the first with %s", budget, i, s, seen[0])
			}
		}
		if strings.Count(seen[0], "handled") == 2 {
			return budget
		}
	}
	return 0
}
