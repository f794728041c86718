//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/kv"
)

// frozenWithin is how long a client may depend on a frozen server: the third unanswered ping comes after nine
// seconds, then it connects to the next server. The rest is for a busy machine.
const frozenWithin = 12 * time.Second

// flood is more than the sockets between a client and a server hold.
const flood = 32 << 20

// TestAFrozenNATSServerHangsNobody: whatever a client does meanwhile ends with an error, or on the next server of
// its list. A frozen server keeps its connections open.
func TestAFrozenNATSServerHangsNobody(t *testing.T) {
	for name, test := range map[string]struct {
		others     int // servers behind the frozen one
		unbuffered bool
	}{
		"one server":             {0, false},
		"one server, unbuffered": {0, true},
		"two servers":            {1, false},
		"three servers":          {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			frozen := startNATS(t, freeAddr(t), t.TempDir())
			var others []*natsServer
			for range test.others {
				others = append(others, startNATS(t, freeAddr(t), t.TempDir()))
			}
			clients := []*frozenClient{}
			for range 2 { // the second one floods
				clients = append(clients, connectFirst(t, frozen, others, kv.Connection{Unbuffered: test.unbuffered}))
			}
			freeze(t, frozen)
			began := time.Now()
			var all sync.WaitGroup
			all.Go(func() { clients[0].calls(t) })
			all.Go(func() { clients[1].floods(t) })
			all.Wait()
			for _, c := range clients {
				if test.others == 0 {
					untilIn(t, time.Until(began.Add(frozenWithin)), "the client gives the server up", func() bool { return !c.nc.IsConnected() })
					continue
				}
				untilIn(t, time.Until(began.Add(frozenWithin)), "the client is with the next server", func() bool {
					return c.nc.IsConnected() && c.nc.ConnectedUrl() != frozen.url()
				})
			}
			t.Logf("given up after %s", time.Since(began))
			if test.others == 0 {
				if err := frozen.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range clients {
				untilIn(t, frozenWithin, "JetStream works again", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "AFTER", Subjects: []string{"after"}})
					return err == nil
				})
			}
		})
	}
}

// TestAFrozenNATSServerIsLeftInTime: a node of a cluster that stays with it longer is taken for dead.
func TestAFrozenNATSServerIsLeftInTime(t *testing.T) {
	const pings = 100 * time.Millisecond
	frozen, other := startNATS(t, freeAddr(t), t.TempDir()), startNATS(t, freeAddr(t), t.TempDir())
	c := connectFirst(t, frozen, []*natsServer{other}, kv.Connection{PingEvery: pings})
	freeze(t, frozen)
	untilIn(t, soon/10, "the client is with the next server", func() bool { return c.nc.IsConnected() && c.nc.ConnectedUrl() == other.url() })
}

// freeze stops a server, and returns when none of its threads runs.
func freeze(t *testing.T, n *natsServer) {
	t.Helper()
	if err := n.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Cmd.Process.Signal(syscall.SIGCONT) })
	until(t, "the server is frozen", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.Cmd.Process.Pid))
		for _, thread := range threads {
			stat, errRead := os.ReadFile(thread)
			if errRead != nil || !bytes.Contains(stat, []byte(") T ")) {
				return false
			}
		}
		return err == nil && len(threads) > 0
	})
}

// frozenClient is a client whose server will be frozen.
type frozenClient struct {
	nc *nats.Conn
	js jetstream.JetStream
	kv jetstream.KeyValue
}

// connectFirst connects to the first server with the others behind it, as Edda does.
func connectFirst(t *testing.T, first *natsServer, others []*natsServer, connection kv.Connection) *frozenClient {
	t.Helper()
	connection.URL = first.url()
	for _, o := range others {
		connection.URL += "," + o.url()
	}
	for {
		c := &frozenClient{}
		var err error
		if c.nc, c.js, err = kv.Connect(connection); err != nil {
			t.Fatal(err)
		}
		until(t, "the client is connected", c.nc.IsConnected)
		if c.nc.ConnectedUrl() != first.url() { // the client shuffles its list
			c.nc.Close()
			continue
		}
		t.Cleanup(c.nc.Close)
		if c.kv, err = c.js.CreateOrUpdateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "FROZEN"}); err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// calls makes one call of each kind, none of them with a deadline.
func (c *frozenClient) calls(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	began := time.Now()
	var all sync.WaitGroup
	for name, call := range map[string]func() error{
		"publish": func() error { _, err := c.js.Publish(ctx, "$KV.FROZEN.a", nil); return err },
		"put":     func() error { _, err := c.kv.Put(ctx, "b", nil); return err },
		"get":     func() error { _, err := c.kv.Get(ctx, "b"); return err },
		"stream":  func() error { _, err := c.js.Stream(ctx, "KV_FROZEN"); return err },
		"asynchronous": func() error {
			f, err := c.js.PublishAsync("$KV.FROZEN.c", nil)
			if err != nil {
				return err
			}
			select {
			case err = <-f.Err():
			case <-f.Ok():
			}
			return err
		},
		"flush": c.nc.Flush,
	} {
		all.Go(func() {
			err := call()
			if took := time.Since(began); took > frozenWithin {
				t.Errorf("%s ended after %s", name, took)
			}
			if err == nil {
				t.Errorf("%s succeeded on a frozen server", name)
			}
		})
	}
	all.Wait()
}

// floods publishes more than the sockets hold. No publish may wait for the server longer than a write may take.
func (c *frozenClient) floods(t *testing.T) {
	t.Helper()
	data := make([]byte, 64<<10)
	for sent, began := 0, time.Now(); sent < flood; sent += len(data) {
		at := time.Now()
		err := c.nc.Publish("flood", data)
		if took := time.Since(at); took > frozenWithin {
			t.Errorf("one publish took %s", took)
		}
		if errors.Is(err, nats.ErrReconnectBufExceeded) || time.Since(began) > frozenWithin {
			return
		}
	}
}
