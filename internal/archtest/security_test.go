package archtest

import (
	"go/ast"
	"os"
	"regexp"
	"testing"
)

// What docs/SECURITY.md says is defended, a test shows: each one it names is there.
func TestThePageOnSecurityNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test {
				there[fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("docs/SECURITY.md names %s, which is not there", m[1])
		}
	}
}
