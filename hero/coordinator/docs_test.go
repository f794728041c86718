package coordinator

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"edda/internal/testkit"
)

// TestTheSessionOfTheDocsRuns runs the shell session of docs/HERO.md as it
// stands there.
func TestTheSessionOfTheDocsRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/HERO.md")
	testkit.Must(t, err)
	_, rest, found := strings.Cut(string(page), "### A session with curl")
	_, rest, opened := strings.Cut(rest, "```sh\n")
	script, _, closed := strings.Cut(rest, "```")
	if !found || !opened || !closed {
		t.Fatal("docs/HERO.md has no session")
	}
	w := newWorld(t, Options{})
	c := running(t, w, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-eu", "-c", script)
	shell.Env = append(os.Environ(), "COORDINATOR_URL=http://"+c.HTTPAddr())
	out, err := shell.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != strings.Count(script, "\ncall ") || strings.Contains(string(out), `"error":{`) {
		t.Fatalf("%v\n%s", err, out)
	}
	last := lines[len(lines)-1]
	for _, want := range []string{`"status":"finished"`, `"result":{"2001.sum":"40","2002.sum":"42"}`} {
		if !strings.Contains(last, want) {
			t.Errorf("the session ends with %s, want %s", last, want)
		}
	}
}
