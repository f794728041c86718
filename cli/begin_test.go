package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/server"
	"edda/store"
)

const alphaSaga = `saga: alpha
key: event.id
on:
  Placed: {start: true}
  Closed: {do: [{done: true}]}
`

const betaSaga = `saga: beta
key: event.id
from: all
on:
  Placed: {start: true}
  Closed: {do: [{done: true}]}
`

func placed(t *testing.T, d *running, n int) {
	t.Helper()
	id := fmt.Sprint("O", n)
	if code, out := d.edda(t, "send", "Order.Placed", "--id", id, "--data", fmt.Sprintf(`{"id":%q}`, id)); code != 0 {
		t.Fatalf("%d %s", code, out)
	}
}

// TestASagaWithFromAllThatIsAddedLaterDoesNothing no more: the reload says that it is caught
// up, and it is, also over a restart; one without does not look back.
func TestASagaWithFromAllThatIsAddedLaterDoesNothing(t *testing.T) {
	dir, data := folder(t, map[string]string{"alpha.yaml": alphaSaga}), filepath.Join(t.TempDir(), "data")
	d := startDev(t, dir, "--data", data)
	for n := range 3 {
		placed(t, d, n)
	}
	d.until(t, "alpha  O2", "instance", "list")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("beta.yaml", betaSaga)
	d.out.wait(t, `saga beta: will be caught up from message 1 of AGGREGATE_EVENTS \(3 messages\)`)
	d.until(t, "beta  O2", "instance", "list", "--saga", "beta")
	write("gamma.yaml", strings.NewReplacer("beta", "gamma", "from: all\n", "").Replace(betaSaga))
	d.out.wait(t, "Reloaded: sagas alpha v1, beta v1, gamma v1")
	placed(t, d, 3)
	d.until(t, "gamma  O3", "instance", "list", "--saga", "gamma")
	if _, out := d.edda(t, "instance", "list", "--saga", "gamma"); strings.Contains(out, "O2") {
		t.Errorf("a saga without from: all looked back:\n%s", out)
	}
	d.stop()

	write("delta.yaml", strings.ReplaceAll(betaSaga, "beta", "delta"))
	d = startDev(t, dir, "--data", data)
	d.out.wait(t, `saga delta: will be caught up from message 1 of AGGREGATE_EVENTS \(4 messages\)`)
	d.until(t, "delta  O3", "instance", "list", "--saga", "delta")
	_, out := d.edda(t, "instance", "list", "--saga", "beta")
	if strings.Count(out, "beta") != 4 {
		t.Errorf("beta has\n%s", out)
	}
	d.stop()
	if strings.Contains(d.out.String(), "saga beta: will be") {
		t.Error("beta begins again")
	}
}

func openStore(t *testing.T, data string) *store.DB {
	t.Helper()
	db, err := store.Open(data, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// TestLintSaysWhatFromAllMeansForASagaThatIsAddedLater.
func TestLintSaysWhatFromAllMeansForASagaThatIsAddedLater(t *testing.T) {
	dir := folder(t, map[string]string{"alpha.yaml": alphaSaga, "beta.yaml": betaSaga})
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out}
	if code := term.run(t.Context(), []string{"lint", dir}); code != 0 {
		t.Errorf("code %d", code)
	}
	text := out.String()
	if !strings.Contains(text, "saga beta has from: all: added to a process that has read its streams already, it is caught up") || strings.Contains(text, "alpha has") {
		t.Errorf("it says\n%s", text)
	}
}

// TestInstanceListSaysWhichSagasAreBehind, how far, and why they wait.
func TestInstanceListSaysWhichSagasAreBehind(t *testing.T) {
	for want, b := range map[string]server.SagaBehind{
		"beta: catching up, 12,345 of 100,000 messages":                                            {Tenant: "*", Saga: "beta", Done: 12_345, Left: 87_655},
		"beta of acme: paused, jetstream has no room for more of its work; 1 message waits":        {Tenant: "acme", Saga: "beta", Left: 1, Paused: "jetstream"},
		"beta of acme: paused, jetstream has no room for more of its work; 1,204 messages wait":    {Tenant: "acme", Saga: "beta", Left: 1204, Paused: "jetstream"},
		"beta: behind by 1,000 messages: saga beta is not loaded: it goes on where it was once it": {Tenant: "*", Saga: "beta", Left: 1000, Problem: "saga beta is not loaded: it goes on where it was once it is"},
	} {
		if got := behindLine(b); !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestASagaWhoseManifestGoesWhileItIsCaughtUpWaitsForIt, and has what came meanwhile then.
func TestASagaWhoseManifestGoesWhileItIsCaughtUpWaitsForIt(t *testing.T) {
	dir, data := folder(t, map[string]string{"alpha.yaml": alphaSaga, "beta.yaml": betaSaga}), filepath.Join(t.TempDir(), "data")
	d := startDev(t, dir, "--data", data)
	for n := range 3 {
		placed(t, d, n)
	}
	d.until(t, "beta   O2", "instance", "list")
	d.stop()
	db := openStore(t, filepath.Join(data, "store"))
	at, err := db.Checkpoints()
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	commit(t, filepath.Join(data, "store"), behindOf("gamma", at)) // as if the process had been killed in the middle
	d = startDev(t, dir, "--data", data)
	out := d.until(t, "gamma: behind by", "instance", "list")
	if !strings.Contains(out, "saga gamma is not loaded: it goes on where it was once it is") {
		t.Errorf("it says\n%s", out)
	}
	placed(t, d, 3)
	if err := os.WriteFile(filepath.Join(dir, "gamma.yaml"), []byte(strings.ReplaceAll(betaSaga, "beta", "gamma")), 0o600); err != nil {
		t.Fatal(err)
	}
	d.until(t, "gamma  O3", "instance", "list", "--saga", "gamma")
	if _, out := d.edda(t, "instance", "list", "--saga", "gamma"); strings.Count(out, "gamma") != 4 {
		t.Errorf("gamma has\n%s", out)
	}
	if strings.Contains(d.out.String(), "saga gamma: will be") {
		t.Error("it begins anew, though it had begun")
	}
}

// behindOf has a saga be behind everything that the positions say was read.
func behindOf(saga string, at []edda.Checkpoint) store.Change {
	c := store.Change{Begun: &[]store.Beginning{{Saga: "alpha"}, {Saga: "beta"}, {Saga: saga, From: "all", Time: time.Now()}}}
	for _, p := range at {
		if p.Stream != "WORKFLOW_COMMANDS" {
			p.Seq, p.Time = 0, time.Time{}
			c.Positions = append(c.Positions, store.SagaPosition{Tenant: store.AllTenants, Saga: saga, Checkpoint: p})
		}
	}
	return c
}

func commit(t *testing.T, data string, c store.Change) {
	t.Helper()
	db := openStore(t, data)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = db.Run(ctx) }()
	if err := db.Commit(ctx, c); err != nil {
		t.Error(err)
	}
	cancel()
	<-done
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
