//go:build !race

package systemtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
	"edda/stream/wire"
)

// telling counts, and says so with each event: as a fact, and with a command.
const telling = `saga: count
version: 1
from: all
key: event.k
state: {n: 0}
on:
  Begin: {start: true}
  Add:
    set: {n: "=state.n + 1"}
    do:
      - {event: Counted, with: {k: =event.k, n: =state.n}}
      - {command: Stock.Count, to: =event.k, with: {n: =state.n}}
`

// The power of the NATS server goes, under an Edda that lives or with it, and with it what
// the server had acknowledged since it synced last: facts and commands whose rows have gone
// from the outbox. All of them are in the streams again afterwards, each once and in order.
func TestAPowerCutLosesFactsAndCommandsWhoseRowsAreGone(t *testing.T) {
	t.Parallel()
	c, rounds := newCuts(t, telling)
	lost := 0
	for c.round = range rounds {
		synced, before := filepath.Join(c.dir, "synced"), filepath.Join(c.dir, "before")
		c.snapshot(synced)
		at := c.rand.IntN(cutKeys * cutEvents)
		for i := range cutKeys * cutEvents {
			if i == at {
				c.snapshot(before)
			}
			c.send(event{i % cutKeys, "Add", fmt.Sprintf("r%d-%d", c.round, i)})
		}
		c.settled()
		c.told("before the power goes")
		both := c.rand.IntN(2) == 0
		c.said = len(c.edda.err.String())
		switch {
		case both && c.rand.IntN(2) == 0:
			c.edda.terminate() // in order: what was sent is not synced, all the same
		case both:
			c.edda.kill()
		}
		c.nats.kill()
		c.forget(synced, before)
		c.nats.start()
		if both {
			if c.rand.IntN(2) == 0 {
				c.dieAtTheStart()
			}
			c.said = 0
			c.start()
		}
		c.told("after the power came back")
		c.wentOn()
		c.told("after everything came again")
		if strings.Contains(c.edda.err.String()[c.said:], "was published again") {
			lost++
		}
		c.sent = nil
	}
	if lost == 0 {
		t.Error("nothing had to be published again: nothing was tried")
	}
	t.Logf("%d rounds, published again %d times", rounds, lost)
}

// dieAtTheStart kills a process at some moment of its start, which publishes what was lost.
func (c *cuts) dieAtTheStart() {
	c.t.Helper()
	first := c.launch()
	first.says(`"listening"`)
	select {
	case <-time.After(time.Duration(c.rand.IntN(400)) * time.Millisecond):
	case <-first.Ended():
		c.t.Fatalf("round %d: it ended: %s", c.round, first.err.tail())
	}
	first.kill()
}

// told waits until both streams have what every instance has said, and wants each once and
// in order.
func (c *cuts) told(when string) {
	c.t.Helper()
	want := (c.round + 1) * cutEvents
	for _, from := range []string{wire.WorkflowEvents, wire.WorkflowCommands} {
		var said map[string][]int
		untilIn(c.t, 2*time.Minute, from+" has everything "+when, func() bool {
			if testkit.Closed(c.edda.Ended()) {
				c.t.Fatalf("round %d: it ended: %s", c.round, c.edda.err.tail())
			}
			said = c.spoken(from)
			n := 0
			for _, all := range said {
				n += len(all)
			}
			return n >= want*cutKeys
		})
		for k, all := range said {
			for i, n := range all {
				if n != i+1 || len(all) != want {
					c.t.Fatalf("round %d, %s: %s of %s has %v, want 1 to %d; Edda says %s", c.round, when, k, from, all, want, c.edda.err.tail())
				}
			}
		}
	}
}

// spoken is what a stream has of each instance.
func (c *cuts) spoken(name string) map[string][]int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	said := map[string][]int{}
	cons, err := c.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil
	}
	for {
		batch, err := cons.FetchNoWait(1000)
		if err != nil {
			return nil
		}
		got := 0
		for m := range batch.Messages() {
			got++
			if found := number.FindSubmatch(m.Data()); found != nil {
				n, _ := strconv.Atoi(string(found[1])) // it is a number
				k := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
				said[k] = append(said[k], n)
			}
		}
		if got == 0 {
			return said
		}
	}
}

// number is what an instance says.
var number = regexp.MustCompile(`\\?"n\\?":(\d+)`)

// forget puts the server's files back to a moment between two copies: each file of messages
// ends anywhere between what it had then and what it had last, and what the server only
// keeps to begin faster is that of either moment, or is not there.
func (c *cuts) forget(synced, last string) {
	c.t.Helper()
	if err := errors.Join(os.RemoveAll(c.nats.dir), os.CopyFS(c.nats.dir, os.DirFS(last))); err != nil {
		c.t.Fatal(err)
	}
	err := filepath.WalkDir(c.nats.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(path, "msgs") {
			return err
		}
		rel, err := filepath.Rel(c.nats.dir, path)
		if err != nil {
			return err
		}
		old, err := os.ReadFile(filepath.Join(synced, rel))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if !strings.HasSuffix(path, ".blk") {
			switch c.rand.IntN(3) {
			case 0:
				return os.Remove(path)
			case 1:
				return os.WriteFile(path, old, 0o600)
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		least := int64(len(old))
		if info.Size() <= least {
			return nil
		}
		return os.Truncate(path, least+c.rand.Int64N(info.Size()-least+1))
	})
	if err != nil {
		c.t.Fatal(err)
	}
}
