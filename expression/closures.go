package expression

import (
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"
)

// roundCost says how a closure checks its list: its name in messages, and the cost of one round.
type roundCost struct {
	name string
	cost int
}

// call lowers a call to the allow-list. Variables and functions have separate names: a variable
// count hides count where it stands alone, and count(…) is always the function.
func (l *lowering) call(n *ast.CallNode) ast.Node {
	id, ok := n.Callee.(*ast.IdentifierNode)
	if !ok {
		return l.fail(n, "values have no methods: call a function, as in len(x)")
	}
	f, ok := library[id.Value]
	if !ok {
		return l.fail(n, "%s", l.unknownFunction(id.Value))
	}
	if len(n.Arguments) < f.min || len(n.Arguments) > f.max {
		return l.fail(n, "%s takes %s, as in %s", f.name, f.arity(), f.example)
	}
	l.checkConstants(f, n.Arguments)
	args := append([]ast.Node{constant(f)}, l.all(n.Arguments)...)
	return primitive(n, "call", args...)
}

// closure lowers filter, map and the like. The loop stays native. Its list comes from the
// primitive that checks it and charges all rounds first.
func (l *lowering) closure(n *ast.BuiltinNode) ast.Node {
	if len(l.loops) == MaxNesting {
		return l.fail(n, "closures are nested deeper than %d", MaxNesting)
	}
	around := &roundCost{name: n.Name}
	list := primitive(n.Arguments[0], "list", l.lower(n.Arguments[0]), constant(around))
	before := l.nodes
	var body ast.Node = &ast.PointerNode{}
	if len(n.Arguments) > 1 {
		body = n.Arguments[1].(*ast.PredicateNode).Node
	} else {
		body.SetLocation(n.Location())
	}
	l.loops = append(l.loops, closure{index: n.Name == "reduce" || n.Name == "sum", acc: n.Name == "reduce"})
	out := l.closureOver(n, list, body)
	l.loops = l.loops[:len(l.loops)-1]
	around.cost = l.nodes - before
	switch n.Name { // the other arguments are evaluated once, outside the loop
	case "sum":
		out.Arguments = append(out.Arguments, &ast.IntegerNode{})
	case "reduce":
		if len(n.Arguments) == 3 {
			out.Arguments = append(out.Arguments, l.lower(n.Arguments[2]))
		}
	case "groupBy":
		return primitive(n, "call", constant(groupByFunction), out)
	case "sortBy":
		var order ast.Node = &ast.StringNode{Value: "asc"}
		if len(n.Arguments) == 3 {
			l.checkConstants(sortByFunction, []ast.Node{list, n.Arguments[2]})
			order = l.lower(n.Arguments[2])
		}
		return primitive(n, "call", constant(sortByFunction), out, order)
	}
	return out
}

// closureOver lowers the body and builds the closure over the list.
func (l *lowering) closureOver(n *ast.BuiltinNode, list, body ast.Node) *ast.BuiltinNode {
	at := n.Arguments[len(n.Arguments)-1]
	switch n.Name {
	case "map", "reduce":
		return builtinOver(n.Name, n, list, l.lower(body))
	case "sum":
		return builtinOver("reduce", n, list, primitive(n, "add", located(&ast.PointerNode{Name: "acc"}, n), l.lower(body)))
	case "groupBy", "sortBy":
		pair := &ast.ArrayNode{Nodes: []ast.Node{&ast.PointerNode{}, l.lower(body)}}
		return builtinOver("map", n, list, located(pair, at))
	case "count":
		if len(n.Arguments) == 1 {
			return builtinOver(n.Name, n, list, primitive(n, "counted", l.lower(body)))
		}
	}
	return builtinOver(n.Name, n, list, l.condition(body))
}

func builtinOver(name string, at, list, body ast.Node) *ast.BuiltinNode {
	predicate := located(&ast.PredicateNode{Node: body}, body)
	out := &ast.BuiltinNode{Name: name, Arguments: []ast.Node{list, predicate}}
	out.SetLocation(at.Location())
	return out
}

func located(n, at ast.Node) ast.Node {
	n.SetLocation(at.Location())
	return n
}

// refer records a variable and the members of it that the expression reads.
func (l *lowering) refer(name string, path []string) {
	l.used[name] = true
	l.refs = append(l.refs, append([]string{name}, path...))
}

func (l *lowering) usedNames() []string { return slices.Sorted(maps.Keys(l.used)) }

func (l *lowering) usedRefs() [][]string {
	slices.SortFunc(l.refs, slices.Compare)
	return slices.CompactFunc(l.refs, slices.Equal)
}
