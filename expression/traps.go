package expression

import (
	"regexp"
	"strings"
)

// trap is a mistake that the parser's message does not explain.
type trap struct {
	looks *regexp.Regexp
	hint  string
}

// traps are tested on a source that does not parse; read only.
var traps = []trap{
	{regexp.MustCompile(`\b(all|any|count|filter|find\w*|groupBy|map|none|one|reduce|sortBy|sum)\([^{}]*,\s*\{\s*("[^"]*"|'[^']*'|\w+)\s*:`),
		`a map literal inside a closure needs double braces, as in map(list, {{"a": .x}})`},
	{regexp.MustCompile(`^\s*=[^=]`), "this is always an expression and takes no ="},
	{regexp.MustCompile(`\$\{`), "${…} is for texts; an expression names values without it"},
	{regexp.MustCompile(`[^=!<>]=[^=>~]`), "compare with ==; = only stands in let name = …;"},
	{regexp.MustCompile(`\b(AND|OR|NOT|IN)\b`), "the words are and, or, not and in, in lower case"},
	{regexp.MustCompile("[\u2018\u2019\u201C\u201D\u201E]"), `texts stand in straight quotes: "…" or '…'`},
	{regexp.MustCompile(`===|!==|<>`), "the comparisons are == != < <= > >="},
	{regexp.MustCompile(`(?i)\bif\b[^{]*\bthen\b`), "write if cond {a} else {b}, or cond ? a : b"},
	{regexp.MustCompile(`=>|->|\blambda\b`), "a closure has no parameters: # is the item, .name its member, as in filter(list, .qty > 0)"},
	{regexp.MustCompile(`\+=|-=|\+\+|--\s*$`), "an expression changes nothing: it only has a value"},
	{regexp.MustCompile(`\$\w`), "names have no $"},
}

// Traps explains common mistakes in a source that does not compile. It looks only at the text, so
// its result means nothing for a source that does compile.
func Traps(source string) []string {
	var out []string
	blank := withoutTexts(source)
	for _, t := range traps {
		if t.looks.MatchString(blank) {
			out = append(out, t.hint)
		}
	}
	if cutShort(source) {
		out = append(out, "it may have been cut off by YAML: in flow style , [ ] { } end a plain scalar, and \" #\" begins a comment: put it in quotes")
	}
	return out
}

var declared = regexp.MustCompile(`\blet\s+\w+\s*=`)

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`)

// withoutTexts blanks string literals, which hold no traps, and the = of let. Quoted keys of a map
// literal become quotes around nothing.
func withoutTexts(source string) string {
	return declared.ReplaceAllString(quoted.ReplaceAllString(source, `""`), "let x:")
}

var dangling = regexp.MustCompile(`([-+*/%<>=&|?:.,]|\b(and|or|not|in|contains|matches|startsWith|endsWith))$`)

// cutShort reports whether the source is incomplete.
func cutShort(source string) bool {
	s := strings.TrimSpace(withoutTexts(source))
	open := 0
	for _, c := range s {
		switch c {
		case '(', '[', '{':
			open++
		case ')', ']', '}':
			open--
		}
	}
	return open > 0 || dangling.MatchString(s)
}
