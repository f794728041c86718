package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What to do about the ways in which YAML cuts an expression off.
const (
	quoteIt      = `put the whole expression in quotes: "=…"`
	commentAside = "in YAML ` #` begins a comment, so the expression ends here: " + quoteIt
	flowAside    = "in YAML's flow style , [ ] { } and `? ` end a value that has no quotes, so the expression ends here: " + quoteIt
	colonAside   = "in YAML `: ` ends a key, also in a ternary: put the value in quotes, use let, or write if c {a} else {b}"
)

// syntaxError describes an error in the YAML, and explains the usual traps.
func (r *reader) syntaxError(err error) {
	defer r.ruled(RuleSyntax)()
	var le *yaml.LoadError
	if !errors.As(err, &le) {
		r.errorAt(Pos{1 + r.chunk.before, 1}, "%v", err)
		return
	}
	message, pos := le.Message, Pos{le.Mark.Line, le.Mark.Column}
	if le.ContextMsg != "" {
		message += " " + le.ContextMsg
	}
	if began := (Pos{le.ContextMark.Line, le.ContextMark.Column}); began.Line > 0 && r.atEnd(pos) {
		pos = began // the start helps more than the end of the file
	}
	if advice := r.syntaxAdvice(le.Message, pos); advice != "" {
		message += "; " + advice
	}
	pos = Pos{max(pos.Line, 1) + r.chunk.before, max(pos.Column, 1)}
	r.errorAt(pos, "not YAML: %s", message)
}

func (r *reader) syntaxAdvice(message string, pos Pos) string {
	at := r.runeAt(pos)
	has := func(s string) bool { return strings.Contains(message, s) }
	switch {
	case has("mapping values are not allowed"):
		return r.colonAdvice(pos)
	case has("',' or '}'") && at == ']' && strings.ContainsRune("}])\"'", r.before(pos)):
		return "a } is missing before this ]"
	case has("',' or ']'") && at == '}' && strings.ContainsRune("}])\"'", r.before(pos)):
		return "a ] is missing before this }"
	case has("expected ',' or"), has("expected key"), has("expected node content"):
		return r.closeAdvice(at, r.before(pos), has("expected key"))
	case has("cannot start any token") && at == '\t', has("tab character"):
		return "YAML is indented with spaces, not with tabs"
	case has("cannot start any token"):
		return fmt.Sprintf("a value that begins with %c needs quotes", at)
	case has("end of stream"):
		return "the quote that begins here is never closed"
	case has("max depth"):
		return fmt.Sprintf("a manifest is nested at most %d deep", maxDepth)
	}
	return ""
}

// colonAdvice distinguishes a ternary from a key that is indented too far.
func (r *reader) colonAdvice(pos Pos) string {
	if pos.Line < 1 || pos.Line > len(r.lines) {
		return colonAside
	}
	text := r.lines[pos.Line-1]
	if key := strings.TrimSpace(string(text[:min(max(pos.Column-1, 0), len(text))])); !strings.ContainsAny(key, " :?") {
		return "is this line indented further than the one above it?"
	}
	return colonAside
}

// closeAdvice explains why a value ended early, by the character found and the one before it.
func (r *reader) closeAdvice(at, before rune, block bool) string {
	switch {
	case (at == '}' || at == ']') && block:
		return fmt.Sprintf("there is a %c too many", at)
	case before == '"' || before == '\'' || before == ']' || before == '}':
		return fmt.Sprintf("a value that begins with a quote or bracket ends with it, here at %c: put the whole value in quotes", before)
	case at == ':':
		return "in YAML's flow style `? ` and `: ` end a value that has no quotes: put the whole value in quotes, or use let for a ternary"
	case strings.ContainsRune("[]{}", at):
		return fmt.Sprintf("in YAML's flow style %c ends a value that has no quotes: put the whole value in quotes, or close what is open", at)
	case block:
		return ""
	}
	return "in YAML's flow style , [ ] { } and `? ` end a value that has no quotes: put it in quotes, or close what is open"
}

// before returns the character before a position without blanks, or 0.
func (r *reader) before(p Pos) rune {
	if p.Line < 1 || p.Line > len(r.lines) {
		return 0
	}
	text := r.lines[p.Line-1]
	left := []rune(strings.TrimRight(string(text[:min(max(p.Column-1, 0), len(text))]), " \t"))
	if len(left) == 0 {
		return 0
	}
	return left[len(left)-1]
}

// atEnd reports whether a position is after the last text.
func (r *reader) atEnd(p Pos) bool {
	for line := p.Line; line <= len(r.lines); line++ {
		text := r.lines[line-1]
		if line == p.Line {
			text = text[min(max(p.Column-1, 0), len(text)):]
		}
		if strings.TrimSpace(string(text)) != "" {
			return false
		}
	}
	return true
}

// runeAt returns the character at a position of the chunk, or 0.
func (r *reader) runeAt(p Pos) rune {
	if p.Line < 1 || p.Line > len(r.lines) || p.Column < 1 || p.Column > len(r.lines[p.Line-1]) {
		return 0
	}
	return r.lines[p.Line-1][p.Column-1]
}

// cutShort reports whether YAML has cut a plain expression off: it is incomplete, and a comment or
// flow punctuation follows.
func (r *reader) cutShort(n *yaml.Node, source string) bool {
	return plain(n) && incomplete(source) && r.cutAdvice(n) != ""
}

func plain(n *yaml.Node) bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | blockStyle
	return n.Kind == yaml.ScalarNode && n.Style&quoted == 0
}

// cutAdvice explains what cut a plain scalar off, by what follows it.
func (r *reader) cutAdvice(n *yaml.Node) string {
	t := r.trace(n)
	t.to(len(n.Value))
	t.skipBlank()
	switch t.peek() {
	case '#':
		return commentAside
	case ',', ']', '}', '[', '{', '?':
		return flowAside
	}
	return ""
}

// incomplete reports whether an expression has open brackets or strings, or ends in an operator.
func incomplete(source string) bool {
	depth := 0
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '"', '\'', '`':
			end := stringEnd(source[i:])
			if end < 0 {
				return true
			}
			i += end
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	return depth > 0 || openEnd(source)
}

// openEnd reports whether another word must follow the last word of an expression.
func openEnd(source string) bool {
	source = strings.TrimSpace(source)
	if source == "" {
		return false
	}
	if strings.ContainsRune("+-*/%<>=!&|,.?:^", rune(source[len(source)-1])) {
		return true
	}
	words := strings.Fields(source)
	return len(words) > 1 && slices.Contains([]string{"and", "or", "not", "in", "contains", "matches", "startsWith", "endsWith"}, words[len(words)-1])
}
