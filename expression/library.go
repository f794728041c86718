package expression

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// function is one entry of the allow-list. It gets canonical values, and a fault stops the
// evaluation.
type function struct {
	name     string
	min, max int // bounds of the number of arguments
	example  string
	run      func(m *machine, args []any) any
	steps    int // measured cost of a call beyond the size of its arguments
}

func (f *function) arity() string {
	switch {
	case f.min == f.max && f.min == 1:
		return "1 argument"
	case f.min == f.max:
		return fmt.Sprintf("%d arguments", f.min)
	case f.max == many:
		return fmt.Sprintf("at least %d argument", f.min)
	}
	return fmt.Sprintf("%d to %d arguments", f.min, f.max)
}

// many is the bound of variadic arguments: MaxNodes bounds them anyway.
const many = MaxNodes

// library is the allow-list, read only. An expression can call nothing else, except the closures
// that expr parses itself: all any one none filter map find findIndex findLast findLastIndex count
// sum groupBy sortBy reduce.
var library = index(
	// numbers
	&function{"abs", 1, 1, "abs(x)", abs, 1},
	&function{"ceil", 1, 1, "ceil(x)", ceil, 1},
	&function{"floor", 1, 1, "floor(x)", floor, 1},
	&function{"round", 1, 1, "round(x)", round, 1},
	&function{"int", 1, 1, "int(x)", toInt, 1},
	&function{"float", 1, 1, "float(x)", toFloat, 4},
	&function{"min", 1, many, "min(a, b) or min(list)", least, 1},
	&function{"max", 1, many, "max(a, b) or max(list)", greatest, 1},
	&function{"mean", 1, many, "mean(list)", mean, 1},
	&function{"median", 1, many, "median(list)", median, 1},
	// texts
	&function{"string", 1, 1, "string(x)", toText, 10},
	&function{"trim", 1, 2, `trim(text) or trim(text, "-_")`, trim, 1},
	&function{"trimPrefix", 2, 2, `trimPrefix(text, "SKU-")`, trimPrefix, 1},
	&function{"trimSuffix", 2, 2, `trimSuffix(text, ".json")`, trimSuffix, 1},
	&function{"upper", 1, 1, "upper(text)", upper, 3},
	&function{"lower", 1, 1, "lower(text)", lower, 3},
	&function{"split", 2, 3, `split(text, ",")`, splitText, 4},
	&function{"splitAfter", 2, 3, `splitAfter(text, ",")`, splitAfter, 4},
	&function{"join", 1, 2, `join(list, ", ")`, join, 3},
	&function{"replace", 3, 4, `replace(text, "old", "new")`, replace, 2},
	&function{"repeat", 2, 2, "repeat(text, 3)", repeat, 1},
	&function{"indexOf", 2, 2, `indexOf(text, "@")`, indexOf, 1},
	&function{"lastIndexOf", 2, 2, `lastIndexOf(text, "/")`, lastIndexOf, 1},
	&function{"hasPrefix", 2, 2, `hasPrefix(text, "SKU-")`, hasPrefix, 1},
	&function{"hasSuffix", 2, 2, `hasSuffix(text, ".json")`, hasSuffix, 1},
	&function{"toJSON", 1, 1, "toJSON(x)", toJSON, 10},
	&function{"fromJSON", 1, 1, "fromJSON(text)", fromJSON, 20},
	&function{"toBase64", 1, 1, "toBase64(text)", toBase64, 4},
	&function{"fromBase64", 1, 1, "fromBase64(text)", fromBase64, 4},
	// lists and maps
	&function{"len", 1, 1, "len(x)", length, 1},
	&function{"first", 1, 1, "first(list)", first, 1},
	&function{"last", 1, 1, "last(list)", last, 1},
	&function{"take", 2, 2, "take(list, 3)", take, 1},
	&function{"get", 2, 3, `get(map, "key") or get(map, "key", default)`, get, 1},
	&function{"concat", 1, many, "concat(a, b)", concat, 1},
	&function{"flatten", 1, 1, "flatten(lists)", flatten, 1},
	&function{"reverse", 1, 1, "reverse(list)", reverse, 1},
	&function{"uniq", 1, 1, "uniq(list)", uniq, 5},
	&function{"sort", 1, 2, `sort(list) or sort(list, "desc")`, sortList, 1},
	&function{"keys", 1, 1, "keys(map)", keys, 2},
	&function{"values", 1, 1, "values(map)", values, 2},
	&function{"toPairs", 1, 1, "toPairs(map)", toPairs, 2},
	&function{"fromPairs", 1, 1, "fromPairs(pairs)", fromPairs, 4},
	&function{"type", 1, 1, "type(x)", typeOf, 1},
	// times and ids
	&function{"duration", 1, 1, `duration("36h")`, duration, 5},
	&function{"date", 1, 1, `date("2026-01-31")`, date, 10},
	&function{"addTime", 2, 2, `addTime(now, "36h")`, addTime, 10},
	&function{"addDays", 2, 3, `addDays(now, 1, "Europe/Brussels")`, addDays, 10},
	&function{"addMonths", 2, 3, `addMonths(now, 1, "Europe/Brussels")`, addMonths, 10},
	&function{"addYears", 2, 3, `addYears(now, 1, "Europe/Brussels")`, addYears, 10},
	&function{"addBusinessDays", 3, 4, `addBusinessDays(now, 3, "Europe/Brussels", config.holidays)`, addBusinessDays, 10},
	&function{"atTime", 3, 3, `atTime(now, "9:00", "Europe/Brussels")`, atTime, 10},
	&function{"uuid", 1, 1, `uuid("name")`, uuid, 20},
)

func index(functions ...*function) map[string]*function {
	out := make(map[string]*function, len(functions))
	for _, f := range functions {
		out[f.name] = f
	}
	return out
}

// closures are the names that expr parses as loops.
var closures = []string{"all", "any", "count", "filter", "find", "findIndex", "findLast", "findLastIndex",
	"groupBy", "map", "none", "one", "reduce", "sortBy", "sum"}

// Functions lists the names that an expression may call, sorted.
func Functions() []string {
	out := slices.AppendSeq(slices.Clone(closures), maps.Keys(library))
	slices.Sort(out)
	return out
}

// refused are functions of expr that this language lacks, with their replacements.
var refused = map[string]string{
	"now":      "now() would read the clock: write now, the time of the trigger",
	"timezone": "timezone is not a function, times are UTC: addDays, addMonths, addYears, addBusinessDays and atTime take a zone's name",
	"env":      "there is no environment: only the names in scope",
	"get_env":  "there is no environment: only the names in scope",
	"random":   "random() would differ in every replay: derive it, as with uuid(\"name\")",
	"rand":     "rand() would differ in every replay: derive it, as with uuid(\"name\")",
	"raw":      "raw is not a function: it stands around the whole of an expression in the url of an http effect",
	"size":     "size is not a function: write len(x)",
	"length":   "length is not a function: write len(x)",
	"avg":      "avg is not a function: write mean(list)",
	"str":      "str is not a function: write string(x)",
	"range":    "range is not a function: write a..b",
	"if":       "if is not a function: write cond ? a : b, or if cond {a} else {b}",
	"bitand":   "bit operations are not available",
	"bitor":    "bit operations are not available",
	"bitxor":   "bit operations are not available",
	"bitnand":  "bit operations are not available",
	"bitnot":   "bit operations are not available",
	"bitshl":   "bit operations are not available",
	"bitshr":   "bit operations are not available",
	"bitushr":  "bit operations are not available",
}

func (l *lowering) unknownFunction(name string) string {
	if why, ok := refused[name]; ok {
		return why
	}
	if l.names[name] {
		return fmt.Sprintf("%s is a value, not a function", name)
	}
	return fmt.Sprintf("unknown function %s()%s", name, suggest(name, Functions()))
}

func (l *lowering) unknownName(name string) string {
	switch name {
	case "null", "None", "undefined", "NULL", "Null":
		return "write nil for " + name
	case "True", "False", "TRUE", "FALSE":
		return "write true or false in lower case"
	}
	if name == "result" && l.names["event"] && l.names["step"] {
		return "unknown name \"result\": in <step>.ok the result is event, and anywhere step.<id>.result"
	}
	inEffect, inSaga := l.names["payload"], l.names["event"]
	switch {
	case inEffect && (name == "event" || name == "state"):
		return fmt.Sprintf("unknown name %q: an effect reads payload, which is what the step's with gives", name)
	case inEffect && (name == "body" || name == "status" || name == "headers"):
		return fmt.Sprintf("unknown name %q: it is there after the call, in ok, fail and result", name)
	case inEffect && l.names["secret"] && inCapitals(name):
		return fmt.Sprintf("unknown name %q: a secret is secret.%s", name, name)
	case inSaga && name == "payload":
		return "unknown name \"payload\": the payload of an event is event"
	case inSaga && name == "secret":
		return "unknown name \"secret\": secrets are for effects only"
	}
	if _, ok := library[name]; ok {
		return fmt.Sprintf("%s is a function: write %s", name, library[name].example)
	}
	candidates := slices.Collect(maps.Keys(l.names))
	for _, candidate := range l.locals {
		candidates = append(candidates, candidate.name)
	}
	slices.Sort(candidates)
	nearest := suggest(name, candidates)
	switch {
	case nearest == "" && len(l.loops) > 0:
		nearest = fmt.Sprintf(": a member of the item is written .%s", name)
	case nearest == "" && inSaga && !slices.Contains([]string{"state", "step", "input", "result", "id", "saga", "config"}, name):
		nearest = fmt.Sprintf(": a field of the event is event.%s", name)
	}
	return fmt.Sprintf("unknown name %q%s", name, nearest)
}

// inCapitals reports whether a name is written as environment variables are.
func inCapitals(name string) bool {
	return strings.ToUpper(name) == name && strings.ToLower(name) != name
}

// suggest returns the nearest candidate, if it is near enough to be a typing error.
func suggest(name string, candidates []string) string {
	best, least := "", len(name)/2+1
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
