package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edda/manifests"
)

// TestEveryProviderIsWired: the parser, the schema and this package name the same providers.
func TestEveryProviderIsWired(t *testing.T) {
	var wired []string
	for _, p := range providers() {
		wired = append(wired, p.name)
	}
	slices.Sort(wired)

	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte("effect: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, problems, err := manifests.ParseFiles(file)
	if err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(fmt.Sprint(problems), "give it ")
	said, _, _ = strings.Cut(said, "]")
	parsed := strings.Fields(strings.NewReplacer(",", " ", " or ", " ").Replace(said))
	if slices.Sort(parsed); !slices.Equal(parsed, wired) {
		t.Errorf("the parser takes %v, a process has %v", parsed, wired)
	}

	text, err := manifests.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range wired {
		if schema.Defs[name] == nil {
			t.Errorf("the schema does not describe %s", name)
		}
	}
}
