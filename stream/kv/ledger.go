package kv

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/effects"
)

const (
	// DefaultLedgerLease is how long a claim is live without being renewed: half
	// the ack wait, so that a message that goes to another worker finds a dead
	// worker's claim about to lapse, and a slow server's few seconds lose none.
	DefaultLedgerLease = 15 * time.Second
	// minLease leaves time for a disk that syncs slowly.
	minLease = time.Second
	// polls is how often a held claim is looked at over one lease.
	polls = 15
	// clockDrift is the share of a lease that is waited beyond it: two clocks
	// that are kept right differ by less than a thousandth in their pace.
	clockDrift = 100
)

// LedgerOptions say whose ledger it is and how the bucket is made.
type LedgerOptions struct {
	// Home is the store on its machine, without a '/'. Who has the lock of its
	// file knows that the earlier runs there are gone, and need not wait for
	// their leases. Empty where nothing is locked.
	Home string
	// Run tells this start from all others; made up when empty.
	Run string
	// Lease is how long a claim is live without being renewed: 15 s when zero.
	Lease time.Duration
	// Retention is how long a claim is kept, and with it the promise that its
	// command is not called again: 7 days when zero.
	Retention time.Duration
	// Former has the claims of a time when the ledger was not shared: they count
	// where the bucket knows nothing of a command. It may be nil.
	Former interface {
		Claim(tenant, commandID string) (edda.Claim, bool, error)
	}
	Replicas int // of the bucket where it is made; 1 when zero
	// SyncAlways says that the server is known to sync every write to disk.
	SyncAlways bool
	// Memory is for a server that lives and dies with its workers.
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

// Ledger is the effect ledger that many workers share: one record a command in
// a KV bucket. Every write is a compare-and-set on the record's revision, so of
// two that want one claim one gets it, whatever either of them has read before.
//
// No clock is compared with another one's. The holder counts its lease from
// before it wrote; who waits counts a lease from when it first saw that write,
// and takes over only what has not been written since.
type Ledger struct {
	js         jetstream.JetStream
	kv         jetstream.KeyValue
	o          LedgerOptions
	durability Durability
	created    time.Time // the bucket that was opened

	checking chan struct{} // capacity 1: full while a look at the bucket is under way
	mu       sync.Mutex    // guards next
	next     *bucketCheck
}

var _ effects.Ledger = (*Ledger)(nil)

// record is what the bucket holds of a command.
type record struct {
	edda.Claim
	// Released says that the owner gave the claim up without a result.
	Released bool `json:"released,omitempty"`
	// Lease is the owner's: who waits may be configured otherwise.
	Lease time.Duration `json:"lease"`
	// Write is different in every write, also where nothing else is: a renewal
	// that was lost must not pass for the next one, which counts its lease later.
	Write string `json:"write"`

	revision uint64 // 0 where there is none
}

// Lease is how long a claim is live without being renewed.
func (l *Ledger) Lease() time.Duration { return l.o.Lease }

// Durability is how well the bucket keeps what it acknowledged.
func (l *Ledger) Durability() Durability { return l.durability }

// Find says what is known of a command. It may be behind: then what is done
// about it is ErrTaken.
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

// entry leaves out which claim of its run an owner is.
func (l *Ledger) entry(r record) effects.Entry {
	held := l.held(r)
	r.Owner, _ = cutClaim(r.Owner)
	return effects.Entry{Claim: r.Claim, Found: r.revision > 0, Held: held, Revision: r.revision}
}

// held tells whether somebody may be at work on a command.
func (l *Ledger) held(r record) bool {
	return r.revision > 0 && !r.Done && !r.Released && !l.earlier(r.Owner)
}

// earlier tells whether an owner is a run of this store that has ended.
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

// sighting is since when a record is known not to have changed.
type sighting struct {
	record
	since time.Time
}

// update takes what was just read. What comes from a replica that is behind
// says nothing.
func (s *sighting) update(r record) {
	if r.revision > s.revision {
		s.record, s.since = r, time.Now()
	}
}

// lapsed tells whether the holder's lease is over, whoever of the two leases longer.
func (s *sighting) lapsed(lease time.Duration) bool {
	lease = max(lease, s.Lease)
	return time.Since(s.since) >= lease+lease/clockDrift
}

// Claim makes e.Claim this worker's. Each claim has an owner of its own, which
// Find tells nobody: what was written under this claim can be told from all else.
func (l *Ledger) Claim(ctx context.Context, e effects.Entry) (effects.Entry, error) {
	if e.Held || e.Claim.Done {
		return e, effects.ErrTaken
	}
	e.Claim.Owner = l.owner()
	return l.put(ctx, e, false)
}

// run is how the owners of this run begin.
func (l *Ledger) run() string { return l.o.Home + "/" + l.o.Run }

func (l *Ledger) owner() string { return l.run() + "/" + rand.Text() }

// cutClaim parts an owner into its run and its claim.
func cutClaim(owner string) (run, claim string) {
	if i := strings.LastIndexByte(owner, '/'); i >= 0 {
		return owner[:i], owner[i+1:]
	}
	return owner, ""
}

// Renew writes the claim again, which gives it another lease.
func (l *Ledger) Renew(ctx context.Context, e effects.Entry) (effects.Entry, error) {
	return l.put(ctx, e, false)
}

// Finish stores the result, of a claim or over what Find or Await gave.
func (l *Ledger) Finish(ctx context.Context, e effects.Entry) error {
	if run, _ := cutClaim(e.Claim.Owner); run != l.run() {
		e.Claim.Owner = l.owner() // it was not claimed here
	}
	_, err := l.put(ctx, e, false)
	return err
}

// Release gives a claim up without a result.
func (l *Ledger) Release(ctx context.Context, e effects.Entry) error {
	_, err := l.put(ctx, e, true)
	return err
}

// put writes the entry in place of its revision.
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
