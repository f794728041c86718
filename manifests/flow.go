package manifests

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"edda/internal/jsonvalue"
)

// Entry is one entry of an [Ordered] map.
type Entry struct {
	Key   string
	Value any
}

// Ordered is a map whose entries [Flow] writes in their order.
type Ordered []Entry

// Flow writes a canonical value in YAML's flow style, as tests are written by hand: texts without
// quotes where YAML reads the same text back, maps sorted by key unless they are
// [Ordered] or those of a literal [Value].
func Flow(v any) string {
	var b strings.Builder
	flow(&b, v)
	return b.String()
}

func flow(b *strings.Builder, v any) {
	switch v := v.(type) {
	case string:
		b.WriteString(flowText(v))
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			flow(b, item)
		}
		b.WriteByte(']')
	case map[string]any:
		sorted := make(Ordered, 0, len(v))
		for key, item := range v {
			sorted = append(sorted, Entry{key, item})
		}
		slices.SortFunc(sorted, func(x, y Entry) int { return strings.Compare(x.Key, y.Key) })
		flow(b, sorted)
	case *Value:
		flow(b, v.ordered())
	case Ordered:
		b.WriteByte('{')
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(flowText(e.Key) + ": ")
			flow(b, e.Value)
		}
		b.WriteByte('}')
	default:
		raw, err := jsonvalue.Encode(v)
		if err != nil {
			raw = []byte(quoted(fmt.Sprint(v)))
		}
		b.Write(raw)
	}
}

// ordered returns a literal with the keys of its maps in their order.
func (v *Value) ordered() any {
	switch v.Kind {
	case Map:
		out := make(Ordered, 0, len(v.Fields))
		for _, f := range v.Fields {
			out = append(out, Entry{f.Name, f.Value.ordered()})
		}
		return out
	case List:
		out := make([]any, 0, len(v.Items))
		for _, item := range v.Items {
			out = append(out, item.ordered())
		}
		return out
	}
	return v.Scalar
}

// flowText writes a text without quotes if that reads back as the same text.
func flowText(s string) string {
	if plainText(s) {
		return s
	}
	return quoted(s)
}

func plainText(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off": // booleans of YAML 1.1, so people and other tools misread them
		return false
	}
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || unicode.IsControl(c) || unicode.Is(unicode.Cf, c) }) {
		return false
	}
	var n yaml.Node
	if yaml.Load([]byte("[{"+s+": "+s+"}]"), &n) != nil || len(n.Content) != 1 || len(n.Content[0].Content) != 1 {
		return false
	}
	pair := n.Content[0].Content[0]
	return len(pair.Content) == 2 && !slices.ContainsFunc(pair.Content, func(c *yaml.Node) bool {
		return !plain(c) || c.Anchor != "" || c.Style&yaml.TaggedStyle != 0 || c.Tag != "!!str" || c.Value != s || c.LineComment != ""
	})
}

// quoted writes a text in YAML's double quotes. JSON's escapes are YAML's, but YAML wants more
// characters escaped.
func quoted(s string) string {
	raw, err := jsonvalue.Encode(s)
	if err != nil {
		return `""` // every string has JSON
	}
	var b strings.Builder
	for _, c := range string(raw) {
		switch {
		case c < 0x10000 && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || unicode.Is(unicode.Co, c) || c >= 0xFFFE):
			fmt.Fprintf(&b, `\u%04x`, c)
		case c > 0xFFFF && !unicode.IsPrint(c):
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}
