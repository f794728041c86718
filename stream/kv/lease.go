package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/stream/wire"
)

const (
	// LeaseBucket is the KV bucket of leases; its keys are stores' ids, after
	// workerPrefix for effect workers.
	LeaseBucket  = "EDDA_LEASES"
	workerPrefix = "effects."
	// leaseTTL is how long a lease outlives a process that vanished.
	leaseTTL = 15 * time.Second
	// leaseRenew leaves time for two failed attempts.
	leaseRenew = leaseTTL / 3
	// leaseStop is how long a renewal may go on once it is told to stop.
	leaseStop = time.Second
)

// ErrLeaseLost says that another process has taken the lease over, for good.
var ErrLeaseLost = errors.New("the lease was taken over")

// LeaseOptions say who asks for a lease.
type LeaseOptions struct {
	Store   string       // the store's id
	Host    string       // this machine
	Process string       // different for each start
	Tenants wire.Tenants // what the process takes in; none is all
	// MadeOf tells whether the store was made of another one's rows: the tenants that the
	// other one served are its own. Nil: of none.
	MadeOf func(store string) bool
	// AdoptEmpty takes tenants over that another store served, without their instances.
	AdoptEmpty bool
	// File names the store's file on this machine, of which the process has the lock: who
	// has the lock of the same file knows that the former holder is gone.
	File string
	// Clock counts also while the process or the machine is paused; the system's when nil.
	Clock func() time.Duration
	// Worker is set for the lease of an effect worker; else it is a saga process's.
	Worker *WorkerLease
	// Replicas of the bucket where it is made; 1 when zero.
	Replicas int
	// Memory is for a server that lives and dies with this process: nothing need
	// be kept on disk.
	Memory bool
	Log    *zap.Logger
}

// WorkerLease is what an effect worker adds to its lease: two may take the same
// commands only where both share their ledger.
type WorkerLease struct {
	Effects []string `json:"effects"`
	Shared  bool     `json:"shared"`
}

// holder is what a lease says.
type holder struct {
	Store   string       `json:"store"`
	Host    string       `json:"host"`
	Process string       `json:"process"`
	Tenants []string     `json:"tenants,omitempty"`
	Worker  *WorkerLease `json:"worker,omitempty"`
	// Held is false while the process still looks whether another has the tenants.
	Held  bool      `json:"held"`
	Since time.Time `json:"since"`
	// Where and File tell a holder on this host that has ended from one that lives.
	Where processID `json:"where,omitzero"`
	File  string    `json:"file,omitempty"`
}

// processID tells a process from all others that this machine ever ran, as far as the
// system says. Its number is one of a namespace: containers count from one each.
type processID struct {
	Boot    string `json:"boot"`
	Space   string `json:"space"`
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // ticks since the boot
}

// key is where the lease of this holder is.
func (h holder) key() string {
	if h.Worker != nil {
		return workerPrefix + h.Store
	}
	return h.Store
}

// kind is what the holder is, for people.
func (h holder) kind() string {
	if h.Worker != nil {
		return "effect worker"
	}
	return "saga process"
}

// rivals tells whether two holders may not both work.
func (h holder) rivals(other holder) bool {
	if (h.Worker == nil) != (other.Worker == nil) || !wire.Tenants(h.Tenants).Overlap(other.Tenants) {
		return false
	}
	return h.Worker == nil || h.Worker.rivals(*other.Worker)
}

func (w WorkerLease) rivals(other WorkerLease) bool {
	return !(w.Shared && other.Shared) &&
		slices.ContainsFunc(w.Effects, func(name string) bool { return slices.Contains(other.Effects, name) })
}

// mode is the setting that decides.
func (w WorkerLease) mode() string {
	if w.Shared {
		return "effects.ledger: shared"
	}
	return "effects.ledger: local"
}

// Lease keeps a second saga process from the same tenants, and a second effect
// worker from the same commands unless both share their ledger. A process on the same
// machine takes its store's lease over at once where the former holder has ended; any
// other process is refused until the lease has run out. Release
// comes after Run has returned; Move may be called at any time between.
type Lease struct {
	js         jetstream.JetStream
	bucket     jetstream.KeyValueConfig
	log        *zap.Logger
	fence      *Fence
	lostSignal chan struct{} // closed when the lease is lost

	madeOf   func(store string) bool
	mayAdopt bool

	mu          sync.Mutex // guards all below, once the lease is acquired
	kv          jetstream.KeyValue
	held        holder
	revision    uint64 // of our last write
	lost        error  // why it is lost; nil while it is not
	tried       time.Time
	failed      error // what the renewal that ended at tried came to
	ownsTenants bool  // our store is known as the one that has the tenants
	recorded    time.Time
	adopted     []string
}

// AcquireLease takes the lease or says, with an edda.Permanent error, who has it.
func AcquireLease(ctx context.Context, js jetstream.JetStream, o LeaseOptions) (*Lease, error) {
	l := &Lease{js: js, bucket: o.bucket(), log: o.Log, madeOf: o.MadeOf, mayAdopt: o.AdoptEmpty, held: holder{
		Store: o.Store, Host: o.Host, Process: o.Process, Tenants: o.Tenants, Worker: o.Worker, Since: time.Now().UTC(),
		Where: thisProcess(), File: o.File,
	}, lostSignal: make(chan struct{})}
	l.fence = newFence(o.Clock, l.ask)
	if l.log == nil {
		l.log = zap.NewNop()
	}
	var err error
	if l.kv, err = openBucket(ctx, js, l.bucket); err != nil {
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
		TTL: leaseTTL, Storage: jetstream.FileStorage, Replicas: max(o.Replicas, 1),
	}
	if o.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	return cfg
}

// request writes our wish under our key.
func (l *Lease) request(ctx context.Context) error {
	before, err := l.kv.Get(ctx, l.held.key())
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		err = l.write(ctx, 0)
	case err != nil:
		return fmt.Errorf("look at the lease: %w", err)
	default:
		if err := l.mayReplace(before); err != nil {
			return err
		}
		err = l.write(ctx, before.Revision())
	}
	if overtaken(err) {
		return edda.Classify(edda.Permanent, "another %s is starting on store %s: only one may run", l.held.kind(), l.held.Store)
	}
	return err
}

func (l *Lease) touch(ctx context.Context, now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touchOwner(ctx, now)
}

// Fence of the lease: what the process does for others passes it first.
func (l *Lease) Fence() *Fence { return l.fence }

// mayReplace tells whether the store's lease is one whose holder has ended.
func (l *Lease) mayReplace(e jetstream.KeyValueEntry) error {
	other, err := readHolder(e)
	if err != nil {
		return nil // unreadable leases are nobody's
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

// What this process knows of the former holder of its store's lease.
const (
	mayLive  = iota // it cannot be looked at from here
	isAlive         // it runs on this machine
	hasEnded        // it ran on this machine
)

// liveness of the other holder of our store's lease. The lock of the store's file says that
// it has ended; of another file, which a copied store has, it says nothing.
func (h holder) liveness(other holder) int {
	mine, its := h.Where, other.Where
	switch {
	case other.Host != h.Host:
		return mayLive
	case mine == processID{} || its == processID{}:
		return hasEnded // the system does not tell, or an older edda wrote the lease
	case its.Boot != mine.Boot:
		return mayLive // another machine of that name, or this one before a start
	case its == mine || other.File != "" && other.File == h.File:
		return hasEnded
	case its.Space != mine.Space:
		return mayLive
	case its.lives():
		return isAlive
	}
	return hasEnded
}

// contend looks for other stores' leases on what is ours. Of two that wish at
// once the earlier write wins; one that is held always does.
func (l *Lease) contend(ctx context.Context) error {
	if err := l.alone(ctx); err != nil {
		return err
	}
	l.held.Held = true
	if err := l.write(ctx, l.revision); err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	return nil
}

// alone is nil when no other lease that goes before ours is in its way.
func (l *Lease) alone(ctx context.Context) error {
	others, err := l.others(ctx)
	if err != nil {
		return err
	}
	for _, e := range others {
		other, err := readHolder(e)
		if err == nil && l.held.rivals(other) && (other.Held || e.Revision() < l.revision) {
			return l.held.refusal(other)
		}
	}
	return nil
}

// refusal says who is in the way, and what to do.
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

// Move takes the lease to other tenants and effects, or leaves it as it is and
// says, with an edda.Permanent error, who has one of them. Between the two it
// holds both; of two processes that reach for the same at once neither gets it.
// The effects of a saga process are none.
func (l *Lease) Move(ctx context.Context, t wire.Tenants, effects ...string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.held
	l.held.Tenants, l.held.Worker = union(before.Tenants, t), before.Worker.with(effects, true)
	err := l.write(ctx, l.revision)
	if err == nil {
		err = l.alone(ctx)
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

// with is the same for other effects, perhaps with those that were there.
func (w *WorkerLease) with(effects []string, both bool) *WorkerLease {
	if w == nil {
		return nil
	}
	if both {
		effects = slices.Concat(w.Effects, effects)
	}
	return &WorkerLease{Effects: effects, Shared: w.Shared}
}

// union is the tenants of both; none is all.
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

// write puts our lease in place of the revision; 0 is for none.
func (l *Lease) write(ctx context.Context, over uint64) error {
	value, err := json.Marshal(l.held)
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	sent := l.fence.now()
	revision, err := put(ctx, l.kv, l.held.key(), value, over)
	if err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	l.revision = revision
	if l.held.Held {
		l.fence.extend(sent)
	}
	return nil
}

func readHolder(e jetstream.KeyValueEntry) (holder, error) {
	var h holder
	err := json.Unmarshal(e.Value(), &h)
	return h, err
}

// Run renews the lease until ctx ends. It returns ErrLeaseLost when another
// process has it: the fence is shut then, and everything must stop. Without a connection
// it keeps trying; nothing can be read from a stream meanwhile either.
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
			l.touch(ctx, false)
		}
		if err != nil && ctx.Err() == nil {
			l.log.Warn("renew the lease failed, trying again", zap.Error(err))
		}
	}
}

// Renew renews it once, before Run: for a start that takes long. The error is
// edda.Permanent when another process has it now.
func (l *Lease) Renew(ctx context.Context) error {
	err := l.renew(ctx)
	if errors.Is(err, ErrLeaseLost) {
		return edda.Classify(edda.Permanent, "renew the lease: %w", err)
	}
	return err
}

// renew is not cut short by the end of ctx, or only after a moment: a write of
// unknown fate would leave us without our revision. But a stop does not wait for
// a server that says nothing; the lease then runs out by itself.
func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renewed(ctx)
}

// ask renews a lease whose fence is not open. All who come while one renewal is under way
// share what came of it.
func (l *Lease) ask(ctx context.Context) error {
	came := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fence.Open() {
		return nil
	}
	if l.lost == nil && !l.tried.After(came) {
		_ = l.renewed(ctx) // failed says what came of it
	}
	switch {
	case l.lost != nil:
		return l.lost
	case l.failed != nil:
		return edda.Classify(edda.Temporary, "the lease on store %s ran out and cannot be renewed: nothing is called, sent or committed until NATS answers: %w", l.held.Store, l.failed)
	}
	return nil
}

// renewed renews it, and notes what came of that. Its caller holds l.mu.
func (l *Lease) renewed(ctx context.Context) error {
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

// lose shuts the fence for good. Its caller holds l.mu.
func (l *Lease) lose(why error) {
	l.fence.shut()
	l.lost = why
	close(l.lostSignal)
}

func (l *Lease) attempt(ctx context.Context) error {
	if !l.fence.Open() && l.js.Conn().Status() != nats.CONNECTED {
		return nats.ErrDisconnected // who asks need not wait to hear that
	}
	ended := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	defer context.AfterFunc(ended, func() { time.AfterFunc(leaseStop, cancel) })()
	err := l.write(ctx, l.revision)
	if err == nil {
		return nil
	}
	if !overtaken(err) { // the bucket may be gone with the server's memory
		kv, errOpen := openBucket(ctx, l.js, l.bucket)
		if errOpen != nil {
			return errors.Join(err, errOpen)
		}
		l.kv = kv
	}
	return l.recover(ctx)
}

// recover finds out why a renewal was refused: an ack that was lost, a lease
// that ran out while the server was away, or another process.
func (l *Lease) recover(ctx context.Context) error {
	e, err := l.kv.Get(ctx, l.held.key())
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return l.reacquire(ctx)
	}
	if err != nil {
		return fmt.Errorf("look at the lease: %w", err)
	}
	other, err := readHolder(e)
	if err == nil && other.Process != l.held.Process {
		return fmt.Errorf("%w: by process %s on host %s", ErrLeaseLost, other.Process, other.Host)
	}
	return l.write(ctx, e.Revision())
}

// reacquire takes the lease again after it ran out, as if for the first time.
func (l *Lease) reacquire(ctx context.Context) error {
	l.held.Held = false
	if err := l.write(ctx, 0); err != nil {
		l.held.Held = true
		return err
	}
	err := l.contend(ctx)
	if err == nil {
		err = l.claimTenants(ctx, l.held.Tenants) // another may have come and gone meanwhile
	}
	if errors.Is(err, edda.Permanent) {
		l.withdraw(ctx)
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

// Release gives the lease back, so that the next process need not wait. Run must
// have returned.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.touchOwner(ctx, true)
		l.lose(errReleased)
	}
	return l.release(ctx)
}

// errReleased is what is told once the lease was given back.
var errReleased = errors.New("the lease was given back")

func (l *Lease) release(ctx context.Context) error {
	err := l.kv.Delete(ctx, l.held.key(), jetstream.LastRevision(l.revision))
	if err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	return nil
}

// withdraw takes a wish back; what remains runs out by itself.
func (l *Lease) withdraw(ctx context.Context) {
	if err := l.release(ctx); err != nil {
		l.log.Warn("withdraw from the lease failed", zap.Error(err))
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
