package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda/manifests"
	"edda/server"
	"edda/store"
)

const loanSaga = `saga: loan
key: event.id
on:
  Placed: {start: true}
  Closed: {do: [{done: true}]}
tests:
  - name: it begins
    steps:
      - {event: Placed, data: {id: L1}}
`

// devSettings are those of a process with a NATS of its own, and one manifest.
func devSettings(t *testing.T, text string) Settings {
	t.Helper()
	s := Settings{Config: Defaults(), Dev: true, NATSAddr: "127.0.0.1:0", Env: func(string) string { return "" }}
	s.Addr, s.Data = "127.0.0.1:0", t.TempDir()
	s.Manifests = []string{filepath.Join(t.TempDir(), "loan.yaml")}
	write(t, s.Manifests[0], text)
	return s
}

// quiet is a host without a terminal.
func quiet() Hooks {
	return Hooks{Log: zap.NewNop(), Problems: func(manifests.Problems) {}, Detached: func() bool { return false }}
}

func TestAProcessRunsWithoutATerminal(t *testing.T) {
	s, h := devSettings(t, loanSaga), quiet()
	ready := make(chan Running, 1)
	h.Ready = func(r Running) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, h) }()
	var r Running
	select {
	case r = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	if sagas, effects := r.Names(); !slices.Equal(sagas, []string{"loan v1"}) || effects != nil || r.Hero() != nil {
		t.Errorf("it runs %v and %v", sagas, effects)
	}
	ev, ok := r.Sample()
	if !ok || ev.Key.Saga != "loan" || ev.Key.Correlation != "L1" {
		t.Fatalf("the sample is %+v", ev)
	}
	body, err := json.Marshal(map[string]any{"aggregate_type": ev.AggregateType, "aggregate_id": ev.AggregateID, "event_type": ev.Type, "payload": ev.Payload})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+r.Addr()+"/v1/events", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	eventually(t, func() bool {
		resp, err := http.Get("http://" + r.Addr() + "/v1/instances/loan/L1")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if holder, err := HolderOf(filepath.Join(s.Data, "store")); err != nil || holder.Addr != r.Addr() {
		t.Errorf("the store is held by %+v: %v", holder, err)
	}
	write(t, s.Manifests[0], loanSaga+"nonsense: 1\n")
	if problems, kept, err := r.Reload(t.Context(), server.Operator{By: "ann"}); !problems.Failed() || kept != nil || err != nil {
		t.Errorf("the reload of a manifest with an error: %v, %v, %v", problems, kept, err)
	}
	r.p.stopBegins(nil)
	atOnce, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	for range 3 { // another commit, which a change would wait for, comes every ten seconds
		if err := r.p.db.CommitWithin(atOnce, store.Change{}, time.Hour); err != nil {
			t.Errorf("a change lingers while the process stops: %v", err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the stop: %v", err)
	}
}

func TestAStartWithAProblemOrWithoutManifestsIsRefused(t *testing.T) {
	var shown manifests.Problems
	h := quiet()
	h.Problems = func(ps manifests.Problems) { shown = ps }
	if err := Run(t.Context(), devSettings(t, "saga: loan\n"), h); !errors.Is(err, errNothingStarted) || !shown.Failed() {
		t.Errorf("%v, and the problems %v", err, shown)
	}
	s := devSettings(t, loanSaga)
	s.Manifests = nil
	if err := Run(t.Context(), s, h); !isConfigError(err) || !strings.Contains(err.Error(), "no manifests") {
		t.Errorf("without manifests: %v", err)
	}
	s = devSettings(t, loanSaga)
	s.Addr = "nowhere"
	if err := Run(t.Context(), s, h); !isConfigError(err) {
		t.Errorf("an address that is none: %v", err)
	}
}

func isConfigError(err error) bool {
	_, is := errors.AsType[*ConfigError](err)
	return is
}
