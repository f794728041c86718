package manifests

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"edda/internal/jsonvalue"
)

// reader reads one document and collects its problems.
type reader struct {
	*grammar
	file     *File
	chunk    chunk
	lines    [][]rune // of the chunk's text
	problems Problems
	lost     bool // a part of the document could not be read: an action, a list, a key
}

func newReader(f *File, c chunk) *reader {
	r := &reader{grammar: readGrammar(), file: f, chunk: c}
	for _, l := range splitLines(c.text) {
		r.lines = append(r.lines, []rune(string(c.text[l.start:l.end])))
	}
	return r
}

func (r *reader) pos(n *yaml.Node) Pos { return Pos{n.Line + r.chunk.before, n.Column} }

func (r *reader) errorf(n *yaml.Node, format string, args ...any) {
	r.errorAt(r.pos(n), format, args...)
}

func (r *reader) warnf(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{File: r.file, Pos: r.pos(n), Warning: true, Message: fmt.Sprintf(format, args...)})
}

// ruled gives the problems that are reported until the returned function is called a rule.
func (r *reader) ruled(rule Rule) func() {
	before := len(r.problems)
	return func() {
		r.problems = append(r.problems[:before], r.problems[before:].Named(rule)...)
	}
}

// losef reports a problem for which a part of the document is not read.
func (r *reader) losef(n *yaml.Node, format string, args ...any) {
	r.lost = true
	r.errorf(n, format, args...)
}

func (r *reader) errorAt(pos Pos, format string, args ...any) {
	if len(r.problems) > maxProblems {
		return
	}
	r.problems = append(r.problems, Problem{File: r.file, Pos: pos, Message: fmt.Sprintf(format, args...)})
}

// deref returns the node that an alias stands for.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// isNull reports whether a node is null; the text "null" is not.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe names the kind of a node in a problem.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	case n.Tag != "!!str":
		return shorten(n.Value)
	}
	return strconv.Quote(shorten(n.Value))
}

// shorten cuts a long text, so that its problem fits on a line.
func shorten(s string) string {
	const most = 40
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}

// keys has a function for each key of a map.
type keys map[string]func(*yaml.Node)

// fields calls the function of each key of a map with its value, in document order. It reports
// unknown and repeated keys. It returns false if n is no map. Null counts as an empty map.
func (r *reader) fields(n *yaml.Node, what string, known keys) bool {
	return r.entries(n, what, func(k, v *yaml.Node) {
		if set, ok := known[k.Value]; ok {
			set(v)
			return
		}
		r.unknown(k, what, slices.Sorted(maps.Keys(known)))
	})
}

// entries calls a function with every key and value of a map; keys are unique strings.
func (r *reader) entries(n *yaml.Node, what string, entry func(k, v *yaml.Node)) bool {
	n = deref(n)
	if isNull(n) {
		return true
	}
	if n.Kind != yaml.MappingNode {
		r.losef(n, "%s is a map, not %s%s%s", what, describe(n), withoutDashes(n), mapAdvice(what))
		return false
	}
	seen, cut := map[string]bool{}, false
	for i := 0; i < len(n.Content); i += 2 {
		k, v := deref(n.Content[i]), deref(n.Content[i+1])
		if cut && isNull(v) {
			continue // part of an expression whose problem was reported
		}
		cut = n.Style&yaml.FlowStyle != 0 && r.cutShort(v, v.Value)
		if r.key(k, seen) {
			entry(k, v)
		}
	}
	return true
}

// withoutDashes says how a list becomes a map.
func withoutDashes(n *yaml.Node) string {
	if n.Kind != yaml.SequenceNode {
		return ""
	}
	if n.Style&yaml.FlowStyle != 0 {
		return ": write {name: value} instead of […]"
	}
	return ": write name: value without the -"
}

// key reports a key that is no string, is a merge, or is repeated.
func (r *reader) key(k *yaml.Node, seen map[string]bool) bool {
	switch {
	case k.Tag == "!!merge":
		r.losef(k, "merge keys (<<) are not supported: write the keys out, or use an alias for the whole value")
	case k.Kind != yaml.ScalarNode:
		r.losef(k, "a key is a name, not %s", describe(k))
	case k.Tag == "!!bool":
		r.losef(k, "a key is a string, and %s is a boolean, as which some tools write on: write on, or %q with its quotes", k.Value, k.Value)
	case k.Tag != "!!str":
		r.losef(k, "a key is a string: write %q with its quotes", k.Value)
	case seen[k.Value]:
		defer r.ruled(RuleRepeatedKey)()
		mend := "keep one"
		if k.Value == "saga" || k.Value == "effect" {
			mend += ", or begin each document with ---"
		}
		r.losef(k, "%q is here twice: %s", shorten(k.Value), mend)
	default:
		seen[k.Value] = true
		return true
	}
	return false
}

func (r *reader) unknown(k *yaml.Node, what string, known []string) {
	defer r.ruled(RuleUnknownKey)()
	if mend := r.adviceFor(what, k.Value); mend != "" {
		r.losef(k, "%s has no key %q: %s", what, shorten(k.Value), mend)
		return
	}
	if near := Nearest(k.Value, known); near != "" {
		r.losef(k, "%s has no key %q; did you mean %q?", what, shorten(k.Value), near)
		return
	}
	r.losef(k, "%s has no key %q; it takes %s", what, shorten(k.Value), strings.Join(known, ", "))
}

// items calls a function with every item of a list. It returns false if n is no list. Null counts
// as an empty list.
func (r *reader) items(n *yaml.Node, what string, item func(*yaml.Node)) bool {
	n = deref(n)
	if isNull(n) {
		return true
	}
	if n.Kind != yaml.SequenceNode {
		r.losef(n, "%s is a list, not %s: begin each entry with -", what, describe(n))
		return false
	}
	for _, c := range n.Content {
		item(deref(c))
	}
	return true
}

// text returns a scalar's text; empty after a reported problem.
func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.errorf(n, "%s is a text, not %s", what, describe(n))
		return ""
	}
	return n.Value
}

// name reads a name of a form that the schema defines. It keeps the text even if it reports a
// problem.
func (r *reader) name(n *yaml.Node, what, form string) Name {
	defer r.ruled(RuleName)()
	d := r.Defs[form]
	name := Name{Pos: r.pos(n), Text: r.text(n, what)}
	switch {
	case name.Text == "":
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			r.errorf(n, "%s is empty", what)
		}
	case strings.HasPrefix(name.Text, "="):
		r.errorf(n, "%s is a plain name, never an expression", what)
	case !d.form.MatchString(name.Text):
		r.errorf(n, "%q cannot be %s: that is %s", shorten(name.Text), what, d.Description)
	}
	return name
}

func (r *reader) boolean(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		mend := ""
		switch strings.ToLower(n.Value) {
		case "yes", "on", "y", "true", "1":
			mend = ": write true"
		case "no", "off", "n", "false", "0":
			mend = ": write false"
		}
		r.losef(n, "%s is true or false, not %s%s", what, describe(n), mend)
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// positive reads a whole number; 1 after a reported problem.
func (r *reader) positive(n *yaml.Node, what string) int {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" {
		v, err := number(n.Value)
		if i, ok := v.(int); ok && err == nil && i >= 1 {
			return i
		}
	}
	r.errorf(n, "%s is a whole number from 1 up, not %s", what, describe(n))
	return 1
}

// choice reads one of the words that the schema lists for a key of a map. The first is the
// default, and what it returns after a reported problem.
func (r *reader) choice(n *yaml.Node, in, key string) string {
	words := r.Defs[in].object().Properties[key].Enum
	if n.Kind == yaml.ScalarNode && slices.Contains(words, n.Value) {
		return n.Value
	}
	r.errorf(n, "%s is %s, not %s", key, oneOf(words), describe(n))
	return words[0]
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// duration reads a literal duration above zero, or from zero where zero has a meaning.
func (r *reader) duration(n *yaml.Node, what string, zero bool) *Duration {
	defer r.ruled(RuleDuration)()
	d := &Duration{Pos: r.pos(n), Text: r.text(n, what)}
	if d.Text == "" {
		return d
	}
	var err error
	d.D, err = ParseDuration(d.Text)
	switch {
	case strings.HasPrefix(d.Text, "="):
		r.errorf(n, "%s is a plain duration such as 30m, never an expression", what)
	case err != nil && isPeriod(d.Text):
		r.errorf(n, "%s is a duration, whose units are of one length, not %s: write it as 36h or 7d; only a timer's after and every take a calendar's", what, d.Text)
	case err != nil:
		r.errorf(n, "%s: %v", what, err)
	case d.D < 0 && zero:
		r.errorf(n, "%s is a duration, and never below zero: %s", what, d.Text)
		d.D = 0
	case d.D <= 0 && !zero:
		r.errorf(n, "%s is a duration above zero, not %s", what, d.Text)
		d.D = 0
	}
	return d
}

// scalar returns the canonical value of a scalar node.
func (r *reader) scalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!str", "!!timestamp": // a time is a string, as in JSON
		return n.Value
	case "!!int", "!!float":
		return r.number(n)
	}
	r.errorf(n, "the tag %s means nothing here: leave it out", n.Tag)
	return nil
}

func (r *reader) number(n *yaml.Node) any {
	if strings.Contains(n.Value, "_") {
		return n.Value // a number only in YAML 1.1, and ids have this form
	}
	v, err := number(n.Value)
	if err != nil {
		r.errorf(n, "%v", err)
	}
	return v
}

// number reads a YAML number exactly.
func number(text string) (any, error) {
	digits := strings.TrimLeft(text, "+-")
	switch {
	case len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0123456789") == "":
		return nil, fmt.Errorf("%s could be octal or decimal: write it without the leading zeros, or in quotes", shorten(text))
	case len(digits) > 1 && digits[0] == '0' && strings.ContainsAny(digits[1:2], "xXoObB"):
		i, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not an integer of 64 bits", shorten(text))
		}
		return int(i), nil
	}
	if f, err := strconv.ParseFloat(text, 64); err != nil || f-f != 0 {
		return nil, fmt.Errorf("%s is not a number that JSON can hold", shorten(text))
	}
	v, err := jsonvalue.Canonical(json.Number(strings.TrimPrefix(text, "+")))
	if err != nil {
		return nil, fmt.Errorf("%w: write it in quotes", err)
	}
	if _, beyond := v.(json.Number); beyond {
		return nil, fmt.Errorf("integer %s does not fit 64 bits: write it in quotes", shorten(text))
	}
	return v, nil
}
