package expression

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// constantFaults has a call with a wrong constant for every function that can have one.
var constantFaults = map[string][]struct{ call, column, message string }{
	"addTime": {
		{`addTime(now, "1 month")`, "1:14", `addTime: "1 month" is not a duration, whose units are of one length: use addDays, addMonths or addYears`},
		{`addTime(now, "1mo")`, "1:14", `addTime: "1mo" is not a duration`},
		{`addTime(now, "P1M")`, "1:14", `addTime: "P1M" is not a duration`},
		{`addTime(now, 5)`, "1:14", `addTime: a text is needed, got an integer`},
		{`addTime("31.1.2026", event.wait)`, "1:9", `addTime: the text is not a time: it is written like 2026-01-31T10:30:00Z, and not like "31.1.2026"`},
		{`addTime("2026-01-31", "1y")`, "1:23", `addTime: "1y" is not a duration`},
	},
	"addDays":         {{`addDays(now, "1")`, "1:14", "addDays: an integer is needed"}, {`addDays(now, 1, "Europe/Bruxelles")`, "1:17", `addDays: "Europe/Bruxelles" is no time zone: write it as in Europe/Brussels`}},
	"addMonths":       {{`addMonths("31.1.2026", 1)`, "1:11", "addMonths: the text is not a time"}, {`addMonths(event.at, 1.5)`, "1:21", "an integer is needed"}, {`addMonths(event.at, 120001)`, "1:21", "a number from -120000 to 120000 is needed"}, {`addMonths("2026-01-31", 120000)`, "1:25", "the time is out of range"}},
	"addYears":        {{`addYears(event.at, event.n, "Local")`, "1:29", `addYears: "Local" is no time zone`}, {`addYears(event.at, 10001)`, "1:20", "a number from -10000"}, {`addYears(now, 1, "America/Argentina/Buenos_Ayres")`, "1:18", `"America/Argentina/Buenos_Ayres" is no time zone: write it as in Europe/Brussels`}},
	"addBusinessDays": {{`addBusinessDays(now, 10001, event.zone)`, "1:22", "a number from -10000"}, {`addBusinessDays(now, 1, "CEST")`, "1:25", `"CEST" is no time zone`}, {`addBusinessDays(now, 1, "UTC", "2026-12-25")`, "1:32", "addBusinessDays needs a list"}},
	"atTime":          {{`atTime(now, "9", "UTC")`, "1:13", `atTime: "9" is no time of day: write it as in 9:00`}, {`atTime(now, "24:00", event.zone)`, "1:13", "is no time of day"}, {`atTime(event.at, event.clock, "")`, "1:31", `atTime: "" is no time zone`}},
	"duration":        {{`duration("1 month")`, "1:10", `duration: "1 month" is not a duration, whose units are of one length: use addDays, addMonths or addYears`}, {`now + duration("")`, "1:16", `is not a duration`}, {`event.a ? 1 : duration(nil)`, "1:24", "a text is needed, got null"}},
	"date":            {{`date("31.1.2026")`, "1:6", `date: the text is not a time: it is written like 2026-01-31T10:30:00Z, and not like "31.1.2026"`}},
	"int":             {{`int("3.5")`, "1:5", `int: the text is not an integer of 64 bits, and not like "3.5"`}},
	"float":           {{`float("3,5")`, "1:7", `float: the text is not a number`}, {`float("nan")`, "1:7", `float: the result is not a finite number, and not like "nan"`}, {`float("1e999")`, "1:7", "larger than any fraction"}},
	"fromJSON":        {{`fromJSON("{a: 1}")`, "1:10", `fromJSON: the text is not JSON`}},
	"fromBase64":      {{`fromBase64("???")`, "1:12", `fromBase64: the text is not base64`}},
	"uuid":            {{`uuid(7)`, "1:6", "uuid: a text is needed"}},
	"repeat":          {{`repeat(event.a, -1)`, "1:17", `repeat: the count is negative`}, {`repeat("ab", 200000)`, "1:8", "repeat: the text would have"}, {`repeat(event.a, "3")`, "1:17", "an integer is needed"}},
	"take":            {{`take(event.items, -1)`, "1:19", `take: the number of items is negative`}, {`take(event.items, 1.5)`, "1:19", "an integer is needed"}},
	"trim":            {{`trim(event.a, "` + strings.Repeat("x", 65) + `")`, "1:15", "trim: more than 64 bytes"}, {"trim(7)", "1:6", "a text is needed"}},
	"sort":            {{`sort(event.items, "dsc")`, "1:19", `sort: the order is "asc" or "desc", and not like "dsc"`}},
	"sortBy":          {{`sortBy(event.items, .n, "down")`, "1:25", `sortBy: the order is "asc" or "desc", and not like "down"`}},
	"split":           {{`split(event.a, 7)`, "1:16", "a text is needed"}, {`split(event.a, ",", "2")`, "1:21", "an integer is needed"}},
	"splitAfter":      {{`splitAfter(event.a, nil)`, "1:21", "a text is needed"}},
	"join":            {{`join(event.a, 7)`, "1:15", "a text is needed"}, {`join("a", ",")`, "1:6", "needs a list"}},
	"replace":         {{`replace(event.a, "x", 7)`, "1:23", "a text is needed"}},
	"trimPrefix":      {{`trimPrefix(event.a, 7)`, "1:21", "a text is needed"}},
	"trimSuffix":      {{`trimSuffix(event.a, 7)`, "1:21", "a text is needed"}},
	"hasPrefix":       {{`hasPrefix(event.a, 7)`, "1:20", "a text is needed"}},
	"hasSuffix":       {{`hasSuffix(event.a, 7)`, "1:20", "a text is needed"}},
	"indexOf":         {{`indexOf(event.a, 7)`, "1:18", "a text is needed"}},
	"lastIndexOf":     {{`lastIndexOf(event.a, 7)`, "1:22", "a text is needed"}},
	"abs":             {{`abs("3")`, "1:5", "abs"}}, "ceil": {{`ceil("3")`, "1:6", "ceil"}}, "floor": {{`floor("3")`, "1:7", "floor"}}, "round": {{`round("3")`, "1:7", "round"}},
	"min": {{`min("a", 3)`, "1:5", "min"}}, "max": {{`max(3, "a")`, "1:5", "max"}}, "mean": {{`mean("a")`, "1:6", "mean"}}, "median": {{`median("a")`, "1:8", "median"}},
	"upper": {{`upper(3)`, "1:7", "upper"}}, "lower": {{`lower(3)`, "1:7", "lower"}},
	"toBase64": {{`toBase64(3)`, "1:10", "toBase64"}},
	"len":      {{`len(3)`, "1:5", "len"}}, "first": {{`first(3)`, "1:7", "first"}}, "last": {{`last(3)`, "1:6", "last"}},
	"get": {{`get("a", "b")`, "1:5", "integer"}}, "concat": {{`concat("a", "b")`, "1:8", "concat"}}, "flatten": {{`flatten(1)`, "1:9", "flatten"}},
	"reverse": {{`reverse("abc")`, "1:9", "reverse"}}, "uniq": {{`uniq(1)`, "1:6", "uniq"}}, "keys": {{`keys("a")`, "1:6", "keys"}},
	"values": {{`values("a")`, "1:8", "values"}}, "toPairs": {{`toPairs("a")`, "1:9", "toPairs"}}, "fromPairs": {{`fromPairs("a")`, "1:11", "fromPairs"}},
	"string": nil, "toJSON": nil, "type": nil, // they take anything
}

func TestAWrongConstantIsACompileError(t *testing.T) {
	for name, faults := range constantFaults {
		for _, tt := range faults {
			_, errs := Compile(tt.call, Options{Names: scope})
			if len(errs) != 1 || !strings.Contains(errs[0].Message, tt.message) || fmt.Sprintf("%d:%d", errs[0].Line, errs[0].Column) != tt.column {
				t.Errorf("%s: %s: %+v, want %s %s", name, tt.call, errs, tt.column, tt.message)
			}
		}
	}
	for name := range library {
		if _, tried := constantFaults[name]; !tried {
			t.Errorf("%s has no call with a wrong constant here", name)
		}
	}
}

func TestARightConstantCompiles(t *testing.T) {
	for _, source := range []string{
		`addTime(now, "36h")`, `addTime(now, "7d")`, `addTime(now, "-1d12h")`, `addTime(event.at, event.wait)`, `addTime("2026-01-31", event.wait)`,
		`addTime(now, duration("36h"))`, `addTime(now, duration("1h") * 3)`, `date("2026-01-31")`, `date(event.at)`, `int("3")`, `float("3.5")`,
		`fromJSON("{\"a\": 1}")`, `fromBase64("aGFsbG8=")`, `uuid("name")`, `repeat("ab", 3)`, `repeat(event.a, 100000)`, `take(event.items, 3)`,
		`trim(event.a, "-_")`, `sort(event.items, "desc")`, `sort(event.items, event.order)`, `sortBy(event.items, .n, "asc")`, `split(event.a, ",", -1)`,
		`join(event.items)`, `join(["a", "b"], ", ")`, `replace(event.a, "old", "new", -1)`, `get(event, "key")`, `get(event.items, 0, "default")`, `get(nil, "a")`,
		`min(1, event.a)`, `max(event.a, "b")`, `concat(event.a, event.b)`, `len("abc")`, `first(nil)`, `round(2.5)`, `string(nil)`, `indexOf("a@b", "@")`,
	} {
		if _, errs := Compile(source, Options{Names: scope}); len(errs) > 0 {
			t.Errorf("%s: %v", source, errs[0])
		}
	}
}

// now + "1d" is the text 2026-…Z1d, and the timer that got it failed.
func TestATimeAndATextHaveNoSum(t *testing.T) {
	for source, mend := range map[string]string{
		`now + "1d"`:                         `addTime(now, "1d")`,
		`now - "1h30m"`:                      `addTime(now, "-1h30m")`,
		`meta.time + "36h"`:                  `addTime(meta.time, "36h")`,
		`now + "2 weeks"`:                    `addDays(now, 14)`,
		`now + "1 year"`:                     `addMonths(now, 12)`,
		`now - "1 month"`:                    `addMonths(now, -1)`,
		`addDays(event.at, 1) + "2h"`:        `addTime(addDays(event.at, 1), "2h")`,
		`event.at > now + "1d"`:              `addTime(now, "1d")`,
		`now + duration("1d")`:               "",
		`now + " UTC"`:                       "",
		`now + "1x"`:                         "",
		`"at " + now + "1d"`:                 "",
		`event.sku + "10m"`:                  "",
		`meta.id + "1d"`:                     "",
		`let meta = event; meta.time + "1d"`: "",
		`let now = event.size; now + "10m"`:  "",
	} {
		_, errs := Compile(source, Options{Names: scope})
		switch {
		case mend == "" && len(errs) > 0:
			t.Errorf("%s: %v", source, errs[0])
		case mend != "" && (len(errs) != 1 || !strings.HasSuffix(errs[0].Message, ": write "+mend)):
			t.Errorf("%s: %v, want write %s", source, errs, mend)
		}
		if _, errs := Compile(source, Options{Names: scope, Kept: true}); len(errs) > 0 {
			t.Errorf("%s of a stored manifest: %v", source, errs[0])
		}
	}
}

// TestEverySampleIsAccepted: an argument beside samples must be the one to blame.
func TestEverySampleIsAccepted(t *testing.T) {
	for name, args := range samples() {
		f := library[name]
		if name == sortByFunction.name {
			f = &function{name: name, min: len(args), max: len(args), run: sortByFunction.run}
		}
		for n := f.min; n <= len(args); n++ {
			if fault := attempt(f, slices.Clone(args[:n])); fault != "" {
				t.Errorf("%s of %d: %s", name, n, fault)
			}
		}
		if f.max > len(args) {
			t.Errorf("%s takes %d arguments, and has %d samples", name, f.max, len(args))
		}
	}
}

// ok: status == "200" was always false, so a charge that was made was taken for a failure.
func TestANumberIsNotComparedWithAText(t *testing.T) {
	o := Options{Names: []string{"status", "body"}, Numbers: []string{"status"}}
	for source, wrong := range map[string]bool{
		`status == "200"`: true, `"200" != status`: true, `status in [200, "201"]`: true, `status >= "400"`: true, `body.ok && status == "200"`: true,
		`status == 200`: false, `status in [200, 201]`: false, `body.status == "200"`: false, `string(status) == "200"`: false, `body == "200"`: false,
	} {
		_, errs := Compile(source, o)
		if (len(errs) > 0) != wrong || wrong && !strings.Contains(errs[0].Message, "status is a number, and \"") {
			t.Errorf("%s: %v", source, errs)
		}
	}
}
