package node

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented are the keys in the first column of the table of keys: `tls.cert`, `.key` are two.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n| key | default |")
	if !found {
		t.Fatal("the manual has no table of keys")
	}
	text, _, _ = strings.Cut(text, "\n\n")
	keys := map[string]bool{}
	for row := range strings.Lines(text) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		parent := ""
		for _, m := range regexp.MustCompile("`([a-z0-9_.]+)`").FindAllStringSubmatch(cells[1], -1) {
			key := m[1]
			if strings.HasPrefix(key, ".") {
				key = parent + key
			} else if i := strings.LastIndexByte(key, '.'); i > 0 {
				parent = key[:i]
			}
			keys[key] = true
		}
	}
	return keys
}

func TestTheManualListsEveryKey(t *testing.T) {
	listed, there := documented(t), keys()
	if len(there) < 60 {
		t.Fatalf("the config has only the keys %v", there)
	}
	for _, key := range there {
		if !listed[key] {
			t.Errorf("the table of keys lacks %s", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if !slices.Contains(there, key) {
			t.Errorf("the table of keys has %s, which no config has", key)
		}
	}
}
