//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
	"edda/stream/wire"
)

const (
	// powerCuts are those of an ordinary run; EDDA_POWER_CUTS asks for more.
	powerCuts = 4
	// cutKeys are the instances, and cutEvents what each takes of a round: fewer than the
	// ids that an instance remembers, over all that may come again.
	cutKeys, cutEvents = 20, 3
)

// adding counts what it takes.
const adding = `saga: count
version: 1
from: all
key: event.k
state: {n: 0}
on:
  Begin: {start: true}
  Add: {set: {n: "=state.n + 1"}}
`

// The power of the NATS server goes, under an Edda that lives or with it: the files are
// those of a moment before, torn at their ends, without names that no folder was synced
// for. All that was handled is handled: Edda goes on by itself, and what producers send
// again is applied once.
func TestAPowerCutOfNATSThatLostOnlyWhatWasHandledNeededAPerson(t *testing.T) {
	t.Parallel()
	c, rounds := newCuts(t, adding)
	for c.round = range rounds {
		c.cut()
	}
	if c.resumed == 0 {
		t.Error("the server never came back shorter than what was handled: nothing was tried")
	}
	t.Logf("%d rounds, went on by itself %d times", rounds, c.resumed)
}

// newCuts begins with an Edda that has its instances, and says how often to cut.
func newCuts(t *testing.T, manifest string) (c *cuts, rounds int) {
	t.Helper()
	rounds = powerCuts
	if text := os.Getenv("EDDA_POWER_CUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("EDDA_CRASH_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	t.Logf("EDDA_CRASH_SEED=%d", seed)
	c = &cuts{t: t, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 1))}
	c.nats = startNATS(t, freeAddr(t), filepath.Join(c.dir, "nats"))
	conn, err := nats.Connect(c.nats.url(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if c.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	c.manifest = write(t, c.dir, "count.yaml", manifest)
	c.start()
	for k := range cutKeys {
		c.send(event{k, "Begin", "b"})
	}
	return c, rounds
}

type event struct {
	key      int
	name, id string
}

type cuts struct {
	t        *testing.T
	dir      string
	rand     *rand.Rand
	nats     *natsServer
	js       jetstream.JetStream
	manifest string
	edda     *child
	sent     []event
	round    int
	said     int // how long what Edda had said was before the cut
	resumed  int
}

func (c *cuts) start() {
	c.t.Helper()
	c.edda = c.launch()
	c.edda.says(`"started"`)
}

func (c *cuts) launch() *child {
	c.t.Helper()
	addr := freeAddr(c.t)
	e := launch(c.t, "run", c.manifest, "--role", "saga", "--nats-url", c.nats.url(), "--data", filepath.Join(c.dir, "store"), "--addr", addr)
	e.addr, e.nats, e.tenant = addr, c.nats.url(), "acme"
	return e
}

// send publishes until the server has it.
func (c *cuts) send(e event) {
	c.t.Helper()
	c.sent = append(c.sent, e)
	c.publish(e)
}

func (c *cuts) publish(e event) {
	c.t.Helper()
	m := &nats.Msg{Subject: fmt.Sprintf("tenant.acme.aggregate.Order.K%d", e.key), Data: fmt.Appendf(nil, `{"event_id":%q,"event_type":%q,"payload":{"k":"K%d"}}`, e.id, e.name, e.key)}
	until(c.t, "an event is stored", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_, err := c.js.PublishMsg(ctx, m)
		return err == nil
	})
}

// cut sends events, has the server forget the last of them or all, and goes on.
func (c *cuts) cut() {
	c.t.Helper()
	before := filepath.Join(c.dir, "before")
	at := c.rand.IntN(cutKeys * cutEvents)
	for i := range cutKeys * cutEvents {
		if i == at {
			c.snapshot(before)
		}
		c.send(event{i % cutKeys, "Add", fmt.Sprintf("r%d-%d", c.round, i)})
	}
	c.settled()
	both := c.rand.IntN(2) == 0
	c.said = len(c.edda.err.String())
	if both {
		c.edda.kill()
	}
	c.nats.kill()
	c.tear(before)
	c.nats.start()
	if both {
		c.said = 0
		c.start()
	}
	c.wentOn()
	c.sent = nil
}

// wentOn waits until Edda has all that was sent, once, and all the same after it came again.
func (c *cuts) wentOn() {
	c.t.Helper()
	for range 2 {
		for _, e := range c.sent {
			c.publish(e)
		}
		c.settled()
	}
	for k := range cutKeys {
		if got, want := c.counted(k), (c.round+1)*cutEvents; got != want {
			c.t.Fatalf("round %d: K%d has %d events, want %d; Edda says %s", c.round, k, got, want, c.edda.err.tail())
		}
	}
	if strings.Contains(c.edda.err.String()[c.said:], "all of which was handled") {
		c.resumed++
	}
}

// settled waits until the whole stream is handled. Edda may be starting anew.
func (c *cuts) settled() {
	c.t.Helper()
	untilIn(c.t, 2*time.Minute, "the whole stream is handled", func() bool {
		if testkit.Closed(c.edda.Ended()) {
			c.t.Fatalf("round %d: it ended: %s", c.round, c.edda.err.tail())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		s, err := c.js.Stream(ctx, wire.AggregateEvents)
		if err != nil {
			return false
		}
		return c.position() == s.CachedInfo().State.LastSeq
	})
}

// position is how far Edda has handled the stream; 0 where it does not answer.
func (c *cuts) position() uint64 {
	resp, err := http.Get("http://" + c.edda.addr + "/info")
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	var info struct {
		Positions []struct {
			Stream string
			Seq    uint64
		}
	}
	if json.NewDecoder(resp.Body).Decode(&info) != nil {
		return 0
	}
	for _, p := range info.Positions {
		if p.Stream == wire.AggregateEvents {
			return p.Seq
		}
	}
	return 0
}

// counted is how many events an instance has.
func (c *cuts) counted(k int) int {
	c.t.Helper()
	n, err := strconv.Atoi(field(c.edda.describe("count", "K"+strconv.Itoa(k)).Instance.State, "n"))
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// snapshot copies the server's files as they are, also while it writes them.
func (c *cuts) snapshot(to string) {
	c.t.Helper()
	if err := os.RemoveAll(to); err != nil {
		c.t.Fatal(err)
	}
	err := filepath.WalkDir(c.nats.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was a file for a moment
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(c.nats.dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// tear puts the copy back without some of what was not synced: files end anywhere behind
// what they had, or have no name. What says that there is a stream was synced long ago.
func (c *cuts) tear(copied string) {
	c.t.Helper()
	if err := os.RemoveAll(c.nats.dir); err != nil {
		c.t.Fatal(err)
	}
	if err := os.CopyFS(c.nats.dir, os.DirFS(copied)); err != nil {
		c.t.Fatal(err)
	}
	var files []string
	err := filepath.WalkDir(c.nats.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, filepath.Join(wire.AggregateEvents, "msgs")) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	slices.Sort(files)
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			c.t.Fatal(err)
		}
		switch c.rand.IntN(4) {
		case 0:
			err = os.Remove(path)
		case 1:
			err = os.Truncate(path, info.Size()-c.rand.Int64N(info.Size()+1))
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}
