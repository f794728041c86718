package archtest

import (
	"errors"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"strings"
)

// typed is the type-checked module with the standard library. Expressions from other modules have
// no type, which is no complaint.
type typed struct {
	files    map[string][]file // by package, tests left out
	packages map[string]*types.Package
	info     *types.Info
	standard types.Importer
}

// typeCheck checks all files except tests.
func typeCheck(files []file) *typed {
	m := &typed{
		files: map[string][]file{}, packages: map[string]*types.Package{},
		info: &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
			Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		},
		standard: importer.ForCompiler(token.NewFileSet(), "source", nil),
	}
	for _, f := range files {
		if !f.test {
			m.files[f.pkg] = append(m.files[f.pkg], f)
		}
	}
	for pkg := range m.files {
		m.check(pkg)
	}
	return m
}

// errElsewhere is the error of an import from another module.
var errElsewhere = errors.New("a package of another module")

// Import implements types.Importer.
func (m *typed) Import(path string) (*types.Package, error) {
	if pkg, mine := ours(path); mine {
		return m.check(pkg), nil
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		return nil, errElsewhere
	}
	return m.standard.Import(path)
}

func (m *typed) check(pkg string) *types.Package {
	if p := m.packages[pkg]; p != nil {
		return p
	}
	var trees []*ast.File
	set := token.NewFileSet()
	for _, f := range m.files[pkg] {
		trees, set = append(trees, f.ast), f.set
	}
	quiet := types.Config{Importer: m, Error: func(error) {}, FakeImportC: true}
	p, _ := quiet.Check(strings.TrimSuffix(module+"/"+pkg, "/"), set, trees, m.info)
	m.packages[pkg] = p
	return p
}

// is reports whether an expression is a value of a type of the module, or a pointer to one.
func (m *typed) is(x ast.Expr, pkg, name string) bool { return named(m.info.TypeOf(x), pkg, name) }

func named(t types.Type, pkg, name string) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || n.Obj().Pkg() == nil {
		return false
	}
	return n.Obj().Name() == name && n.Obj().Pkg().Path() == strings.TrimSuffix(module+"/"+pkg, "/")
}

// functionName returns a function's name with its receiver: "resolve", "process.resolve".
func functionName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if x, ok := t.(*ast.Ident); ok {
		return x.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}
