//go:build !race

package systemtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edda"
	"edda/internal/harness"
	"edda/internal/testkit"
)

// The sizes of the test of an owner that is frozen while another takes over.
const (
	frozenOwnerOrders = 150
	frozenOwnerSteps  = 4
	// frozenOwnerWithin is more than a lease, some starts, and all the work.
	frozenOwnerWithin = 90 * time.Second
)

// till books calls by step, and says whose they were: each process has a secret of its own.
type till struct {
	mu    sync.Mutex // guards what follows
	calls []tillCall
	gate  sync.RWMutex // held while no call is answered
}

type tillCall struct {
	owner, step, key string
	at               time.Time
}

func (t *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Order string
		Step  int
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t.mu.Lock()
	t.calls = append(t.calls, tillCall{r.Header.Get("X-Owner"), fmt.Sprintf("%s/%d", body.Order, body.Step), r.Header.Get("Idempotency-Key"), time.Now()})
	t.mu.Unlock()
	t.gate.RLock()
	defer t.gate.RUnlock()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{}`) // who is frozen reads it later
}

func (t *till) all() []tillCall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]tillCall(nil), t.calls...)
}

// owners are two processes that would work for the same tenants.
type owners struct {
	t                        *testing.T
	nats                     *natsServer
	config, manifest, effect string
}

// launch starts one, on another host of that name where one is given.
func (o *owners) launch(name, host, data string) *child {
	o.t.Helper()
	addr := freeAddr(o.t)
	args := []string{"run", "--config", o.config, "--role", "combined", "--nats-url", o.nats.url(), "--addr", addr, "--data", data, o.manifest, o.effect}
	env := []string{"EDDA_SECRET_OWNER=" + name}
	var c *child
	if host == "" {
		c = launchWith(o.t, env, args...)
	} else {
		c = launchOn(o.t, host, theBinary.get(o.t), env, args...)
	}
	c.addr, c.nats, c.tenant = addr, o.nats.url(), "default"
	return c
}

// TestAThawedOwnerCallsNothingThatAnotherTookOver freezes a process with calls under way
// and many more behind them, lets another one with a copy of its store take over, and
// wakes the first: it must not call, not commit, not answer, and end by itself.
func TestAThawedOwnerCallsNothingThatAnotherTookOver(t *testing.T) {
	for name, test := range map[string]struct{ host, refusal string }{
		"from another host":  {"edda-other", "a copied store must not run twice"},
		"from the same host": {"", "in use by process"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			thawedOwner(t, test.host, test.refusal)
		})
	}
}

func thawedOwner(t *testing.T, host, refusal string) {
	till := &till{}
	site := httptest.NewServer(till)
	t.Cleanup(site.Close)
	dir := t.TempDir()
	var steps, effects []string
	for i := range frozenOwnerSteps {
		steps = append(steps, fmt.Sprintf("{effect: pay%d, with: {order: =key, step: %d}}", i, i))
		effects = append(effects, fmt.Sprintf("effect: pay%d\nhttp: {method: POST, url: %q, headers: {X-Owner: =secret.OWNER}, body: =payload}\nretry: {max: 20, backoff: 10ms..200ms}\n", i, site.URL+"/pay"))
	}
	o := &owners{t: t, nats: startNATS(t, freeAddr(t), t.TempDir()),
		config: write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1]}\n"),
		manifest: write(t, dir, "pay.yaml", "saga: pay\nversion: 1\nkey: event.order_id\nfrom: all\non:\n  Asked:\n    start: true\n    do: [{seq: ["+
			strings.Join(steps, ", ")+", {done: true}]}]\n"),
		effect: write(t, dir, "effects.yaml", strings.Join(effects, "---\n")),
	}
	dataA, dataB := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	a := o.launch("A", "", dataA)
	a.says(`"msg":"started"`)
	_, js := client(t, o.nats.url())
	till.gate.Lock()
	for i := range frozenOwnerOrders {
		id := fmt.Sprintf("O%d", i)
		if err := publishSurely(js, message(0, id, "Asked", fmt.Sprintf(`{"order_id":%q}`, id))); err != nil {
			t.Fatal(err)
		}
	}
	// All places for calls are taken and every order is in the store: nothing is on its way to a call.
	until(t, "calls are under way", func() bool { return len(till.all()) == 64 && a.metric("edda_effect_in_flight") == 64 })
	until(t, "all orders are taken", func() bool { return len(a.instances("pay")) == frozenOwnerOrders })
	signalled(t, a, syscall.SIGSTOP)
	t.Cleanup(func() { _ = a.Cmd.Process.Signal(syscall.SIGCONT) }) // it may have ended
	if err := os.CopyFS(dataB, os.DirFS(dataA)); err != nil {
		t.Fatal(err)
	}
	till.gate.Unlock()

	b := o.launch("B", host, dataB)
	if code := b.code(); code != 1 || !strings.Contains(b.err.String(), refusal) {
		t.Fatalf("while the first has its lease a second one ends with %d, not saying %q: %s", code, refusal, b.err)
	}
	untilIn(t, frozenOwnerWithin, "the second takes over", func() bool {
		b = o.launch("B", host, dataB)
		until(t, "it starts or is refused", func() bool {
			return testkit.Closed(b.Ended()) || strings.Contains(b.err.String(), `"msg":"started"`)
		})
		return strings.Contains(b.err.String(), `"msg":"started"`)
	})
	asked := askFrozen(t, a)
	thawed := time.Now()
	signalled(t, a, syscall.SIGCONT)
	if code, err := asked(); err == nil && code != http.StatusServiceUnavailable {
		t.Errorf("the first shows instances of which the second has newer ones: %d", code)
	}
	if code := a.code(); code == 0 || !strings.Contains(a.err.String(), "taken over") {
		t.Errorf("the first ended with %d: %s", code, a.err.tail())
	}
	untilIn(t, frozenOwnerWithin, "all is paid", func() bool {
		done := 0
		for _, in := range b.instances("pay") {
			if in.Status == edda.StatusDone {
				done++
			}
		}
		return done == frozenOwnerOrders
	})
	late, keys := 0, map[string]map[string]bool{}
	for _, c := range till.all() {
		if c.owner == "A" && c.at.After(thawed) {
			late++
		}
		if keys[c.step] == nil {
			keys[c.step] = map[string]bool{}
		}
		keys[c.step][c.key] = true
	}
	twice := 0
	for _, of := range keys {
		if len(of) > 1 {
			twice++
		}
	}
	if late > 0 || twice > 0 {
		t.Errorf("after its lease was taken over the first called %d times; %d steps have several keys", late, twice)
	}
	if len(keys) != frozenOwnerOrders*frozenOwnerSteps {
		t.Errorf("%d steps were called, want %d", len(keys), frozenOwnerOrders*frozenOwnerSteps)
	}
	if code := b.terminate(); code != 0 {
		t.Errorf("exit code %d: %s", code, b.err.tail())
	}
}

// askFrozen sends a request to a frozen process. The function that it returns reads the answer, or fails if the
// process has ended without one.
func askFrozen(t *testing.T, c *child) func() (status int, err error) {
	t.Helper()
	conn, err := net.Dial("tcp", c.addr) // the system accepts it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /v1/instances HTTP/1.1\r\nHost: %s\r\nX-Tenant-Id: default\r\n\r\n", c.addr); err != nil {
		t.Fatal(err)
	}
	return func() (int, error) {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
}

// launchOn starts a program on what it takes for another host.
func launchOn(t testing.TB, host, path string, env []string, args ...string) *child {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `echo "$0" > /proc/sys/kernel/hostname && exec "$@"`, host, path}, args...)...)
	cmd.Env = harness.Environ(env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	if id := os.Getuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	}
	return runCommand(t, cmd)
}
