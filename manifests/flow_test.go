package manifests

import (
	"testing"

	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

func TestFlowIsWrittenAsByHand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value any
		want  string
	}{
		{nil, "null"}, {true, "true"}, {25, "25"}, {2.5, "2.5"}, {"", `""`},
		{"paid", "paid"}, {"not paid", "not paid"}, {"30m", "30m"}, {"Order.Ship", "Order.Ship"}, {"2026-01-01T00:00:00Z", `"2026-01-01T00:00:00Z"`},
		{"yes", `"yes"`}, {"on", `"on"`}, {"true", `"true"`}, {"null", `"null"`}, {"~", `"~"`}, {"1", `"1"`}, {"1e3", `"1e3"`},
		{"a: b", `"a: b"`}, {"a #b", `"a #b"`}, {"hold[0]", `"hold[0]"`}, {"a, b", `"a, b"`}, {"{x}", `"{x}"`}, {"*a", `"*a"`}, {"&a", `"&a"`}, {"!a", `"!a"`},
		{" a", `" a"`}, {"a\nb", `"a\nb"`}, {"tab\t", `"tab\t"`}, {"\x7f\u0085\u2028\ufeff", `"\u007f\u0085\u2028\ufeff"`}, {"größe", "größe"},
		{[]any{}, "[]"}, {[]any{1, "a", nil}, "[1, a, null]"},
		{map[string]any{}, "{}"}, {map[string]any{"b": 1, "a": []any{"x"}, "on": 2}, `{a: [x], b: 1, "on": 2}`},
		{Ordered{{"b", 1}, {"a", Ordered{{"x", "y"}}}}, "{b: 1, a: {x: y}}"},
	} {
		if got := Flow(tt.value); got != tt.want {
			t.Errorf("%#v: %s, want %s", tt.value, got, tt.want)
		}
	}
}

// TestFlowReadsBack: every text that is written is read as the same text, as a value and as a key.
func TestFlowReadsBack(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-a-z0-9:#,\[\]{}?!&*'"%@|>=~. \n\\]{0,8}`))
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "text")
		var n yaml.Node
		if err := yaml.Load([]byte(Flow(map[string]any{s: []any{s}})), &n); err != nil {
			t.Fatalf("%q: %s: %v", s, Flow(s), err)
		}
		pair := n.Content[0].Content
		if len(pair) != 2 || pair[0].Value != s || pair[0].Tag != "!!str" || pair[1].Content[0].Value != s || pair[1].Content[0].Tag != "!!str" {
			t.Fatalf("%q: %s", s, Flow(s))
		}
	})
}
