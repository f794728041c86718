package realservers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// RedisRights is the rule of a role's user, as docs/HERO.md gives it, with a
// password: for RedisOptions.Users. The user's name is edda-<role>.
func RedisRights(role, password string) (string, error) {
	page, err := page("docs/HERO.md")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(page) {
		if rule, ok := strings.CutPrefix(line, "user edda-"+role+" "); ok {
			return "edda-" + role + " " + strings.ReplaceAll(strings.TrimSpace(rule), "PASSWORD", password), nil
		}
	}
	return "", fmt.Errorf("docs/HERO.md has no user edda-%s", role)
}

// page reads a file of the module that the tests run in.
func page(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			text, err := os.ReadFile(filepath.Join(dir, name))
			return string(text), err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the tests")
		}
		dir = up
	}
}
