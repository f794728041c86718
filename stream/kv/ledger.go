package kv

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
	"edda/internal/backoff"
)

const (
	// DefaultLedgerLease is how long a claim lasts without a renewal. It is half the ack wait, so
	// that the claim of a dead worker expires soon after its message is redelivered. A pause of
	// some seconds loses no claim.
	DefaultLedgerLease = 15 * time.Second
	// minLease leaves time for a disk that syncs slowly.
	minLease = time.Second
	// polls is how often Await reads a held claim within one lease.
	polls = 15
	// clockDrift is the share of a lease that Await adds to it. Two synchronised clocks differ in
	// speed by less than a thousandth.
	clockDrift = 100
)

// LedgerOptions describe the worker and the bucket.
type LedgerOptions struct {
	// Home is the store on its machine, without a '/'. The process with the lock of the store's
	// file knows that earlier runs on it have ended, and does not wait for their leases. Empty if
	// nothing is locked.
	Home string
	// Run identifies this start; random when empty.
	Run string
	// Lease is how long a claim lasts without a renewal; 15 s when zero.
	Lease time.Duration
	// Retention is how long a claim is kept. After that its command may be called again. 7 days
	// when zero.
	Retention time.Duration
	// Former, if set, has the claims of the time before the ledger was shared. They count where the
	// bucket has no record of a command.
	Former interface {
		Claim(tenant, commandID string) (edda.Claim, bool, error)
	}
	Replicas int // of the bucket where it is made; 1 when zero
	// MinReplicas is the least number of replicas that the bucket must have; 0 means any.
	MinReplicas int
	// SyncAlways says that the server is known to sync every write to disk.
	SyncAlways bool
	// Memory keeps the bucket in memory, for a server that ends with its workers.
	Memory bool
}

func (o *LedgerOptions) validate() error {
	if strings.Contains(o.Home, "/") || strings.Contains(o.Run, "/") {
		return edda.Classify(edda.Permanent, "open the ledger: home %q and run %q must have no '/'", o.Home, o.Run)
	}
	if o.Run == "" {
		o.Run = rand.Text()
	}
	if o.Lease == 0 {
		o.Lease = DefaultLedgerLease
	}
	if o.Retention == 0 {
		o.Retention = defaultRetention
	}
	if o.Lease < minLease {
		return edda.Classify(edda.Permanent, "open the ledger: a lease of %s is less than %s", o.Lease, minLease)
	}
	if o.Retention < minRetention {
		return edda.Classify(edda.Permanent, "open the ledger: a retention of %s is less than %s", o.Retention, minRetention)
	}
	return nil
}

// Ledger is the effect ledger that many workers share, with one record a command in a KV bucket.
// Every write is a compare-and-set on the record's revision. So one of two concurrent claims fails,
// even if both read stale data.
//
// It never compares clocks of different machines. The holder counts its lease from before its
// write. A waiting worker counts from when it first saw that write, and takes over only a record
// that has not changed since.
type Ledger struct {
	js         jetstream.JetStream
	kv         jetstream.KeyValue
	o          LedgerOptions
	durability Durability
	created    time.Time // when the opened bucket was created

	checking chan struct{} // capacity 1: full while a check of the bucket runs
	mu       sync.Mutex    // guards next
	next     *bucketCheck
}

var _ effects.Ledger = (*Ledger)(nil)

// record is a command's value in the bucket.
type record struct {
	edda.Claim
	// Released is set when the owner gave up the claim without a result.
	Released bool `json:"released,omitempty"`
	// Lease is the owner's lease; the waiting worker's may differ.
	Lease time.Duration `json:"lease"`
	// Write is random in every write. Otherwise a renewal whose ack was lost could pass for the
	// next one, whose lease counts from later.
	Write string `json:"write"`

	revision uint64 // 0 if there is no record
}

// Lease returns how long a claim lasts without a renewal.
func (l *Ledger) Lease() time.Duration { return l.o.Lease }

// Durability describes how safely the bucket keeps acknowledged writes.
func (l *Ledger) Durability() Durability { return l.durability }

// Find returns the entry of a command. It may be stale; a write based on a stale entry fails with
// ErrTaken.
func (l *Ledger) Find(ctx context.Context, tenant, commandID string) (effects.Entry, error) {
	r, err := l.read(ctx, tenant, commandID)
	if err != nil {
		return effects.Entry{}, err
	}
	if r.revision > 0 || l.o.Former == nil {
		return l.entry(r), nil
	}
	claim, found, err := l.o.Former.Claim(tenant, commandID)
	return effects.Entry{Claim: claim, Found: found}, err
}

func (l *Ledger) read(ctx context.Context, tenant, commandID string) (record, error) {
	var r record
	key := ledgerKey(tenant, commandID)
	e, err := l.kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("look into the ledger: %w", err)
	}
	if err := json.Unmarshal(e.Value(), &r); err != nil || r.Tenant != tenant || r.CommandID != commandID {
		return r, edda.Classify(edda.Permanent, "entry %s of bucket %s is not the command's: look at it with nats kv get", key, LedgerBucket)
	}
	r.revision = e.Revision()
	return r, nil
}

// entry hides which claim of its run an owner is.
func (l *Ledger) entry(r record) effects.Entry {
	held := l.held(r)
	r.Owner, _ = cutClaim(r.Owner)
	return effects.Entry{Claim: r.Claim, Found: r.revision > 0, Held: held, Revision: r.revision}
}

// held reports whether another worker may be running the command.
func (l *Ledger) held(r record) bool {
	return r.revision > 0 && !r.Done && !r.Released && !l.earlier(r.Owner)
}

// earlier reports whether the owner is an ended run on our store.
func (l *Ledger) earlier(owner string) bool {
	run, here := strings.CutPrefix(owner, l.o.Home+"/")
	return here && l.o.Home != "" && !strings.HasPrefix(run, l.o.Run+"/")
}

// Await waits until the holder is done, or has not written for a whole lease.
func (l *Ledger) Await(ctx context.Context, e effects.Entry) (effects.Entry, error) {
	if !e.Held {
		return e, nil
	}
	look := time.NewTicker(l.o.Lease / polls)
	defer look.Stop()
	for seen := (sighting{since: time.Now()}); ; {
		r, err := l.read(ctx, e.Claim.Tenant, e.Claim.CommandID)
		switch {
		case err == nil && !l.held(r):
			return l.entry(r), nil
		case err == nil:
			seen.update(r)
		}
		if seen.lapsed(l.o.Lease) {
			e = l.entry(seen.record)
			e.Held = err != nil
			return e, err
		}
		select {
		case <-ctx.Done():
			return e, ctx.Err()
		case <-look.C:
		}
	}
}

// sighting is a record and since when it has not changed.
type sighting struct {
	record
	since time.Time
}

// update replaces the record by a newer one. A read from a stale replica changes nothing.
func (s *sighting) update(r record) {
	if r.revision > s.revision {
		s.record, s.since = r, time.Now()
	}
}

// lapsed reports whether the longer of both leases has passed.
func (s *sighting) lapsed(lease time.Duration) bool {
	lease = max(lease, s.Lease)
	return time.Since(s.since) >= lease+lease/clockDrift
}

// Claim makes e.Claim this worker's. Each claim has an owner of its own, which Find hides, so that
// its writes can be told from all others.
func (l *Ledger) Claim(ctx context.Context, e effects.Entry) (effects.Entry, error) {
	if e.Held || e.Claim.Done {
		return e, effects.ErrTaken
	}
	e.Claim.Owner = l.owner()
	return l.put(ctx, e, false)
}

// run is the prefix of the owners of this run.
func (l *Ledger) run() string { return l.o.Home + "/" + l.o.Run }

func (l *Ledger) owner() string { return l.run() + "/" + rand.Text() }

// cutClaim splits an owner into its run and its claim.
func cutClaim(owner string) (run, claim string) {
	if i := strings.LastIndexByte(owner, '/'); i >= 0 {
		return owner[:i], owner[i+1:]
	}
	return owner, ""
}

// Renew writes the claim again, which starts a new lease.
func (l *Ledger) Renew(ctx context.Context, e effects.Entry) (effects.Entry, error) {
	return l.put(ctx, e, false)
}

// Finish stores the result of a claim, or of an entry that Find or Await returned.
func (l *Ledger) Finish(ctx context.Context, e effects.Entry) error {
	if run, _ := cutClaim(e.Claim.Owner); run != l.run() {
		e.Claim.Owner = l.owner() // not claimed by this run
	}
	_, err := l.put(ctx, e, false)
	return err
}

// Release gives up a claim without a result.
func (l *Ledger) Release(ctx context.Context, e effects.Entry) error {
	_, err := l.put(ctx, e, true)
	return err
}

// put replaces the entry's revision.
func (l *Ledger) put(ctx context.Context, e effects.Entry, released bool) (effects.Entry, error) {
	w := entryWrite{l: l, record: record{Claim: e.Claim, Released: released, Lease: l.o.Lease, Write: rand.Text()}, over: e.Revision}
	if err := w.encode(); err != nil {
		return e, edda.Classify(edda.Permanent, "write to the ledger: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Lease*2/3)
	defer cancel()
	revision, err := w.run(ctx)
	if err != nil {
		return e, err
	}
	e.Found, e.Held, e.Revision = true, false, revision
	return e, nil
}

const (
	// ledgerTries is how many attempts share the time of one write, which is two thirds of a lease.
	// After that the claim may be lost.
	ledgerTries = 4
	// ledgerPause is the pause between two attempts.
	ledgerPause = 50 * time.Millisecond
)

// entryWrite is one write. Without an answer its outcome is unknown, and it is retried. The retry
// may then conflict with itself.
type entryWrite struct {
	l      *Ledger
	record record
	key    string
	value  []byte
	over   uint64 // the revision to replace; 0 means none
}

// encode does not escape '<' and '&', because a result of the allowed size must not grow beyond a
// message's size.
func (w *entryWrite) encode() error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(w.record)
	w.key, w.value = ledgerKey(w.record.Tenant, w.record.CommandID), b.Bytes()
	return err
}

// run retries until the write is stored, another worker's is, or ctx ends.
func (w *entryWrite) run(ctx context.Context) (uint64, error) {
	for {
		revision, err := w.try(ctx)
		if Overtaken(err) {
			revision, err = w.resolve(ctx)
		}
		switch {
		case revision > 0, errors.Is(err, effects.ErrTaken):
			return revision, err
		case errors.Is(err, nats.ErrMaxPayload):
			return 0, edda.Classify(edda.Permanent, "write to the ledger: %w", err)
		}
		if backoff.Wait(ctx, ledgerPause) != nil {
			return 0, fmt.Errorf("write to the ledger: %w", errors.Join(err, ctx.Err()))
		}
	}
}

func (w *entryWrite) try(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.l.o.Lease*2/3/ledgerTries)
	defer cancel()
	return put(ctx, w.l.kv, w.key, w.value, w.over)
}

// resolve reads the conflicting record. It returns the revision if it is this write, and ErrTaken
// if it is another worker's. Otherwise it sets the revision that the next attempt replaces: an
// earlier write of the same claim, or none. After a stale read the next attempt conflicts again.
func (w *entryWrite) resolve(ctx context.Context) (uint64, error) {
	e, err := w.l.kv.Get(ctx, w.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		w.over = 0
		return 0, nil
	}
	if err != nil || e.Revision() <= w.over {
		return 0, err
	}
	var r record
	switch err := json.Unmarshal(e.Value(), &r); {
	case err != nil || r.Owner != w.record.Owner || r.Done && !w.record.Done:
		return 0, effects.ErrTaken
	case r.Write == w.record.Write || r.Done && bytes.Equal(r.Result, w.record.Result) && r.Outcome == w.record.Outcome:
		return e.Revision(), nil
	}
	w.over = e.Revision()
	return 0, nil
}
