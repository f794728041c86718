//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edda/internal/harness"
	"edda/internal/testkit"
	"edda/server"
)

// soon bounds what a healthy process does at once, on a busy machine.
const soon = 20 * time.Second

// child is the binary as a process of its own.
type child struct {
	*harness.Process
	t        testing.TB
	out, err *screen
	addr     string
	nats     string
	tenant   string // in requests; none where the process has one of its own
	shard    string // in requests; none asks all
}

// screen is an output that is read while it is written.
type screen struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// mostSaid is how much of the end of what a process said a test that fails shows.
const mostSaid = 8 << 10

func (s *screen) tail() string {
	text := s.String()
	return text[max(0, len(text)-mostSaid):]
}

// freeAddr is a loopback address that nobody listens on, and that only its caller gets.
func freeAddr(t testing.TB) string {
	t.Helper()
	return testkit.Value[[]string](t)(harness.FreeAddrs(1))[0]
}

// launch starts the binary and does not wait for it.
func launch(t testing.TB, args ...string) *child {
	t.Helper()
	return launchWith(t, nil, args...)
}

// launchWith adds to its environment.
func launchWith(t testing.TB, env []string, args ...string) *child {
	t.Helper()
	return launchOf(t, theBinary.get(t), env, args...)
}

// launchOf starts another binary.
func launchOf(t testing.TB, path string, env []string, args ...string) *child {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = harness.Environ(env...)
	return runCommand(t, cmd)
}

// runCommand starts a command, once; the test ends it.
func runCommand(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{t: t, out: &screen{}, err: &screen{}}
	cmd.Stdout, cmd.Stderr = c.out, c.err
	c.Process = harness.New(cmd.Path, "", func() *exec.Cmd { return cmd })
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("%q: %v\n%s", cmd.Args, cmd.ProcessState, c.err.tail())
		}
	})
	return c
}

// dev starts edda dev on free ports and waits until it works.
func dev(t testing.TB, data string, args ...string) *child {
	t.Helper()
	return devAt(t, data, freeAddr(t), freeAddr(t), args...)
}

func devAt(t testing.TB, data, addr, nats string, args ...string) *child {
	t.Helper()
	return devWith(t, nil, data, addr, nats, args...)
}

func devWith(t testing.TB, env []string, data, addr, nats string, args ...string) *child {
	t.Helper()
	c := launchWith(t, env, append([]string{"dev", "--data", data, "--addr", addr, "--nats-addr", nats}, args...)...)
	c.addr, c.nats = addr, "nats://"+nats
	c.says("Edda is running.")
	return c
}

// says waits for a text on the standard output or the standard error.
func (c *child) says(text string) {
	c.t.Helper()
	until(c.t, fmt.Sprintf("%q is said", text), func() bool {
		if strings.Contains(c.out.String()+c.err.String(), text) {
			return true
		}
		if testkit.Closed(c.Ended()) {
			c.t.Fatalf("it ended instead of saying %q: %s%s", text, c.out, c.err)
		}
		return false
	})
}

// until looks until the condition holds, in real time.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	untilIn(t, soon, what, holds)
}

func untilIn(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	testkit.Until(t, within, what, holds)
}

// kill ends it as a power failure would.
func (c *child) kill() { c.Kill() }

// terminate asks it to stop and returns its exit code.
func (c *child) terminate() int {
	c.t.Helper()
	if err := c.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	return c.code()
}

// code waits for the end.
func (c *child) code() int {
	c.t.Helper()
	select {
	case <-c.Ended():
		return c.Cmd.ProcessState.ExitCode()
	case <-time.After(soon):
		c.t.Fatalf("it did not end within %v: %s%s", soon, c.out, c.err)
		return -1
	}
}

// cli runs the binary against the child and returns what it said and its code.
func (c *child) cli(args ...string) (string, int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, theBinary.get(c.t), args...)
	cmd.Env = harness.Environ("EDDA_URL="+c.addr, "NATS_URL="+c.nats)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// get reads the API into a value. It repeats a call that is answered with 503, as clients do.
func (c *child) get(path string, into any) {
	c.t.Helper()
	var body []byte
	var status int
	until(c.t, path+" is answered", func() bool {
		body, status = c.fetch(path)
		return status != http.StatusServiceUnavailable
	})
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		c.t.Fatalf("%s: %v in %s", path, err, body)
	}
}

func (c *child) fetch(path string) ([]byte, int) {
	c.t.Helper()
	body, status, err := c.try(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return body, status
}

// try asks a process that may not answer now.
func (c *child) try(path string) ([]byte, int, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.addr+path, nil)
	if err != nil {
		return nil, 0, err
	}
	if c.tenant != "" {
		req.Header.Set("x-tenant-id", c.tenant)
	}
	if c.shard != "" {
		req.Header.Set(server.ShardHeader, c.shard)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return body, resp.StatusCode, err
}

// reads asks a process that may not answer now. It reports whether the answer is 200 and decodes; into may be nil.
func (c *child) reads(path string, into any) bool {
	body, status, err := c.try(path)
	return err == nil && status == http.StatusOK && (into == nil || json.Unmarshal(body, into) == nil)
}

// metric sums the samples of a metric.
func (c *child) metric(name string) float64 {
	c.t.Helper()
	body, _ := c.fetch("/metrics")
	return float64(harness.ParseCounters(string(body)).Sum(name))
}

// instances lists every instance of a saga.
func (c *child) instances(saga string) (all []server.InstanceSummary) {
	c.t.Helper()
	for after := ""; ; {
		var page server.InstanceList
		c.get("/v1/instances?limit=1000&saga="+saga+"&after="+after, &page)
		all = append(all, page.Instances...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

func (c *child) describe(saga, key string) (v server.InstanceView) {
	c.t.Helper()
	c.get("/v1/instances/"+saga+"/"+key, &v)
	return v
}

// write makes a file in a folder.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
