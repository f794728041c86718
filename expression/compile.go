package expression

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/compiler"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/vm"
)

// Bounds of one expression. They bound its text, so that lint reports them to the author before the
// saga runs.
const (
	// MaxSource is far more than people write in one expression.
	MaxSource = 16 << 10
	// MaxNodes bounds the compiled tree. Code outside closures runs once, so this also bounds its
	// work.
	MaxNodes = 2000
	// MaxNesting bounds the nesting of closures. Four levels are orders, lines, options, and one
	// to spare; MaxSteps bounds the work.
	MaxNesting = 4
	// maxErrors bounds the problems reported for one expression.
	maxErrors = 10
)

// parse parses the source with expr. It parses only closures (filter, map, …) as builtins. The
// lowering handles every other call by the allow-list, so an expression cannot reach expr's own
// library.
func parse(source string) (tree *parser.Tree, err *Error) {
	if strings.TrimSpace(source) == "" {
		return nil, &Error{Source: source, Message: "the expression is empty"}
	}
	if len(source) > MaxSource {
		return nil, &Error{Source: source, Message: fmt.Sprintf("the expression has %d bytes, more than %d", len(source), MaxSource)}
	}
	defer guard(source, &err)
	config := conf.CreateNew()
	config.MaxNodes = MaxNodes
	for _, name := range builtin.Names {
		config.Disabled[name] = true
	}
	tree, cause := parser.ParseWithConfig(source, config)
	if cause != nil {
		return nil, syntaxError(source, cause)
	}
	return tree, nil
}

// Inside returns the source of the argument if the whole source is one call of the function. The
// text around the argument becomes blanks, so that errors keep their columns.
func Inside(source, function string) (argument string, ok bool) {
	open, end := strings.IndexByte(source, '('), strings.LastIndexByte(source, ')')
	if open < 0 || strings.TrimSpace(source[:open]) != function || strings.TrimSpace(source[max(end, 0):]) != ")" {
		return "", false
	}
	tree, err := parse(source)
	if err != nil {
		return "", false
	}
	call, ok := tree.Node.(*ast.CallNode)
	if !ok || len(call.Arguments) != 1 {
		return "", false
	}
	if name, ok := call.Callee.(*ast.IdentifierNode); !ok || name.Value != function {
		return "", false
	}
	blank := strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, source[:open+1])
	return blank + source[open+1:end], true
}

func syntaxError(source string, cause error) *Error {
	out := &Error{Source: source, Message: cause.Error()}
	var at *file.Error
	if errors.As(cause, &at) {
		out.Line, out.Column, out.Message = at.Line, at.Column+1, plain(at.Message)
	}
	if hints := Traps(source); len(hints) > 0 {
		out.Message += ": " + strings.Join(hints, "; ")
	}
	return out
}

var (
	token   = regexp.MustCompile(`unexpected token \w+\((".*")\)`)
	literal = regexp.MustCompile(`: strconv\.\w+: parsing (".*")`)
)

// plain replaces the parser's token names by plain words.
func plain(message string) string {
	message = strings.NewReplacer(
		"unexpected token EOF", "the expression ends too early",
		"compilation failed: expression exceeds maximum allowed nodes", "the expression is too large",
	).Replace(message)
	message = literal.ReplaceAllString(message, " $1")
	return token.ReplaceAllString(message, "unexpected $1")
}

// assemble checks and compiles the lowered tree, whose calls are all primitives of the machine. An
// error here is a bug of the lowering and not of the author.
func assemble(source string, tree *parser.Tree) (code *vm.Program, err *Error) {
	defer guard(source, &err)
	config := conf.New(newMachine().primitives)
	config.Optimize = false // constant folding would evaluate without checks
	if _, cause := checker.Check(tree, config); cause != nil {
		return nil, syntaxError(source, cause)
	}
	code, cause := compiler.Compile(tree, config)
	if cause != nil {
		return nil, &Error{Source: source, Message: "the expression cannot be compiled", Err: cause}
	}
	return code, nil
}
