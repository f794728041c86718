//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"edda/server"
	"edda/stream/wire"
)

const (
	// fullKeys are the instances that wait for their call while the disk fills up.
	fullKeys = 12
	// smallDisk is the disk of a NATS server.
	smallDisk = 4 << 20
)

const payingSaga = `saga: pay
version: 1
key: event.k
from: all
on:
  Begin: {start: true, do: [{seq: [{effect: charge, with: {k: =key}}, {event: Paid, with: {k: =key}}, {done: true}]}]}
`

const payingEffect = `effect: charge
http: {method: POST, url: "%s/charge", body: =payload}
result: =body
`

// fullness is a way in which a NATS server has no room, and gets some again.
type fullness struct {
	t    *testing.T
	nats *natsServer
	js   jetstream.JetStream
	fill func()
	free func()
}

// TestAFullNATSDiskWasHealthy: the server of the streams has no room for what a process
// has done. It says so, takes nothing in, and loses nothing: there is room again, and all goes on.
func TestAFullNATSDiskWasHealthy(t *testing.T) {
	t.Run("a full disk", func(t *testing.T) { hasNoRoom(t, theDiskIsFull) })
	t.Run("full streams", func(t *testing.T) { hasNoRoom(t, theStreamsAreFull) })
}

// theDiskIsFull fills a file system of its own; where none may be mounted, the files of
// the server may not grow.
func theDiskIsFull(t *testing.T, f *fullness) {
	dir := filepath.Join(t.TempDir(), "nats")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mounted := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)) == nil
	if mounted {
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
	f.nats = startNATS(t, freeAddr(t), dir)
	ballast := filepath.Join(dir, "ballast")
	f.fill = func() {
		if !mounted {
			f.limitFiles(uint64(os.Getpagesize()))
			return
		}
		out, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = out.Close() }() // nothing was promised of it
		for piece := make([]byte, 64<<10); len(piece) > 0; {
			if _, err := out.Write(piece); err != nil {
				piece = piece[:len(piece)/2]
			}
		}
	}
	f.free = func() {
		if !mounted {
			f.limitFiles(unix.RLIM_INFINITY)
		} else if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		f.nats.kill() // a server that met a full disk wants a restart
		f.nats.start()
	}
}

func (f *fullness) limitFiles(bytes uint64) {
	limit := unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(f.nats.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		f.t.Fatal(err)
	}
}

// theStreamsAreFull gives each stream no more bytes than it has.
func theStreamsAreFull(t *testing.T, f *fullness) {
	f.nats = startNATS(t, freeAddr(t), t.TempDir())
	limit := func(full bool) {
		for _, name := range []string{wire.AggregateEvents, wire.WorkflowCommands, wire.WorkflowEvents} {
			s, err := f.js.Stream(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			cfg := s.CachedInfo().Config
			cfg.MaxBytes, cfg.Discard = -1, jetstream.DiscardOld
			if full {
				cfg.MaxBytes, cfg.Discard = int64(max(1, s.CachedInfo().State.Bytes)), jetstream.DiscardNew
			}
			if _, err := f.js.UpdateStream(context.Background(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.fill, f.free = func() { limit(true) }, func() { limit(false) }
}

func hasNoRoom(t *testing.T, way func(*testing.T, *fullness)) {
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	var calls sync.Map
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, twice := calls.LoadOrStore(r.Header.Get("Idempotency-Key"), true)
		if twice {
			t.Errorf("called twice under %s", r.Header.Get("Idempotency-Key"))
		}
		<-gate
		_, _ = io.WriteString(w, `{"ok":true}`) // who has gone is not told
	}))
	defer site.Close()
	defer open()
	f := &fullness{t: t}
	way(t, f)
	dir := t.TempDir()
	addr := freeAddr(t)
	c := launch(t, "run", "--nats-url", f.nats.url(), "--data", filepath.Join(dir, "data"), "--addr", addr,
		"--config", write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1]}\n"),
		write(t, dir, "pay.yaml", payingSaga), write(t, dir, "charge.yaml", fmt.Sprintf(payingEffect, site.URL)))
	c.addr, c.nats, c.tenant = addr, f.nats.url(), "default"
	c.says(`"msg":"started"`)
	conn, err := nats.Connect(f.nats.url(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if f.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	begin := func(k string) *nats.Msg { return message(0, k, "Begin", fmt.Sprintf(`{"k":%q}`, k)) }
	for i := range fullKeys {
		if err := publishSurely(f.js, begin(fmt.Sprintf("K%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	inFlight := func() bool { n := 0; calls.Range(func(any, any) bool { n++; return true }); return n == fullKeys }
	until(t, "all are called", inFlight)

	f.fill()
	open()
	untilIn(t, deafWithin, "health says what cannot be stored", func() bool {
		body, got := c.fetch("/health")
		return got == http.StatusServiceUnavailable && strings.Contains(string(body), "cannot be stored")
	})
	if said, code := c.cli("send", "Order.Begin", "--id", "KX", "--event-id", "KX-Begin", "--data", `{"k":"KX","large":"`+strings.Repeat("x", 2*os.Getpagesize())+`"}`); code == 0 {
		t.Errorf("an event that cannot be stored is taken: %s", said)
	} else {
		t.Logf("edda send: %s", said)
	}
	body, _ := c.fetch("/health")
	t.Logf("/health: %s", body)

	f.free()
	// A server that met a full disk may lose an echo that it never acknowledged, and that a position has
	// passed: then the process stops in order and starts anew, and answers nothing meanwhile. It may find
	// that out after its health was up, so all that asks it from here on asks again.
	untilIn(t, 2*soon, "health says up", func() bool { _, up := ask("http://" + c.addr + "/health"); return up })
	if err := publishSurely(f.js, begin("KX")); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"KX": true}
	for i := range fullKeys {
		want[fmt.Sprintf("K%d", i)] = true
	}
	untilIn(t, 2*soon, "all are done", func() bool {
		var page server.InstanceList
		body, _, err := c.try("/v1/instances?limit=1000&saga=pay")
		if err != nil || json.Unmarshal(body, &page) != nil {
			return false
		}
		done := 0
		for _, i := range page.Instances {
			if i.Status == "done" && want[i.Key] {
				done++
			}
		}
		return done == len(want)
	})
	paid := map[string]int{}
	untilIn(t, 2*soon, "all facts are stored", func() bool {
		clear(paid)
		for _, m := range readAll(t, f.js, wire.WorkflowEvents, ">") {
			if strings.Contains(m.Subject(), "Paid") || strings.Contains(string(m.Data()), "Paid") {
				paid[m.Subject()]++
			}
		}
		return len(paid) >= len(want)
	})
	for subject, n := range paid {
		if n != 1 {
			t.Errorf("%s is stored %d times", subject, n)
		}
	}
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err.tail())
	}
}
