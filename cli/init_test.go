package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"edda/manifests/patterns"
)

// inits writes a pattern into a new folder and returns the folder and what was printed.
func inits(t *testing.T, pattern string) (dir, out string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "first")
	code, out, said := shell(t, nil, "init", "--pattern", pattern, dir)
	if code != exitDone || said != "" {
		t.Fatalf("%d %s%s", code, out, said)
	}
	return dir, out
}

func TestEachPatternEndsInDoneByThePrintedCommands(t *testing.T) {
	t.Parallel()
	for _, p := range patterns.All() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			dir, out := inits(t, p.Name)
			if code, found, said := shell(t, nil, "lint", filepath.Join(dir, "manifests")); code != exitDone || found != "no problems\n" {
				t.Errorf("lint: %d %s%s", code, found, said)
			}
			if code, found, said := shell(t, nil, "test", dir+"/manifests"); code != exitDone || !strings.HasSuffix(found, " passed, 0 failed\n") {
				t.Errorf("test: %d %s%s", code, found, said)
			}
			if code, found, said := shell(t, nil, "config", "view", "--config", filepath.Join(dir, "edda.yaml")); code != exitDone || !strings.Contains(found, "- "+filepath.Join(dir, "manifests")+"\n") {
				t.Errorf("config view: %d %s%s", code, found, said)
			}
			r := startDev(t, "--mock", "--data", t.TempDir(), filepath.Join(dir, "manifests"))
			_, commands, _ := strings.Cut(out, "another terminal:")
			lines := regexp.MustCompile(`(?m)^  edda (.*)$`).FindAllStringSubmatch(commands, -1)
			if len(lines) != 2 {
				t.Fatalf("%d commands in\n%s", len(lines), out)
			}
			for i, line := range lines {
				if strings.HasPrefix(line[1], "instance") {
					r.out.wait(t, ` (waits|is done)`)
				}
				if code, said := r.edda(t, words(t, line[1])...); code != exitDone {
					t.Fatalf("command %d: %d %s", i+1, code, said)
				}
			}
			r.out.wait(t, `(?m)^\w+ \w+ is done`)
			if code, found := r.edda(t, "ls"); code != exitDone || !strings.Contains(found, "done") {
				t.Errorf("ls: %d %s", code, found)
			}
			if r.err.String() != "" {
				t.Errorf("dev complains: %s", r.err)
			}
		})
	}
}

func TestTheFirstCommandOfInitNeedsNoPath(t *testing.T) {
	dir, out := inits(t, "order")
	if !strings.Contains(out, "  cd "+dir+" && edda dev --mock\n") {
		t.Errorf("the first command is missing:\n%s", out)
	}
	t.Chdir(dir)
	d := startDev(t, "--mock")
	d.err.wait(t, "edda: takes the manifests of edda.yaml: manifests")
	d.stop()
}

func TestInitOverwritesNothing(t *testing.T) {
	t.Parallel()
	for _, there := range []string{"edda.yaml", "manifests/saga.yaml"} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o750); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, there), "mine")
		code, out, said := shell(t, nil, "init", dir)
		if code != exitFailed || out != "" || !strings.Contains(said, there+" is there already, and nothing was written") {
			t.Errorf("%d %s%s", code, out, said)
		}
		files := 0
		for _, name := range []string{"edda.yaml", "manifests/saga.yaml", "manifests/effects.yaml"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				if files++; string(text) != "mine" {
					t.Errorf("%s was written", name)
				}
			}
		}
		if files != 1 {
			t.Errorf("%d files", files)
		}
	}
}

func TestInitAsksForThePattern(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{"\n": "order", "2\n": "approval", "webhook\n": "webhook", "": "", "7\n": "", "ordre\n": ""} {
		out := newScreen()
		term := &terminal{out: out, err: out}
		got, err := term.askPattern(strings.NewReader(answer))
		if got.Name != want || (err == nil) != (want != "") || !strings.Contains(out.String(), "  5  webhook       CloudEvents") {
			t.Errorf("%q: %s, %v\n%s", answer, got.Name, err, out)
		}
	}
	if code, _, said := shell(t, nil, "init", "--pattern", "ordre", t.TempDir()); code != exitUsage || !strings.Contains(said, "want one of order, approval") {
		t.Errorf("%d %s", code, said)
	}
}
