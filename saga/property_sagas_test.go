package saga

import (
	"strings"
	"testing"

	"edda/manifests"
)

// propertySaga has one of each construct whose undo is promised. Each undo names the step that it
// undoes in its id, so that the model need not know the core.
const propertySaga = `saga: shop
version: 1
key: event.id
deadline: 50h
state: {n: 0}
on:
  Go:
    start: true
    restart: true
    do:
      - {timer: tick, every: 7h}
      - seq:
          - {effect: a, due: 2h, undo: {effect: ua, due: 3h, with: {of: =id}}}
          - {command: Acc.Hold, id: hold, to: =key, undo: {command: Acc.Free, to: =key, with: {of: =id}}}
          - {ask: q, to: boss, due: 5h, with: {choices: [yea, nay]}}
          - {effect: b, due: 90m, undo: {effect: ub, with: {of: =id}}}
          - {undo: a}
          - {effect: c, undo: {effect: uc, with: {of: =id}}}
      - seq:
          - {each: event.items, id: g, do: [{event: Told}, {effect: w, due: 4h, undo: {effect: uw, with: {of: =id}}}]}
          - {start: kid, key: "key + '/kid'", due: 6h, undo: {effect: ukid, with: {of: =id}}}
  Again: {do: [{effect: l, due: 1h, undo: {effect: ul, with: {of: =id}}}]}
  Round: {do: [{each: event.items, id: g, do: [{effect: w, due: 4h, undo: {effect: uw, with: {of: =id}}}]}]}
  Stop: {do: [{cancel: g}, {cancel: l}, {cancel: q}, {cancel: kid}]}
  StopOne: {do: [{cancel: "g[0]"}]}
  Back: {do: [{undo: l}]}
  BackAll: {do: [{undo: g}]}
  Soon: {do: [{timer: soon, after: 0s}, {timer: past, at: "2026-01-01T00:00:00Z"}]}
  Bad: {set: {n: "=state.n + event.by"}}
  End: {do: [{fail: ended}]}
  Done: {do: [{done: 1}]}
  Late: {late: true, do: [{event: LateFact}, {effect: z, if: "saga.status != 'running'", undo: uz}]}
  timer.tick: {set: {n: "=state.n + 1"}}
  timer.soon: {}
  timer.past: {}
  q.nay: {do: [{fail: refused}]}
  saga.failed: {do: [{event: Failed}]}
`

// The variants: which handlers take care of failures, the order of undoing, and a step past the
// point of no return.
const (
	variantHandled  = "  a.failed: {}\n  l.failed: {}\n  l.timeout: {}\n  b.timeout: {}\n  g.failed: {}\n  kid.failed: {}\n  hold.failed: {}\n"
	variantParallel = "undo_order: parallel\n"
	variantMust     = "  Pay: {do: [{effect: m, must: true, due: 2h}]}\n"
)

type variant struct {
	name           string
	text           string
	parallel, must bool
}

func variants() []variant {
	return []variant{
		{name: "plain", text: propertySaga},
		{name: "handled", text: propertySaga + variantHandled},
		{name: "parallel", text: strings.Replace(propertySaga, "on:\n", variantParallel+"on:\n", 1), parallel: true},
		{name: "must", text: propertySaga + variantHandled + variantMust, must: true},
	}
}

// compiled returns the one program of a text; warnings are allowed.
func compiled(t testing.TB, text string, o Options) *Program {
	t.Helper()
	f, ps := manifests.Parse("test.yaml", []byte(text))
	if ps.Failed() {
		t.Fatalf("parse: %v", ps)
	}
	p, ps := Compile(f.Sagas[0], o)
	if p == nil {
		t.Fatalf("compile: %v", ps)
	}
	return p
}

func setOf(t testing.TB, texts ...string) *Set {
	t.Helper()
	var programs []*Program
	for _, text := range texts {
		programs = append(programs, compiled(t, text, Options{}))
	}
	s, err := NewSet(programs...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
