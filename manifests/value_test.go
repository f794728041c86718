package manifests

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// with parses text as the value of with: in an otherwise valid saga.
func with(t *testing.T, text string) *Value {
	t.Helper()
	f := clean(t, "saga: x\non:\n  E:\n    do:\n      - event: X\n        with: "+text+"\n")
	return f.Sagas[0].Handlers[0].Do[0].With
}

func TestScalars(t *testing.T) {
	for text, want := range map[string]any{
		"1": 1, "-5": -5, "+7": 7, "0": 0, "-0": 0, "1.5": 1.5, "2.0": 2, "1e3": 1000, ".5": 0.5, "0x1F": 31, "0o17": 15, "0b11": 3,
		"9007199254740993": 9007199254740993, "-9223372036854775808": -9223372036854775808,
		"true": true, "False": false, "null": nil, "~": nil, "": nil, "yes": "yes", "on": "on", "abc": "abc",
		`"1"`: "1", "'true'": "true", "1_000": "1_000", "2026-01-31": "2026-01-31", "2026-01-31T10:00:00Z": "2026-01-31T10:00:00Z",
		"1:30": "1:30", "==x": "=x", "===x": "==x", "==a ${b}": "=a ${b}", "$${a}": "${a}", "a $${b} $${c}": "a ${b} ${c}", "$5 {a}": "$5 {a}",
		"!!str 5": "5", "!!int '5'": 5, "!!float 5": 5,
	} {
		v := with(t, text)
		got, ok := v.Const()
		if diff := cmp.Diff(want, got); !ok || v.Kind != Literal || diff != "" {
			t.Errorf("%s: %v %s", text, ok, diff)
		}
	}
}

func TestTemplates(t *testing.T) {
	for text, want := range map[string]string{
		`"${a}"`:                            "<a>",
		`"x${a}${b}y"`:                      "x<a><b>y",
		`'${"}"}'`:                          `<"}">`,
		`'${"a\"}"}!'`:                      `<"a\"}">!`,
		"'${`}`}'":                          "<`}`>",
		`'${map(a, {.x})}'`:                 "<map(a, {.x})>",
		`'${map(a, {{"k": .x}})}'`:          `<map(a, {{"k": .x}})>`,
		`'costs $$${a}'`:                    "costs $${a}", // $${ escapes, the first $ is text
		`"$${a} is ${a}"`:                   "${a} is <a>",
		`"line\n${a}\n"`:                    "line\n<a>\n",
		"|\n          hi ${a}\n":            "hi <a>\n",
		">\n          hi\n          ${a}\n": "hi <a>\n",
	} {
		if got := render(with(t, text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// render writes a template with its expressions in < >.
func render(v *Value) string {
	if v.Kind == Literal {
		s, _ := v.Scalar.(string)
		return s
	}
	var b strings.Builder
	for _, p := range v.Parts {
		if p.Expr != nil {
			b.WriteString("<" + p.Expr.Source + ">")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

func TestConst(t *testing.T) {
	got, ok := with(t, `{a: [1, {b: x}], c: "$${d}", e: {}, f: []}`).Const()
	want := map[string]any{"a": []any{1, map[string]any{"b": "x"}}, "c": "${d}", "e": map[string]any{}, "f": []any{}}
	if diff := cmp.Diff(any(want), got); !ok || diff != "" {
		t.Error(ok, diff)
	}
	for _, text := range []string{"=a", `"${a}"`, "[1, =a]", "{a: {b: =c}}"} {
		if v, ok := with(t, text).Const(); ok || v != nil {
			t.Errorf("%s is no constant, yet %v", text, v)
		}
	}
}

func TestField(t *testing.T) {
	v := with(t, "{a: 1, b.c: 2}")
	if f := v.Field("b.c"); f == nil || f.Scalar != 2 {
		t.Error(f)
	}
	if v.Field("b") != nil || (*Value)(nil).Field("a") != nil {
		t.Error("a missing field was found")
	}
}

// TestPositionsOfExpressions marks each expression's first
// character with « in the text and looks for it at the position.
func TestPositionsOfExpressions(t *testing.T) {
	for name, value := range map[string]string{
		"plain":            `=«a`,
		"blank":            `=  «a`,
		"quoted":           `"=«a"`,
		"single":           `'=«a'`,
		"wide before":      `{日本: =«a}`,
		"wide within":      `"日本 ${«a}"`,
		"template":         `"x ${«a} y ${ «b} z"`,
		"escapes":          `"\t\"\x41\u0041\U00000041 ${«a}"`,
		"single escapes":   `'it''s ${«a}'`,
		"list":             `[=«a, {b: "=«c"}]`,
		"anchor":           `&x "=«a"`,
		"tag":              `!!str =«a`,
		"plain folded":     "x\n          y ${«a}\n          ${«b}",
		"quoted folded":    "\"x\n\n          y ${«a}\n          ${«b}\"",
		"escaped line":     "\"x \\\n          y ${«a}\"",
		"literal block":    "|\n          x ${«a}\n            y ${«b}\n",
		"folded block":     ">-\n          x ${«a}\n          y ${«b}\n\n          z ${«c}\n",
		"indented block":   "|2\n            x ${«a}\n          y ${«b}\n",
		"literal expr":     "|\n          =«a\n",
		"tabs":             "{a:\t=«a}",
		"carriage returns": "{a: 1,\r\n          b: =«a}",
	} {
		t.Run(name, func(t *testing.T) { marked(t, value) })
	}
}

func marked(t *testing.T, value string) {
	t.Helper()
	before := "# é\nsaga: x\non:\n  E:\n    do:\n      - event: X\n        with: "
	want := marks(before + value)
	v := clean(t, before+strings.ReplaceAll(value, "«", "")+"\n").Sagas[0].Handlers[0].Do[0].With
	var got []Pos
	v.Exprs(func(e *Expr) { got = append(got, e.Pos) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// marks returns the positions of « in a text, counted without it.
func marks(text string) []Pos {
	var found []Pos
	line, column := 1, 1
	for _, c := range text {
		switch c {
		case '«':
			found = append(found, Pos{line, column})
		case '\n':
			line, column = line+1, 1
		default:
			column++
		}
	}
	return found
}

func TestPositionWithinAnExpression(t *testing.T) {
	e := &Expr{Pos: Pos{5, 10}}
	for _, c := range []struct {
		line, column int
		want         Pos
	}{{1, 1, Pos{5, 10}}, {1, 4, Pos{5, 13}}, {0, 0, Pos{5, 10}}, {2, 3, Pos{6, 3}}} {
		if got := e.At(c.line, c.column); got != c.want {
			t.Errorf("%d:%d is %v, want %v", c.line, c.column, got, c.want)
		}
	}
}

func TestTestDataIsLiteral(t *testing.T) {
	f := clean(t, `
saga: x
on: {E: }
tests:
  - name: a
    steps:
      - {event: E, data: {a: =x, b: "==y", c: "${z}", d: 007a, e: 2026-01-31}, expect: [{event: F, with: {a: "=x ${y}"}}]}
    end: {result: "=x", state: {a: "$${b}"}}
`)
	step := f.Sagas[0].Tests[0].Steps[0]
	want := map[string]any{"a": "=x", "b": "==y", "c": "${z}", "d": "007a", "e": "2026-01-31"}
	if diff := cmp.Diff(any(want), step.Data); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"event": "F", "with": map[string]any{"a": "=x ${y}"}}, step.Expect[0].Fields); diff != "" {
		t.Error(diff)
	}
	end, ok := f.Sagas[0].Tests[0].End.Const()
	if diff := cmp.Diff(any(map[string]any{"result": "=x", "state": map[string]any{"a": "$${b}"}}), end); !ok || diff != "" {
		t.Error(diff)
	}
}
