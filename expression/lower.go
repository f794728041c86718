package expression

import (
	"fmt"
	"regexp"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
)

// lowering rewrites expr's tree. Every operation that could be unbounded, unchecked or
// nondeterministic becomes a call of a primitive of the machine. Control flow stays native:
// conditions, ??, let, literals and the loops of closures.
type lowering struct {
	source  string
	kept    bool     // see Options
	numbers []string // variables that are always a number
	names   map[string]bool
	locals  []local   // of let, innermost last
	loops   []closure // the enclosing closures, innermost last
	nodes   int       // lowered so far
	lets    int       // declared so far, for unique names
	errs    []*Error
	used    map[string]bool
	refs    [][]string
}

// local is a let inside the expression: its name, and its name in the compiled code.
type local struct{ name, compiled string }

// closure says what the body of a closure may refer to besides the item.
type closure struct{ index, acc bool }

func newLowering(source string, o Options) *lowering {
	l := &lowering{source: source, kept: o.Kept, numbers: o.Numbers, names: map[string]bool{}, used: map[string]bool{}}
	for _, name := range o.Names {
		l.names[name] = true
	}
	return l
}

func (l *lowering) fail(at ast.Node, format string, args ...any) ast.Node {
	if len(l.errs) < maxErrors {
		line, column := place(l.source, at.Location())
		l.errs = append(l.errs, &Error{Source: l.source, Line: line, Column: column, Message: fmt.Sprintf(format, args...)})
	}
	return &ast.NilNode{}
}

// place converts a location to line and column, in characters.
func place(source string, at file.Location) (line, column int) {
	line, column = 1, 1
	n := 0
	for _, c := range source {
		if n == at.From {
			break
		}
		n++
		column++
		if c == '\n' {
			line, column = line+1, 1
		}
	}
	return line, column
}

// lower returns the replacement of a node at the same place. The nodes are counted here, because
// the parser shares the middle of a < b < c between two comparisons, and lower visits it twice.
func (l *lowering) lower(n ast.Node) ast.Node {
	if l.nodes++; l.nodes > MaxNodes {
		if l.nodes == MaxNodes+1 {
			l.fail(n, "the expression is too large: it has more than %d parts", MaxNodes)
		}
		return &ast.NilNode{}
	}
	out := l.node(n)
	out.SetLocation(n.Location())
	return out
}

func (l *lowering) node(n ast.Node) ast.Node {
	switch n := n.(type) {
	case *ast.NilNode:
		return &ast.NilNode{}
	case *ast.BoolNode:
		return &ast.BoolNode{Value: n.Value}
	case *ast.IntegerNode:
		return &ast.IntegerNode{Value: n.Value}
	case *ast.FloatNode:
		v, err := normal(n.Value)
		if err != nil {
			return l.fail(n, "%v", err)
		}
		if i, ok := v.(int); ok {
			return &ast.IntegerNode{Value: i}
		}
		return &ast.FloatNode{Value: n.Value}
	case *ast.StringNode:
		return &ast.StringNode{Value: n.Value}
	case *ast.IdentifierNode, *ast.MemberNode, *ast.ChainNode:
		return l.access(n)
	case *ast.PointerNode:
		return l.pointer(n)
	case *ast.UnaryNode:
		switch n.Operator {
		case "!", "not":
			return &ast.UnaryNode{Operator: "!", Node: l.condition(n.Node)}
		case "-":
			return primitive(n, "negative", l.lower(n.Node))
		}
		return primitive(n, "positive", l.lower(n.Node))
	case *ast.BinaryNode:
		return l.binary(n)
	case *ast.SliceNode:
		return l.slice(n)
	case *ast.CallNode:
		return l.call(n)
	case *ast.BuiltinNode:
		return l.closure(n)
	case *ast.ConditionalNode:
		return &ast.ConditionalNode{Cond: l.condition(n.Cond), Exp1: l.lower(n.Exp1), Exp2: l.lower(n.Exp2)}
	case *ast.VariableDeclaratorNode:
		return l.let(n)
	case *ast.SequenceNode:
		return l.fail(n, "only the last of the expressions separated by ; would count: use let name = …;")
	case *ast.ArrayNode:
		return &ast.ArrayNode{Nodes: l.all(n.Nodes)}
	case *ast.MapNode:
		return l.mapLiteral(n)
	case *ast.BytesNode:
		return l.fail(n, `b"…" is not available: JSON has no bytes, use a text and toBase64`)
	}
	return l.fail(n, "this is not available in an expression")
}

func (l *lowering) all(nodes []ast.Node) []ast.Node {
	out := make([]ast.Node, len(nodes))
	for i, n := range nodes {
		out[i] = l.lower(n)
	}
	return out
}

// primitive makes a call of one of the machine's functions.
func primitive(at ast.Node, name string, args ...ast.Node) ast.Node {
	callee := &ast.IdentifierNode{Value: name}
	callee.SetLocation(at.Location())
	call := &ast.CallNode{Callee: callee, Arguments: args}
	call.SetLocation(at.Location())
	return call
}

func constant(v any) ast.Node { return &ast.ConstantNode{Value: v} }

// access lowers a name, or a chain of members, to one call that follows the chain.
func (l *lowering) access(n ast.Node) ast.Node {
	base, path := split(n)
	l.nodes += len(path)
	switch b := base.(type) {
	case *ast.IdentifierNode:
		return l.variable(n, b, path)
	case *ast.MemberNode:
		return walk(n, primitive(n, "index", l.lower(b.Node), l.lower(b.Property)), path)
	}
	return walk(n, l.lower(base), path)
}

// split removes the members with literal names from a chain. A base that is still a member has a
// computed index.
func split(n ast.Node) (base ast.Node, path []string) {
	switch n := n.(type) {
	case *ast.ChainNode:
		return split(n.Node)
	case *ast.MemberNode:
		if name, ok := n.Property.(*ast.StringNode); ok {
			base, path = split(n.Node)
			return base, append(path, name.Value)
		}
	}
	return n, nil
}

func walk(at, base ast.Node, path []string) ast.Node {
	if len(path) == 0 {
		return base
	}
	return primitive(at, "walk", base, constant(&reference{path: path}))
}

func (l *lowering) variable(at ast.Node, id *ast.IdentifierNode, path []string) ast.Node {
	for i := len(l.locals) - 1; i >= 0; i-- {
		if l.locals[i].name == id.Value {
			name := &ast.IdentifierNode{Value: l.locals[i].compiled}
			name.SetLocation(id.Location())
			return walk(at, name, path)
		}
	}
	if !l.names[id.Value] {
		return l.fail(id, "%s", l.unknownName(id.Value))
	}
	l.refer(id.Value, path)
	return primitive(at, "load", constant(&reference{name: id.Value, path: path}))
}

// reading returns the variable that a lowered tree reads, if it does nothing else.
func reading(n ast.Node) *reference {
	call, ok := n.(*ast.CallNode)
	if !ok {
		return nil
	}
	if callee, ok := call.Callee.(*ast.IdentifierNode); !ok || callee.Value != "load" {
		return nil
	}
	ref, _ := call.Arguments[0].(*ast.ConstantNode).Value.(*reference)
	return ref
}

func (l *lowering) pointer(n *ast.PointerNode) ast.Node {
	if len(l.loops) == 0 {
		return l.fail(n, "# and .member stand for the item inside filter, map and the like only")
	}
	in := l.loops[len(l.loops)-1]
	switch {
	case n.Name == "", n.Name == "index" && in.index, n.Name == "acc" && in.acc:
		return &ast.PointerNode{Name: n.Name}
	case n.Name == "index":
		return l.fail(n, "#index is there directly inside sum and reduce only: go through 0..len(list) - 1 instead")
	case n.Name == "acc":
		return l.fail(n, "#acc is there directly inside reduce only")
	}
	return l.fail(n, "unknown #%s: there are #, #index and, in reduce, #acc", n.Name)
}

func (l *lowering) let(n *ast.VariableDeclaratorNode) ast.Node {
	value := l.lower(n.Value)
	l.lets++
	l.locals = append(l.locals, local{name: n.Name, compiled: fmt.Sprintf("let%d", l.lets)})
	compiled := l.locals[len(l.locals)-1].compiled
	body := l.lower(n.Expr)
	l.locals = l.locals[:len(l.locals)-1]
	return &ast.VariableDeclaratorNode{Name: compiled, Value: value, Expr: body}
}

// pairNodes is the node count of a pair in a map literal, besides its key and value.
const pairNodes = 3

func (l *lowering) mapLiteral(n *ast.MapNode) ast.Node {
	out := &ast.MapNode{}
	seen := map[string]bool{}
	for _, p := range n.Pairs {
		pair := p.(*ast.PairNode)
		l.nodes += pairNodes
		key := l.lower(pair.Key)
		if s, ok := pair.Key.(*ast.StringNode); !ok {
			key = primitive(pair.Key, "key", key)
		} else if seen[s.Value] {
			l.fail(pair.Key, "the key %q is there twice", s.Value)
		} else {
			seen[s.Value] = true
		}
		lowered := &ast.PairNode{Key: key, Value: l.lower(pair.Value)}
		lowered.SetLocation(pair.Location())
		out.Pairs = append(out.Pairs, lowered)
	}
	return out
}

// condition lowers a tree that must be true or false; null counts as false.
func (l *lowering) condition(n ast.Node) ast.Node {
	out := l.lower(n)
	if yieldsBool(n) {
		return out
	}
	return primitive(n, "bool", out)
}

func yieldsBool(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BoolNode:
		return true
	case *ast.UnaryNode:
		return n.Operator == "!" || n.Operator == "not"
	case *ast.BinaryNode:
		return binaryPrimitives[n.Operator].boolean
	case *ast.BuiltinNode:
		return n.Name == "all" || n.Name == "none" || n.Name == "any" || n.Name == "one"
	}
	return false
}

// binaryPrimitives are the operators that become calls. && and || stay native over conditions, and
// ?? stays native.
var binaryPrimitives = map[string]struct {
	name    string
	boolean bool
}{
	"+": {"add", false}, "-": {"subtract", false}, "*": {"multiply", false}, "/": {"divide", false},
	"%": {"modulo", false}, "**": {"power", false}, "^": {"power", false}, "..": {"span", false},
	"==": {"equal", true}, "!=": {"unequal", true},
	"<": {"less", true}, "<=": {"atMost", true}, ">": {"more", true}, ">=": {"atLeast", true},
	"in": {"in", true}, "contains": {"contains", true}, "startsWith": {"startsWith", true},
	"endsWith": {"endsWith", true}, "matches": {"matches", true},
	"and": {"", true}, "&&": {"", true}, "or": {"", true}, "||": {"", true},
}

func (l *lowering) binary(n *ast.BinaryNode) ast.Node {
	switch n.Operator {
	case "and", "&&", "or", "||":
		return &ast.BinaryNode{Operator: n.Operator, Left: l.condition(n.Left), Right: l.condition(n.Right)}
	case "??":
		return &ast.BinaryNode{Operator: "??", Left: l.lower(n.Left), Right: l.lower(n.Right)}
	case "matches":
		return primitive(n, "matches", l.lower(n.Left), l.pattern(n.Right))
	}
	op, ok := binaryPrimitives[n.Operator]
	if !ok {
		return l.fail(n, "the operator %s is not available", n.Operator)
	}
	l.checkNumber(n)
	l.checkTimeSum(n)
	return primitive(n, op.name, l.lower(n.Left), l.lower(n.Right))
}

// pattern compiles a literal pattern at compile time, so that its errors are reported then.
func (l *lowering) pattern(n ast.Node) ast.Node {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return l.lower(n)
	}
	l.nodes++
	p, err := compilePattern(s.Value)
	if err != nil {
		return l.fail(n, "%v", err)
	}
	return constant(p)
}

// pattern is a regular expression and its cost for a byte of text.
type pattern struct {
	*regexp.Regexp
	cost int
}

func (l *lowering) slice(n *ast.SliceNode) ast.Node {
	bound := func(b ast.Node) ast.Node {
		if b == nil {
			return &ast.NilNode{}
		}
		return l.lower(b)
	}
	return primitive(n, "call", constant(sliceFunction), l.lower(n.Node), bound(n.From), bound(n.To))
}
