package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"slices"
)

// The engine caches the instances that it wrote last (engine/cache.go). A commit of another
// package would make the cache stale, so these rules restrict who writes instances.

const (
	saysInstance   = ": only the engine commits instances, because it caches those that it wrote last"
	saysTransition = ": only the engine commits transitions: list a function whose transitions change no instance in archtest"
	saysKeyspace   = ": only the engine's change writes the keyspace of instances: list a function that carries it out in archtest"
)

// deciders lists the packages that set the instance of a transition: the engine, those that
// decide for it without a commit, and tools that fill a store of their own.
func deciders() []string { return []string{"engine", "saga", "hero/flowsaga", "replay", "internal"} }

// committers lists the packages that put transitions into a change.
func committers() []string { return []string{"engine", "store", "internal"} }

// resolvers lists the functions that commit transitions which only resolve dead letters.
func resolvers() []string { return []string{"node/operator Quarantine.resolve"} }

// keyspaceWriters lists the functions of store/ that may write the keyspace of instances.
func keyspaceWriters() []string {
	return []string{
		"writer.cell",          // a transition's instance, or its head alone
		"writer.putHead",       // the head that retention keeps of an expired instance
		"writer.forget",        // the head of a key that has no history any more
		"writer.write",         // rows that the encoder lists: none of instances
		"writer.put",           // seals for the above
		"encoder.put",          // encodes rows for the above
		"writer.removeBuckets", // whole days and hours
		"removeRows",           // and parts of them
		"copier.put",           // compaction and a tenant's copy: into a file that is opened later
		"rowCopy.row",          // likewise
	}
}

// instanceComplaints lists the other places that set, commit or write an instance.
func instanceComplaints(m *typed) []string {
	var out []string
	used := map[string]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(m.files)) {
		for _, f := range m.files[pkg] {
			out = append(out, m.writerComplaints(f, used)...)
		}
	}
	for _, name := range resolvers() {
		if !used[name] && m.files["node/operator"] != nil {
			out = append(out, name+" is listed in archtest and commits no transitions")
		}
	}
	for _, name := range keyspaceWriters() {
		if !used["store "+name] && m.files["store"] != nil {
			out = append(out, "store: "+name+" is listed in archtest and writes no instances")
		}
	}
	return out
}

func (m *typed) writerComplaints(f file, used map[string]bool) []string {
	var out []string
	in := func(packages []string) bool {
		return slices.ContainsFunc(packages, func(p string) bool { return under(f.pkg, p) })
	}
	for _, d := range f.ast.Decls {
		name := f.pkg + " "
		fn, isFunc := d.(*ast.FuncDecl)
		if isFunc {
			name += functionName(fn)
		}
		allowed := slices.Contains(resolvers(), name) || f.pkg == "store" && isFunc && slices.Contains(keyspaceWriters(), functionName(fn))
		ast.Inspect(d, func(n ast.Node) bool {
			if at := m.sets(n, "", "Transition", "Instance"); at != nil && !in(deciders()) {
				out = append(out, f.at(at.Pos())+saysInstance)
			}
			for _, field := range []string{"Transitions", "Encoded"} {
				if at := m.sets(n, "store", "Change", field); at != nil && !in(committers()) {
					if used[name] = true; !allowed {
						out = append(out, f.at(at.Pos())+saysTransition)
					}
				}
			}
			return true
		})
		if f.pkg != "store" || !isFunc || !m.writesInstances(fn) {
			continue
		}
		if used[name] = true; !allowed {
			out = append(out, f.at(fn.Pos())+saysKeyspace)
		}
	}
	return out
}

// sets returns the node that assigns to a field or takes its address, or nil.
func (m *typed) sets(n ast.Node, pkg, name, field string) ast.Node {
	is := func(x ast.Expr) bool {
		s, ok := ast.Unparen(x).(*ast.SelectorExpr)
		return ok && s.Sel.Name == field && m.is(s.X, pkg, name)
	}
	switch n := n.(type) {
	case *ast.CompositeLit:
		if !m.is(n, pkg, name) {
			return nil
		}
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				return n // without names, every field has a value
			}
			if x, ok := kv.Key.(*ast.Ident); ok && x.Name == field {
				return kv
			}
		}
	case *ast.UnaryExpr:
		if n.Op.String() == "&" && is(n.X) {
			return n
		}
	default:
		if slices.ContainsFunc(assigned(n), is) {
			return n
		}
	}
	return nil
}

// writesInstances reports whether a function writes rows of the keyspace of instances, or of
// a keyspace that it is given.
func (m *typed) writesInstances(fn *ast.FuncDecl) bool {
	writes, there := false, false
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			there = there || m.isInstances(n) || m.isBucketParameter(fn, n)
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch s.Sel.Name {
			case "Put", "put", "Delete", "DeleteBucket", "CreateBucket", "CreateBucketIfNotExists":
				writes = true
			case "bucket", "Bucket":
				there = there || len(n.Args) == 1 && !m.isConstant(n.Args[0])
			}
		case *ast.CompositeLit:
			writes = writes || m.is(n, "store", "row")
		}
		return true
	})
	return writes && there
}

// isInstances reports whether a name denotes the keyspace of instances.
func (m *typed) isInstances(x *ast.Ident) bool {
	c, ok := m.info.Uses[x].(*types.Const)
	return ok && c.Name() == "Saga" && named(c.Type(), "store/format", "Keyspace")
}

// isConstant reports whether a bucket's name is a constant: format.Due, []byte(format.Due).
func (m *typed) isConstant(x ast.Expr) bool {
	if c, ok := ast.Unparen(x).(*ast.CallExpr); ok && len(c.Args) == 1 {
		x = c.Args[0]
	}
	return m.info.Types[x].Value != nil
}

// isBucketParameter reports whether a name denotes a parameter that is a bucket or its name.
func (m *typed) isBucketParameter(fn *ast.FuncDecl, x *ast.Ident) bool {
	v, ok := m.info.Uses[x].(*types.Var)
	if !ok || v.Pos() < fn.Type.Pos() || v.Pos() > fn.Type.End() {
		return false
	}
	return named(v.Type(), "store/wal", "Bucket") || named(v.Type(), "store/format", "Keyspace")
}
