package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/stream/wire"
)

const (
	// LeaseBucket is the KV bucket of leases. Its keys are the ids of stores, with workerPrefix for
	// effect workers.
	LeaseBucket  = "EDDA_LEASES"
	workerPrefix = "effects."
	// leaseTTL is how long the lease of a dead process lasts.
	leaseTTL = 15 * time.Second
	// leaseRenew is the renewal interval. It leaves time for two failed attempts.
	leaseRenew = leaseTTL / 3
	// leaseStop bounds a renewal after it was told to stop.
	leaseStop = time.Second
	// takeTries bounds the writes of a lease of a cluster's node, and of a claim on tenants. The
	// replaced process may write meanwhile, and a replica that lags may answer with an old revision.
	takeTries = 8
	// takeFirst and takeMost bound the delay between two of these writes.
	takeFirst = 20 * time.Millisecond
	takeMost  = 500 * time.Millisecond
)

// ErrLeaseLost says that another process has taken over the lease, for good.
var ErrLeaseLost = errors.New("the lease was taken over")

// LeaseOptions describe the process that acquires a lease.
type LeaseOptions struct {
	Store   string // the store's id
	Host    string // this machine
	Process string // unique for each start
	// Epoch is the epoch in which a cluster's node owns the store; 0 without a cluster. The lease
	// replaces a holder of the same store with a lower epoch at once, because the takeover of the
	// store's log has fenced it. Two holders without an epoch, or with the same one, are judged by
	// host and process.
	Epoch   uint64
	Tenants wire.Tenants // the tenants that the process serves; none means all
	// Share is the shard of a cluster that the store has: others of the cluster serve the same tenants.
	Share edda.Share
	// MadeOf reports whether our store was made from the rows of another one; then our store owns
	// the tenants of the other. nil means from none.
	MadeOf func(store string) bool
	// AdoptEmpty takes over tenants of another store without their instances.
	AdoptEmpty bool
	// File identifies the store's file on this machine, which the process has locked. A holder of
	// the same file has ended, because we have its lock.
	File string
	// Clock also advances while the process or the machine is paused; nil means the system's.
	Clock func() time.Duration
	// Worker is set for an effect worker, and nil for a saga process.
	Worker *WorkerLease
	// Replicas of a new bucket; 1 when zero.
	Replicas int
	// MinReplicas is the least number of replicas that the buckets of leases and owners must have; 0
	// means any.
	MinReplicas int
	// Memory keeps the bucket in memory, for a server that ends with this process.
	Memory bool
	Log    *zap.Logger
}

// WorkerLease is the part of a lease for effect workers. Two may take the same commands only if
// both share their ledger.
type WorkerLease struct {
	Effects []string `json:"effects"`
	Shared  bool     `json:"shared"`
}

// holder is the content of a lease.
type holder struct {
	Store   string       `json:"store"`
	Host    string       `json:"host"`
	Process string       `json:"process"`
	Epoch   uint64       `json:"epoch,omitempty"`
	Tenants []string     `json:"tenants,omitempty"`
	Share   edda.Share   `json:"share,omitzero"`
	Worker  *WorkerLease `json:"worker,omitempty"`
	// Held is false while the process still checks for conflicts.
	Held  bool      `json:"held"`
	Since time.Time `json:"since"`
	// Where and File tell whether a holder on this host has ended.
	Where processID `json:"where,omitzero"`
	File  string    `json:"file,omitempty"`
}

// processID identifies a process among all that this machine ever ran. PIDs are unique within a
// namespace only.
type processID struct {
	Boot    string `json:"boot"`
	Space   string `json:"space"`
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // ticks since the boot
}

// supersedes reports whether the owner of one epoch has replaced that of another. A process without
// a cluster has epoch 0, which says nothing.
func supersedes(epoch, other uint64) bool { return other > 0 && other < epoch }

// key returns the key of the holder's lease.
func (h holder) key() string {
	if h.Worker != nil {
		return workerPrefix + h.Store
	}
	return h.Store
}

// kind names the holder in messages.
func (h holder) kind() string {
	if h.Worker != nil {
		return "effect worker"
	}
	return "saga process"
}

// conflicts reports whether two holders must not both run.
func (h holder) conflicts(other holder) bool {
	if (h.Worker == nil) != (other.Worker == nil) || h.Share.Beside(other.Share) || !wire.Tenants(h.Tenants).Overlap(other.Tenants) {
		return false
	}
	return h.Worker == nil || h.Worker.conflicts(*other.Worker)
}

func (w WorkerLease) conflicts(other WorkerLease) bool {
	return !(w.Shared && other.Shared) &&
		slices.ContainsFunc(w.Effects, func(name string) bool { return slices.Contains(other.Effects, name) })
}

// mode returns the setting that decides.
func (w WorkerLease) mode() string {
	if w.Shared {
		return "effects.ledger: shared"
	}
	return "effects.ledger: local"
}

// lock is a mutex for a goroutine that waits for the server while it holds it. A channel takes the
// place of sync.Mutex, because testing/synctest stops its clock while a goroutine waits for a mutex.
type lock chan struct{}

func (l lock) Lock()   { l <- struct{}{} }
func (l lock) Unlock() { <-l }

// Lease prevents a second saga process for the same tenants, and a second effect worker for the
// same commands unless both share their ledger. A process on the same machine takes over its
// store's lease at once if the former holder has ended, and a cluster's node if the holder has a
// lower epoch. Any other process is refused until the lease expires. Call Release after Run has
// returned. Move may be called any time before.
type Lease struct {
	js         jetstream.JetStream
	bucket     jetstream.KeyValueConfig
	log        *zap.Logger
	fence      *Fence
	lostSignal chan struct{} // closed when the lease is lost

	madeOf   func(store string) bool
	mayAdopt bool

	mu          lock // guards the fields below, after the lease is acquired
	kv          jetstream.KeyValue
	held        holder
	revision    uint64 // of the last own write
	lost        error  // why the lease is lost; nil if it is not
	tried       time.Time
	failed      error // result of the renewal that ended at tried
	ownsTenants bool  // the owners bucket lists our store
	recorded    time.Time
	adopted     []string
}

// AcquireLease acquires the lease. An edda.Permanent error names the holder that has it.
func AcquireLease(ctx context.Context, js jetstream.JetStream, o LeaseOptions) (*Lease, error) {
	l := &Lease{mu: make(lock, 1), js: js, bucket: o.bucket(), log: o.Log, madeOf: o.MadeOf, mayAdopt: o.AdoptEmpty, held: holder{
		Store: o.Store, Host: o.Host, Process: o.Process, Epoch: o.Epoch, Tenants: o.Tenants, Share: o.Share, Worker: o.Worker, Since: time.Now().UTC(),
		Where: thisProcess(), File: o.File,
	}, lostSignal: make(chan struct{})}
	l.fence = NewFence(leaseTTL-leaseTTL/fenceEdge, o.Clock, l.ask)
	if l.log == nil {
		l.log = zap.NewNop()
	}
	err := NeedReplicas(ctx, js, "KV_"+LeaseBucket, o.MinReplicas)
	if err == nil && o.Worker == nil {
		err = NeedReplicas(ctx, js, "KV_"+OwnersBucket, o.MinReplicas)
	}
	if err != nil {
		return nil, err
	}
	if l.kv, err = OpenBucket(ctx, js, l.bucket); err != nil {
		return nil, err
	}
	if err := l.request(ctx); err != nil {
		return nil, err
	}
	err = l.contend(ctx)
	if err == nil {
		err = l.claimTenants(ctx, l.held.Tenants)
	}
	if err != nil {
		l.withdraw(ctx)
		return nil, err
	}
	return l, nil
}

func (o LeaseOptions) bucket() jetstream.KeyValueConfig {
	cfg := jetstream.KeyValueConfig{
		Bucket: LeaseBucket, Description: "edda: which process serves which tenants",
		TTL: leaseTTL, Storage: jetstream.FileStorage, Replicas: max(o.Replicas, o.MinReplicas, 1),
	}
	if o.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	return cfg
}

// request writes a lease that is not held yet. A node of a cluster that another process overtakes
// looks again, because only a higher epoch may keep it out.
func (l *Lease) request(ctx context.Context) error {
	retry := backoff.Exponential{First: takeFirst, Most: takeMost}
	for try := 1; ; try++ {
		err := l.requestOnce(ctx)
		if !Overtaken(err) {
			return err
		}
		if l.held.Epoch == 0 {
			return edda.Classify(edda.Permanent, "another %s is starting on store %s: only one may run", l.held.kind(), l.held.Store)
		}
		if try == takeTries {
			return err
		}
		if err := backoff.Wait(ctx, retry.Next()); err != nil {
			return err
		}
	}
}

// requestOnce looks at the lease and writes ours over it.
func (l *Lease) requestOnce(ctx context.Context) error {
	before, err := l.kv.Get(ctx, l.held.key())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return l.write(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	if err := l.mayReplace(before); err != nil {
		return err
	}
	return l.write(ctx, before.Revision())
}

// Fence returns the fence that effects of the process must pass.
func (l *Lease) Fence() *Fence { return l.fence }

// mayReplace returns nil if the former holder of the store's lease has ended, or has a lower epoch.
func (l *Lease) mayReplace(e jetstream.KeyValueEntry) error {
	other, err := readHolder(e)
	if err != nil {
		return nil // nobody holds an unreadable lease
	}
	if supersedes(l.held.Epoch, other.Epoch) {
		return nil
	}
	switch l.held.liveness(other) {
	case hasEnded:
		return nil
	case isAlive:
		return edda.Classify(edda.Permanent,
			"store %s is in use by process %d of this host since %s: stop that one first; a copied store must not run twice",
			other.Store, other.Where.PID, stamp(other.Since))
	}
	return edda.Classify(edda.Permanent,
		"store %s is in use on host %s since %s: stop the %s there, or wait %s after it has gone; a copied store must not run twice",
		other.Store, other.Host, stamp(other.Since), l.held.kind(), leaseTTL)
}

// The liveness of the former holder of a store's lease.
const (
	mayLive  = iota // unknown: on another host, or in another namespace
	isAlive         // runs on this machine
	hasEnded        // ran on this machine
)

// liveness of the other holder of our store's lease. Our lock on the store's file proves that a
// holder of the same file has ended. It proves nothing for the file of a copied store.
func (h holder) liveness(other holder) int {
	mine, its := h.Where, other.Where
	switch {
	case other.Host != h.Host:
		return mayLive
	case mine == processID{} || its == processID{}:
		return hasEnded // unknown to the system, or written by an older version
	case its.Boot != mine.Boot:
		return mayLive // another machine of that name, or this one before a reboot
	case its == mine || other.File != "" && other.File == h.File:
		return hasEnded
	case its.Space != mine.Space:
		return mayLive
	case its.alive():
		return isAlive
	}
	return hasEnded
}

// contend checks for conflicting leases, then takes ours. Of two concurrent requests the earlier
// write wins. A held lease always wins.
func (l *Lease) contend(ctx context.Context) error {
	if err := l.checkConflicts(ctx); err != nil {
		return err
	}
	l.held.Held = true
	err := l.write(ctx, l.revision)
	if Overtaken(err) {
		return edda.Classify(edda.Permanent, "take the lease: another %s has replaced this one on store %s", l.held.kind(), l.held.Store)
	}
	if err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	return nil
}

// checkConflicts returns an error if a conflicting lease precedes ours.
func (l *Lease) checkConflicts(ctx context.Context) error {
	others, err := l.others(ctx)
	if err != nil {
		return err
	}
	for _, e := range others {
		other, err := readHolder(e)
		if err == nil && l.held.conflicts(other) && (other.Held || e.Revision() < l.revision) {
			return l.held.refusal(other)
		}
	}
	return nil
}

// refusal names the conflicting holder and says what to do.
func (h holder) refusal(other holder) error {
	if h.Worker == nil {
		return edda.Classify(edda.Permanent,
			"a saga process with store %s on host %s serves these tenants since %s: stop it, wait %s after it has gone, or give the two different tenants",
			other.Store, other.Host, stamp(other.Since), leaseTTL)
	}
	return edda.Classify(edda.Permanent,
		"an effect worker with store %s on host %s takes the same commands since %s with %s, this one has %s: set effects.ledger: shared for both, give the two different tenants or effects, or stop the other and wait %s",
		other.Store, other.Host, stamp(other.Since), other.Worker.mode(), h.Worker.mode(), leaseTTL)
}

// Move changes the tenants and effects of the lease. On a conflict it changes nothing and returns
// an edda.Permanent error that names the other holder. Meanwhile the lease covers the old and the
// new ones. Of two processes that request the same concurrently, neither gets it. A saga process
// has no effects.
func (l *Lease) Move(ctx context.Context, t wire.Tenants, effects ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.held
	l.held.Tenants, l.held.Worker = union(before.Tenants, t), before.Worker.with(effects, true)
	err := l.write(ctx, l.revision)
	if err == nil {
		err = l.checkConflicts(ctx)
	}
	if err == nil {
		err = l.claimTenants(ctx, t)
	}
	if err != nil {
		l.held = before
		return errors.Join(err, l.write(ctx, l.revision))
	}
	l.held.Tenants, l.held.Worker = t, before.Worker.with(effects, false)
	return l.write(ctx, l.revision)
}

// with returns a copy with other effects, or with both if both is set.
func (w *WorkerLease) with(effects []string, both bool) *WorkerLease {
	if w == nil {
		return nil
	}
	if both {
		effects = slices.Concat(w.Effects, effects)
	}
	return &WorkerLease{Effects: effects, Shared: w.Shared}
}

// union returns the tenants of both; none means all.
func union(a, b wire.Tenants) wire.Tenants {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	return slices.Concat(a, b)
}

func (l *Lease) others(ctx context.Context) ([]jetstream.KeyValueEntry, error) {
	keys, err := keys(ctx, l.js, LeaseBucket)
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var out []jetstream.KeyValueEntry
	for _, key := range keys {
		if key == l.held.key() {
			continue
		}
		e, err := l.kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look at lease %s: %w", key, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// write replaces the revision over of our lease; 0 means none.
func (l *Lease) write(ctx context.Context, over uint64) error {
	value, err := json.Marshal(l.held)
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	sent := l.fence.Now()
	revision, err := put(ctx, l.kv, l.held.key(), value, over)
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	l.revision = revision
	if l.held.Held {
		l.fence.Extend(sent)
	}
	return nil
}

func readHolder(e jetstream.KeyValueEntry) (holder, error) {
	var h holder
	err := json.Unmarshal(e.Value(), &h)
	return h, err
}

// Run renews the lease until ctx ends. It returns ErrLeaseLost when another process has the lease.
// Then the fence is shut and everything must stop. Without a connection it retries; meanwhile the
// process can read no stream either.
func (l *Lease) Run(ctx context.Context) error {
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.lostSignal:
		case <-tick.C:
		}
		err := l.renew(ctx)
		if errors.Is(err, ErrLeaseLost) {
			return err
		}
		if err == nil {
			l.mu.Lock()
			l.touchOwner(ctx, false)
			l.mu.Unlock()
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("renew the lease failed, trying again", zap.Error(err))
		}
	}
}

// Renew renews the lease once, during a long start before Run. The error is edda.Permanent if
// another process has the lease.
func (l *Lease) Renew(ctx context.Context) error {
	err := l.renew(ctx)
	if errors.Is(err, ErrLeaseLost) {
		return edda.Classify(edda.Permanent, "renew the lease: %w", err)
	}
	return err
}

// renew continues for leaseStop after ctx has ended, because after a write with unknown outcome we
// would not know our revision. It does not wait longer for a server that does not answer; the lease
// then expires.
func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewLocked(ctx)
}

// ask renews a lease whose fence is closed. Concurrent callers share one renewal.
func (l *Lease) ask(ctx context.Context) error {
	came := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence.Open() {
		return nil
	}
	if l.lost == nil && !l.tried.After(came) {
		_ = l.renewLocked(ctx) // the result is in failed
	}
	switch {
	case l.lost != nil:
		return l.lost
	case l.failed != nil:
		return edda.Classify(edda.Temporary, "the lease on store %s ran out and cannot be renewed: nothing is called, sent or committed until NATS answers: %w", l.held.Store, l.failed)
	}
	return nil
}

// renewLocked renews the lease and records the result. The caller holds l.mu.
func (l *Lease) renewLocked(ctx context.Context) error {
	if l.lost != nil {
		return l.lost
	}
	err := l.attempt(ctx)
	l.tried, l.failed = time.Now(), err
	if errors.Is(err, ErrLeaseLost) {
		l.lose(err)
	}
	return err
}

// lose closes the fence for good. The caller holds l.mu.
func (l *Lease) lose(why error) {
	l.fence.Shut()
	l.lost = why
	close(l.lostSignal)
}

func (l *Lease) attempt(ctx context.Context) error {
	if !l.fence.Open() && l.js.Conn().Status() != nats.CONNECTED {
		return nats.ErrDisconnected // without a wait for the server
	}
	ended := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	defer context.AfterFunc(ended, func() { time.AfterFunc(leaseStop, cancel) })()
	err := l.write(ctx, l.revision)
	if err == nil {
		return nil
	}
	if !Overtaken(err) { // the server may have lost a bucket in memory
		kv, errOpen := OpenBucket(ctx, l.js, l.bucket)
		if errOpen != nil {
			return errors.Join(err, errOpen)
		}
		l.kv = kv
	}
	return l.recover(ctx)
}

// recover finds out why a renewal failed: a lost ack, a lease that expired while the server was
// away, or another process. An expired lease may have gone to a node with a lower epoch that has
// yet to notice its successor.
func (l *Lease) recover(ctx context.Context) error {
	e, err := l.kv.Get(ctx, l.held.key())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return l.reacquire(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	other, err := readHolder(e)
	if err == nil && supersedes(l.held.Epoch, other.Epoch) {
		return l.reacquire(ctx, e.Revision())
	}
	if err == nil && other.Process != l.held.Process {
		return fmt.Errorf("%w: by process %s on host %s", ErrLeaseLost, other.Process, other.Host)
	}
	return l.write(ctx, e.Revision())
}

// reacquire acquires an expired lease again. It replaces the revision over; 0 means none.
func (l *Lease) reacquire(ctx context.Context, over uint64) error {
	l.held.Held = false
	if err := l.write(ctx, over); err != nil {
		l.held.Held = true
		return err
	}
	err := l.contend(ctx)
	if err == nil {
		err = l.claimTenants(ctx, l.held.Tenants) // another process may have run meanwhile
	}
	if errors.Is(err, edda.Permanent) {
		l.withdraw(ctx)
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

// Release gives up the lease, so that the next process need not wait. Run must have returned.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.touchOwner(ctx, true)
		l.lose(errReleased)
	}
	return l.release(ctx)
}

// errReleased is the error after Release.
var errReleased = errors.New("the lease was released")

func (l *Lease) release(ctx context.Context) error {
	err := l.kv.Delete(ctx, l.held.key(), jetstream.LastRevision(l.revision))
	if err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}

// withdraw deletes our request. If that fails, the request expires.
func (l *Lease) withdraw(ctx context.Context) {
	if err := l.release(ctx); err != nil {
		l.log.Warn("withdraw from the lease failed", zap.Error(err))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
