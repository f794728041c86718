package mycelium

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"edda/hero/mycelium/standin"
	"edda/internal/testkit"
)

// python runs a program that was written from the documents alone. It ends with "checked".
func python(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(within(t, patience), "python3", append([]string{"testdata/node.py"}, args...)...).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "checked" {
		t.Errorf("%s: %v\n%s", args[0], err, out)
	}
}

// served are the URLs of a node's two APIs.
func served(t *testing.T, n *standin.Node) (rpc, rest string) {
	h, err := n.RPC()
	testkit.Must(t, err)
	return serve(t, h), serve(t, n.REST())
}

func TestStandInToAClientWrittenFromTheDocuments(t *testing.T) {
	t.Parallel()
	const tries = time.Second / 2 // instead of five minutes
	bus := standin.New(standin.Options{Window: tries})
	t.Cleanup(bus.Close)
	a, b := bus.Node("a"), bus.Node("b")
	rpcA, restA := served(t, a)
	rpcB, restB := served(t, b)
	python(t, "check", rpcA, restA, a.Key(), a.IP(), rpcB, restB, b.Key(), b.IP())
}

func TestHubToASupervisorWrittenFromTheDocuments(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		h := w.caller(Options{})
		done := make(chan struct{})
		rpc, rest := served(t, w.far)
		go func() {
			defer close(done)
			python(t, "supervise", rpc, rest)
		}()
		for _, id := range []string{"first", "second"} {
			got, err := h.Call(within(t, patience), w.dst(), topic, request(id), id, CallOptions{})
			if err != nil || !strings.Contains(string(got), `"success"`) {
				t.Errorf("%s, %v", got, err)
			}
		}
		<-done
	})
}

func TestHubToACallerWrittenFromTheDocuments(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.server(Options{}, func(_ context.Context, m Message) []byte {
			if strings.Contains(string(m.Payload), `"id": 0`) {
				return []byte(`{"jsonrpc":"2.0","id":0,"result":true}`)
			}
			return []byte(`{"jsonrpc":"2.0","id":1,"result":true}`)
		})
		rpc, rest := served(t, w.near)
		python(t, "call", rpc, rest, w.far.Key())
	})
}
