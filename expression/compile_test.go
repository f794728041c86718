package expression

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompileErrorsHavePositions(t *testing.T) {
	for _, c := range []struct {
		source       string
		line, column int
		part         string
	}{
		{`evnt.amount`, 1, 1, `unknown name "evnt", did you mean "event"?`},
		{`event.amount < stat.total`, 1, 16, `did you mean "state"?`},
		{"event.amount <\n  stat.total", 2, 3, `did you mean "state"?`},
		{`"ü" + evnt`, 1, 7, `did you mean "event"?`},
		{`xyz`, 1, 1, `unknown name "xyz"`},
		{`null`, 1, 1, "write nil"},
		{`True`, 1, 1, "lower case"},
		{`len`, 1, 1, "len is a function: write len(x)"},
		{`key(1)`, 1, 1, "key is a value, not a function"},
		{`lenn(event)`, 1, 1, `unknown function lenn(), did you mean "len"?`},
		{`bitand(1, 2)`, 1, 1, "not available"},
		{`env`, 1, 1, "unknown name"},
		{`$env.event`, 1, 1, "unknown name"},
		{`len()`, 1, 1, "len takes 1 argument, as in len(x)"},
		{`max()`, 1, 1, "at least 1 argument"},
		{`split("a")`, 1, 1, "2 to 3 arguments"},
		{`take(1)`, 1, 1, "2 arguments"},
		{`event.id.String()`, 1, 10, "values have no methods"},
		{`map(event.items, qty)`, 1, 18, "a member of the item is written .qty"},
		{`map(event.items, #acc)`, 1, 18, "inside reduce only"},
		{`map(event.items, #index)`, 1, 18, "sum and reduce only"},
		{`reduce(event.items, #foo)`, 1, 21, "unknown #foo"},
		{`reduce([1], map([2], #acc))`, 1, 22, "directly inside reduce only"},
		{`{"a": 1, "a": 2}`, 1, 10, `"a" is there twice`},
		{`b"abc"`, 1, 1, "JSON has no bytes"},
		{`1; 2`, 1, 1, "use let"},
		{`1e999`, 1, 5, `invalid float literal "1e999": value out of range`},
		{`9223372036854775808`, 1, 19, `invalid integer literal "9223372036854775808"`},
		{`event.a ++`, 1, 10, "an expression changes nothing"},
		{`(1`, 1, 2, "ends too early"},
		{`1 = 2`, 1, 3, `unexpected "="`},
	} {
		err := refusedByCompile(t, c.source, c.part)
		if err.Line != c.line || err.Column != c.column || err.Source != c.source {
			t.Errorf("%s: at %d:%d, want %d:%d (%s)", c.source, err.Line, err.Column, c.line, c.column, err.Message)
		}
	}
}

func TestCompileReturnsAllErrors(t *testing.T) {
	_, errs := Compile(`foo + len() + map(event.items, now())`, Options{Names: scope})
	var got []string
	for _, err := range errs {
		got = append(got, fmt.Sprintf("%d %.20s", err.Column, err.Message))
	}
	if diff := cmp.Diff([]string{`1 unknown name "foo": `, `7 len takes 1 argument`[:22], `32 now() would read the`[:23]}, got); diff != "" {
		t.Error(diff)
	}
	if _, errs = Compile(strings.Repeat("foo + ", 100)+"1", Options{}); len(errs) != maxErrors {
		t.Errorf("%d errors, want %d", len(errs), maxErrors)
	}
}

func TestRunTimeErrorsHavePositions(t *testing.T) {
	for _, c := range []struct {
		source       string
		line, column int
	}{
		{`event.n + event.none`, 1, 9}, {"1 +\n  event.n / 0", 2, 11}, {`map([0, 1], 1 / #)`, 1, 15}, {`true and len(event.none) > 0`, 1, 10},
		{`int("se" + "cret")`, 1, 1}, {`event.n.m`, 1, 9}, {`"é" + 1`, 1, 5}, {`sum(nil, .x)`, 1, 5}, {`event.n ? 1 : 2`, 1, 7}, {`[3, 1].sku`, 1, 8},
	} {
		_, err := compile(t, c.source).Eval(Env{Vars: map[string]any{"event": map[string]any{"n": 1}}})
		e, ok := err.(*Error)
		if !ok {
			t.Errorf("%s: %v, want an Error", c.source, err)
			continue
		}
		if e.Line != c.line || e.Column != c.column {
			t.Errorf("%s: at %d:%d, want %d:%d (%s)", c.source, e.Line, e.Column, c.line, c.column, e.Message)
		}
		if strings.Contains(e.Message, "secret") {
			t.Errorf("%s: the message quotes the value: %s", c.source, e.Message)
		}
	}
}

func TestNamesAndRefs(t *testing.T) {
	for _, c := range []struct{ source, names, refs string }{
		{`event.amount < state.total`, "event state", "event.amount state.total"},
		{`step.ship.result.id`, "step", "step.ship.result.id"},
		{`step["hold"].all`, "step", "step.hold.all"},
		{`step?.ship?.result?.["id"]`, "step", "step.ship.result.id"},
		{`(step.ship).result`, "step", "step.ship.result"},
		{`step[key].result`, "key step", "key step"},
		{`event.items[0].sku`, "event", "event.items"},
		{`event.items[1:2]`, "event", "event.items"},
		{`map(event.items, .qty * state.factor + #.x)`, "event state", "event.items state.factor"},
		{`map(event.items, {let o = #; o.qty + state.a})`, "event state", "event.items state.a"},
		{`let state = event.a; state.b`, "event", "event.a"},
		{`let x = state.a; x.b`, "state", "state.a"},
		{`first(event.items).qty`, "event", "event.items"},
		{`count(event.items, .ok) + count`, "count event", "count event.items"},
		{`sum(event.items)`, "event", "event.items"},
		{`sortBy(event.items, state.a, state.b)`, "event state", "event.items state.a state.b"},
		{`reduce(event.a, #acc, state.b)`, "event state", "event.a state.b"},
		{`{"a": event.a, (key): [state]}`, "event key state", "event.a key state"},
		{`event.a ? event.b : event.c ?? event.d`, "event", "event.a event.b event.c event.d"},
		{`event.a + event.a + event`, "event", "event event.a"},
		{`not event.a matches state.p`, "event state", "event.a state.p"},
		{`1 + 2`, "", ""},
	} {
		p := compile(t, c.source)
		if got := strings.Join(p.Names(), " "); got != c.names {
			t.Errorf("%s: names %q, want %q", c.source, got, c.names)
		}
		var refs []string
		for _, ref := range p.Refs() {
			refs = append(refs, strings.Join(ref, "."))
		}
		if got := strings.Join(refs, " "); got != c.refs {
			t.Errorf("%s: refs %q, want %q", c.source, got, c.refs)
		}
		if p.Source() != c.source {
			t.Errorf("source %q, want %q", p.Source(), c.source)
		}
	}
}

func TestNamesMayBeFunctions(t *testing.T) {
	vars := map[string]any{"count": 3, "total": 7, "first": []any{1}, "sum": 10, "key": "K", "event": map[string]any{"items": []any{1, 2}}}
	for source, want := range map[string]any{
		`count + sum`: 13, `count(event.items, # > 1) + count`: 4, `first(event.items) + first[0]`: 2, `sum(event.items) + sum`: 13,
		`count > 2 ? key : ""`: "K", `event.items | sum()`: 3, `let len = 5; len + len("ab")`: 7,
	} {
		if got := eval(t, source, vars); got != want {
			t.Errorf("%s = %v, want %v", source, got, want)
		}
	}
}

func TestTraps(t *testing.T) {
	for source, part := range map[string]string{
		`map(event.items, {"a": .x})`:                "double braces",
		`map(filter(event.items, .ok), {sku: .sku})`: "double braces",
		`=event.amount`:                              "takes no =",
		`"a" + ${event.b}`:                           "without it",
		`event.a = 1`:                                "compare with ==",
		`event.a === 1`:                              "the comparisons are",
		`event.a <> 1`:                               "the comparisons are",
		`if event.a then 1 else 2`:                   "if cond {a} else {b}",
		`map(event.items, x => x.a)`:                 "# is the item",
		`event.a += 1`:                               "changes nothing",
		`$.event`:                                    "",
		`event.a in [1`:                              "in quotes",
		`event.a and`:                                "in quotes",
		`map(event.items`:                            "in quotes",
		`event.a ?`:                                  "in quotes",
	} {
		refusedByCompile(t, source, part)
	}
	for _, source := range []string{`event.a == "x = y"`, `let x = 1; x`, `event.a >= 1 and event.b <= 2`, `map(event.items, {{"a": .x}})`, `'${'`, `event.a != 1`, `{"a": 1}`} {
		if hints := Traps(source); len(hints) > 0 {
			t.Errorf("%s: %v", source, hints)
		}
	}
	if err := refusedByCompile(t, `let x = ) + 1; x`, "unexpected"); strings.Contains(err.Message, "==") {
		t.Errorf("the = of let is taken for a mistake: %s", err.Message)
	}
}

func TestProgramsAreSafeForConcurrentUse(t *testing.T) {
	p := compile(t, `sum(map(event.items, # * state.factor)) + len(filter(event.items, string(#) matches "^[0-9]+$"))`)
	var wg sync.WaitGroup
	for factor := range 8 {
		wg.Go(func() {
			vars := map[string]any{"event": map[string]any{"items": []any{1, 2, 3}}, "state": map[string]any{"factor": factor}}
			for range 200 {
				if got, err := p.Eval(Env{Vars: vars}); err != nil || got != 6*factor+3 {
					t.Errorf("factor %d gives %v (%v)", factor, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAMachineWithManyLoopsIsNotPooled(t *testing.T) {
	m := newMachine()
	m.begin(Env{})
	for source, kept := range map[string]bool{`sum(1..10, sum(1..2))`: true, `sum(1..2000, sum(1..2))`: false} {
		m.begin(Env{})
		if _, err := m.vm.Run(compile(t, source).code, m.primitives); err != nil {
			t.Fatal(err)
		}
		if m.reset() != kept {
			t.Errorf("%s: kept is not %v", source, kept)
		}
	}
}

// A program that only reads a member has a path, and reads the same value as load.
func TestPathOfAProgram(t *testing.T) {
	for source, want := range map[string]string{
		"event": "event", "event.a": "event a", `event["a"].b`: "event a b", "event?.a": "event a",
		"event.a[0]": "-", "event.a + 1": "-", "len(event)": "-", "1": "-", "event.a ?? 1": "-", "let x = event; x.a": "-", "map(event, .a)": "-",
	} {
		p, errs := Compile(source, Options{Names: []string{"event"}})
		if errs != nil {
			t.Fatal(errs[0])
		}
		got := "-"
		if name, path, ok := p.Path(); ok {
			got = strings.Join(append([]string{name}, path...), " ")
		}
		if got != want {
			t.Errorf("%s is %q, not %q", source, got, want)
		}
	}
}

// TestInside checks that the argument keeps its columns.
func TestInside(t *testing.T) {
	for source, want := range map[string]string{
		"raw(a)": "    a", " raw ( a.b ) ": "       a.b ", "raw(\n f(\")\") )": "    \n f(\")\") ", "raw(raw(a))": "    raw(a)",
		"raw(a).b": "", "raw(a) ?? raw(b)": "", "raw(a, b)": "", "raw()": "", "a": "", "raw": "", "raw(a": "", "(raw(a))": "", "raw)a(": "", ")": "", "": "",
	} {
		if got, ok := Inside(source, "raw"); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", source, got, ok, want)
		}
	}
}
