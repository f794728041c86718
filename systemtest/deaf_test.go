//go:build !race

package systemtest

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

// deafWithin is when a process must say that it hears nothing, with room for a busy machine.
const deafWithin = 20 * time.Second

// TestADeafProcessIsUnhealthy takes from a process what it hears with: it says so, and is
// well again where it can be.
func TestADeafProcessIsUnhealthy(t *testing.T) {
	dir := t.TempDir()
	nats := startNATS(t, freeAddr(t), t.TempDir())
	manifest := write(t, dir, "small.yaml", smallSaga)
	addr := freeAddr(t)
	args := func(addr string) []string {
		return []string{"run", "--role", "saga", "--nats-url", nats.url(), "--data", filepath.Join(dir, "data"), "--addr", addr, manifest}
	}
	c := launch(t, args(addr)...)
	c.addr, c.nats, c.tenant = addr, nats.url(), "default"
	c.says(`"msg":"started"`)
	_, js := client(t, nats.url())
	healthIs := func(want int, word string) {
		t.Helper()
		untilIn(t, deafWithin, "health says "+word, func() bool {
			body, got := c.fetch("/health")
			return got == want && strings.Contains(string(body), word)
		})
	}
	healthIs(http.StatusOK, "up")

	if err := nats.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	healthIs(http.StatusServiceUnavailable, "jetstream")
	if err := nats.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	healthIs(http.StatusOK, "up")

	if err := publishSurely(js, message(0, "K1", "Begin", `{"k":"K1"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "an instance waits", func() bool { return len(c.instances("small")) == 1 })
	if err := js.DeleteStream(context.Background(), wire.AggregateEvents); err != nil {
		t.Fatal(err)
	}
	healthIs(http.StatusServiceUnavailable, "stream AGGREGATE_EVENTS is gone")
	if up := c.metric(`edda_stream_up{stream="AGGREGATE_EVENTS"}`); up != 0 {
		t.Errorf("edda_stream_up is %v", up)
	}
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err.tail())
	}
	for range 2 { // the answer stays the same
		refused := launch(t, args(freeAddr(t))...)
		if code := refused.code(); code != 1 || !strings.Contains(refused.err.String(), "AGGREGATE_EVENTS is gone") || !strings.Contains(refused.err.String(), "--accept-stream-loss") {
			t.Errorf("the start ends with %d: %s", code, refused.err.tail())
		}
		if _, err := js.Stream(context.Background(), wire.AggregateEvents); err != jetstream.ErrStreamNotFound {
			t.Errorf("a refused start made the stream: %v", err)
		}
	}
	c = launch(t, append(args(addr), "--accept-stream-loss")...)
	c.addr, c.nats, c.tenant = addr, nats.url(), "default"
	c.says(`"msg":"started"`)
	healthIs(http.StatusOK, "up")
}
