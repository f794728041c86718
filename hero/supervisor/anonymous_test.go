package supervisor

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/httpserver"
	"edda/internal/testkit"
)

// serveBounded serves the supervisor as its process does, with shorter waits.
func serveBounded(t *testing.T, o Options, d httpserver.Options) string {
	t.Helper()
	db := emptyDB(t)
	runner(t, db, 1, "queue:python", func(hero.Job) (hero.JobStatus, map[string]string) {
		<-time.After(3 * d.AnonymousWait) // the job outlasts the wait for authentication
		return hero.JobFinished, map[string]string{"output": "1"}
	})
	o.Admins, o.Runners = []string{"admin-secret"}, map[string]string{"python": "queue:python"}
	s, err := New(db, o)
	testkit.Must(t, err)
	at := httpserver.New("127.0.0.1:0", s, d)
	testkit.Must(t, at.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- at.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return at.Addr()
}

func TestAJobOutlastsThePatienceWithAnonymousCallers(t *testing.T) {
	addr := serveBounded(t, Options{}, httpserver.Options{AnonymousWait: 200 * time.Millisecond})
	for name, o := range map[string]jsonrpc.ClientOptions{"a secret among the parameters": {}, "a bearer's": {Token: "admin-secret"}} {
		t.Run(name, func(t *testing.T) {
			secret := `"secret":"admin-secret",`
			if o.Token != "" {
				secret = ""
			}
			id := len(name) // a different job each
			job := fmt.Sprintf(`{%s"job":{"id":"%d","caller_id":"12","context_id":"1","payload":"print(1)","runner":"python","executor":"python","timeout":5,"env_vars":{},"created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z"}}`, secret, id)
			var answer Answer
			if err := jsonrpc.NewClient("http://"+addr, o).Call(t.Context(), "job.run", raw(job), &answer); err != nil {
				t.Error(err)
			}
		})
	}
}

// raw is JSON as it is.
type raw string

func (r raw) MarshalJSON() ([]byte, error) { return []byte(r), nil }

func TestSlowAnonymousClientsDoNotShutOutAuthenticatedOnes(t *testing.T) {
	addr := serveBounded(t, Options{}, httpserver.Options{Connections: 40, Anonymous: 20})
	for range 100 {
		conn, err := net.Dial("tcp", addr)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\n\r\n{\"jsonrpc\"")
	}
	for name, o := range map[string]jsonrpc.ClientOptions{"a secret among the parameters": {}, "a bearer's": {Token: "admin-secret"}} {
		o.Timeout = 15 * time.Second
		if err := jsonrpc.NewClient("http://"+addr, o).Call(t.Context(), "jobs.list", raw(`{"secret":"admin-secret"}`), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
