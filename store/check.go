package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"edda"
	"edda/store/format"
	"edda/store/wal"
)

const (
	// maxFindings ends a check.
	maxFindings = 100
	// maxIdle bounds the list of idle instances; all are counted.
	maxIdle = 1000
	// maxRecent is how many event ids an instance may remember.
	maxRecent = 64
)

// Health is the outcome of a check.
type Health struct {
	// Findings are contradictions within the store. A sound store has none.
	Findings []error
	Rows     int
	// Idle are the first of IdleTotal unfinished instances that only an event or an operator can
	// wake.
	Idle      []edda.Instance
	IdleTotal int
	Meta
}

// checker compares the keyspaces of a snapshot with one another.
type checker struct {
	copyProgress
	tx      *wal.Tx
	seal    format.Seal
	last    format.Stamp
	found   []error
	counts  map[format.CountKey]int
	dropped format.Pointer // where the kept history begins
	linked  int            // history rows on chains
	// commands are the ids of effects in the outbox. working are the keys with work there.
	commands map[string]bool
	working  map[edda.Key]bool
	parts    map[edda.Key]int // of states whose instance was not found yet
	health   *Health
}

// examine reads a snapshot and reports contradictions: rows that cannot be decoded, keys that are
// not those of their values, counters and indexes that do not match the rows, broken chains of
// history. The pages can be compared only while nothing is committed.
func (d *DB) examine(ctx context.Context, tell func(rows int), pages bool) (h Health) {
	below, sound := d.checkFile(pages)
	tx, err := d.begin(false)
	if err != nil {
		h.Findings = append(below, fmt.Errorf("open a snapshot: %w", err))
		return h
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	c := newChecker(ctx, tx, d.seal, &h, tell)
	if c.found = below; !sound {
		h.Findings = below
		return h
	}
	steps := []func() error{
		c.spaces, c.meta, c.outbox, c.states, c.instances, c.orphans, c.counters, c.ends, c.due, c.queues, c.letters,
		c.letterIDs, c.claims, c.history, c.small, c.audits,
	}
	for _, step := range steps {
		if err := guarded(d.options.called, step); err != nil {
			c.found = append(c.found, err)
			break
		}
	}
	h.Findings, h.Rows = c.found, c.rows
	return h
}

func newChecker(ctx context.Context, tx *wal.Tx, s format.Seal, h *Health, tell func(rows int)) *checker {
	h.Meta = metaOf(tx)
	return &checker{
		copyProgress: copyProgress{ctx: ctx, tell: tell}, tx: tx, seal: s, health: h, last: stampOf(tx), dropped: droppedHistory(tx),
		counts: map[format.CountKey]int{}, commands: map[string]bool{}, working: map[edda.Key]bool{}, parts: map[edda.Key]int{},
	}
}

func (c *checker) wrong(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf(format, args...))
}

var errEnough = errors.New("and more")

// each calls fn with every row of a bucket. An error of fn is a finding.
func (c *checker) each(b *wal.Bucket, what string, fn func(k, v []byte) error) error {
	return b.ForEach(func(k, v []byte) error {
		if err := c.row(); err != nil {
			return err
		}
		if len(c.found) > maxFindings {
			return errEnough
		}
		if err := fn(k, v); err != nil {
			c.wrong("%s %x: %w", what, k, err)
		}
		return nil
	})
}

func (c *checker) bucket(name format.Keyspace) *wal.Bucket { return c.tx.Bucket([]byte(name)) }

func (c *checker) space(name format.Keyspace, fn func(k, v []byte) error) error {
	return c.each(c.bucket(name), string(name), func(k, v []byte) error {
		if name != format.Saga { // its values have a head
			opened, err := c.seal.Open(name, k, v, 0)
			if err != nil {
				return err
			}
			v = opened
		}
		return fn(k, v)
	})
}

// within is each for the bucket of an hour or a day.
func (c *checker) within(name format.Keyspace, part []byte, what string, fn func(k, v []byte) error) error {
	b := c.bucket(name).Bucket(part)
	if b == nil || len(part) != format.PartSize {
		return format.ErrKey
	}
	return c.each(b, what, fn)
}

// checkFile checks the pages of the file, and its WAL. It is sound if the rows can be read. It waits
// for writers, so no snapshot may be open, for which these might wait.
func (d *DB) checkFile(pages bool) (found []error, sound bool) {
	d.swap.RLock()
	defer d.swap.RUnlock()
	if err := guarded(d.options.called, func() error {
		if !pages {
			return nil
		}
		return d.file.CheckPages(func(err error) { found = append(found, fmt.Errorf("file: %w", err)) })
	}); err != nil {
		return append(found, err), false
	}
	if len(found) > 0 {
		return append(found, errors.New("the pages of the file are damaged: restore a backup")), false
	}
	if err := guarded(d.options.called, d.file.CheckWAL); err != nil {
		found = append(found, fmt.Errorf("file: %w", err))
	}
	return found, true
}

func (c *checker) instances() error {
	return c.space(format.Saga, func(k, v []byte) error {
		key, rest, err := format.CutKey(k)
		if err != nil || len(rest) > 0 {
			return format.ErrKey
		}
		if v, err = c.seal.Instance(k, v); err != nil {
			return err
		}
		h, body, err := format.CutHead(v)
		if err != nil {
			return err
		}
		c.chain(key, h.Last)
		if h.Status == "" {
			c.headAlone(k, key, h, body)
			return nil
		}
		in, err := format.Decode[edda.Instance]("instance "+key.String(), body)
		if err != nil {
			return err
		}
		c.counts[format.CountOf(key, h.Version, h.Status)]++
		c.instance(k, key, h, &in)
		return nil
	})
}

// headAlone checks a key that has history and no instance.
func (c *checker) headAlone(k []byte, key edda.Key, h format.Head, body []byte) {
	if len(body) > 0 || h.Version != 0 || h.Ended != 0 {
		c.wrong("instance %s: it has no status, but a version, an end or a body", key)
	}
	if (h.Last == (format.Pointer{}) || h.Last.Before(c.dropped)) && !waitsFor(c.tx, k) {
		c.wrong("instance %s: its head stays although its history is gone and nothing waits", key)
	}
}

func (c *checker) instance(k []byte, key edda.Key, h format.Head, in *edda.Instance) {
	if in.Key != key {
		c.wrong("instance %s: it says it is %s", key, in.Key)
	}
	if h.Version != in.Version || h.Status != in.Status {
		c.wrong("instance %s: its head says version %d, %s", key, h.Version, h.Status)
	}
	if !in.Armed.IsZero() && c.bucket(format.Due).Get(format.DueKey(in.Armed, k)) == nil {
		c.wrong("instance %s: no due row at %s", key, in.Armed)
	}
	if held := queued(c.tx, format.Held, k); held != (in.Held != "") {
		c.wrong("instance %s: held by %q, and held events: %t", key, in.Held, held)
	}
	if queued(c.tx, format.Parked, k) {
		c.wrong("instance %s: events are parked beside it", key)
	}
	if n := c.parts[key]; n != in.Parts {
		c.wrong("instance %s: its state has %d parts, and there are %d", key, in.Parts, n)
	}
	delete(c.parts, key)
	if len(in.Recent) > maxRecent {
		c.wrong("instance %s: it remembers %d event ids, more than %d", key, len(in.Recent), maxRecent)
	}
	c.end(key, h, in)
	c.idle(in)
}

// end compares an instance's end with the index of ends.
func (c *checker) end(key edda.Key, h format.Head, in *edda.Instance) {
	switch {
	case in.Status.Finished() != (h.Ended != 0):
		c.wrong("instance %s: it is %s, and its head says it ended at %d", key, in.Status, h.Ended)
	case h.Ended > c.last.Clock:
		c.wrong("instance %s: it ended after the last commit", key)
	case h.Ended != 0 && c.bucket(format.Ended).Get(format.EndedKey(h.Status, h.Ended, key)) == nil:
		c.wrong("instance %s: no row in the index of ends at %s", key, format.Stamp{Clock: h.Ended}.Time())
	}
}

// idle notes an instance that only an event or an operator can move: it has no
// timer, nothing it has sent is under way, no child and no person owes it anything.
func (c *checker) idle(in *edda.Instance) {
	if in.Status.Finished() || !in.Armed.IsZero() || in.Held != "" || len(in.Undos)+len(in.Incidents) > 0 || c.working[in.Key] {
		return
	}
	for _, steps := range [][]edda.Step{in.Steps, in.Older} {
		for i := range steps {
			if steps[i].Status == edda.StepPending {
				return
			}
		}
	}
	if c.health.IdleTotal++; len(c.health.Idle) < maxIdle {
		c.health.Idle = append(c.health.Idle, edda.Instance{Key: in.Key, Version: in.Version, Status: in.Status, Updated: in.Updated})
	}
}

// chain follows a key's history to its end, or to where it was removed.
func (c *checker) chain(key edda.Key, at format.Pointer) {
	for at != (format.Pointer{}) && !at.Before(c.dropped) {
		row := historyRow(c.tx, at)
		if row == nil {
			c.wrong("history of %s: no row at commit %d, %d", key, at.Commit, at.N)
			return
		}
		if len(row) < format.PointerSize {
			c.wrong("history of %s: commit %d, %d: %w", key, at.Commit, at.N, format.ErrRow)
			return
		}
		row, err := c.seal.Record(at, row)
		if err != nil {
			c.wrong("history of %s: commit %d, %d: %w", key, at.Commit, at.N, err)
			return
		}
		var of struct {
			Key edda.Key `json:"key"`
		}
		if err := json.Unmarshal(row[format.PointerSize:], &of); err != nil || of.Key != key {
			c.wrong("history of %s: commit %d, %d is of %s: %w", key, at.Commit, at.N, of.Key, err)
			return
		}
		before := format.CutPointer(row)
		if !before.Before(at) {
			c.wrong("history of %s: commit %d, %d points forward", key, at.Commit, at.N)
			return
		}
		c.linked++
		at = before
	}
}

func (c *checker) counters() error {
	stored, err := loadCounts(c.tx)
	if err == nil && !maps.Equal(stored, c.counts) {
		c.wrong("counters are %v, instances are %v", stored, c.counts)
	}
	return err
}

// ends checks that each row of the index of ends has its instance.
func (c *checker) ends() error {
	return c.space(format.Ended, func(k, _ []byte) error {
		e, err := format.CutEnded(k)
		if err != nil {
			return err
		}
		clock := uint64(max(0, e.Time.UnixMilli()))
		h, _, err := format.CutHead(c.bucket(format.Saga).Get(format.InstanceKey(e.Key)))
		if err != nil || h.Ended != clock || h.Status != e.Status || !bytes.Equal(k, format.EndedKey(e.Status, clock, e.Key)) {
			c.wrong("index of ends: %s did not end as %s at %s", e.Key, e.Status, e.Time)
		}
		return nil
	})
}
