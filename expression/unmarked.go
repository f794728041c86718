package expression

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// Unmarked is an expression in a literal text, without the = or ${} that would make it one.
type Unmarked struct {
	Text    string // as the text holds it: event.id, {payload.order}
	Mend    string // with its mark: =event.id, ${payload.order}
	Program *Program
	// Name reports that the whole text is one name, which may be an ordinary word.
	Name bool
}

// String is the warning about it.
func (u Unmarked) String() string {
	says, meant := "this is the text %q; write %s for its value", "='%s'"
	if strings.HasPrefix(u.Mend, "$") {
		says, meant = "this text holds %q as it is; write %s for its value", "${'%s'}"
	}
	if !strings.ContainsAny(u.Text, `'\`) {
		says += ", or " + fmt.Sprintf(meant, strings.ReplaceAll(u.Text, "%", "%%")) + " for the text"
	}
	return fmt.Sprintf(says, u.Text, u.Mend)
}

// FindUnmarked returns the expressions that an author probably meant in a literal text, or in a part
// of a template, where names are in scope. A wrong guess is worse than none, so ordinary texts give
// none.
//
// The whole of a literal is one if it is the name of a variable in scope, or if all of this holds:
//
//   - it compiles as an expression over these names, begins with one or with a function, and uses
//     one: "see event.log", a URL and a mail address do not;
//   - it is a member (event.id, event.items[0]), a call, an operation by + * % ^ ?? or a
//     comparison, or another operation or condition that reads a member;
//   - no - or / joins two words: step-1, event.a/b;
//   - a member does not end like a file or a host: event.json, state.example.com.
//
// A literal is also one if there are blanks before its =, and it compiles and reads a name: " =key".
//
// Within any text it is a member in {…}, in {{…}}, in $(…) or after $: {event.id}, {{event.id}},
// $(event.id), $event.id. After a further $ it is none: the author wrote $${event.id} for the text
// ${event.id}.
func FindUnmarked(text string, part bool, names []string) []Unmarked {
	if !part {
		if u, ok := unmarkedWhole(strings.TrimSpace(text), names); ok {
			return []Unmarked{u}
		}
		if u, ok := indented(text, names); ok {
			return []Unmarked{u}
		}
	}
	var out []Unmarked
	for _, at := range marked.FindAllStringSubmatchIndex(text, -1) {
		if at[0] > 0 && strings.ContainsRune("${", rune(text[at[0]-1])) {
			continue
		}
		source := ""
		for group := 2; group < len(at); group += 2 {
			if at[group] >= 0 {
				source = text[at[group]:at[group+1]]
			}
		}
		if !slices.Contains(names, firstWord.FindString(source)) {
			continue
		}
		if u, ok := unmarkedAs(source, names); ok && !u.Name {
			u.Text, u.Mend = text[at[0]:at[1]], "${"+source+"}"
			out = append(out, u)
		}
	}
	return out
}

// marked finds a member in {{…}}, $(…) or {…} or after $.
var marked = regexp.MustCompile(`\{\{\s*` + aMember + `\s*\}\}|\$\(\s*` + aMember + `\s*\)|\{` + aMember + `\}|\$([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)`)

const aMember = `([A-Za-z_]\w*(?:\.\w+|\[\d+\])+)`

// joined finds a - or / that is part of a word, a path, a URL or a comment, and the end of a sentence.
var joined = regexp.MustCompile(`[\w)\]][-/][\w(]|/[/*]|\w\.\s`)

var firstWord = regexp.MustCompile(`^\w+`)

func unmarkedWhole(source string, names []string) (Unmarked, bool) {
	word := firstWord.FindString(source)
	calls := strings.HasPrefix(source[len(word):], "(") && slices.Contains(Functions(), word)
	if word == "" || !calls && !slices.Contains(names, word) || joined.MatchString(withoutTexts(source)) {
		return Unmarked{}, false
	}
	return unmarkedAs(source, names)
}

// indented returns the expression of a text whose = is not its first character.
func indented(text string, names []string) (Unmarked, bool) {
	source, marked := strings.CutPrefix(strings.TrimSpace(text), "=")
	if !marked || strings.HasPrefix(text, "=") {
		return Unmarked{}, false
	}
	u, ok := compiled(strings.TrimSpace(source), names)
	u.Text, u.Name = text, false
	return u, ok
}

func unmarkedAs(source string, names []string) (Unmarked, bool) {
	tree, err := parse(source)
	if err != nil {
		return Unmarked{}, false
	}
	root := tree.Node // before the compiler lowers it
	u, ok := compiled(source, names)
	_, u.Name = root.(*ast.IdentifierNode)
	return u, ok && (u.Name || u.Program.meant(root))
}

// compiled returns a source that compiles and reads a name. A wrong constant in it is reported once
// it is marked.
func compiled(source string, names []string) (Unmarked, bool) {
	p, errs := Compile(source, Options{Names: names, Kept: true})
	if len(errs) > 0 || len(p.names) == 0 {
		return Unmarked{}, false
	}
	return Unmarked{Text: source, Mend: "=" + source, Program: p}, true
}

// meant reports whether the form of the program is one that ordinary texts do not have.
func (p *Program) meant(root ast.Node) bool {
	member := slices.ContainsFunc(p.refs, func(ref []string) bool { return len(ref) > 1 })
	switch n := root.(type) {
	case *ast.ChainNode:
		return p.meant(n.Node)
	case *ast.MemberNode:
		return p.plain == nil || !slices.Contains(endings, p.plain.path[len(p.plain.path)-1])
	case *ast.CallNode, *ast.BuiltinNode, *ast.SliceNode:
		return true
	case *ast.BinaryNode:
		return member && n.Operator != ".." || slices.Contains(symbols, n.Operator)
	case *ast.ConditionalNode:
		return member
	}
	return false
}

// symbols are the operators that no ordinary text has between two words. Read only.
var symbols = []string{"+", "*", "%", "^", "**", "??", "==", "!=", "<", "<=", ">", ">="}

// endings are the last words of files' and hosts' names. Read only.
var endings = []string{
	"avif", "bin", "com", "conf", "crt", "csv", "doc", "docx", "example", "gif", "gz", "htm", "html", "jpeg", "jpg", "js", "json", "log",
	"md", "mp3", "mp4", "pdf", "pem", "png", "proto", "py", "sh", "sql", "svg", "tar", "tgz", "toml", "ts", "txt", "webp", "xls", "xlsx",
	"xml", "yaml", "yml", "zip",
}
