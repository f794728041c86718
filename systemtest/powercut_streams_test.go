//go:build !race

package systemtest

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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
	"edda/stream/kv"
	"edda/stream/wire"
)

const (
	// cutOrders go through before the server's files are copied, and as many behind it.
	cutOrders = 4
	// cutWithin is when an order is through after a cut, what waits for leases included.
	cutWithin = 90 * time.Second
)

// lostPart is a stream or a bucket, and what a power cut left of it.
type lostPart struct{ name, way string }

// What is left of a stream's folder.
const (
	wholePart   = "as it was before"
	tornPart    = "torn"
	missingPart = "without a file"
	halfPart    = "with a file half as long"
	nameless    = "without what says that it is a stream"
)

// streamCuts takes parts of a NATS server's store away under sagas and a worker that live.
type streamCuts struct {
	cuts
	site         *gatedSite
	config       string
	sagas        string
	effects      string
	saga, worker *child
	orders       int
	refused      int
}

// TestAPowerCutOfAnyStreamWasSilent: the server comes back with one stream or bucket as it was
// before, torn, or without one of its files. All that it lost was handled: the work goes on by
// itself, or a process says what is gone and goes on once it is told to. No order is charged twice.
func TestAPowerCutOfAnyStreamWasSilent(t *testing.T) {
	t.Parallel()
	seed := crashSeed(t)
	all := []lostPart{
		{wire.WorkflowEvents, tornPart}, {wire.WorkflowCommands, wholePart}, {wire.AggregateEvents, nameless}, {kv.OwnersBucket, wholePart},
		{kv.LeaseBucket, halfPart}, {kv.LedgerBucket, nameless},
	}
	if text := os.Getenv("EDDA_POWER_CUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		var every []lostPart
		for range n {
			for _, p := range all {
				for _, way := range []string{wholePart, tornPart, missingPart, halfPart, nameless} {
					every = append(every, lostPart{p.name, way})
				}
			}
		}
		all = every
	}
	c := &streamCuts{cuts: cuts{t: t, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 2))}, site: &gatedSite{calls: map[string]int{}}}
	c.site.shut()()
	site := httptest.NewServer(c.site)
	defer site.Close()
	c.nats = startNATS(t, freeAddr(t), filepath.Join(c.dir, "nats"))
	conn, err := nats.Connect(c.nats.url(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if c.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	c.config = write(t, c.dir, "edda.yaml", "effects: {allow: [127.0.0.1], ack_wait: 2s}\n")
	c.sagas, c.effects = write(t, c.dir, "mailing.yaml", mailingSaga), write(t, c.dir, "mail.yaml", fmt.Sprintf(mailingEffect, site.URL))
	c.saga, c.worker = c.run("saga", c.sagas), c.run("effect", c.effects)
	c.saga.says(`"msg":"started"`)
	c.worker.says(`"msg":"started"`)
	for _, p := range all {
		c.lose(p.name, p.way)
	}
	t.Logf("a person was asked %d times of %d", c.refused, len(all))
}

func (c *streamCuts) run(role string, more ...string) *child {
	c.t.Helper()
	addr := freeAddr(c.t)
	out := launch(c.t, append([]string{"run", "--config", c.config, "--role", role, "--nats-url", c.nats.url(), "--data", filepath.Join(c.dir, role), "--addr", addr}, more...)...)
	out.addr, out.nats, out.tenant = addr, c.nats.url(), "default"
	return out
}

// order sends one, and returns its key.
func (c *streamCuts) order() string {
	c.t.Helper()
	k := fmt.Sprintf("K%d", c.orders)
	c.orders++
	if err := publishSurely(c.js, message(0, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
		c.t.Fatal(err)
	}
	return k
}

// through tells whether an order is done.
func (c *streamCuts) through(k string) bool {
	view, ok := c.saga.answers("/v1/instances/mailing/" + k)
	return ok && strings.Contains(view, `"status":"done"`)
}

func (c *streamCuts) failed(k string) bool {
	view, ok := c.saga.answers("/v1/instances/mailing/" + k)
	return ok && strings.Contains(view, `"status":"failed"`)
}

func (c *streamCuts) lose(name, way string) {
	c.t.Helper()
	for i := range 2 * cutOrders {
		if i == cutOrders {
			c.snapshot(filepath.Join(c.dir, "before"))
		}
		k := c.order()
		untilIn(c.t, cutWithin, "an order is through", func() bool { return c.through(k) })
	}
	c.nats.kill()
	lost := c.damage(name, way)
	c.nats.start()
	what := fmt.Sprintf("%s: %s (%s)", name, way, lost)
	k, sent := "", false
	asked := false
	for began := time.Now(); ; {
		if !sent {
			k, sent = c.maybeOrder()
		}
		if sent && (c.through(k) || name == kv.LedgerBucket && c.failed(k)) {
			break // what was sent before the ledger was made again may have been called
		}
		for _, p := range []*child{c.saga, c.worker} {
			if testkit.Closed(p.Ended()) {
				c.told(what, p.err.String())
				asked = true
			}
		}
		if time.Since(began) > 15*time.Second && !asked {
			if body, code := c.health(); code == http.StatusServiceUnavailable && strings.Contains(body, "is gone") {
				c.told(what, body)
				asked = true
			}
		}
		if asked {
			break
		}
		if time.Since(began) > cutWithin {
			body, code := c.health()
			c.t.Fatalf("%s: nothing goes on, and health is %d %s", what, code, body)
		}
		<-time.After(20 * time.Millisecond)
	}
	if asked {
		c.refused++
		if way == wholePart || name != wire.AggregateEvents && name != wire.WorkflowEvents && name != wire.WorkflowCommands {
			c.t.Errorf("%s: a person is asked, and nothing that is needed is missing", what)
		}
		c.saga.terminate()
		c.worker.terminate()
		c.saga = c.run("saga", "--accept-stream-loss", c.sagas)
		c.saga.says(`"msg":"started"`)
		c.worker = c.run("effect", c.effects)
		c.worker.says(`"msg":"started"`)
	}
	k = c.order()
	untilIn(c.t, cutWithin, what+": an order is through", func() bool { return c.through(k) })
	c.site.mu.Lock()
	defer c.site.mu.Unlock()
	for body, n := range c.site.calls {
		if n != 1 && name != kv.LedgerBucket { // claims that a server loses are calls that may come again
			c.t.Fatalf("%s: %s was mailed %d times", what, body, n)
		}
	}
	clear(c.site.calls)
	c.t.Logf("%s: asked %v", what, asked)
}

// maybeOrder sends an order where its stream is there.
func (c *streamCuts) maybeOrder() (string, bool) {
	k := fmt.Sprintf("K%d", c.orders)
	_, err := c.js.PublishMsg(c.t.Context(), message(0, k, "Begin", fmt.Sprintf(`{"k":%q}`, k)))
	if err == nil {
		c.orders++
	}
	return k, err == nil
}

// told holds that a process says what is gone and what to do.
func (c *streamCuts) told(what, said string) {
	c.t.Helper()
	if !strings.Contains(said, "--accept-stream-loss") {
		c.t.Fatalf("%s: it ends or waits, and does not say what to do: %s", what, said)
	}
}

// health is what the first of the two says that is not well.
func (c *streamCuts) health() (string, int) {
	for _, p := range []*child{c.saga, c.worker} {
		resp, err := http.Get("http://" + p.addr + "/health")
		if err != nil {
			continue
		}
		_ = resp.Body.Close() // the code says enough
		if body, code := p.fetch("/health"); code != http.StatusOK {
			return string(body), code
		}
	}
	return "up", http.StatusOK
}

// damage puts one stream back as it was copied, and takes more of it away. It says what.
func (c *streamCuts) damage(name, way string) string {
	c.t.Helper()
	var rel string
	before := filepath.Join(c.dir, "before")
	err := filepath.WalkDir(before, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == name || d.Name() == "KV_"+name) {
			rel, err = filepath.Rel(before, path)
		}
		return err
	})
	if err != nil || rel == "" {
		c.t.Fatalf("%s is not in the copy: %v", name, err)
	}
	dir := filepath.Join(c.nats.dir, rel)
	if err := os.RemoveAll(dir); err != nil {
		c.t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(before, rel))); err != nil {
		c.t.Fatal(err)
	}
	if way == wholePart {
		return "whole"
	}
	var files []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && (way != tornPart || strings.Contains(path, "msgs")) {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		c.t.Fatalf("files of %s: %v", name, err)
	}
	slices.Sort(files)
	path := files[c.rand.IntN(len(files))]
	if way == nameless {
		path = filepath.Join(dir, "meta.sum")
	}
	info, err := os.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	switch way {
	case tornPart:
		err = os.Truncate(path, info.Size()-c.rand.Int64N(info.Size()+1))
	case missingPart, nameless:
		err = os.Remove(path)
	case halfPart:
		err = os.Truncate(path, info.Size()/2)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	rel, _ = filepath.Rel(dir, path) // both are of one walk
	return rel
}
