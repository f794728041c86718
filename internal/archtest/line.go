package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// linePackages lists the packages that an event passes. ARCHITECTURE.md lists their goroutines
// and bounds.
func linePackages() []string {
	return []string{"stream", "engine", "scheduler", "store", "outbox", "handoff", "effects"}
}

// unlisted lists the functions that start goroutines which no event passes.
func unlisted() []string {
	return []string{
		"stream Watch.Run",     // checks that the streams and buckets still exist
		"stream Watch.runOnce", // likewise
	}
}

// codeName is a package and a name in it, in code font.
var codeName = regexp.MustCompile("`([a-z]+ [A-Za-z.]+)`")

// lineNames returns the names in the two tables of the line.
func lineNames(page string) map[string]bool {
	_, line, _ := strings.Cut(page, "\n## Goroutines and queues\n")
	line, _, _ = strings.Cut(line, "\n## ")
	out := map[string]bool{}
	for row := range strings.Lines(line) {
		if !strings.HasPrefix(row, "| ") {
			continue
		}
		for _, name := range codeName.FindAllStringSubmatch(row, -1) {
			out[name[1]] = true
		}
	}
	return out
}

// lineComplaints compares the tables of the line with the code: they name each function that
// starts a goroutine and only names that exist. Each channel with more than one place has a bound
// that they name.
func lineComplaints(files []file, page string) (out []string) {
	names := lineNames(page)
	exist, starts := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		if !slices.Contains(linePackages(), f.pkg) || f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := f.pkg + " " + functionName(d)
				if exist[name] = true; startsGoroutine(d) {
					starts[name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for _, n := range v.Names {
							exist[f.pkg+" "+n.Name] = true
						}
					}
				}
			}
		}
		out = append(out, unboundChannels(f, names)...)
	}
	for _, name := range slices.Sorted(maps.Keys(starts)) {
		if !names[name] && !slices.Contains(unlisted(), name) {
			out = append(out, name+" starts a goroutine that the line in ARCHITECTURE.md does not list")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !exist[name] {
			out = append(out, "the line in ARCHITECTURE.md names "+name+", which does not exist")
		}
	}
	return out
}

// startsGoroutine reports whether a function has a go statement or starts one in a group.
func startsGoroutine(fn *ast.FuncDecl) (does bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			does = true
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				does = true
			}
		}
		return !does
	})
	return does
}

// unboundChannels lists the channels with more than one place whose bound the tables do not name.
func unboundChannels(f file, names map[string]bool) (out []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 {
			return true
		}
		if fn, ok := call.Fun.(*ast.Ident); !ok || fn.Name != "make" {
			return true
		}
		if _, ok := call.Args[0].(*ast.ChanType); !ok {
			return true
		}
		switch bound := call.Args[1].(type) {
		case *ast.BasicLit:
			if bound.Kind == token.INT && (bound.Value == "0" || bound.Value == "1") {
				return true
			}
		case *ast.Ident:
			if names[f.pkg+" "+bound.Name] {
				return true
			}
		}
		out = append(out, fmt.Sprintf("%s: a channel whose bound the line in ARCHITECTURE.md does not name", f.at(call.Pos())))
		return true
	})
	return out
}
