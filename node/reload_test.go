package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/internal/testkit"
	"edda/manifests"
	"edda/server"
	"edda/store"
	"edda/stream/wire"
)

// TestANextProcessServesTheTenantsOfAReload: one that follows because a stream became shorter served those of the start,
// and passed the events of the others. It also does if the configuration cannot be read any more.
func TestANextProcessServesTheTenantsOfAReload(t *testing.T) {
	s, h := devSettings(t, strings.Replace(loanSaga, "Placed: {start: true}", "Placed: {start: true, do: [{event: Lent}]}", 1)), quiet()
	s.Tenants = []string{"acme"}
	var broken atomic.Bool
	s.Reread = func() (Config, error) {
		c := s.Config
		c.Tenants = []string{"acme", "beta"}
		if broken.Load() {
			return Config{}, errors.New("edda.yaml: line 1: a tab")
		}
		return c, nil
	}
	core, logged := observer.New(zap.ErrorLevel)
	h.Log = zap.New(core)
	ready := make(chan Running, 1)
	h.Ready = func(r Running) { ready <- r }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, s, h) }()
	next := func() (r Running) {
		t.Helper()
		select {
		case r = <-ready:
		case err := <-ended:
			t.Fatal(err)
		}
		return r
	}
	place := func(r Running, tenant, id string) {
		t.Helper()
		call := func(method, path, body string) int {
			req := testkit.Value[*http.Request](t)(http.NewRequest(method, "http://"+r.Addr()+path, bytes.NewReader([]byte(body))))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("x-tenant-id", tenant)
			resp := testkit.Value[*http.Response](t)(http.DefaultClient.Do(req))
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		body := fmt.Sprintf(`{"aggregate_type":"Loan","aggregate_id":%q,"event_type":"Placed","payload":{"id":%q}}`, id, id)
		if got := call("POST", "/v1/events", body); got != http.StatusOK {
			t.Fatalf("the event of %s: %d", tenant, got)
		}
		eventually(t, func() bool { return call("GET", "/v1/instances/loan/"+id, "") == http.StatusOK })
	}
	first := next()
	place(first, "acme", "L1")
	if problems, _, err := first.Reload(t.Context(), server.Operator{By: "ann"}); problems.Failed() || err != nil {
		t.Fatal(problems, err)
	}
	place(first, "beta", "L2")
	broken.Store(true)
	lost := testkit.Value[jetstream.Stream](t)(first.p.pipeline.Load().js.Stream(t.Context(), wire.WorkflowEvents))
	eventually(t, func() bool { return testkit.Value[*jetstream.StreamInfo](t)(lost.Info(t.Context())).State.LastSeq == 2 })
	testkit.Must(t, lost.DeleteMsg(t.Context(), 2))
	testkit.Must(t, first.p.pipeline.Load().conn.ForceReconnect()) // a message that is missing now was lost by the server
	second := next()
	if second.p == first.p || !slices.Equal(second.p.settings.Tenants, []string{"acme", "beta"}) {
		t.Errorf("the next process serves %v", second.p.settings.Tenants)
	}
	place(second, "beta", "L3")
	if lines := logged.FilterMessageSnippet("the configuration cannot be read again").All(); len(lines) != 1 || !strings.Contains(fmt.Sprint(lines[0].ContextMap()), "line 1: a tab") {
		t.Errorf("the log says %v", lines)
	}
	cancel()
	testkit.Must(t, <-ended)
}

// TestAChangedDefaultTenantIsNotTakenIn: sources without a tenant would be read as those of another one.
func TestAChangedDefaultTenantIsNotTakenIn(t *testing.T) {
	s := Settings{Config: Config{Tenancy: tenancyConfig{Enabled: true}, Tenants: []string{"acme"}}}
	now := s.Config
	now.Tenants = []string{"acme", "beta"}
	s.Reread = func() (Config, error) { return now, nil }
	s.Reread = s.rereading()
	if got := s.reread(zap.NewNop()).Tenants; !slices.Equal(got, now.Tenants) {
		t.Errorf("tenants %v", got)
	}
	now.Tenants, now.Sources = []string{"beta"}, map[string]sourceConfig{"shop": {Stream: "SHOP"}}
	_, err := s.Reread()
	testkit.WantError(t, err, nil, "those of acme, and after a start it would be beta")
	if got := s.reread(zap.NewNop()).Tenants; !slices.Equal(got, []string{"acme", "beta"}) {
		t.Errorf("what was read last is %v", got)
	}
}

// TestADeploymentWithAFailingTestNamesItsCommand: in a cluster it recommended edda reload, which takes no manifests in.
func TestADeploymentWithAFailingTestNamesItsCommand(t *testing.T) {
	s := devSettings(t, loanSaga+"  - name: it ends\n    steps: [{event: Placed, data: {id: L1}, expect: [{event: Never}]}]\n")
	l := testkit.Value[loaded](t)(startable(s, s.Manifests))
	for command, in := range map[string]taking{
		"with edda reload --skip-tests":              {},
		"with edda cluster deploy PATH --skip-tests": {next: &store.Deployment{}},
	} {
		ps := testkit.Value[manifests.Problems](t)(l.runTests(t.Context(), in))
		if len(ps) != 2 || !strings.Contains(ps[1].Message, command) {
			t.Errorf("no %q in %v", command, ps)
		}
	}
}
