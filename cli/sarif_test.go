package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"edda/manifests"
	"edda/node"
)

// TestLintWritesSARIF checks what SARIF 2.1.0 and code hosts require of a report on many mistakes.
func TestLintWritesSARIF(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/mistakes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range archive.Files {
		if strings.HasSuffix(f.Name, ".yaml") {
			if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	problems, err := node.Lint([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	code, out := held(t, "lint", dir, "-o", "sarif")
	var log sarifLog
	if err := json.Unmarshal([]byte(out), &log); err != nil || code != 1 || log.Version != "2.1.0" || len(log.Runs) != 1 {
		t.Fatalf("%d %v %s", code, err, out)
	}
	run := log.Runs[0]
	if len(run.Results) != len(problems) || len(problems) < 80 {
		t.Errorf("%d results of %d problems", len(run.Results), len(problems))
	}
	seen, prints := map[string]bool{}, map[string]bool{}
	for _, r := range run.Results {
		rule := run.Tool.Driver.Rules[r.RuleIndex]
		if rule.ID != r.RuleID || rule.Help.Text == "" || r.Message.Text == "" || len(r.Locations) != 1 || prints[r.Fingerprints["eddaProblem/v1"]] {
			t.Errorf("%+v has the rule %+v", r, rule)
			continue
		}
		at := r.Locations[0].Physical
		if !strings.HasPrefix(at.Artifact.URI, "file:///") || !strings.Contains(at.Artifact.URI, "/a%20b/") || at.Region.StartLine < 1 || at.Region.StartColumn < 1 {
			t.Errorf("%+v", at)
		}
		if !slices.Contains([]string{"error", "warning"}, r.Level) {
			t.Errorf("level %q", r.Level)
		}
		seen[r.RuleID], prints[r.Fingerprints["eddaProblem/v1"]] = true, true
	}
	if len(seen) < 12 {
		t.Errorf("only the rules %v", seen)
	}
	code, out = held(t, "lint", dir, "-o", "json")
	var list []lintProblem
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 1 || len(list) != len(problems) || list[0].Rule == "" {
		t.Errorf("%d %v %s", code, err, out)
	}
	if got := artifactURI("./a b/c:d.yaml"); got != "a%20b/c:d.yaml" {
		t.Error(got)
	}
	if code, out := held(t, "lint", dir, "-o", "table"); code != 2 || !strings.Contains(out, "want one of text, json, sarif") {
		t.Errorf("%d %s", code, out)
	}
}

// TestTheIDsOfRulesNeverChange: tools store them. A new rule is added here; none is renamed.
func TestTheIDsOfRulesNeverChange(t *testing.T) {
	t.Parallel()
	want := []string{"syntax", "manifest", "unknown-key", "repeated-key", "name", "duration", "duplicate-definition", "expression", "unmarked-expression",
		"trigger", "handler", "action", "reference", "unhandled-timer", "life", "undefined", "effect", "process"}
	var got []string
	for _, r := range manifests.Rules() {
		got = append(got, string(r.Rule))
		if r.Title == "" || r.Help == "" || strings.HasSuffix(r.Title, ".") || !strings.HasSuffix(r.Help, ".") {
			t.Errorf("%+v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
