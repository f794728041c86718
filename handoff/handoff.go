// Package handoff takes effect commands from the outbox to the effect worker of the same
// process, and the worker's results to the engine, without a way through the stream.
//
// It promises nothing that the outbox does not: a command's row stays until its result is
// committed, and is handed over again at the next start. What finds no taker is published,
// as all other work is. It refuses to hold more commands than a bound: the stream carries
// the others.
package handoff

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/outbox"
	"edda/stream/wire"
)

const (
	// maxHanded commands of one effect, and as many bytes of them, are in the hands
	// of this process at most, with those that rest until they may be tried again;
	// the stream carries the others, as it would carry all. No more than a worker
	// lets wait: then what it does not take is what it does not work on.
	maxHanded      = 1024
	maxHandedBytes = 16 << 20
	// handedAgain is the wait before what could not be published is tried again.
	handedAgain = time.Second
	// handedSoon is when a command is offered again that was not taken although its
	// effect is worked on here: its line is about to begin, as it is at the start.
	handedSoon = 20 * time.Millisecond
)

// Worker calls effects; [effects.Worker] is the one there is.
type Worker interface {
	// Offer is false where the command is not taken now. It may be called concurrently.
	Offer(d effects.Delivery) bool
	// Serves tells whether commands of the effect are taken, as a rule. Likewise.
	Serves(effect string) bool
}

// Applies takes results; [engine.Engine] is the one there is.
type Applies interface {
	Result(ctx context.Context, r engine.Handed) error
}

// Handoff is the outbox's destination of what goes to the streams. Its methods may be called
// concurrently.
type Handoff struct {
	codec     wire.Codec
	publisher outbox.Destination
	log       *zap.Logger
	tenants   atomic.Pointer[wire.Tenants]
	wake      chan struct{} // capacity 1: something came back

	mu       sync.Mutex // guards what follows
	worker   Worker     // nil: everything is published
	engine   Applies
	caughtUp <-chan struct{}    // closed once the sagas have what lay in the streams
	held     map[string]*burden // by effect
	inHand   map[handedName]*edda.Work
	resting  []*handed // by time
}

// handedName tells commands apart: one tenant's ids say nothing of another's.
type handedName struct{ tenant, id string }

func nameOf(w *edda.Work) handedName { return handedName{w.From.Tenant, w.ID} }

// burden is what the process has of one effect's commands.
type burden struct{ n, bytes int }

var (
	_ outbox.Destination = (*Handoff)(nil)
	_ outbox.Taker       = (*Handoff)(nil)
	_ effects.Applier    = (*Handoff)(nil)
)

// New makes one for commands of tenants; until Connect everything is published. The codec is
// the publisher's.
func New(codec wire.Codec, publisher outbox.Destination, tenants wire.Tenants, log *zap.Logger) *Handoff {
	if log == nil {
		log = zap.NewNop()
	}
	h := &Handoff{codec: codec, publisher: publisher, log: log, wake: make(chan struct{}, 1), held: map[string]*burden{}, inHand: map[handedName]*edda.Work{}}
	h.tenants.Store(&tenants)
	return h
}

// Connect says who takes commands and results, these once caughtUp is closed. It is
// called before Run.
func (h *Handoff) Connect(w Worker, e Applies, caughtUp <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker, h.engine, h.caughtUp = w, e, caughtUp
}

// SetTenants changes whose commands are executed here; those of others are
// published. What was handed over already is finished.
func (h *Handoff) SetTenants(t wire.Tenants) { h.tenants.Store(&t) }

// Deliver publishes: what the worker takes was offered to it before.
func (h *Handoff) Deliver(ctx context.Context, batch []edda.Work) []error {
	return h.publisher.Deliver(ctx, batch)
}

// Take hands a command over to the worker, if that takes it.
func (h *Handoff) Take(w *edda.Work) bool {
	codec := h.codec
	if w.Kind != edda.WorkEffect || !codec.NoTenancy && !h.tenants.Load().Match(w.From.Tenant) {
		return false
	}
	cmd, fits := codec.Offered(w)
	if !fits {
		return false
	}
	if is, room := h.take(w); is || !room {
		return is
	}
	if !h.offer(&handed{h: h, work: w, command: cmd}) {
		h.letGo(w)
		return false
	}
	// gofail: var effectHanded struct{}
	return true
}

// offer is false where nobody will take the command.
func (h *Handoff) offer(d *handed) bool {
	h.mu.Lock()
	w := h.worker
	h.mu.Unlock()
	switch {
	case w == nil || !w.Serves(d.work.Name):
		return false
	case !w.Offer(d):
		h.rest(d, handedSoon)
	}
	return true
}

// take counts a command, if there is room for it. One that is here already need not
// be taken again: the relay sweeps over all that wait for their results.
func (h *Handoff) take(w *edda.Work) (is, room bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inHand[nameOf(w)] != nil {
		return true, true
	}
	b := h.held[w.Name]
	if b == nil {
		b = &burden{}
		h.held[w.Name] = b
	}
	if b.n >= maxHanded || b.n > 0 && b.bytes+len(w.Payload) > maxHandedBytes {
		return false, false
	}
	b.n++
	b.bytes += len(w.Payload)
	h.inHand[nameOf(w)] = w
	return false, true
}

func (h *Handoff) letGo(w *edda.Work) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inHand, nameOf(w))
	b := h.held[w.Name]
	b.bytes -= len(w.Payload)
	if b.n--; b.n == 0 {
		delete(h.held, w.Name)
	}
}

// errBehind is returned for a result that must come behind what the streams hold.
var errBehind = edda.Classify(edda.Temporary, "the sagas have not caught up with their streams")

// Apply gives a result to the engine, with its claim and the copy for all others. While
// there are events that were stored before this process began, it would pass them by;
// through the stream it comes behind them.
func (h *Handoff) Apply(ctx context.Context, r effects.Result, c edda.Claim) error {
	h.mu.Lock()
	to, caughtUp, w := h.engine, h.caughtUp, h.inHand[handedName{r.Tenant, r.CommandID}]
	h.mu.Unlock()
	select {
	case <-caughtUp:
	default:
		return errBehind
	}
	ev, copied, err := h.codec.Applied(r, w)
	if err != nil {
		return err
	}
	return to.Result(ctx, engine.Handed{Event: ev, Claim: c, Echo: copied})
}

// Run brings back what was given back, when its time has come, until ctx ends.
func (h *Handoff) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		h.runOnce(ctx)
		timer.Reset(h.pause(time.Now()))
		select {
		case <-h.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}

func (h *Handoff) runOnce(ctx context.Context) {
	var strays []*handed
	for _, d := range h.due(time.Now()) {
		if again := (&handed{h: h, work: d.work, command: d.command}); !h.offer(again) {
			strays = append(strays, again)
		}
	}
	h.publish(ctx, strays)
}

// publish lets the stream carry what has no taker here.
func (h *Handoff) publish(ctx context.Context, strays []*handed) {
	if len(strays) == 0 {
		return
	}
	work := make([]edda.Work, len(strays))
	for i, d := range strays {
		work[i] = *d.work
	}
	errs := h.publisher.Deliver(ctx, work)
	for i, d := range strays {
		if errs != nil && errs[i] != nil {
			h.log.Debug("a command is not published yet", zap.String("command", d.work.ID), zap.Error(errs[i]))
			h.rest(d, handedAgain)
			continue
		}
		h.letGo(d.work)
	}
}

// Flush publishes whatever rests here, once the worker has stopped: another process
// may take it. What cannot be published is handed over again at the next start.
func (h *Handoff) Flush(ctx context.Context) error {
	h.mu.Lock()
	all := h.resting
	h.worker, h.resting = nil, nil
	h.mu.Unlock()
	h.publish(ctx, all)
	return nil
}

// rest keeps a command until it may be tried again.
func (h *Handoff) rest(d *handed, after time.Duration) {
	h.mu.Lock()
	d.until = time.Now().Add(after)
	at, _ := slices.BinarySearchFunc(h.resting, d.until, func(d *handed, t time.Time) int {
		if d.until.After(t) {
			return 1
		}
		return -1
	})
	h.resting = slices.Insert(h.resting, at, d)
	h.mu.Unlock()
	signal(h.wake)
}

func (h *Handoff) due(now time.Time) []*handed {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.resting) && !h.resting[n].until.After(now) {
		n++
	}
	out := slices.Clone(h.resting[:n])
	h.resting = slices.Delete(h.resting, 0, n)
	return out
}

// lookAgain is how long the loop sleeps where nothing rests.
const lookAgain = time.Minute

func (h *Handoff) pause(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.resting) == 0 {
		return lookAgain
	}
	return max(0, h.resting[0].until.Sub(now))
}

// handed is one command in the hands of this process.
type handed struct {
	h       *Handoff
	work    *edda.Work // the relay's, which nobody changes
	command effects.Command
	settled atomic.Bool
	until   time.Time // while it rests
}

func (d *handed) Command() *effects.Command { return &d.command }

// InProgress has nothing to say: nobody else waits for it.
func (d *handed) InProgress(context.Context) error { return nil }

func (d *handed) Ack(context.Context) error {
	if !d.settled.Swap(true) {
		d.h.letGo(d.work)
	}
	return nil
}

// Nak brings it back after the delay.
func (d *handed) Nak(_ context.Context, delay time.Duration) error {
	if !d.settled.Swap(true) {
		d.h.rest(d, delay)
	}
	return nil
}

// signal wakes the receiver of a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
