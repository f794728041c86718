package expression

import (
	"testing"
	"time"

	"edda/internal/jsonvalue"
)

// TestEvaluationIsDeterministic compares the bytes of 20 runs, each with a new program
// and new maps.
func TestEvaluationIsDeterministic(t *testing.T) {
	const event = `{"m":{"g":7,"a":1,"c":3.5,"b":"x","f":null,"e":[1],"d":{"z":1,"y":2}},"n":{"g":7,"a":1,"c":3,"b":2,"f":6,"e":5,"d":4}}`
	for _, source := range []string{
		`event`, `keys(event.m)`, `values(event.m)`, `toPairs(event.m)`, `toJSON(event)`, `string(event.m)`, `groupBy(toPairs(event.m), type(#[1]))`,
		`sortBy(toPairs(event.n), -#[1])`, `sort(values(event.n))`, `reduce(toPairs(event.n), #acc + #[0] + string(#[1]), "")`, `uniq(concat(values(event.m), values(event.m)))`,
		`fromPairs(map(toPairs(event.n), [string(#[1]), #[0]]))`, `map(event.m, #)`, `values(event.m) | sort()`, `event.m == event.n`, `flatten(toPairs(event.m))`, `mean(values(event.n)) / 3`,
	} {
		first := ""
		for i := range 20 {
			got := outcome(t, source, event)
			if i == 0 {
				first = got
			}
			if got != first {
				t.Errorf("%s: run %d gives %s, the first gave %s", source, i, got, first)
			}
		}
	}
}

// outcome is the result's JSON, or the error.
func outcome(t testing.TB, source, event string) string {
	t.Helper()
	p, errs := Compile(source, Options{Names: scope})
	if len(errs) > 0 {
		return "compile: " + errs[0].Message
	}
	v, err := p.Eval(Env{Vars: map[string]any{"event": decode(t, event), "now": "2026-01-01T00:00:00.000Z"}, Source: given{ids: "id-of-"}})
	if err != nil {
		return "eval: " + err.Error()
	}
	data, err := jsonvalue.Encode(v)
	if err != nil {
		t.Fatalf("%s: the result is not JSON: %v", source, err)
	}
	if again, err := jsonvalue.Canonical(v); err != nil || Text(again) != Text(v) {
		t.Errorf("%s: the result is not canonical: %s", source, data)
	}
	return string(data)
}

// FuzzEval checks that an expression never panics, ends soon, does not change its inputs,
// and gives the same result twice.
func FuzzEval(f *testing.F) {
	for _, source := range []string{
		`sum(event.items, .qty * .price)`, `event.amount < state.total`, `map(event.items, {{"a": .qty, "b": event.m}})`, `sortBy(event.items, .price, "desc")`,
		`groupBy(event.items, .qty)`, `keys(event.m) | join(",")`, `now + duration("36h") > addTime(now, "1d")`, `reduce(1..26, #acc + #acc, "abcdefgh")`,
		`sum(1..1000, sum(1..1000, #))`, `"abc"[1:] + string(event.items[-1])`, `event?.a?.["b"] ?? -1 ** 3`, `let x = event; x == event ? toJSON(x) : fromJSON("[1]")`,
		`not (event.text matches "^(a|b)*$") and "a" in event.m`, `if event.amount > 3 {1} else {2}`, `1 < 2 < 3 in [true]`, `uniq(concat(event.items, event.items))`,
		`9223372036854775807 + 1`, `event.items[1..2]`, `{(event.text): b"x"}`, `uuid(event.text)`, `reduce(1..40, [#acc, #acc], 1)`, `replace(repeat("x", 9), "", "y")`, `!!!nil`, `::len(event)`,
	} {
		f.Add(source)
	}
	const event = `{"amount":12.5,"items":[{"qty":2,"price":5},{"qty":1,"price":15}],"m":{"b":1,"a":[2]},"text":"aabb"}`
	f.Fuzz(func(t *testing.T, source string) {
		vars := map[string]any{"event": decode(t, event), "state": map[string]any{"total": 7}, "now": "2026-01-01T00:00:00.000Z"}
		started := time.Now()
		p, errs := Compile(source, Options{Names: scope})
		if len(errs) > 0 {
			return
		}
		v, err := p.Eval(Env{Vars: vars})
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("%q took %v", source, took)
		}
		if err == nil {
			spoil(v)
		}
		if Text(vars["event"]) != Text(decode(t, event)) {
			t.Errorf("%q changed the event to %s", source, Text(vars["event"]))
		}
		if one, two := outcome(t, source, event), outcome(t, source, event); one != two {
			t.Errorf("%q gives %s, then %s", source, one, two)
		}
	})
}
