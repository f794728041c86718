package archtest

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName    = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	filePath    = regexp.MustCompile("`([a-zA-Z0-9_./]+(?:/|\\.(?:go|md|json)))`")
	packageFunc = regexp.MustCompile("`([a-z/0-9]+ [A-Za-z.]+)`")
)

// sectionOf returns a section of ARCHITECTURE.md without its heading.
func sectionOf(t *testing.T, heading string) string {
	t.Helper()
	page, err := os.ReadFile(root + "/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("ARCHITECTURE.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// functionsOf returns the functions of the module as "package name", and those of tests by name.
func functionsOf(t *testing.T) map[string]bool {
	t.Helper()
	files, err := readModule(root)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test {
				there[fn.Name.Name] = true
			} else if ok {
				there[f.pkg+" "+functionName(fn)] = true
			}
		}
	}
	return there
}

func TestTheGuideNamesFilesAndTestsThatExist(t *testing.T) {
	there := functionsOf(t)
	var things []string
	for row := range strings.Lines(sectionOf(t, "Where to add what")) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 || strings.HasPrefix(row, "|--") || strings.Contains(row, "| files |") {
			continue
		}
		thing := strings.TrimSpace(cells[1])
		things = append(things, thing)
		paths, tests := filePath.FindAllStringSubmatch(cells[2], -1), testName.FindAllStringSubmatch(cells[3], -1)
		if len(paths) == 0 || len(tests) == 0 {
			t.Errorf("%s: names %d files and %d tests, want one of each at least", thing, len(paths), len(tests))
		}
		for _, m := range paths {
			if _, err := os.Stat(root + "/" + m[1]); err != nil {
				t.Errorf("%s: %v", thing, err)
			}
		}
		for _, m := range tests {
			if !there[m[1]] {
				t.Errorf("%s: there is no test %s", thing, m[1])
			}
		}
	}
	for _, thing := range []string{"effect provider", "verb", "metric", "dead-letter reason", "list column", "route", "configuration key", "command"} {
		if !slices.Contains(things, thing) {
			t.Errorf("the table does not say where to add a %s", thing)
		}
	}
}

func TestThePathOfAnEventNamesFunctionsThatExist(t *testing.T) {
	const mostJumps = 10
	there := functionsOf(t)
	jumps := packageFunc.FindAllStringSubmatch(sectionOf(t, "The path of one event"), -1)
	if len(jumps) < 5 || len(jumps) > mostJumps {
		t.Errorf("the path has %d jumps, want 5 to %d", len(jumps), mostJumps)
	}
	for _, m := range jumps {
		if !there[m[1]] {
			t.Errorf("there is no function %s", m[1])
		}
	}
}

// Each test that docs/SECURITY.md names as a proof exists.
func TestThePageOnSecurityNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	there := functionsOf(t)
	named := testName.FindAllStringSubmatch(string(page), -1)
	if len(named) < 40 {
		t.Fatalf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !there[m[1]] {
			t.Errorf("docs/SECURITY.md names %s, which does not exist", m[1])
		}
	}
}
