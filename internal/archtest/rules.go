package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// maxLines bounds a file, because a longer one has more than one concept.
const maxLines = 800

// testOnly lists the packages that only tests import.
func testOnly() []string { return []string{"internal/testkit", "hero/redisdb/redisdbtest"} }

// pure lists the packages that compute values without side effects.
func pure() []string {
	return []string{"expression", "saga", "hero/flow", "stream/wire", "internal/calendar", "internal/jsonvalue", "internal/yamllayout"}
}

// impure lists the packages that a pure package may not import, by prefix. It may import net/url,
// which only parses, and sync: a pool of machines changes no value, and another rule refuses
// goroutines.
func impure() []string {
	return []string{"os", "log", "context", "math/rand", "crypto/rand", "net", "sync/atomic", "io/ioutil", "syscall", "runtime", "go.uber.org/zap", "github.com/google/uuid"}
}

// clocks lists the functions of package time that read the clock or wait for it.
func clocks() []string {
	return []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local"}
}

// importComplaints lists imports that the table does not grant.
func importComplaints(packages map[string]rule, f file) []string {
	if f.test {
		return nil // a test may import other packages; the compiler refuses cycles
	}
	from, ok := packageOf(packages, f.pkg)
	if !ok {
		return []string{fmt.Sprintf("%s: package %s is not in the table of ARCHITECTURE.md", f.name, f.pkg)}
	}
	var out []string
	for _, imported := range f.imports() {
		p, mine := ours(imported)
		if !mine {
			continue
		}
		if slices.ContainsFunc(testOnly(), func(t string) bool { return under(p, t) && !under(f.pkg, t) }) {
			out = append(out, fmt.Sprintf("%s: only tests import %s", f.name, imported))
		}
		if to, ok := packageOf(packages, p); !ok || !from.may(to) {
			out = append(out, fmt.Sprintf("%s: %s may not import %s (see ARCHITECTURE.md)", f.name, from.name, imported))
		}
	}
	return out
}

// rootComplaints lists imports of the root package beyond the standard library.
func rootComplaints(f file) []string {
	if f.pkg != "" || f.test {
		return nil
	}
	var out []string
	for _, imported := range f.imports() {
		if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") || first == module {
			out = append(out, fmt.Sprintf("%s: the root package imports the standard library only, not %s", f.name, imported))
		}
	}
	return out
}

// pureComplaints lists clocks, randomness, loggers, contexts and goroutines of a pure package.
func pureComplaints(f file) []string {
	suite := strings.HasSuffix(f.pkg, "test")
	if f.test || suite || !slices.ContainsFunc(pure(), func(p string) bool { return under(f.pkg, p) }) {
		return nil
	}
	imports := f.imports()
	var out []string
	for _, imported := range imports {
		if slices.ContainsFunc(impure(), func(p string) bool { return under(imported, p) && imported != "net/url" }) {
			out = append(out, fmt.Sprintf("%s: a pure package may not import %s", f.name, imported))
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, f.at(n.Pos())+": a pure package starts no goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Obj == nil && imports[x.Name] == "time" && slices.Contains(clocks(), n.Sel.Name) {
				out = append(out, f.at(n.Pos())+": a pure package may not use time."+n.Sel.Name)
			}
		}
		return true
	})
	return out
}

func under(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// shapeComplaints lists files that are too long and init functions.
func shapeComplaints(f file) []string {
	var out []string
	if f.lines >= maxLines {
		out = append(out, fmt.Sprintf("%s has %d lines: find the noun hiding in it", f.name, f.lines))
	}
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			out = append(out, f.at(fn.Pos())+": no init functions")
		}
	}
	return out
}

// variableComplaints lists the package-level variables that a file of the package
// assigns to. Variables that only name a value (errors, compiled patterns, tables)
// are allowed.
func variableComplaints(files []file) []string {
	vars := map[string]string{}
	for _, f := range files {
		for name, at := range variables(f) {
			vars[name] = at
		}
	}
	var out []string
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			for _, target := range assigned(n) {
				if x := rootIdent(target); x != nil && packageLevel(f, x) && vars[x.Name] != "" {
					out = append(out, fmt.Sprintf("%s: %s is a package-level variable (%s) and may not change", f.at(n.Pos()), x.Name, vars[x.Name]))
				}
			}
			return true
		})
	}
	return out
}

func variables(f file) map[string]string {
	out := map[string]string{}
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if name.Name != "_" {
					out[name.Name] = f.at(name.Pos())
				}
			}
		}
	}
	return out
}

// assigned lists the expressions that a node changes.
func assigned(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// rootIdent returns the variable that an assignment's target is part of.
func rootIdent(x ast.Expr) *ast.Ident {
	for {
		switch t := x.(type) {
		case *ast.Ident:
			return t
		case *ast.SelectorExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.StarExpr:
			x = t.X
		case *ast.ParenExpr:
			x = t.X
		default:
			return nil
		}
	}
}

// packageLevel reports whether an identifier is not local. The parser resolves the
// names of its own file only.
func packageLevel(f file, x *ast.Ident) bool {
	return x.Obj == nil || x.Obj == f.ast.Scope.Lookup(x.Name)
}
