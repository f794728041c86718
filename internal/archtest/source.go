package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// module is the path of this module.
const module = "edda"

// file is one parsed Go file.
type file struct {
	name  string // within the module, with slashes
	pkg   string // folder within the module; empty for the root
	test  bool
	lines int
	set   *token.FileSet
	ast   *ast.File
}

// readModule parses every Go file below a folder. It skips other modules, hidden
// folders and testdata.
func readModule(root string) ([]file, error) {
	var files []file
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != root {
			base := d.Name()
			if base == "testdata" || base == "node_modules" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		f, err := parse(set, filepath.ToSlash(rel), source)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func parse(set *token.FileSet, name string, source []byte) (file, error) {
	tree, err := parser.ParseFile(set, name, source, parser.ParseComments)
	if err != nil {
		return file{}, fmt.Errorf("parse: %w", err)
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	return file{
		name: name, pkg: dir, test: strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(source, []byte("\n")), set: set, ast: tree,
	}, nil
}

// imports maps the name by which a file uses a package to its path.
func (f file) imports() map[string]string {
	out := map[string]string{}
	for _, spec := range f.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser checked it
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		out[name] = p
	}
	return out
}

// ours returns an import's path within the module; false for packages of other modules.
func ours(imported string) (string, bool) {
	if imported == module {
		return "", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// at returns a position for messages.
func (f file) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", f.name, f.set.Position(p).Line)
}
