// Package handoff passes effect commands from the outbox to the effect worker of the same process,
// and the worker's results to the engine. Neither goes through JetStream.
//
// It promises nothing beyond the outbox: the row of a command stays in the store until its result
// is committed, and the relay offers it again after a restart. A command that no worker here takes
// is published, like all other work. The number and bytes of commands in memory are bounded; the
// stream carries the rest.
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
	// maxCommands and maxCommandBytes bound the commands of one effect in this process, delayed
	// ones included. They are not larger than a worker's own queue, so that the stream carries what
	// the worker could not hold anyway.
	maxCommands     = 1024
	maxCommandBytes = 16 << 20
	// publishRetry is the delay before a command that could not be published is tried again.
	publishRetry = time.Second
	// offerRetry is the delay before a command is offered again to a worker that serves its effect
	// and did not take it. At a start the consumer of the effect is not running yet.
	offerRetry = 20 * time.Millisecond
	// idleWait is how long the loop sleeps while no command is delayed.
	idleWait = time.Minute
)

// Worker executes effect commands; [effects.Worker] implements it. Its methods may be called
// concurrently.
type Worker interface {
	// Offer reports whether the worker took the command.
	Offer(d effects.Delivery) bool
	// Serves reports whether the worker has a consumer for the effect, now or soon.
	Serves(effect string) bool
}

// Engine applies results; [engine.Engine] implements it.
type Engine interface {
	Result(ctx context.Context, r engine.Handed) error
}

// Handoff is the outbox's destination for work that goes to the streams. Its methods may be called
// concurrently.
type Handoff struct {
	codec     wire.Codec
	publisher outbox.Destination
	log       *zap.Logger
	tenants   atomic.Pointer[wire.Tenants]
	wake      chan struct{} // capacity 1: delayed has a new command

	mu       sync.Mutex // guards the fields below
	worker   Worker     // nil: publish everything
	engine   Engine
	caughtUp <-chan struct{}   // closed when the engine has handled the backlog of the streams
	queued   map[string]*usage // by effect
	commands map[commandKey]*edda.Work
	delayed  []*delivery // by time
}

// commandKey identifies a command. Ids are unique within a tenant only.
type commandKey struct{ tenant, id string }

func keyOf(w *edda.Work) commandKey { return commandKey{w.From.Tenant, w.ID} }

// usage is what the commands of one effect take up.
type usage struct{ n, bytes int }

var (
	_ outbox.Destination = (*Handoff)(nil)
	_ outbox.Taker       = (*Handoff)(nil)
	_ effects.Applier    = (*Handoff)(nil)
)

// New makes a handoff for the commands of the tenants. It publishes everything until Connect. The
// codec must be the publisher's.
func New(codec wire.Codec, publisher outbox.Destination, tenants wire.Tenants, log *zap.Logger) *Handoff {
	if log == nil {
		log = zap.NewNop()
	}
	h := &Handoff{codec: codec, publisher: publisher, log: log, wake: make(chan struct{}, 1), queued: map[string]*usage{}, commands: map[commandKey]*edda.Work{}}
	h.tenants.Store(&tenants)
	return h
}

// Connect sets the worker that takes commands and the engine that takes results. The engine gets
// none before caughtUp is closed. Call it before Run.
func (h *Handoff) Connect(w Worker, e Engine, caughtUp <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker, h.engine, h.caughtUp = w, e, caughtUp
}

// SetTenants replaces the tenants whose commands are executed here. Commands that the worker has
// already are still executed.
func (h *Handoff) SetTenants(t wire.Tenants) { h.tenants.Store(&t) }

// Deliver publishes the batch. The relay has called Take for each item before.
func (h *Handoff) Deliver(ctx context.Context, batch []edda.Work) []error {
	return h.publisher.Deliver(ctx, batch)
}

// Take passes a command to the worker. It is true, too, for a command that is here already: the
// relay offers commands without a result again from time to time.
func (h *Handoff) Take(w *edda.Work) bool {
	if w.Kind != edda.WorkEffect || !h.codec.NoTenancy && !h.tenants.Load().Match(w.From.Tenant) {
		return false
	}
	cmd, fits := h.codec.Offered(w)
	if !fits {
		return false
	}
	if known, admitted := h.admit(w); known || !admitted {
		return known
	}
	if !h.offer(&delivery{h: h, work: w, command: cmd}) {
		h.release(w)
		return false
	}
	// gofail: var effectHanded struct{}
	return true
}

// offer offers the command to the worker, and delays it if the worker serves the effect but does
// not take it. It returns false if the worker does not serve the effect.
func (h *Handoff) offer(d *delivery) bool {
	h.mu.Lock()
	w := h.worker
	h.mu.Unlock()
	if w == nil || !w.Serves(d.work.Name) {
		return false
	}
	if !w.Offer(d) {
		h.delay(d, offerRetry)
	}
	return true
}

// admit counts a command if it is not known yet and the bounds allow it.
func (h *Handoff) admit(w *edda.Work) (known, admitted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commands[keyOf(w)] != nil {
		return true, false
	}
	u := h.queued[w.Name]
	if u == nil {
		u = &usage{}
		h.queued[w.Name] = u
	}
	if u.n >= maxCommands || u.n > 0 && u.bytes+len(w.Payload) > maxCommandBytes {
		return false, false
	}
	u.n++
	u.bytes += len(w.Payload)
	h.commands[keyOf(w)] = w
	return false, true
}

// release undoes admit.
func (h *Handoff) release(w *edda.Work) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.commands, keyOf(w))
	u := h.queued[w.Name]
	u.bytes -= len(w.Payload)
	if u.n--; u.n == 0 {
		delete(h.queued, w.Name)
	}
}

// errBehind refuses a result while the engine still reads the backlog of the streams.
var errBehind = edda.Classify(edda.Temporary, "the sagas have not caught up with their streams")

// Apply gives a result to the engine, with its claim and the echo for the stream. It fails until
// the engine has caught up, because the result would overtake older events. The worker then
// publishes the result.
func (h *Handoff) Apply(ctx context.Context, r effects.Result, c edda.Claim) error {
	h.mu.Lock()
	to, caughtUp, w := h.engine, h.caughtUp, h.commands[commandKey{r.Tenant, r.CommandID}]
	h.mu.Unlock()
	select {
	case <-caughtUp:
	default:
		return errBehind
	}
	ev, echo, err := h.codec.Applied(r, w)
	if err != nil {
		return err
	}
	return to.Result(ctx, engine.Handed{Event: ev, Claim: c, Echo: echo})
}

// Run offers delayed commands again when they are due, until ctx ends.
func (h *Handoff) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(h.runOnce(ctx))
		select {
		case <-h.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// runOnce offers the due commands, publishes those that the worker does not serve, and returns the
// wait until the next command is due.
func (h *Handoff) runOnce(ctx context.Context) time.Duration {
	now := time.Now()
	h.mu.Lock()
	n := 0
	for n < len(h.delayed) && !h.delayed[n].due.After(now) {
		n++
	}
	due := slices.Clone(h.delayed[:n])
	h.delayed = slices.Delete(h.delayed, 0, n)
	h.mu.Unlock()
	var unserved []*delivery
	for _, d := range due {
		if again := (&delivery{h: h, work: d.work, command: d.command}); !h.offer(again) {
			unserved = append(unserved, again)
		}
	}
	h.publish(ctx, unserved)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.delayed) == 0 {
		return idleWait
	}
	return max(0, time.Until(h.delayed[0].due))
}

// publish sends commands to their stream, and delays those that it could not send.
func (h *Handoff) publish(ctx context.Context, ds []*delivery) {
	if len(ds) == 0 {
		return
	}
	work := make([]edda.Work, len(ds))
	for i, d := range ds {
		work[i] = *d.work
	}
	errs := h.publisher.Deliver(ctx, work)
	for i, d := range ds {
		if errs != nil && errs[i] != nil {
			h.log.Debug("a command is not published yet", zap.String("command", d.work.ID), zap.Error(errs[i]))
			h.delay(d, publishRetry)
			continue
		}
		h.release(d.work)
	}
}

// Flush publishes the delayed commands, so that another process can execute them. The worker must
// have stopped. The relay offers a command that could not be published again at the next start.
func (h *Handoff) Flush(ctx context.Context) error {
	h.mu.Lock()
	all := h.delayed
	h.worker, h.delayed = nil, nil
	h.mu.Unlock()
	h.publish(ctx, all)
	return nil
}

// delay keeps a command until it is offered again.
func (h *Handoff) delay(d *delivery, after time.Duration) {
	h.mu.Lock()
	d.due = time.Now().Add(after)
	at, _ := slices.BinarySearchFunc(h.delayed, d.due, func(d *delivery, t time.Time) int {
		if d.due.After(t) {
			return 1
		}
		return -1
	})
	h.delayed = slices.Insert(h.delayed, at, d)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// delivery is one offer of a command to the worker.
type delivery struct {
	h       *Handoff
	work    *edda.Work // shared with the relay, which does not change it
	command effects.Command
	settled atomic.Bool // by Ack or Nak
	due     time.Time   // of the next offer, while the command is delayed
}

func (d *delivery) Command() *effects.Command { return &d.command }

// InProgress does nothing: no other worker waits for the command.
func (d *delivery) InProgress(context.Context) error { return nil }

func (d *delivery) Ack(context.Context) error {
	if !d.settled.Swap(true) {
		d.h.release(d.work)
	}
	return nil
}

// Nak offers the command again after the delay.
func (d *delivery) Nak(_ context.Context, delay time.Duration) error {
	if !d.settled.Swap(true) {
		d.h.delay(d, delay)
	}
	return nil
}
