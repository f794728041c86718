//go:build !race

package systemtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/kv"
)

const (
	mailingSaga = `saga: mailing
version: 1
key: event.k
from: all
on:
  Begin: {start: true, do: [{seq: [{effect: mail, with: {k: =key}}, {done: true}]}]}
`
	mailingEffect = `effect: mail
http: {method: POST, url: "%s/mail", body: =payload}
delivery: at_most_once
result: =body
`
)

// gatedSite counts the calls of each body, and answers once its gate is open.
type gatedSite struct {
	mu    sync.Mutex // guards below
	gate  chan struct{}
	calls map[string]int
}

func (s *gatedSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // who calls has gone
	}
	s.mu.Lock()
	s.calls[string(body)]++
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
		return
	}
	_, _ = io.WriteString(w, `{"ok":true}`) // who has gone is not told
}

func (s *gatedSite) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func (s *gatedSite) shut() (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

// TestALedgerThatWasDeletedStoppedEveryEffectUntilARestart: its bucket goes while a worker
// calls, and while none runs. What was called is not called again, and all goes on by itself.
func TestALedgerThatWasDeletedStoppedEveryEffectUntilARestart(t *testing.T) {
	nats := startNATS(t, freeAddr(t), t.TempDir())
	_, js := client(t, nats.url())
	site := &gatedSite{calls: map[string]int{}}
	server := httptest.NewServer(site)
	defer server.Close()
	dir := t.TempDir()
	config := write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1], ack_wait: 2s}\n")
	run := func(role, manifest string) *child {
		t.Helper()
		addr := freeAddr(t)
		c := launch(t, "run", "--config", config, "--role", role, "--nats-url", nats.url(), "--data", filepath.Join(dir, role), "--addr", addr, manifest)
		c.addr, c.nats, c.tenant = addr, nats.url(), "default"
		c.says(`"msg":"started"`)
		return c
	}
	sagas := run("saga", write(t, dir, "mailing.yaml", mailingSaga))
	effects := write(t, dir, "mail.yaml", fmt.Sprintf(mailingEffect, server.URL))
	worker := run("effect", effects)
	const orders = 5 // of each round
	round := 0
	begin := func() {
		t.Helper()
		for range orders {
			k := fmt.Sprintf("K%d", round)
			round++
			if err := publishSurely(js, message(0, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
				t.Fatal(err)
			}
		}
	}
	calling := func() {
		t.Helper()
		begin()
		until(t, "all are called", func() bool { return site.called() == round })
	}
	lose := func() {
		t.Helper()
		if err := js.DeleteKeyValue(context.Background(), kv.LedgerBucket); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(with map[string]int) {
		t.Helper()
		got := map[string]int{}
		untilIn(t, 2*soon, fmt.Sprintf("the instances end as %v", with), func() bool {
			clear(got)
			for _, i := range sagas.instances("mailing") {
				got[string(i.Status)]++
			}
			return fmt.Sprint(got) == fmt.Sprint(with)
		})
	}

	open := site.shut()
	calling()
	lose()
	untilIn(t, deafWithin, "the ledger is there again", func() bool {
		_, err := js.KeyValue(context.Background(), kv.LedgerBucket)
		return err == nil && worker.metric("edda_ledger_remade_total") == 1
	})
	open()
	ended(map[string]int{"done": orders}) // who was calling has its claims still
	begin()
	ended(map[string]int{"done": 2 * orders})
	untilIn(t, deafWithin, "the worker is well", func() bool { _, code := worker.fetch("/health"); return code == http.StatusOK })
	if !strings.Contains(worker.err.String(), "the effect ledger was lost") {
		t.Errorf("the log says nothing: %s", worker.err.tail())
	}

	open = site.shut()
	calling()
	worker.kill()
	lose()
	if _, err := js.KeyValue(context.Background(), kv.LedgerBucket); err != jetstream.ErrBucketNotFound {
		t.Fatalf("the bucket is there: %v", err)
	}
	open()
	worker = run("effect", effects)
	ended(map[string]int{"done": 2 * orders, "failed": orders}) // whether they were mailed is not known
	begin()
	ended(map[string]int{"done": 3 * orders, "failed": orders})
	if n := worker.metric("edda_ledger_remade_total"); n != 1 {
		t.Errorf("edda_ledger_remade_total is %v", n)
	}
	for body, n := range site.calls {
		if n != 1 {
			t.Errorf("%s was mailed %d times", body, n)
		}
	}
}
