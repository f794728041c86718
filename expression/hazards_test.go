package expression

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"edda/internal/jsonvalue"
)

// The tests of this file are named after behaviour of expr that a saga may not have.

// quickly fails if evaluations took longer than bounded ones can, also on a slow and
// busy machine under the race detector. An unbounded one would take hours.
func quickly(t *testing.T, started time.Time) {
	t.Helper()
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestNowReadsTheClock(t *testing.T) {
	refusedByCompile(t, `now()`, "write now, the time of the trigger")
	refusedByCompile(t, `now().Year()`, "values have no methods")
	refusedByCompile(t, `map(event.items, now())`, "write now")
	wants(t, `now`, `{}`, `"2026-01-01T00:00:00.000Z"`)
}

func TestKeysValuesToPairsComeInRandomOrder(t *testing.T) {
	const event = `{"g":7,"a":1,"c":3,"b":2,"f":6,"e":5,"d":4}`
	for range 20 {
		wants(t, `keys(event)`, event, `["a","b","c","d","e","f","g"]`)
		wants(t, `values(event)`, event, `[1,2,3,4,5,6,7]`)
		wants(t, `toPairs(event)`, event, `[["a",1],["b",2],["c",3],["d",4],["e",5],["f",6],["g",7]]`)
		wants(t, `reduce(keys(event), #acc + #, "")`, event, `"abcdefg"`)
	}
}

func TestGroupByAndFromPairsGiveMapsThatJSONCannotEncode(t *testing.T) {
	wants(t, `groupBy(event, .n)`, `[{"n":1,"x":"a"},{"n":2,"x":"b"},{"n":1,"x":"c"}]`,
		`{"1":[{"n":1,"x":"a"},{"n":1,"x":"c"}],"2":[{"n":2,"x":"b"}]}`)
	wants(t, `groupBy(event, # > 1)`, `[1,2,3]`, `{"false":[1],"true":[2,3]}`)
	wants(t, `fromPairs([[1, "a"], ["b", 2], [true, 3]])`, `{}`, `{"1":"a","b":2,"true":3}`)
	wants(t, `fromPairs(toPairs(event)) == event`, `{"a":[1],"b":{"c":null}}`, `true`)
	refuses(t, `groupBy(event, .n)`, `[{"n":[1]}]`, "a key is a text, a number or a boolean, not a list")
	refuses(t, `fromPairs([["a"]])`, `{}`, "not a pair")
}

func TestTimezonesDependOnTheHost(t *testing.T) {
	refusedByCompile(t, `timezone("Europe/Zurich")`, "times are UTC")
	refusedByCompile(t, `date("2026-01-31 10:00", "2006-01-02 15:04", "Europe/Zurich")`, "date takes 1 argument")
	refusedByCompile(t, `date(timezone("Local"), "2026-01-31")`, "date takes 1 argument")
	host := time.Local
	time.Local = time.FixedZone("NZDT", 13*60*60)
	defer func() { time.Local = host }()
	wants(t, `date("2026-01-31")`, `{}`, `"2026-01-31T00:00:00.000Z"`)
	wants(t, `date("2026-01-31T10:00:00+02:00")`, `{}`, `"2026-01-31T08:00:00.000Z"`)
	wants(t, `addDays("2026-01-31", 1)`, `{}`, `"2026-02-01T00:00:00.000Z"`)
}

func TestTheVMHasNoStepLimit(t *testing.T) {
	items := make([]any, 3000)
	for i := range items {
		items[i] = map[string]any{"n": i}
	}
	vars := map[string]any{"event": map[string]any{"items": items}}
	for _, source := range []string{
		`sum(event.items, {let a = .n; sum(event.items, .n * a)})`,
		`sum(event.items, sum(event.items, sum(event.items, .n)))`,
		`map(event.items, map(event.items, .n))`,
		`any(event.items, none(event.items, .n >= 0))`,
		`filter(1..100000, # in event.items)`,
		`sum(1..100000, sum(1..100000, 1))`,
		`map(event.items, uniq(event.items))`,
		`map(event.items, event.items == event.items)`,
		`map(event.items, sortBy(event.items, -.n))`,
		`map(event.items, keys(groupBy(event.items, .n)))`,
	} {
		started := time.Now()
		if message := failure(t, source, vars); !strings.Contains(message, "budget of 1000000 steps") {
			t.Errorf("%s: %q, want the budget to end it", source, message)
		}
		quickly(t, started)
	}
	got := eval(t, `sum(event.items, .n)`, vars)
	if got != 3000*2999/2 {
		t.Errorf("a plain sum over 3,000 items gives %v", got)
	}
}

func TestTheBudgetEndsAtTheSameStep(t *testing.T) {
	for _, source := range []string{`sum(1..100000, sum(1..#, 1))`, `reduce(1..100000, concat(#acc, [#]), [])`} {
		message := failure(t, source, nil)
		for range 3 {
			if again := failure(t, source, nil); again != message {
				t.Errorf("%s: %q, then %q", source, message, again)
			}
		}
	}
	if n := stepsOf(t, `sum(1..1000, # * #)`); n != stepsOf(t, `sum(1..1000, # * #)`) || n < 1000 || n > 20_000 {
		t.Errorf("1,000 rounds cost %d steps", n)
	}
	if small, large := stepsOf(t, `sum(1..1000, #)`), stepsOf(t, `sum(1..1000, # * # + # * # + # * #)`); large < 4*small {
		t.Errorf("rounds of one part cost %d steps, those of eleven %d", small, large)
	}
}

func TestComparingMapsHasAConstantCost(t *testing.T) {
	const source = `{"a": [1, 2, 3, 4], "b": 1, "c": [1, 2], "d": 1, "e": 1} == {"a": [1, 2, 3, 4], "b": 2, "c": [1, 2], "d": 2, "e": 2}`
	want := stepsOf(t, source)
	for range 20 {
		if got := stepsOf(t, source); got != want {
			t.Fatalf("%d steps, then %d", want, got)
		}
	}
}

func stepsOf(t *testing.T, source string) int {
	t.Helper()
	p := compile(t, source)
	m := newMachine()
	m.begin(Env{})
	if _, err := m.vm.Run(p.code, m.primitives); err != nil {
		t.Fatal(err)
	}
	return m.steps
}

func TestStringConcatenationIsNotCharged(t *testing.T) {
	started := time.Now()
	double := `reduce(1..26, #acc + #acc, "0123456789abcdef0123456789abcdef01234567")`
	refuses(t, double, `{}`, "more than 262144")
	for _, source := range []string{
		`repeat("x", 300000)`, `repeat(repeat("x", 1000), 1000)`, `repeat("xx", 9223372036854775807)`,
		`join(map(1..1000, repeat("x", 1000)))`, `join(1..1000, repeat("x", 1000))`,
		`replace(repeat("x", 1000), "x", repeat("y", 1000))`, `replace(repeat("x", 1000), "", repeat("y", 1000))`,
		`string(map(1..1000, repeat("x", 1000)))`, `toJSON(map(1..1000, repeat("x", 1000)))`,
		`toBase64(repeat("x", 250000))`, `upper(repeat("ɐ", 131072))`,
	} {
		if message := failure(t, source, nil); !strings.Contains(message, "262144") && !strings.Contains(message, "64 bits") {
			t.Errorf("%s: %q, want a bound on the text", source, message)
		}
	}
	// Texts below the bound, over and over, are bounded by the steps.
	refuses(t, `map(1..100000, repeat("x", 200000))`, `{}`, "budget")
	refuses(t, `let big = repeat("x", 200000); map(1..100000, big + "y")`, `{}`, "budget")
	refuses(t, `let big = repeat("x", 200000); map(1..100000, big == big + "")`, `{}`, "budget")
	quickly(t, started)
	wants(t, `len(repeat("x", 262144))`, `{}`, `262144`)
}

func TestASmallValueIsLargeWhenEncoded(t *testing.T) {
	started := time.Now()
	for _, source := range []string{
		`reduce(1..40, [#acc, #acc], 1)`, `reduce(1..40, {{"a": #acc, "b": #acc}}, 1)`,
		`let big = repeat("x", 200000); map(1..1000, big)`, `reduce(1..1000, [#acc], 1)`,
	} {
		refuses(t, source, `{}`, "larger than 2097152 bytes or nested deeper than 128")
	}
	for _, source := range []string{
		`let x = reduce(1..40, [#acc, #acc], 1); x == x`, `len(flatten(reduce(1..40, [#acc, #acc], 1)))`,
		`let x = reduce(1..100, [#acc, #acc], 1); x in [x]`,
	} {
		refuses(t, source, `{}`, "budget")
	}
	refuses(t, `let x = reduce(1..200, [#acc], 1); x == x`, `{}`, "nested deeper")
	refuses(t, `flatten(reduce(1..200, [#acc], 1))`, `{}`, "nested deeper")
	quickly(t, started)
}

func TestARangeFillsTheMemory(t *testing.T) {
	started := time.Now()
	refuses(t, `1..1000000000`, `{}`, "more than 100000")
	refuses(t, `-9223372036854775807..9223372036854775807`, `{}`, "64 bits")
	refuses(t, `map(1..1000, 1..100000)`, `{}`, "budget")
	quickly(t, started)
	wants(t, `3..1`, `{}`, `[]`)
	wants(t, `-1..1`, `{}`, `[-1,0,1]`)
}

func TestDefaultDecodingLosesIntegers(t *testing.T) {
	wants(t, `event.id`, `{"id":9007199254740993}`, `9007199254740993`)
	wants(t, `event.id + 1`, `{"id":9007199254740993}`, `9007199254740994`)
	wants(t, `fromJSON("{\"id\":9007199254740993}").id`, `{}`, `9007199254740993`)
	wants(t, `toJSON(event)`, `{"b":9007199254740993,"a":1.5}`, `"{\"a\":1.5,\"b\":9007199254740993}"`)
	wants(t, `"${" + string(event.id)`, `{"id":9007199254740993}`, `"${9007199254740993"`)
	wants(t, `event.id == 9007199254740992.0`, `{"id":9007199254740993}`, `false`)
	wants(t, `event.id > 9007199254740992.0`, `{"id":9007199254740993}`, `true`)
	refuses(t, `event.id * 1.5`, `{"id":9007199254740993}`, "too large to be computed with fractions")
}

// TestANumberBeyond64BitsIsPassedOnAndCompared, and is an error in arithmetic.
func TestANumberBeyond64BitsIsPassedOnAndCompared(t *testing.T) {
	const big = `{"n":18446744073709551615,"m":18446744073709551616,"e":1e999,"same":10E998,"list":[3,1e999,18446744073709551615,10e998,-1e400,"1e999"],"min":-9223372036854775809}`
	for source, want := range map[string]string{
		`event.n`: `18446744073709551615`, `{"a": [event.e]}`: `{"a":[1e999]}`, `string(event.n)`: `"18446744073709551615"`, `toJSON(event.list)`: `"[3,1e999,18446744073709551615,10e998,-1e400,\"1e999\"]"`,
		`fromJSON("18446744073709551615") == event.n`: `true`, `type(event.n)`: `"number"`, `event.n == event.m`: `false`, `event.n < event.m`: `true`, `event.n > 0`: `true`, `event.min < -9223372036854775807`: `true`,
		`event.n > 9223372036854775807`: `true`, `event.e == event.same`: `true`, `event.e != event.n`: `true`, `event.e > 1e308`: `true`, `event.n == "18446744073709551615"`: `false`, `event.e in event.list`: `true`,
		`event.m == 18446744073709551616.0`: `true`, `event.n == 18446744073709551616.0`: `false`, `max(event.list[0:4])`: `1e999`, `sort(event.list[0:3])`: `[3,18446744073709551615,1e999]`,
		`len(uniq(event.list))`: `5`, `uniq([event.m, 18446744073709551616.0])`: `[18446744073709551616]`, `float(event.n)`: `1.8446744073709552e+19`, `event.n ?? 1`: `18446744073709551615`, `keys(groupBy([event.n], #))`: `["18446744073709551615"]`,
	} {
		wants(t, source, big, want)
	}
	for source, part := range map[string]string{
		`event.n + 1`: "does not fit 64 bits", `1 - event.n`: "does not fit 64 bits", `event.n * 2.5`: "does not fit 64 bits", `-event.min`: "does not fit 64 bits", `sum([1, event.n])`: "does not fit 64 bits",
		`abs(event.min)`: "does not fit 64 bits", `round(event.e)`: "does not fit 64 bits", `int(event.n)`: "does not fit 64 bits", `event.n % 2`: "a number beyond 64 bits", `1..event.n`: "a number beyond 64 bits",
		`float(event.e)`: "larger than any fraction", `event.n.a`: "a number beyond 64 bits has no member a", `event.n > "1"`: "cannot be compared", `[1][event.n]`: "a number beyond 64 bits", `event.n + "a"`: "do not mix", `"a" + event.n`: "do not mix",
		`upper(event.n)`: "a number beyond 64 bits", `event.n ? 1 : 2`: "a number beyond 64 bits",
	} {
		refuses(t, source, big, part)
	}
	digits := `{"n":[` + strings.Repeat("9", 300_000) + "," + strings.Repeat("9", 300_000) + `]}`
	started := time.Now()
	refuses(t, `map(1..100, event.n[0] == event.n[1])`, digits, "budget")
	quickly(t, started)
}

func TestIntegersWrap(t *testing.T) {
	for _, source := range []string{
		`event.max + 1`, `1 + event.max`, `event.min - 1`, `0 - event.min`, `-event.min`, `event.max * 2`, `event.min * -1`,
		`event.min / -1`, `3037000500 * 3037000500`, `2 ** 63`, `10 ** 19`, `sum([event.max, 1])`, `sum([1, event.max], #)`,
		`abs(event.min)`, `reduce([event.max, 1], #acc + #)`, `mean([event.max, event.max])`, `int(1e300)`,
	} {
		refuses(t, source, `{"max":9223372036854775807,"min":-9223372036854775808}`, "64 bits")
	}
	wants(t, `event.min + 0`, `{"min":-9223372036854775808}`, `-9223372036854775808`)
	wants(t, `-9223372036854775807 - 1`, `{}`, `-9223372036854775808`)
	wants(t, `-4611686018427387904 * 2`, `{}`, `-9223372036854775808`)
	wants(t, `(-2) ** 63`, `{}`, `-9223372036854775808`)
	wants(t, `3 ** 39`, `{}`, `4052555153018976267`)
	wants(t, `event.min % -1`, `{"min":-9223372036854775808}`, `0`)
}

func TestNaNAndInfinitiesArePoison(t *testing.T) {
	for _, source := range []string{`1 / 0`, `1.5 / 0`, `0 / 0`, `1 % 0`, `0 ** -1`} {
		refuses(t, source, `{}`, "division by zero")
	}
	for _, source := range []string{`1e300 * 1e300`, `-1e300 * 1e300`, `1e308 + 1e308`, `10.0 ** 400.5`, `(-8) ** 0.5`, `float("NaN")`, `float("-Inf")`} {
		refuses(t, source, `{}`, "finite")
	}
}

func TestIntegralFractionsBecomeIntegers(t *testing.T) {
	for source, want := range map[string]int{
		`10 / 2`: 5, `0.5 + 0.5`: 1, `2.5 * 2`: 5, `1.0`: 1, `2.0 ** 3`: 8, `-(-3.0)`: 3, `float("3")`: 3, `round(2.5)`: 3,
		`7.0 % 4`: 3, `[1, 2, 3][4 / 2]`: 3, `0.0 * -1`: 0,
	} {
		if got := eval(t, source, nil); got != want {
			t.Errorf("%s = %v (%T), want %d", source, got, got, want)
		}
	}
	wants(t, `7 / 2`, `{}`, `3.5`)
	wants(t, `1e17 + 0.0`, `{}`, `1e+17`)
}

func TestMemberAccessOnNilIsAnError(t *testing.T) {
	for _, source := range []string{
		`result.id`, `result.a.b.c`, `result["a"].b`, `result[0]`, `event.none`, `event.none.at.all`, `event["none"].x`,
		`event.list[9]`, `event.list[9].x`, `event.list[-9]`, `event?.none?.x`, `event.list[0].x.y`, `first([]).x`, `get(result, "a")`,
		`find(event.list, .x == 1).y`, `result[1:2]`,
	} {
		wants(t, source, `{"list":[{}]}`, `null`)
	}
	wants(t, `result.id ?? "none"`, `{}`, `"none"`)
	refuses(t, `event.n + event.none`, `{"n":1}`, "a number is needed, got null: write x ?? 0")
	refuses(t, `event.none < 3`, `{}`, "null and an integer cannot be compared")
	refuses(t, `sum(event.items, .qty)`, `{"items":[{"qty":1},{}]}`, "got null")
	refuses(t, `sum(event.items, .qty)`, `{}`, "sum needs a list, got null: write x ?? []")
	refuses(t, `event.n.m`, `{"n":1}`, "an integer has no member m")
	refuses(t, `event.items.sku`, `{"items":[]}`, "a list has no member sku: take an item")
	refuses(t, `event.items.length`, `{"items":[]}`, "write len")
}

func TestExpressionsMutateNothing(t *testing.T) {
	const event = `{"items":[3,1,2],"map":{"b":[2],"a":1},"lists":[[1],[2]]}`
	vars := map[string]any{"event": decode(t, event)}
	for _, source := range []string{
		`event`, `event.items`, `event.items[0:2]`, `sort(event.items)`, `sortBy(event.items, -#)`, `reverse(event.items)`,
		`concat(event.items, [1])`, `take(event.items, 2)`, `event.map`, `values(event.map)`, `toPairs(event.map)`, `uniq(event.lists)`,
		`[event.map, event.items]`, `{"x": event.map}`, `filter(event.lists, true)`, `first(event.lists)`, `groupBy(event.lists, 1)`,
		`event.none ?? event.map`, `median(event.items)`, `map(event.lists, #)`, `reduce(event.lists, concat(#acc, #))`,
	} {
		spoil(eval(t, source, vars))
		got, err := jsonvalue.Encode(vars["event"])
		if err != nil || string(got) != `{"items":[3,1,2],"lists":[[1],[2]],"map":{"a":1,"b":[2]}}` {
			t.Fatalf("%s: the event is now %s", source, got)
		}
	}
	p := compile(t, `[1, [2], {"a": [3]}]`)
	for range 2 {
		v, err := p.Eval(Env{})
		if err != nil || Text(v) != `[1,[2],{"a":[3]}]` {
			t.Errorf("the program's own literal is now %s (%v)", Text(v), err)
		}
		spoil(v)
	}
}

// spoil overwrites every item of a value.
func spoil(v any) {
	switch v := v.(type) {
	case []any:
		for i := range v {
			spoil(v[i])
			v[i] = "spoilt"
		}
		_ = append(v[:0:len(v)], "spoilt")
	case map[string]any:
		for k := range v {
			spoil(v[k])
			v[k] = "spoilt"
		}
		v["spoilt"] = true
	}
}

func TestUnboundedSources(t *testing.T) {
	started := time.Now()
	for name, source := range map[string]string{
		"long":    `"` + strings.Repeat("x", MaxSource) + `"`,
		"parens":  strings.Repeat("(", MaxSource-1) + "1",
		"closed":  strings.Repeat("(", MaxSource/2-1) + "1" + strings.Repeat(")", MaxSource/2-1) + "(",
		"nots":    strings.Repeat("!", MaxSource-4) + "true",
		"lists":   strings.Repeat("[", MaxSource/2-1) + strings.Repeat("]", MaxSource/2-1),
		"sums":    "1" + strings.Repeat("+1", MaxSource/2-1),
		"members": "event" + strings.Repeat(".a", MaxSource/2-10),
		"between": strings.Repeat("(1<", 40) + "1" + strings.Repeat("<1)", 40),
		"ifs":     strings.Repeat("if true {", 1000) + "1" + strings.Repeat("} else {2}", 1000),
		"nested":  `map(1..2, map(1..2, map(1..2, map(1..2, map(1..2, 1)))))`,
		"empty":   "  ",
	} {
		if _, errs := Compile(source, Options{Names: scope}); len(errs) == 0 {
			t.Errorf("%s: compiles", name)
		}
	}
	quickly(t, started)
}

func TestUnboundedPatterns(t *testing.T) {
	started := time.Now()
	refusedByCompile(t, `event.a matches "(x"`, "not a regular expression: missing closing )")
	refusedByCompile(t, `event.a matches "(a{100}){9}(b{100}){9}(c{100}){9}"`, "too large")
	refusedByCompile(t, fmt.Sprintf(`event.a matches %q`, strings.Repeat("x", 600)), "too long")
	event := fmt.Sprintf(`{"p":"((a{30}){30})","q":"(","long":%q}`, strings.Repeat("a", 200_000))
	refuses(t, `event.long matches "(a|aa){150}$"`, event, "budget")
	refuses(t, `filter(1..1000, event.long matches event.p)`, event, "budget")
	refuses(t, `filter(1..1000, "a" matches event.p + string(#))`, event, "budget")
	refuses(t, `"a" matches event.q`, event, "not a regular expression")
	quickly(t, started)
	wants(t, `filter(1..1000, "a" matches event.p)`, event, `[]`)
	wants(t, `[result matches "a", "SKU-12" matches "^SKU-[0-9]+$", "x" matches event.r]`, `{"r":"[xy]"}`, `[false,true,true]`)
}

func TestAWrongHolidayIsAnError(t *testing.T) {
	for _, days := range []string{`["25.12.2026"]`, `["2026-13-01"]`, `[null]`, `[20261225]`, `["2026-12-25T00:00:00Z"]`} {
		refuses(t, `addBusinessDays("2026-12-24", 1, "UTC", event)`, days, "addBusinessDays: a")
	}
}

// A list of days as holidays, each counted, must not take longer than the budget allows.
func TestBusinessDaysAreCharged(t *testing.T) {
	refuses(t, `map(1..100, map(1..100, addBusinessDays("2026-12-24", 10000, "UTC")))`, `{}`, "steps")
}
