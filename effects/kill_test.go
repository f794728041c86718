package effects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store"
)

// The environment of the process that is killed: where its folder is, which
// manifest it works for, and where it kills itself.
const (
	killFolder   = "EDDA_TEST_KILL_FOLDER"
	killManifest = "EDDA_TEST_KILL_MANIFEST"
	killPoint    = "EDDA_TEST_KILL_POINT"
	killOffered  = "EDDA_TEST_KILL_OFFERED" // the command comes from within the process
)

// mortal is a worker's surroundings in a process that kills itself, with SIGKILL,
// at one point. What the other side and the stream have seen is kept in files.
type mortal struct {
	claims
	dir, point string
	done       context.CancelFunc
}

func (m mortal) at(point string) {
	if m.point == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is under way
	}
}

func (m mortal) Commit(ctx context.Context, c store.Change) error {
	if len(c.Claims) == 0 || len(c.Transitions) > 0 {
		return m.claims.Commit(ctx, c)
	}
	word := "claim"
	if c.Claims[0].Done {
		word = "result"
	}
	m.at("before the " + word)
	err := m.claims.Commit(ctx, c)
	m.at("after the " + word)
	return err
}

func (m mortal) note(file, line string) {
	f, err := os.OpenFile(filepath.Join(m.dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
}

func (m mortal) Call(_ context.Context, c Call) (Response, error) {
	if url := c.Config["url"].(string); strings.HasPrefix(url, "https://pay/find") {
		m.note("calls", "check "+c.Key)
		if _, err := os.Stat(filepath.Join(m.dir, "happened")); err != nil {
			return status(404), nil
		}
		return ok200(), nil
	}
	m.at("before the call")
	m.note("calls", "call "+c.Key)
	m.note("happened", c.Key)
	m.at("in the call")
	return ok200(), nil
}

func (m mortal) PublishResult(_ context.Context, r Result) error {
	m.at("before the publication")
	m.note("results", fmt.Sprintf("%s %s", r.Outcome, r.Payload))
	m.at("after the publication")
	return nil
}

// Apply is the engine's part: the claim, the row's end and the rest in one commit.
func (m mortal) Apply(ctx context.Context, r Result, c edda.Claim) error {
	err := m.Commit(ctx, store.Change{Claims: []edda.Claim{c}})
	m.note("results", fmt.Sprintf("%s %s", r.Outcome, r.Payload))
	return err
}

func (m mortal) Command() *Command {
	return &Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{}`), Metadata: json.RawMessage(`{}`), Offered: os.Getenv(killOffered) != ""}
}

// emit puts the command into the outbox, as a saga does, unless it is there.
func (m mortal) emit(t *testing.T) {
	rows, err := m.Outbox(ulid.ULID{}, 1)
	if err == nil && len(rows) == 0 {
		k := edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}
		err = m.claims.Commit(t.Context(), store.Change{Transitions: []edda.Transition{{Key: k, Work: []edda.Work{{ID: "c1", Kind: edda.WorkEffect, From: k, Name: "charge"}}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
}
func (mortal) InProgress(context.Context) error         { return nil }
func (mortal) Nak(context.Context, time.Duration) error { return nil }
func (m mortal) Ack(context.Context) error              { m.done(); return nil }

// Fetch delivers the command once in each run.
func (m *mortal) Fetch(ctx context.Context, _ string, _ int, _ time.Duration) ([]Delivery, error) {
	if m.dir == "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d := *m
	m.dir = ""
	return []Delivery{d}, nil
}

// live is one run of the worker, in a process of its own.
func live(t *testing.T) {
	ctx, done := context.WithCancel(t.Context())
	dir := os.Getenv(killFolder)
	m := mortal{claims: openStore(t, filepath.Join(dir, "store")), dir: dir, point: os.Getenv(killPoint), done: done}
	source := m
	m.emit(t)
	w, err := newWorker(m, Options{Source: &source, Publisher: m, Applier: m, Providers: map[string]Provider{"http": m},
		Secrets: Secrets{Environ: func(string) (string, bool) { return "s3cret", true }}}, compile(t, os.Getenv(killManifest)))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestKilledAtEachPoint ends a process with SIGKILL between every two steps of a
// command and lets another go on with its file.
func TestKilledAtEachPoint(t *testing.T) {
	if os.Getenv(killFolder) != "" {
		live(t)
		return
	}
	const ok = `Succeeded {"id":"P1"}`
	const unknown = `TimedOut {"code":"unknown","message":"a call was begun and what came of it is not known","attempts":0,"duration":"0s"}`
	manifests := map[string]string{"at least once": charge, "at most once": once, "checked": checked}
	for _, tt := range []struct{ point, manifest, calls, result string }{
		{"before the call", "offered, at least once", "call", ok}, {"in the call", "offered, at least once", "call call", ok},
		{"before the result", "offered, at least once", "call call", ok}, {"after the result", "offered, at least once", "call", ok},
		{"after the claim", "offered, at most once", "", unknown}, {"in the call", "offered, at most once", "call", unknown},
		{"after the claim", "offered, checked", "check call", ok}, {"in the call", "offered, checked", "call check", ok}, {"before the result", "offered, checked", "call check", ok},
		{"before the claim", "at least once", "call", ok}, {"before the claim", "at most once", "call", ok}, {"before the claim", "checked", "call", ok},
		{"after the claim", "at least once", "call", ok}, {"after the claim", "at most once", "", unknown}, {"after the claim", "checked", "check call", ok},
		{"before the call", "at least once", "call", ok}, {"before the call", "at most once", "", unknown}, {"before the call", "checked", "check call", ok},
		{"in the call", "at least once", "call call", ok}, {"in the call", "at most once", "call", unknown}, {"in the call", "checked", "call check", ok},
		{"before the result", "at least once", "call call", ok}, {"before the result", "at most once", "call", unknown}, {"before the result", "checked", "call check", ok},
		{"after the result", "at least once", "call", ok}, {"after the result", "at most once", "call", ok}, {"after the result", "checked", "call", ok},
		{"before the publication", "at least once", "call", ok}, {"before the publication", "at most once", "call", ok},
		{"after the publication", "at least once", "call", ok + "; " + ok}, {"after the publication", "at most once", "call", ok + "; " + ok},
	} {
		t.Run(tt.point+", "+tt.manifest, func(t *testing.T) {
			t.Parallel()
			name, offered := strings.CutPrefix(tt.manifest, "offered, ")
			dir := t.TempDir()
			env := []string{killFolder + "=" + dir, killManifest + "=" + manifests[name]}
			if offered {
				env = append(env, killOffered+"=yes")
			}
			if killed := runMortal(t, append(env, killPoint+"="+tt.point)...); !killed {
				t.Fatal("it lived on")
			}
			if killed := runMortal(t, env...); killed {
				t.Fatal("the second run was killed")
			}
			calls, results := lines(t, dir, "calls"), lines(t, dir, "results")
			if got := strings.ReplaceAll(strings.Join(calls, " "), " c1", ""); got != tt.calls {
				t.Errorf("called %v, want %s, all with one key", calls, tt.calls)
			}
			if got := strings.Join(results, "; "); got != tt.result {
				t.Errorf("results %s, want %s", got, tt.result)
			}
		})
	}
}

// runMortal runs this test's binary as a worker and tells whether it was killed. A
// race detector does not wait a second at its end: the worker waits for what it began.
func runMortal(t *testing.T, env ...string) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledAtEachPoint$")
	cmd.Env = append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

func lines(t *testing.T, dir, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}
