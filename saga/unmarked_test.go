package saga

import (
	"fmt"
	"strings"
	"testing"

	"edda/manifests"
)

// The places of a text in unmarkedSaga.
const (
	inSet    = "SET" // of a handler with lets
	inEach   = "EACH"
	inEnd    = "END"
	inUndo   = "UNDO"
	inTo     = "TO"
	inUpcast = "UPCAST"
)

const unmarkedSaga = `saga: a
config: {limit: 3}
state: {n: event.x}
events: {Opened: {upcast: {1: {set: {v: UPCAST}}}}}
on:
  Opened:
    start: true
    let: {total: event.total, vat: event.vat, paid: event.paid}
    when: paid
    set: {n: SET}
    do:
      - effect: charge
        with: {order: =key}
        undo: {effect: refund, with: {v: UNDO}}
      - each: event.lines
        as: line
        id: g
        do: [{effect: hold, with: {v: EACH}}]
  g.all: {do: [{ask: boss, to: chief, with: {choices: [now, later]}}]}
  boss.now: {do: [{done: END}]}
  charge.failed: {do: [{command: Type.Name, to: TO}]}
`

// TestAnUnmarkedExpressionIsAWarning puts a text into one place. The positions are those of the
// text.
func TestAnUnmarkedExpressionIsAWarning(t *testing.T) {
	for _, tt := range []struct {
		place string
		text  string
		want  string // the mend and its position; empty: no warning
	}{
		{inSet, "event.x", "10:14 =event.x"},
		{inSet, "'state.n + 1'", "10:14 =state.n + 1"},
		{inSet, "key", "10:14 =key"},
		{inSet, "now", "10:14 =now"},
		{inSet, "event", "10:14 =event"},
		{inSet, "total", "10:14 =total"}, // no expression reads it
		{inSet, "total + vat", "10:14 =total + vat"},
		{inSet, "{deep: [a, {b: event.x}]}", "10:29 =event.x"},
		{inSet, "[event.x]", "10:15 =event.x"},
		{inSet, "step.charge.result", "10:14 =step.charge.result"},
		{inSet, "step.g.results", "10:14 =step.g.results"},
		{inSet, "config.limit", "10:14 =config.limit"},
		{inSet, "meta.time", "10:14 =meta.time"},
		{inSet, "saga.status", "10:14 =saga.status"},
		{inSet, "'a {event.x} b'", "10:14 ${event.x}"},
		{inSet, "'${key} {{event.x}}'", "10:14 ${event.x}"},
		{inSet, "'${key} $event.x'", "10:14 ${event.x}"},
		{inEach, "line.sku", "18:39 =line.sku"},
		{inEach, "line", "18:39 =line"},
		{inEach, "event.x", "18:39 =event.x"},
		{inEnd, "step.charge.result", "20:26 =step.charge.result"},
		{inEnd, "{a: state.n}", "20:30 =state.n"},
		{inEnd, "state", "20:26 =state"},
		{inUndo, "result.id", "14:42 =result.id"},
		{inUndo, "id", "14:42 =id"},
		{inUndo, "input", "14:42 =input"},
		{inTo, "key", "21:49 =key"},
		{inUpcast, "event.old", "4:41 =event.old"},

		{inSet, "paid", ""}, // when reads it: this may be a status
		{inSet, "line.sku", ""},
		{inSet, "input.id", ""},
		{inSet, "result", ""},
		{inSet, "id", ""},
		{inSet, "payload.x", ""},
		{inSet, "step", ""},
		{inSet, "saga", ""},
		{inSet, "meta", ""},
		{inSet, "config", ""},
		{inSet, "item.sku", ""},
		{inSet, "step.ship.result", ""}, // there is no such step
		{inSet, "step.one", ""},
		{inSet, "seen.it", ""},
		{inSet, "config.yaml", ""},
		{inSet, "config.limits", ""},
		{inSet, "meta.com", ""},
		{inSet, "saga.failed", ""},
		{inSet, "key.pem", ""},
		{inSet, "now.sh", ""},
		{inSet, "[now, key, event]", ""},
		{inSet, "='event.x'", ""},
		{inSet, "=event.x", ""},
		{inSet, "==event.x", ""},
		{inSet, `"${'{event.x}'}"`, ""},
		{inSet, "'$${event.x}'", ""},
		{inSet, "'${event.x} of ${state.n}'", ""},
		{inSet, "'event.x ${key}'", ""},
		{inSet, "see event.log", ""},
		{inSet, "event-1", ""},
		{inSet, "7", ""},
		{inSet, "~", ""},
		{inSet, "{event.x: 1}", ""},
		{inEach, "index", ""},
		{inEach, "item", ""},
		{inEnd, "total", ""}, // a let of another handler
		{inTo, "chief", ""},
		{inUpcast, "state.old", ""},
		{inUpcast, "key", ""},
	} {
		source := strings.Replace(unmarkedSaga, tt.place, tt.text, 1)
		for _, other := range []string{inSet, inEach, inEnd, inUndo, inTo, inUpcast} {
			source = strings.Replace(source, other, "1", 1)
		}
		if got := unmarkedWarnings(t, source); got != tt.want {
			t.Errorf("%s: %s: %q, want %q", tt.place, tt.text, got, tt.want)
		}
	}
}

// TestAnItemOfNoGroupIsAWord: every handler of an outcome has item in scope.
func TestAnItemOfNoGroupIsAWord(t *testing.T) {
	source := `saga: a
on:
  Opened: {start: true, do: [{effect: charge}]}
  charge.ok: {do: [{event: Note, with: {type: item.sold, of: index, by: item}}, {done: ok}]}
`
	if got := unmarkedWarnings(t, source); got != "" {
		t.Error(got)
	}
}

// unmarkedWarnings lists the mends that lint gives, with their positions.
func unmarkedWarnings(t *testing.T, source string) string {
	t.Helper()
	f, ps := manifests.Parse("a.yaml", []byte(source))
	for _, m := range f.Sagas {
		_, found := Compile(m, Options{})
		ps = append(ps, found...)
	}
	var out []string
	for _, p := range ps {
		if !p.Warning {
			t.Fatalf("%v\n%s", p.Error(), source)
		}
		if _, mend, ok := strings.Cut(p.Message, "; write "); ok && strings.HasPrefix(p.Message, "this ") && strings.Contains(mend, " for its value") {
			mend, _, _ = strings.Cut(mend, " for its value")
			out = append(out, fmt.Sprintf("%d:%d %s", p.Pos.Line, p.Pos.Column, mend))
		}
	}
	return strings.Join(out, " ")
}
