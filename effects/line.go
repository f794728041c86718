package effects

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

// line is the work of one effect: it fetches ahead, so that revokes and high
// priorities overtake what waits, and hands each command to a goroutine that
// waits for its turn. The goroutine of run owns it.
type line struct {
	w        *Worker
	name     string
	entrance entrance
	tasks    map[taskName]*task // held: waiting for their turn, or called
	bytes    int                // of what is held, about

	offers   *offers
	asking   bool
	want     chan int // to the fetcher; capacity 1
	fetched  chan catch
	finished chan *task
	next     chan *task // to the idle goroutines, for each one at most; nil ends one
	idle     int        // goroutines that wait for next, or are about to
	hands    sync.WaitGroup
	failing  bool // the last fetch failed; logged once
}

// taskName tells commands apart: one tenant's ids say nothing of another's.
type taskName struct{ tenant, id string }

func nameOf(c *Command) taskName { return taskName{c.Tenant, c.ID} }

// task is one command and every message that carries it.
type task struct {
	cmd    *Command
	first  [1]Delivery // the room of copies: most have no more
	copies []Delivery
	spell
	stop context.CancelCauseFunc // ends spell.waiting
	fate fate                    // set when done
}

// errRevoked is why a command that waited does not begin.
var errRevoked = errors.New("revoked")

// fate is what becomes of a command's messages: acked, given back to come again
// after a time, or left alone, since another worker has the command now.
type fate struct {
	again time.Duration
	back  bool
	leave bool
	heard bool // revokes among them are acked: they came too late
}

func acked() fate                       { return fate{} }
func comeBack(after time.Duration) fate { return fate{back: true, again: after} }
func leftAlone() fate                   { return fate{leave: true} }

// begun gives back a command that a revoke met when it had begun already. It goes
// on without the revoke: if both came back, they would meet again for ever.
func begun() fate { return fate{back: true, heard: true} }

// catch is what one Fetch brought.
type catch struct {
	deliveries []Delivery
	err        error
}

func newLine(w *Worker, name string, in entrance) *line {
	return &line{
		w: w, name: name, entrance: in, tasks: map[taskName]*task{},
		offers: newOffers(), want: make(chan int, 1), fetched: make(chan catch), finished: make(chan *task),
		next: make(chan *task, heldForEach*w.o.Concurrency),
	}
}

// run works until ctx ends and what was begun has ended.
func (l *line) run(ctx context.Context) {
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	fetcher := make(chan struct{})
	go func() { defer close(fetcher); l.fetch(ctx) }()
	deaf := l.listen()
	l.loop(ctx, calls)
	deaf()
	grace := time.AfterFunc(l.w.o.Grace, cut)
	defer grace.Stop()
	l.finish(calls)
	close(l.next)
	l.hands.Wait()
	<-fetcher
}

// loop is the line's life.
func (l *line) loop(ctx, calls context.Context) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for ctx.Err() == nil {
		l.ask()
		select {
		case <-ctx.Done():
		case c := <-l.fetched:
			l.take(ctx, calls, c)
		case <-l.offering():
			l.takeOffers(ctx, calls)
		case t := <-l.finished:
			l.done(calls, t)
		case <-l.entrance.limited: // ask looks further
			l.relieve()
		case <-beat.C:
			l.beat(calls)
		}
	}
}

// finish waits for what is held: what has not begun is given back at once.
func (l *line) finish(calls context.Context) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for len(l.tasks) > 0 {
		select {
		case t := <-l.finished:
			l.done(calls, t)
		case <-beat.C:
			l.beat(calls)
		}
	}
}

// fetch asks the source whenever the line has room.
func (l *line) fetch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-l.want:
			ds, err := l.w.o.Source.Fetch(ctx, l.name, n, fetchWait)
			if err != nil && ctx.Err() == nil {
				_ = backoff.Wait(ctx, fetchAgain)
			}
			select {
			case l.fetched <- catch{ds, err}:
			case <-ctx.Done():
				giveBack(ds)
				return
			}
		}
	}
}

// giveBack returns what arrived while the line stopped.
func giveBack(ds []Delivery) {
	for _, d := range ds {
		_ = d.Nak(context.Background(), 0) // lost: it comes back after the ack wait
	}
}

// ask lets the fetcher fill what is free.
func (l *line) ask() {
	if room := l.room(); !l.asking && room > 0 {
		l.asking = true
		l.want <- room
	}
}

// room is how many commands to ask for: so many that they may be held, and their
// bytes, even if all of them are large. One is always looked at where none is held.
func (l *line) room() int {
	free := (l.w.o.HeldBytes - l.bytes) / largeCommand
	if l.bytes < l.w.o.HeldBytes {
		free = max(free, 1)
	}
	return min(l.places(), free)
}

// places is twice what may be called at once, so that other workers get their
// share; what only rests until it may be tried again is not counted, or one
// tenant's dead upstream would keep out all others. It is more where keys wait for
// their own limits, so that others' commands behind them are seen: what is too
// much is then sent away.
func (l *line) places() int {
	if !l.entrance.admission.limited() {
		busy := len(l.tasks) - int(l.entrance.resting.Load())
		return min(heldForEach*l.w.o.Concurrency-busy, maxHeld-len(l.tasks))
	}
	return max(min(maxHeld-len(l.tasks), l.w.o.Concurrency), shedRoom)
}

func (l *line) take(ctx, calls context.Context, c catch) {
	l.asking = false
	if c.err != nil && !l.failing {
		l.w.o.Log.Warn("commands cannot be fetched, trying again", zap.String("effect", l.name), zap.Error(c.err))
	}
	l.failing = c.err != nil
	for _, d := range c.deliveries {
		l.accept(ctx, calls, d)
	}
	l.relieve()
}

// takeOffers takes what is handed over, as far as there is room.
func (l *line) takeOffers(ctx, calls context.Context) {
	for _, d := range l.offers.take(l.places()) {
		l.accept(ctx, calls, d)
	}
	l.relieve()
}

// relieve sends away what is too much: beyond what may be held, or, where keys wait
// for their own limits with all the bytes there are, some of it for others to be seen.
func (l *line) relieve() {
	if over := len(l.tasks) - maxHeld; over > 0 {
		l.entrance.shed(over)
		return
	}
	if l.bytes >= l.w.o.HeldBytes && l.entrance.admission.limited() {
		l.entrance.shed(shedRoom)
	}
}

// hold counts a message that is held, or no longer held.
func (l *line) hold(d Delivery, sign int) {
	n := sign * size(d.Command())
	l.bytes += n
	l.w.metrics.heldBytes(l.name, float64(n))
}

// size is about what a command takes in memory: the message, and what was read of it.
func size(c *Command) int {
	const fixed = 1 << 10
	return fixed + 2*(len(c.Payload)+len(c.Metadata)) + len(c.Raw)
}

// accept begins a command, or joins it to what is held of the same id.
func (l *line) accept(ctx, calls context.Context, d Delivery) {
	cmd := d.Command()
	held := l.tasks[nameOf(cmd)]
	switch {
	case held == nil:
		l.hold(d, 1)
		t := &task{cmd: cmd}
		t.copies = append(t.first[:0], d)
		l.begin(ctx, calls, t)
	case len(held.copies) >= maxCopies, cmd.Malformed != held.cmd.Malformed, held.cmd.Revoke && !cmd.Revoke:
		_ = d.Nak(calls, againAfter) // it is looked at when the held one is done
	default:
		if cmd.Revoke {
			held.stop(errRevoked) // where it has begun, that is too late and changes nothing
		}
		held.copies = append(held.copies, d)
		l.hold(d, 1)
		_ = d.InProgress(calls)
	}
}

// begin gives a command a goroutine, which reports to finished.
func (l *line) begin(ctx, calls context.Context, t *task) {
	t.spell = spell{working: ctx, calls: calls}
	t.waiting, t.stop = context.WithCancelCause(ctx)
	l.tasks[nameOf(t.cmd)] = t
	l.w.metrics.holding(l.name, 1)
	l.hand(t)
}

// hand gives a command to a goroutine that has nothing to do, whose stack has grown to
// what a call needs, or to a new one.
func (l *line) hand(t *task) {
	if l.idle > 0 {
		l.idle--
		l.next <- t
		return
	}
	l.hands.Go(func() { l.work(t) })
}

// work does one command after another, until there is to be one idle goroutine less.
func (l *line) work(t *task) {
	j := newJob(l.w, l.entrance.admission)
	for t != nil {
		t.fate = j.handle(t.spell, t.cmd)
		j.forget()
		l.finished <- t
		t = <-l.next
	}
}

// rest notes that a goroutine has nothing to do. As many as there are commands as a rule are
// kept: the results of one commit end half of them at once, and as many begin with the next.
func (l *line) rest() {
	if l.idle == cap(l.next) {
		l.next <- nil
		return
	}
	l.idle++
}

// done settles every message of a task.
func (l *line) done(ctx context.Context, t *task) {
	l.rest()
	t.stop(nil)
	delete(l.tasks, nameOf(t.cmd))
	l.w.metrics.holding(l.name, -1)
	for _, d := range t.copies {
		l.hold(d, -1)
		l.settle(ctx, d, t.fate)
	}
}

// settle acks or returns a message; an error costs a duplicate, which the
// ledger answers.
func (l *line) settle(ctx context.Context, d Delivery, f fate) {
	var err error
	switch {
	case f.leave:
	case f.back && !(f.heard && d.Command().Revoke):
		err = d.Nak(ctx, f.again)
	default:
		err = d.Ack(ctx)
		// gofail: var effectAcked struct{}
	}
	if err != nil {
		l.w.o.Log.Debug("a message was not settled, it will come again", zap.String("effect", l.name), zap.Error(err))
	}
}

// beat keeps every held message from being delivered again.
func (l *line) beat(ctx context.Context) {
	for _, t := range l.tasks {
		for _, d := range t.copies {
			_ = d.InProgress(ctx) // lost: the message comes again and joins its task
		}
	}
}
