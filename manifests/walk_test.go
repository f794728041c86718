package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const walked = `
saga: x
schedule: {s: {every: 1h, with: {a: =e1}}}
key: e2
events: {E: {upcast: {1: {set: {a: =e3}}}}}
on:
  E:
    do:
      - seq:
          - {with: {a: =e4}, effect: a1, if: e5, undo: {effect: a2, with: =e6}}
      - each: e7
        do: [{command: A.a3, to: =e8, with: "${e9} ${e10}", undo: {command: A.a4, to: =e11}}]
      - {start: a5, with: [=e12], key: e13}
      - {compensate: {effect: a6, with: =e14}}
      - {message: {a: =e15}}
      - {set: {a: =e16}}
      - {timer: a7, after: =e17}
      - {timer: a8, at: =e18}
      - {timer: a9, every: =e19}
      - {done: =e20}
    set: {a: =e21}
    when: e22
    let: {a: e23}
    key: e24
    cases:
      - {when: e25, set: {a: =e26}, do: [{effect: a10}]}
      - {do: [{effect: a11, with: =e27}]}
    newer: {set: {a: =e28}, do: [{effect: a12}]}
  F: {when: e29}
`

func TestWalkVisitsInDocumentOrder(t *testing.T) {
	s := clean(t, walked).Sagas[0]
	var exprs, actions, kinds, handlers []string
	s.Walk(Visitor{
		Expr:    func(e *Expr) { exprs = append(exprs, e.Source) },
		Handler: func(h *Handler) { handlers = append(handlers, h.Trigger.Text) },
		Action: func(a *Action) {
			if kinds = append(kinds, a.Kind); a.Name.Text != "" {
				actions = append(actions, a.Name.Text)
			}
		},
	})
	want := []string{}
	for _, n := range "123456789" {
		want = append(want, "e"+string(n))
	}
	for _, n := range []string{"0", "1", "2"} {
		for _, m := range "0123456789" {
			if k := n + string(m); k > "09" {
				want = append(want, "e"+k)
			}
		}
	}
	if diff := cmp.Diff(want, exprs); diff != "" {
		t.Error(diff)
	}
	wantActions := []string{"a1", "a2", "A.a3", "A.a4", "a5", "a6", "a6", "a7", "a8", "a9", "a10", "a11", "a12"}
	if diff := cmp.Diff(wantActions, actions); diff != "" {
		t.Error(diff)
	}
	wantKinds := []string{
		"seq", "effect", "effect", "each", "command", "command", "start", "compensate", "effect", "message", "set",
		"timer", "timer", "timer", "done", "effect", "effect", "effect",
	}
	if diff := cmp.Diff(wantKinds, kinds); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"E", "F"}, handlers); diff != "" {
		t.Error(diff)
	}
}

func TestWalkOfAPart(t *testing.T) {
	h := clean(t, walked).Sagas[0].Handlers[0]
	count := 0
	h.Walk(Visitor{Expr: func(*Expr) { count++ }})
	if count != 25 { // e4 to e28
		t.Errorf("%d expressions in the handler", count)
	}
	count = 0
	h.Do[1].Walk(Visitor{Expr: func(*Expr) { count++ }, Action: func(*Action) { count += 100 }})
	if count != 305 { // e7 to e11, in each, command and its undo
		t.Errorf("%d visits in the each", count)
	}
}
