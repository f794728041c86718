// Package patterns has the sagas that edda init writes, each with its effects and tests.
package patterns

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
)

//go:embed */*.yaml
var files embed.FS

// Pattern is a saga to begin with.
type Pattern struct {
	Name  string
	Short string // in one line
}

// All lists the patterns. The first one is the default.
func All() []Pattern {
	return []Pattern{
		{"order", "paid, reserved, shipped; undone newest first if a step fails"},
		{"approval", "a person answers within a deadline, then the money is paid"},
		{"subscription", "charged at once and every month, until it is cancelled"},
		{"fanout", "one call for each item, all at once; goes on when all are back"},
		{"webhook", "CloudEvents that exist already become messages and reminders"},
	}
}

// Starter is one manifest of a pattern.
type Starter struct {
	Name string // without a folder
	Text []byte
}

// Files returns the manifests of a pattern.
func (p Pattern) Files() ([]Starter, error) {
	entries, err := fs.ReadDir(files, p.Name)
	if err != nil {
		return nil, fmt.Errorf("pattern %s: %w", p.Name, err)
	}
	var out []Starter
	for _, e := range entries {
		text, err := files.ReadFile(path.Join(p.Name, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("pattern %s: %w", p.Name, err)
		}
		out = append(out, Starter{e.Name(), text})
	}
	return out, nil
}
