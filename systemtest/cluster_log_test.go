//go:build !race

package systemtest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/cluster"
	"edda/standby"
	"edda/store"
)

// logged is one message of the log, without its body.
type logged struct {
	at    time.Time
	kind  cluster.Kind
	epoch uint64
	run   string
}

// readLog reads the heads of all messages of the log.
func (c *clusterRun) readLog() (out []logged) {
	c.t.Helper()
	consumer, err := c.flow.OrderedConsumer(c.t.Context(), c.at.stream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		c.t.Fatal(err)
	}
	last, ok := c.last()
	if !ok || last.Seq == 0 {
		c.t.Fatal("the log has no end")
	}
	messages, err := consumer.Messages()
	if err != nil {
		c.t.Fatal(err)
	}
	defer messages.Stop()
	for len(out) < int(last.Seq) {
		m, err := messages.Next(jetstream.NextMaxWait(soon))
		if err != nil {
			c.t.Fatal(err)
		}
		md, err := m.Metadata()
		if err != nil {
			c.t.Fatal(err)
		}
		if md.Sequence.Stream != uint64(len(out)+1) {
			c.t.Fatalf("message %d of the log follows message %d: it was trimmed", md.Sequence.Stream, len(out))
		}
		epoch, err := strconv.ParseUint(m.Headers().Get("Edda-Epoch"), 10, 64)
		if err != nil {
			c.t.Fatal(err)
		}
		out = append(out, logged{md.Timestamp, cluster.Kind(m.Headers().Get("Edda-Kind")), epoch, m.Headers().Get("Edda-Node")})
	}
	return out
}

// judgeLog: the log is one sequence of records without a gap, of one owner after the other, and no owner changed
// without a cause.
func (c *clusterRun) judgeLog() {
	c.t.Helper()
	last, ok := c.last()
	if !ok || last.Message.Kind != cluster.Seal {
		c.t.Fatalf("the cluster was stopped in order, and the log ends with %+v", last.Message.Record)
	}
	records, lsn := 0, uint64(0)
	err := c.at.log.Read(c.t.Context(), cluster.Mark{}, last.Seq, func(_ cluster.Mark, r cluster.Record) error {
		if r.Kind == cluster.Entry {
			lsn++
			records++
		}
		if r.LSN != lsn { // the reader has checked this, and the chain of checksums and epochs
			return fmt.Errorf("record %d has the number %d", lsn, r.LSN)
		}
		return nil
	})
	if err != nil {
		c.t.Fatalf("the log is not sound: %v", err)
	}
	c.at.heads = c.readLog()
	before := c.at.heads[0]
	for i, m := range c.at.heads {
		if m.kind != cluster.Own {
			continue
		}
		spread := len(c.shards) > 1 && i > 0 && c.at.heads[i-1].kind == cluster.Seal // a shard moves by itself
		from, to := cluster.NodeOf(before.run), cluster.NodeOf(m.run)
		explained := slices.ContainsFunc(c.struck, func(s strike) bool {
			return s.explains(from) && s.from.Before(m.at) && s.to.After(before.at)
		})
		if from != to && !explained && !spread {
			c.t.Errorf("%s took the log from %s at %v (epoch %d), and nothing had happened to that since %v: %s", m.run, before.run, m.at, m.epoch, before.at, c.strikes())
		}
		before = m
	}
}

// strikes lists what had happened.
func (c *clusterRun) strikes() (out string) {
	for _, s := range c.struck {
		out += fmt.Sprintf("\n  %v to %v: %s %v", s.from, s.to, s.name, s.nodes)
	}
	return out
}

// judgeCopies: the copies of all nodes are the same, to the byte of each row, once they have what the log has.
func (c *clusterRun) judgeCopies() {
	c.t.Helper()
	last, ok := c.last()
	if !ok {
		c.t.Fatal("the log has no end")
	}
	hashes := map[[sha256.Size]byte][]string{}
	for _, n := range c.nodes {
		r, err := store.OpenReplica(filepath.Join(n.data, c.at.folder), store.Options{})
		if err != nil {
			c.t.Fatalf("the copy of %s: %v", n.name, err)
		}
		lacks := last.Message.LSN - r.LSN()
		at, err := standby.Find(c.t.Context(), c.at.log, r, true)
		if err == nil {
			err = c.at.log.Read(c.t.Context(), at, last.Seq, func(at cluster.Mark, rec cluster.Record) error {
				if rec.Kind != cluster.Entry {
					return nil
				}
				return r.Apply(rec.LSN, rec.Entry)
			})
		}
		if err != nil {
			c.t.Fatalf("the copy of %s: %v", n.name, err)
		}
		point, hash, err := r.Hash(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		if point.Transaction != last.Message.LSN || point.Sum != last.Message.State {
			c.t.Errorf("the copy of %s ends at %+v, and the log at record %d with the state %08x", n.name, point, last.Message.LSN, last.Message.State)
		}
		hashes[hash] = append(hashes[hash], n.name)
		if err := r.Close(); err != nil {
			c.t.Error(err)
		}
		if lacks > 0 {
			c.t.Logf("%s was stopped %d records before the end of the log", n.name, lacks)
		}
	}
	if len(hashes) != 1 {
		c.t.Errorf("the copies differ: %v", hashes)
	}
}

// reportCluster says how long what took.
func (c *clusterRun) reportCluster(begin time.Time) {
	c.t.Helper()
	times := map[string][]time.Duration{}
	note := func(name string, d time.Duration) { times[name] = append(times[name], d) }
	for _, s := range c.struck {
		c.at = s.shard
		switch {
		case s.kind == struckDown && s.owned, s.kind == struckFrozen && s.owned:
			what := "owner " + s.kind
			if s.heirs == 0 {
				what += " without a standby"
			}
			own := c.next(s.from, func(m logged) bool { return m.kind == cluster.Own })
			if own == nil || own.at.After(s.over) { // nobody needed to
				note(what+", and none took over", s.over.Sub(s.from))
				continue
			}
			note(what+": to the next owner", own.at.Sub(s.from))
			if s.kind == struckFrozen {
				note("owner thawed: until it follows the next one", s.back)
			}
			if rec := c.next(s.from, func(m logged) bool { return m.kind == cluster.Entry && m.epoch >= own.epoch }); rec != nil {
				note(what+": to its first transaction", rec.at.Sub(s.from))
			}
		case s.kind == struckStopped: // a lull of the orders before it is no pause
			own := c.next(s.from, func(m logged) bool { return m.kind == cluster.Own })
			if own == nil {
				continue
			}
			if rec := c.next(own.at, func(m logged) bool { return m.kind == cluster.Entry }); rec != nil {
				note("pause, "+s.name, rec.at.Sub(s.from))
			}
		default:
			note("longest pause, "+s.name, c.pause(s))
		}
	}
	bytes, messages, orders := uint64(0), 0, c.load.sent
	kinds := map[cluster.Kind]int{}
	c.each(func() bool {
		info, err := c.flow.Stream(c.t.Context(), c.at.stream)
		if err != nil {
			c.t.Fatal(err)
		}
		bytes, messages = bytes+info.CachedInfo().State.Bytes, messages+len(c.at.heads)
		for _, m := range c.at.heads {
			kinds[m.kind]++
		}
		return true
	})
	lines := []string{fmt.Sprintf("seed %d: %d shards, %d faults, %d orders, %d messages of the log %v, %d bytes of log and %.1f records an order, %d folders wiped, %d copies set aside, %v",
		c.seed, len(c.shards), len(c.struck), orders, messages, kinds, bytes/uint64(orders), float64(messages)/float64(orders), c.wiped, c.asides(), time.Since(begin).Round(time.Second))}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		d := times[name]
		slices.Sort(d)
		at := func(percent int) time.Duration { return d[(len(d)-1)*percent/100].Round(time.Millisecond) }
		lines = append(lines, fmt.Sprintf("  %-70s n=%-3d p50 %-8v p99 %-8v max %v", name, len(d), at(50), at(99), at(100)))
	}
	c.t.Log(strings.Join(lines, "\n"))
}

// next is the first message behind a time that a test chooses; nil if there is none.
func (c *clusterRun) next(after time.Time, is func(logged) bool) *logged {
	for i := range c.at.heads {
		if c.at.heads[i].at.After(after) && is(c.at.heads[i]) {
			return &c.at.heads[i]
		}
	}
	return nil
}

// pause is the longest time without a transaction that a strike fell into, or caused.
func (c *clusterRun) pause(s strike) (longest time.Duration) {
	var before time.Time
	for _, m := range c.at.heads {
		if m.kind != cluster.Entry {
			continue
		}
		if !before.IsZero() && m.at.After(s.from) && before.Before(s.over) {
			longest = max(longest, m.at.Sub(before))
		}
		before = m.at
	}
	return longest
}
