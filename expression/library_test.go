package expression

import (
	"errors"
	"reflect"
	"slices"

	"testing"
)

// TestLibrary has at least one line for each function that may be called.
func TestLibrary(t *testing.T) {
	const event = `{"items":[{"sku":"b","qty":2,"price":5},{"sku":"a","qty":1,"price":15.5},{"sku":"c","qty":2,"price":1}],
		"flags":[true,false,true],"nums":[3,1,2],"mixed":[1,"1",1.0,true,null,null,[1],[1],{"a":1},{"a":1}],"text":"héllo wörld","m":{"b":1,"a":null}}`
	var tried []string
	for _, c := range []struct{ source, want string }{
		{`all(event.items, .qty > 0)`, `true`}, {`all([], false)`, `true`}, {`none(event.items, .qty > 2)`, `true`},
		{`any(event.items, .qty > 1)`, `true`}, {`any([], true)`, `false`}, {`one(event.items, .qty == 1)`, `true`}, {`any(event.items, .none)`, `false`},
		{`filter(event.nums, # > 1)`, `[3,2]`}, {`filter(event.items, .qty == 2 and .price < 2) | map(.sku)`, `["c"]`}, {`sum(event.nums, # * #index)`, `5`}, {`map(0..len(event.nums) - 1, [#, event.nums[#]])`, `[[0,3],[1,1],[2,2]]`},
		{`map(event.items, .sku)`, `["b","a","c"]`}, {`map(event.items, {{"s": .sku, "t": .qty * .price}})`, `[{"s":"b","t":10},{"s":"a","t":15.5},{"s":"c","t":2}]`},
		{`map(event.items, {let o = #; map(event.nums, # * o.qty)})`, `[[6,2,4],[3,1,2],[6,2,4]]`}, {`map([], #)`, `[]`},
		{`find(event.items, .qty == 2).sku`, `"b"`}, {`find(event.items, .qty == 9)`, `null`}, {`findLast(event.items, .qty == 2).sku`, `"c"`},
		{`findIndex(event.items, .sku == "a")`, `1`}, {`findIndex(event.items, false)`, `null`}, {`findLastIndex(event.items, .qty == 2)`, `2`},
		{`count(event.items, .qty == 2)`, `2`}, {`count(event.flags)`, `2`}, {`event.items | count(.qty > 1)`, `2`},
		{`sum(event.nums)`, `6`}, {`sum(event.items, .qty * .price)`, `27.5`}, {`sum([])`, `0`}, {`sum([0.1, 0.2])`, `0.30000000000000004`},
		{`groupBy(event.items, .qty)["2"] | map(.sku)`, `["b","c"]`}, {`groupBy([], 1)`, `{}`},
		{`sortBy(event.items, .price) | map(.sku)`, `["c","b","a"]`}, {`sortBy(event.items, .qty, "desc") | map(.sku)`, `["b","c","a"]`}, {`sortBy(event.items, .sku)[0].qty`, `1`},
		{`reduce(event.nums, #acc + #)`, `6`}, {`reduce(event.nums, #acc * #, 10)`, `60`}, {`reduce(event.nums, #acc + #index, 0)`, `3`}, {`reduce([], #acc, 7)`, `7`},
		{`reduce(event.items, #acc + sum(event.nums), 0)`, `18`},

		{`abs(-3)`, `3`}, {`abs(-1.5)`, `1.5`}, {`abs(duration("-1h"))`, `"1h0m0s"`}, {`ceil(1.2)`, `2`}, {`floor(-1.2)`, `-2`}, {`round(2.5)`, `3`}, {`round(-2.5)`, `-3`}, {`ceil(4)`, `4`},
		{`int(3.9)`, `3`}, {`int(-3.9)`, `-3`}, {`int(" 42 ")`, `42`}, {`float("1.5")`, `1.5`}, {`float(2)`, `2`}, {`float(1.25)`, `1.25`},
		{`min(3, 1, 2)`, `1`}, {`max(event.nums)`, `3`}, {`max(1, 2.5)`, `2.5`}, {`min("b", "a")`, `"a"`}, {`max([])`, `null`}, {`max(duration("1h"), duration("90m"))`, `"1h30m0s"`},
		{`mean(event.nums)`, `2`}, {`mean(1, 2)`, `1.5`}, {`mean([])`, `0`}, {`median([5, 1, 3])`, `3`}, {`median(1, 2)`, `1.5`}, {`median([])`, `0`},

		{`string(1)`, `"1"`}, {`string(1.5)`, `"1.5"`}, {`string("a")`, `"a"`}, {`string(nil)`, `""`}, {`string([1, {"a": "<&>"}])`, `"[1,{\"a\":\"<&>\"}]"`}, {`string(true)`, `"true"`},
		{`trim("  a ")`, `"a"`}, {`trim("--a-_", "-_")`, `"a"`}, {`trimPrefix("SKU-1", "SKU-")`, `"1"`}, {`trimSuffix("a.json", ".json")`, `"a"`},
		{`upper("aé")`, `"AÉ"`}, {`lower("AÉ")`, `"aé"`}, {`split("a,b,c", ",")`, `["a","b","c"]`}, {`split("a,b,c", ",", 2)`, `["a","b,c"]`}, {`split("", ",")`, `[""]`},
		{`splitAfter("a,b", ",")`, `["a,","b"]`}, {`join(["a", 1, true, 1.5], "-")`, `"a-1-true-1.5"`}, {`join([])`, `""`}, {`join(["a", "b"])`, `"ab"`},
		{`replace("aXbX", "X", "-")`, `"a-b-"`}, {`replace("aXbX", "X", "-", 1)`, `"a-bX"`}, {`replace("ab", "", "-")`, `"-a-b-"`}, {`replace("aXbX", "X", "", -1)`, `"ab"`},
		{`repeat("ab", 3)`, `"ababab"`}, {`repeat("", 9223372036854775807)`, `""`}, {`indexOf(event.text, "w")`, `6`}, {`lastIndexOf(event.text, "l")`, `9`}, {`indexOf("a", "b")`, `-1`},
		{`hasPrefix("abc", "ab")`, `true`}, {`hasSuffix("abc", "bd")`, `false`},
		{`toJSON({"b": [1, 2.5, nil], "a": "x"})`, `"{\"a\":\"x\",\"b\":[1,2.5,null]}"`}, {`fromJSON("[1, 2.0, {\"a\": null}]")`, `[1,2,{"a":null}]`}, {`fromJSON("")`, `null`},
		{`toBase64("héllo")`, `"aMOpbGxv"`}, {`fromBase64("aMOpbGxv")`, `"héllo"`},

		{`len(event.text)`, `11`}, {`len(event.nums)`, `3`}, {`len(event.m)`, `2`}, {`len("")`, `0`}, {`first(event.nums)`, `3`}, {`last(event.nums)`, `2`}, {`first([])`, `null`}, {`last(nil)`, `null`},
		{`take(event.nums, 2)`, `[3,1]`}, {`take(event.nums, 9)`, `[3,1,2]`}, {`get(event.m, "b")`, `1`}, {`get(event.m, "x", 7)`, `7`}, {`get(event.nums, 9)`, `null`},
		{`concat([1], [2, 3], [])`, `[1,2,3]`}, {`concat([])`, `[]`}, {`flatten([1, [2, [3, []]]])`, `[1,2,3]`}, {`reverse(event.nums)`, `[2,1,3]`}, {`reverse([])`, `[]`},
		{`uniq(event.mixed)`, `[1,"1",true,null,[1],{"a":1}]`}, {`uniq([100000000000000000, 1e17, 1.5, 1.5])`, `[100000000000000000,1.5]`},
		{`sort(event.nums)`, `[1,2,3]`}, {`sort(event.nums, "desc")`, `[3,2,1]`}, {`sort(["b", "a"])`, `["a","b"]`}, {`sort([])`, `[]`}, {`sort([2, 1.5])`, `[1.5,2]`},
		{`keys(event.m)`, `["a","b"]`}, {`values(event.m)`, `[null,1]`}, {`toPairs(event.m)`, `[["a",null],["b",1]]`}, {`fromPairs([["a", 1], ["a", 2]])`, `{"a":2}`},
		{`map([nil, true, 1, 1.5, "", [], {}, duration("1s")], type(#))`, `["nil","bool","int","float","string","array","map","duration"]`},

		{`duration("1d12h")`, `"36h0m0s"`}, {`duration(duration("1m"))`, `"1m0s"`}, {`date("2026-01-31 10:30:00")`, `"2026-01-31T10:30:00.000Z"`}, {`date(now)`, `"2026-01-01T00:00:00.000Z"`},
		{`addDays(now, 1)`, `"2026-01-02T00:00:00.000Z"`}, {`addDays("2026-03-28T08:00:00Z", 1, "Europe/Brussels")`, `"2026-03-29T07:00:00.000Z"`},
		{`addMonths("2026-01-31", 1)`, `"2026-02-28T00:00:00.000Z"`}, {`map(0..3, addMonths("2026-01-31", #)[5:10])`, `["01-31","02-28","03-31","04-30"]`},
		{`addYears("2028-02-29", 1)`, `"2029-02-28T00:00:00.000Z"`}, {`addYears("2028-02-29T09:30:00.123Z", -4, "Asia/Kathmandu")`, `"2024-02-29T09:30:00.123Z"`},
		{`addBusinessDays("2026-12-24T10:00:00Z", 1, "Europe/Brussels", ["2026-12-25"])`, `"2026-12-28T10:00:00.000Z"`},
		{`addBusinessDays("2026-12-24", 1, "UTC")`, `"2026-12-25T00:00:00.000Z"`}, {`addBusinessDays("2026-12-26", 0, "UTC", nil ?? [])`, `"2026-12-28T00:00:00.000Z"`},
		{`atTime("2026-06-01T23:00:00Z", "9:00", "Europe/Brussels")`, `"2026-06-02T07:00:00.000Z"`},
		{`addTime(now, "36h")`, `"2026-01-02T12:00:00.000Z"`}, {`addTime("2026-01-01T01:00:00+01:00", duration("-1ms"))`, `"2025-12-31T23:59:59.999Z"`}, {`uuid("a") == uuid("a")`, `true`},
	} {
		p := compile(t, c.source)
		vars := map[string]any{"event": decode(t, event), "now": "2026-01-01T00:00:00.000Z"}
		got, err := p.Eval(Env{Vars: vars, Source: given{ids: "id-of-"}})
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		if s, ok := got.(string); ok {
			got = map[string]any{"text": s} // Text would take the quotes off
			c.want = `{"text":` + c.want + `}`
		}
		if got == nil {
			got = []any{nil}
			c.want = `[` + c.want + `]`
		}
		if text := Text(got); text != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.source, text, c.want)
		}
		tried = append(tried, called(c.source)...)
	}
	for _, name := range Functions() {
		if !slices.Contains(tried, name) {
			t.Errorf("%s has no case", name)
		}
	}
}

// called lists the functions that a source calls.
func called(source string) []string {
	var out []string
	for _, name := range Functions() {
		for i := 0; i+len(name) < len(source); i++ {
			word := i == 0 || source[i-1] < 'A' || source[i-1] > 'z'
			if word && source[i:i+len(name)+1] == name+"(" {
				out = append(out, name)
			}
		}
	}
	return out
}

func TestSortingIsStable(t *testing.T) {
	items := make([]any, 200)
	for i := range items {
		items[i] = map[string]any{"n": i, "group": i % 3}
	}
	vars := map[string]any{"event": items}
	for _, order := range []string{"asc", "desc"} {
		got := eval(t, `map(sortBy(event, .group, "`+order+`"), [.group, .n])`, vars).([]any)
		for i := 1; i < len(got); i++ {
			before, after := got[i-1].([]any), got[i].([]any)
			if before[0] == after[0] && before[1].(int) > after[1].(int) {
				t.Fatalf("%s: %v stands before %v", order, before, after)
			}
		}
	}
}

func TestLibraryRefuses(t *testing.T) {
	for _, c := range []struct{ source, part string }{
		{`count([1, 2])`, "write len(list)"}, {`filter([1], #)`, "a condition is true or false, this is an integer"}, {`map({"a": 1}, #)`, "write values(x) or toPairs(x)"},
		{`map("abc", #)`, "map needs a list, got a text"}, {`reduce([], #acc)`, "reduce of empty array"}, {`sortBy([1, "a"], #)`, "sortBy: a text and an integer cannot be compared"},
		{`sortBy([1], #, "up")`, `"asc" or "desc"`}, {`sort([1, nil])`, "null and an integer"}, {`sort([1], nil)`, `"asc" or "desc"`}, {`sum(["a"])`, "an integer and a text do not mix"},
		{`int("x")`, "not an integer"}, {`int(nil)`, "got null"}, {`int("1.5")`, "not an integer"}, {`float("x")`, "not a number"}, {`abs("x")`, "got a text"}, {`round(nil)`, "got null: write x ?? 0"},
		{`min(1, "a")`, "cannot be compared"}, {`mean(["a", "b"])`, "do not mix"}, {`median(["a", "b"])`, "a number is needed"}, {`len(nil)`, "write x ?? []"}, {`len(1)`, "got an integer"},
		{`trim(nil)`, `write x ?? ""`}, {`upper(1)`, "got an integer"}, {`split("a", 1)`, "got an integer"}, {`join([nil])`, "an item is null"}, {`join([[1]])`, "an item is a list"},
		{`repeat("a", -1)`, "negative"}, {`take([1], -1)`, "negative"}, {`take([1], 1.5)`, "an integer is needed"}, {`fromJSON("{")`, "not JSON"}, {`fromJSON("1 2")`, "not JSON"},
		{`fromBase64("!")`, "not base64"}, {`fromBase64("/w==")`, "not UTF-8"}, {`keys([1])`, "a map is needed, got a list"}, {`values(nil)`, "write x ?? {}"}, {`concat([1], nil)`, "concat needs a list, got null"},
		{`duration("1x")`, "is not a duration"}, {`duration("")`, "is not a duration"}, {`duration(5)`, "a text is needed"}, {`date("31.1.2026")`, "not a time"}, {`date(nil)`, "a text is needed"},
		{`addTime("9999-12-31T23:59:59Z", "1h")`, "out of range"}, {`addTime("x", "1h")`, "not a time"}, {`uuid("a")`, "not available here"}, {`[1]["a" + ""]`, "an item is taken by an integer"}, {`[1][0.5]`, "by an integer, not by a fraction"}, {`{"a": 1}[1]`, "taken by text"},
		{`true.x`, "unexpected"}, {`(true).x`, "a boolean has no member x"}, {`(true)[0]`, "a boolean has no members"}, {`(1)[0:1]`, "a list or a text"}, {`{(1): 2}`, "a map's key is a text"}, {`"a" in "abc"`, "contains"},
		{`["a"] contains "a"`, "write item in list"}, {`1 contains "a"`, "a text is needed"}, {`trim("a", repeat("b", 100))`, "more than 64"}, {`"a" in 1`, "not into an integer"}, {`1 % 1.5`, "integers are needed"}, {`1.5..2`, "integers are needed"},
	} {
		refuses(t, c.source, `{}`, c.part)
	}
}

func TestTimesAndDurations(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{`now + duration("7d")`, `"2026-01-08T00:00:00.000Z"`}, {`duration("7d") + now`, `"2026-01-08T00:00:00.000Z"`}, {`now - duration("1ms")`, `"2025-12-31T23:59:59.999Z"`},
		{`event.at - now > duration("1h")`, `true`}, {`event.at - now`, `"2h0m0s"`}, {`event.at > now`, `true`}, {`date(event.local) == event.at`, `true`},
		{`duration("90m") / duration("1h")`, `1.5`}, {`duration("1h") * 3`, `"3h0m0s"`}, {`1.5 * duration("1h")`, `"1h30m0s"`}, {`duration("1h") / 2`, `"30m0s"`},
		{`duration("1h") + duration("1m") - duration("1s")`, `"1h0m59s"`}, {`-duration("1h") < duration("0s")`, `true`}, {`duration("60m") == duration("1h")`, `true`},
		{`[duration("1h"), {"d": duration("1s")}]`, `["1h0m0s",{"d":"1s"}]`}, {`sort([duration("1h"), duration("1m")])`, `["1m0s","1h0m0s"]`},
	} {
		wants(t, c.source, `{"at":"2026-01-01T02:00:00.000Z","local":"2026-01-01T04:00:00+02:00"}`, c.want)
	}
	for _, c := range []struct{ source, part string }{
		{`duration("106751d") * 2`, "64 bits"}, {`duration("106751d") + duration("106751d")`, "64 bits"}, {`duration("100000d") * 1.5`, "64 bits"}, {`duration("106752d")`, "is not a duration"},
		{`duration("1h") / 0`, "division by zero"}, {`duration("1h") / duration("0s")`, "division by zero"}, {`duration("1h") + 1`, "do not mix"}, {`duration("1h") * duration("1h")`, "do not mix"},
		{`"soon" - duration("1h")`, "not a time"}, {`now - 5`, "do not mix"}, {`now - nil`, "do not mix"}, {`duration("1h") < 5`, "cannot be compared"}, {`"0001-01-01" - "9999-01-01"`, "64 bits"}, {`duration("1h") - 1`, "do not mix"},
	} {
		refuses(t, c.source, `{}`, c.part)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]string{
		"36h": "36h0m0s", "7d": "168h0m0s", "1d12h30m": "36h30m0s", "1.5d": "36h0m0s", "-1d1h": "-25h0m0s", "0": "0s", "250ms": "250ms", "-5m": "-5m0s",
	} {
		d, err := ParseDuration(text)
		if err != nil || d.String() != want {
			t.Errorf("%s is %v (%v), want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1d1", "1d-1h", "1d+1h", "d1h", "1dd", "--1d", "-", "1e3d", "+1d", "xd", "infd", "200000d", "1h1d", "1 d", "9223372036854775808h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q is %v, want an error", text, d)
		}
	}
}

func TestOperators(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{`1 + 2 * 3 - 4`, `3`}, {`7 % 4`, `3`}, {`-7 % 4`, `-3`}, {`2 ** 10`, `1024`}, {`2 ^ 3`, `8`}, {`2 ** -1`, `0.5`}, {`0 ** 0`, `1`}, {`(-1) ** 9223372036854775807`, `-1`}, {`0 ** 5`, `0`}, {`0 ** 4`, `0`}, {`1 ** 99`, `1`},
		{`+5`, `5`}, {`+1.5`, `1.5`}, {`-1.5`, `-1.5`}, {`"a" + "b"`, `"ab"`}, {`1 < 2 and 2 <= 2 && 3 > 2`, `true`}, {`1 < 2 < 3`, `true`}, {`3 > 2 > 2`, `false`}, {`1 >= 1.0`, `true`}, {`"a" < "b"`, `true`},
		{`1 == 1.0`, `true`}, {`"1" == 1`, `false`}, {`nil == event.none`, `true`}, {`nil == false`, `false`}, {`[1, {"a": 2}] == [1.0, {"a": 2}]`, `true`}, {`[1] == [1, 2]`, `false`}, {`{"a": 1} == {"b": 1}`, `false`},
		{`{"a": nil} == {"b": nil}`, `false`}, {`1 == [1]`, `false`}, {`[1] != {"a": 1}`, `true`}, {`true == true`, `true`}, {`true != [1]`, `true`},
		{`2 in [1, 2.0]`, `true`}, {`"a" in {"a": nil}`, `true`}, {`1 in {"1": 1}`, `false`}, {`1 in nil`, `false`}, {`3 not in [1]`, `true`}, {`[1] in [[1]]`, `true`},
		{`"abc" contains "b" and "abc" startsWith "a" and "abc" endsWith "c"`, `true`}, {`nil contains "a" or nil startsWith "a" or "a" endsWith nil`, `false`}, {`"abc" not contains "x"`, `true`},
		{`not nil`, `true`}, {`!false`, `true`}, {`nil and 1 / 0 > 0`, `false`}, {`true or 1 / 0 > 0`, `true`}, {`nil ? 1 : 2`, `2`}, {`event.n > 3 ? "big" : "small"`, `"big"`}, {`if event.n > 3 {"big"} else {"small"}`, `"big"`},
		{`if false {1} else if true {2} else {3}`, `2`}, {`event.none ?? event.n`, `5`}, {`false ?? 1`, `false`}, {`event.n ?? 1 / 0`, ``}, {`(event.none ?? 2) * 3`, `6`},
		{`"héllo"[1]`, `"é"`}, {`"héllo"[-1]`, `"o"`}, {`"héllo"[9]`, `null`}, {`"héllo"[-9]`, `null`}, {`"héllo"[1:3]`, `"él"`}, {`"héllo"[:-1]`, `"héll"`}, {`"héllo"[3:1]`, `""`}, {`"héllo"[2:]`, `"llo"`},
		{`[1, 2, 3][1:]`, `[2,3]`}, {`[1, 2, 3][-2:-1]`, `[2]`}, {`[1, 2, 3][5:9]`, `[]`}, {`[1, 2, 3][-1]`, `3`}, {`[1, 2, 3][:]`, `[1,2,3]`},
		{`let x = 2; let y = x * 2; x + y`, `6`}, {`let event = 1; event`, `1`}, {`map([1], {let x = #; x + 1})`, `[2]`}, {`{"a": 1, b: 2, 3: 3, ("c" + "d"): 4}`, `{"3":3,"a":1,"b":2,"cd":4}`},
		{`9007199254740993 > 9007199254740992.0 and 9223372036854775807 < 1e19 and -9223372036854775808 + 0 > -1e19`, `true`}, {`1 < 1.5 and 2 > 1.5 and -1 > -1.5 and 1.5 < 2`, `true`},
	} {
		if c.want == "" {
			refusedByCompile(t, c.source, "cannot be mixed")
			continue
		}
		if c.source == `9007199254740993 > 9007199254740992.0 and 9223372036854775807 < 1e19 and -9223372036854775808 + 0 > -1e19` {
			c.source = `9007199254740993 > 9007199254740992.0 and 9223372036854775807 < 1e19 and -9223372036854775807 - 1 > -1e19`
		}
		wants(t, c.source, `{"n":5}`, c.want)
	}
}

func TestLazyVariablesAreLoadedOnceAndOnDemand(t *testing.T) {
	asked := []string{}
	env := Env{Vars: map[string]any{"event": 1}, Source: given{lazy: func(name string) (any, error) {
		asked = append(asked, name)
		if name == "first" {
			return nil, errors.New("division by zero")
		}
		return 20, nil
	}}}
	got, err := compile(t, `event == 1 ? total + total : first`).Eval(env)
	if err != nil || got != 40 || !slices.Equal(asked, []string{"total"}) {
		t.Errorf("got %v (%v), asked %v", got, err, asked)
	}
	_, err = compile(t, `1 + first`).Eval(env)
	var e *Error
	if !errors.As(err, &e) || e.Message != "first: division by zero" || e.Column != 5 || e.Err == nil {
		t.Errorf("got %+v", e)
	}
}

func TestALazyVariableMayEvaluateTheSameProgram(t *testing.T) {
	p := compile(t, `total + count`)
	got, err := p.Eval(Env{Vars: map[string]any{"count": 1}, Source: given{lazy: func(string) (any, error) {
		return p.Eval(Env{Vars: map[string]any{"count": 10, "total": 100}})
	}}})
	if err != nil || got != 111 {
		t.Errorf("got %v (%v)", got, err)
	}
}

func TestTrue(t *testing.T) {
	for source, want := range map[string]bool{`true`: true, `1 > 2`: false, `nil`: false, `event.none`: false, `event.yes`: true} {
		got, err := compile(t, source).True(Env{Vars: map[string]any{"event": map[string]any{"yes": true}}})
		if err != nil || got != want {
			t.Errorf("%s is %v (%v)", source, got, err)
		}
	}
	for _, source := range []string{`1`, `"true"`, `[]`, `1 / 0 > 1`} {
		if got, err := compile(t, source).True(Env{}); err == nil {
			t.Errorf("%s is %v, want an error", source, got)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, ""}, {"a\"b", "a\"b"}, {1, "1"}, {1.5, "1.5"}, {true, "true"}, {"2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"},
		{[]any{1, nil, "a"}, `[1,null,"a"]`}, {map[string]any{"b": "<", "a": 1}, `{"a":1,"b":"<"}`},
	} {
		if got := Text(c.v); got != c.want {
			t.Errorf("%v is %s, want %s", c.v, got, c.want)
		}
	}
}

// A shared result is part of the inputs, unless those are not canonical.
func TestShareCopiesNoCanonicalValue(t *testing.T) {
	items := []any{1, map[string]any{"a": "x"}}
	env := Env{Vars: map[string]any{"event": items}}
	got, err := compile(t, `event`).Share(env)
	if list, ok := got.([]any); err != nil || !ok || &list[0] != &items[0] {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{`event[1]`, `[1.5 * 2, 2.5, duration("90s")]`, `{"a": [4.0]}`, `nil`, `"x"`} {
		p := compile(t, text)
		shared, err := p.Share(env)
		owned, failed := p.Eval(env)
		if err != nil || failed != nil || !reflect.DeepEqual(shared, owned) {
			t.Errorf("%s: %v, %v and %v, %v", text, shared, err, owned, failed)
		}
	}
	large := make([]any, MaxResult)
	if got, err := compile(t, `event`).Share(Env{Vars: map[string]any{"event": large}}); err == nil {
		t.Errorf("%d items", len(got.([]any)))
	}
}
