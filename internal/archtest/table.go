// Package archtest compares ARCHITECTURE.md with the code. Its tests read the table
// of packages (packages) from the page and parse every file of the module. They fail where a
// package imports a package that the table does not grant, or breaks a rule.
package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// rule is one row of the table.
type rule struct {
	name    string   // "saga"; the root is "edda"
	imports []string // packages it may import
	all     bool     // may import everything
}

// readTable reads the rows of the table with the header "package".
func readTable(page string) (map[string]rule, error) {
	packages := map[string]rule{}
	inside := false
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.TrimSpace(cells[0]) == "package":
			inside = true
		case inside && !strings.HasPrefix(line, "|--"):
			r, err := readRow(cells)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
			}
			packages[r.name] = r
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no table of packages found")
	}
	return packages, nil
}

func readRow(cells []string) (rule, error) {
	if len(cells) != 3 {
		return rule{}, fmt.Errorf("want 3 cells, have %d", len(cells))
	}
	_, rest, _ := strings.Cut(cells[0], "`")
	name, _, ok := strings.Cut(rest, "`")
	if !ok {
		return rule{}, fmt.Errorf("the package's name is not in backquotes")
	}
	r := rule{name: strings.TrimSuffix(name, "/")}
	for word := range strings.SplitSeq(cells[2], ",") {
		switch word = strings.TrimSpace(word); word {
		case "", "none":
		case "everything":
			r.all = true
		default:
			r.imports = append(r.imports, word)
		}
	}
	return r, nil
}

// packageOf returns the package of a package by its path within the module: the longest
// name in the table that is the path or a parent of it.
func packageOf(packages map[string]rule, path string) (rule, bool) {
	if path == "" {
		path = "edda"
	}
	for {
		if r, ok := packages[path]; ok {
			return r, true
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return rule{}, false
		}
		path = path[:i]
	}
}

// may reports whether a package may import another. It may always import its own packages.
func (r rule) may(other rule) bool {
	return r.all || r.name == other.name || slices.Contains(r.imports, other.name)
}
