package expression

import (
	"encoding/base64"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"edda/internal/jsonvalue"
)

// Bounds of a regular expression. Go's engine is linear in the text times the size of the compiled
// pattern; both are charged.
const (
	// maxPattern bounds the length of a pattern.
	maxPattern = 512
	// maxPatternSize bounds its compiled instructions, because counted repetition makes many out
	// of few characters.
	maxPatternSize = 2000
	// patternShare is how many instructions visit a byte in one step.
	patternShare = 16
	// patternSteps is the cost of compiling a pattern that is not a literal.
	patternSteps = 20_000
)

// maxCutset bounds the characters that trim removes, because each is compared with each of the
// text.
const maxCutset = 64

// text returns an argument that must be a text.
func text(name string, v any) string {
	s, ok := v.(string)
	if !ok {
		if v == nil {
			fail(`%s: a text is needed, got null: write x ?? "" where it may be missing`, name)
		}
		fail("%s: a text is needed, got %s", name, kind(v))
	}
	return s
}

func integer(name string, v any) int {
	i, ok := v.(int)
	if !ok {
		fail("%s: an integer is needed, got %s", name, kind(v))
	}
	return i
}

// toText is Text, bounded.
func toText(m *machine, args []any) any {
	if s, ok := args[0].(string); ok {
		return s
	}
	return m.encode(args[0], Text)
}

func toJSON(m *machine, args []any) any {
	return m.encode(args[0], func(v any) string {
		data, err := jsonvalue.Encode(v)
		if err != nil {
			fail("toJSON: %v", err)
		}
		return string(data)
	})
}

// encode writes a value that is known to be small.
func (m *machine) encode(v any, write func(any) string) any {
	owned, err := own(v, MaxText)
	if err != nil {
		fail("%v", err)
	}
	s := write(owned)
	m.built(len(s))
	m.chargeText(4 * len(s)) // writing JSON costs about four times as much as copying
	return s
}

func fromJSON(m *machine, args []any) any {
	s := text("fromJSON", args[0])
	m.chargeText(8 * len(s))
	v, err := jsonvalue.Decode([]byte(s))
	if err != nil {
		fail("fromJSON: the text is not JSON") // the cause would quote the text
	}
	return v
}

func toBase64(m *machine, args []any) any {
	s := text("toBase64", args[0])
	m.built(base64.StdEncoding.EncodedLen(len(s)))
	return base64.StdEncoding.EncodeToString([]byte(s))
}

func fromBase64(m *machine, args []any) any {
	s := text("fromBase64", args[0])
	m.built(len(s))
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		fail("fromBase64: the text is not base64")
	}
	if !utf8.Valid(data) {
		fail("fromBase64: the bytes are not UTF-8 text")
	}
	return string(data)
}

func trim(m *machine, args []any) any {
	s := text("trim", args[0])
	m.chargeText(len(s))
	if len(args) == 1 {
		return strings.TrimSpace(s)
	}
	cutset := text("trim", args[1])
	if len(cutset) > maxCutset {
		fail("trim: more than %d bytes of characters to trim", maxCutset)
	}
	m.chargeText(len(s) * len(cutset))
	return strings.Trim(s, cutset)
}

func trimPrefix(m *machine, args []any) any {
	s, prefix := text("trimPrefix", args[0]), text("trimPrefix", args[1])
	m.chargeText(min(len(s), len(prefix)))
	return strings.TrimPrefix(s, prefix)
}

func trimSuffix(m *machine, args []any) any {
	s, suffix := text("trimSuffix", args[0]), text("trimSuffix", args[1])
	m.chargeText(min(len(s), len(suffix)))
	return strings.TrimSuffix(s, suffix)
}

func hasPrefix(m *machine, args []any) any {
	return m.startsWith(text("hasPrefix", args[0]), text("hasPrefix", args[1]))
}

func hasSuffix(m *machine, args []any) any {
	return m.endsWith(text("hasSuffix", args[0]), text("hasSuffix", args[1]))
}

func upper(m *machine, args []any) any { return m.recase("upper", args[0], strings.ToUpper) }
func lower(m *machine, args []any) any { return m.recase("lower", args[0], strings.ToLower) }

func (m *machine) recase(name string, v any, to func(string) string) any {
	s := text(name, v)
	m.built(len(s))
	out := to(s)
	m.built(len(out)) // some letters are longer in the other case
	return out
}

func splitText(m *machine, args []any) any {
	return m.split("split", args, strings.SplitN)
}

func splitAfter(m *machine, args []any) any {
	return m.split("splitAfter", args, strings.SplitAfterN)
}

func (m *machine) split(name string, args []any, split func(string, string, int) []string) any {
	s, sep, n := text(name, args[0]), text(name, args[1]), -1
	if len(args) == 3 {
		n = integer(name, args[2])
	}
	m.chargeText(len(s))
	m.charge(strings.Count(s, sep))
	parts := split(s, sep, n)
	out := make([]any, len(parts))
	for i, part := range parts {
		out[i] = part
	}
	return out
}

// join formats numbers and booleans as Text does.
func join(m *machine, args []any) any {
	items, sep := asList("join", args[0]), ""
	if len(args) == 2 {
		sep = text("join", args[1])
	}
	m.charge(len(items))
	parts := make([]string, len(items))
	size := len(sep) * max(len(items)-1, 0)
	for i, item := range items {
		switch item.(type) {
		case nil, []any, map[string]any:
			fail("join: texts are needed, an item is %s", kind(item))
		}
		parts[i] = Text(item)
		size += len(parts[i])
	}
	m.built(size)
	return strings.Join(parts, sep)
}

func replace(m *machine, args []any) any {
	s, old, fresh := text("replace", args[0]), text("replace", args[1]), text("replace", args[2])
	n := strings.Count(s, old)
	if len(args) == 4 {
		if limit := integer("replace", args[3]); limit >= 0 {
			n = min(n, limit)
		}
	}
	m.chargeText(len(s))
	m.built(len(s) + n*(len(fresh)-len(old)))
	m.charge(n)
	return strings.Replace(s, old, fresh, n)
}

func repeat(m *machine, args []any) any {
	s, n := text("repeat", args[0]), integer("repeat", args[1])
	if n < 0 {
		fail("repeat: the count is negative")
	}
	m.built(multiplyInt(len(s), n, "repeat"))
	if s == "" {
		return ""
	}
	return strings.Repeat(s, n)
}

// indexOf counts characters, like len and slices; -1 if not found.
func indexOf(m *machine, args []any) any     { return m.find("indexOf", args, strings.Index) }
func lastIndexOf(m *machine, args []any) any { return m.find("lastIndexOf", args, strings.LastIndex) }

func (m *machine) find(name string, args []any, find func(string, string) int) any {
	s, part := text(name, args[0]), text(name, args[1])
	m.chargeText(len(s))
	at := find(s, part)
	if at < 0 {
		return -1
	}
	return utf8.RuneCountInString(s[:at])
}

// character returns one character of a text; out of range is null.
func (m *machine) character(s string, i any) any {
	m.chargeText(len(s))
	n := position(i, utf8.RuneCountInString(s))
	if part := cut(s, n, n+1); n >= 0 && part != "" {
		return part
	}
	return nil
}

// cut returns the characters from (included) to (excluded).
func cut(s string, from, to int) string {
	n, start := 0, len(s)
	for at := range s {
		if n == from {
			start = at
		}
		if n == to {
			return s[min(start, at):at]
		}
		n++
	}
	return s[start:]
}

// both returns two text arguments; ok is false if one is null, because a null has no parts.
func both(operation string, a, b any) (x, y string, ok bool) {
	if a == nil || b == nil {
		return "", "", false
	}
	return text(operation, a), text(operation, b), true
}

func (m *machine) contains(a, b any) bool {
	if _, list := a.([]any); list {
		fail("contains looks into a text: write item in list")
	}
	s, part, ok := both("contains", a, b)
	m.chargeText(len(s))
	return ok && strings.Contains(s, part)
}

func (m *machine) startsWith(a, b any) bool {
	s, part, ok := both("startsWith", a, b)
	m.chargeText(min(len(s), len(part)))
	return ok && strings.HasPrefix(s, part)
}

func (m *machine) endsWith(a, b any) bool {
	s, part, ok := both("endsWith", a, b)
	m.chargeText(min(len(s), len(part)))
	return ok && strings.HasSuffix(s, part)
}

func (m *machine) matches(a, b any) bool {
	if a == nil || b == nil {
		return false
	}
	p, literal := b.(*pattern)
	if !literal {
		p = m.compiled(text("matches", b))
	}
	s := text("matches", a)
	m.charge(multiplyInt(len(s), p.cost, "matches")/patternShare + 1)
	return p.MatchString(s)
}

// compiled caches the last pattern of the evaluation, for use in a closure.
func (m *machine) compiled(s string) *pattern {
	if m.pattern != nil && m.text == s {
		return m.pattern
	}
	m.charge(patternSteps)
	p, err := compilePattern(s)
	if err != nil {
		fail("%v", err)
	}
	m.text, m.pattern = s, p
	return p
}

type patternError string

func (e patternError) Error() string { return string(e) }

func compilePattern(s string) (*pattern, error) {
	if len(s) > maxPattern {
		return nil, patternError("matches: the pattern is too long")
	}
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, patternError("matches: the pattern is not a regular expression: " + err.(*syntax.Error).Code.String())
	}
	code, err := syntax.Compile(tree.Simplify())
	if err != nil || len(code.Inst) > maxPatternSize {
		return nil, patternError("matches: the pattern is too large")
	}
	compiled, err := regexp.Compile(s)
	if err != nil {
		return nil, patternError("matches: the pattern is not a regular expression")
	}
	return &pattern{Regexp: compiled, cost: len(code.Inst)}, nil
}
