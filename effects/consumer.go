package effects

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/internal/backoff"
)

// consumer takes the commands of one effect, as offers and from the Source, and holds
// them until their messages are settled. Each command has a goroutine of its own, which
// waits for the limiter. It fetches ahead, so that revokes and high priorities overtake
// commands that wait.
type consumer struct {
	w        *Worker
	name     string
	limiter  *limiter
	working  context.Context // until it ends commands begin
	calls    context.Context // until it ends calls go on
	commands sync.WaitGroup

	mu      sync.Mutex // guards below; held for moments, never over a call
	tasks   map[taskName]*task
	offered int // tasks that were offered; the others came from the Source
	bytes   int // memory of the tasks, about
	closed  bool
}

// taskName identifies a command: ids are unique within a tenant.
type taskName struct{ tenant, id string }

func nameOf(c *Command) taskName { return taskName{c.Tenant, c.ID} }

// task is one command and all messages that carry it. Its goroutine owns the job.
type task struct {
	job
	stop   context.CancelCauseFunc // ends deadlines.waiting
	first  [1]Delivery             // memory of copies: most commands have one
	copies []Delivery              // guarded by the consumer's mutex until the task is removed
}

// errRevoked is the cause of a wait that a revoke ended.
var errRevoked = errors.New("revoked")

// disposition says how the messages of a command are settled.
type disposition struct {
	nak        bool
	delay      time.Duration // of a nak
	ackRevokes bool          // of a nak: revokes are acked all the same
	leave      bool          // not at all: another worker has the command
}

func ack() disposition                         { return disposition{} }
func nakAfter(delay time.Duration) disposition { return disposition{nak: true, delay: delay} }
func leave() disposition                       { return disposition{leave: true} }

// nakKeepRevoke naks the command and acks a revoke that came too late. If both were
// redelivered, the pair would meet again forever.
func nakKeepRevoke() disposition { return disposition{nak: true, ackRevokes: true} }

// run takes commands until ctx ends. Then it gives back what has not begun, and returns
// when the goroutines of all commands have ended: calls go on for Options.Grace.
func (c *consumer) run(ctx context.Context) {
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	c.working, c.calls = ctx, calls
	c.w.register(c)
	var beats sync.WaitGroup
	ended := make(chan struct{})
	beats.Go(func() { c.heartbeat(ended) })
	c.fetch(ctx)
	c.close()
	grace := time.AfterFunc(c.w.o.Grace, cut)
	defer grace.Stop()
	c.commands.Wait()
	close(ended)
	beats.Wait()
}

// close refuses offers from now on.
func (c *consumer) close() {
	c.w.unregister(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// fetch asks the Source for commands while there is room, until ctx ends. The limiter's
// recheck wakes it when there may be room again.
func (c *consumer) fetch(ctx context.Context) {
	failing := false // logged once
	for ctx.Err() == nil {
		n := c.room()
		if n <= 0 {
			select {
			case <-ctx.Done():
			case <-c.limiter.recheck:
				c.relieve()
			}
			continue
		}
		deliveries, err := c.w.o.Source.Fetch(ctx, c.name, n, fetchWait)
		for _, d := range deliveries {
			if ctx.Err() != nil {
				_ = d.Nak(c.calls, 0) // lost: it comes back after the ack wait
				continue
			}
			c.accept(d)
		}
		c.relieve()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			c.w.o.Log.Warn("commands cannot be fetched, trying again", zap.String("effect", c.name), zap.Error(err))
		}
		if failing = err != nil; failing {
			_ = backoff.Wait(ctx, fetchAgain)
		}
	}
}

// room is how many commands to fetch. Twice as many as may be called at once are held,
// so that other workers get their share. Commands that rest do not count, or the dead
// upstream of one tenant would keep out all others. Where all commands wait for the
// limits of their keys, more are fetched: commands of other keys may be behind them.
// The bytes must suffice even if every fetched command is large; one is always
// fetched while they are below the bound.
func (c *consumer) room() int {
	limited := c.limiter.limited()
	c.mu.Lock()
	defer c.mu.Unlock()
	fetched := len(c.tasks) - c.offered
	busy := fetched - int(c.limiter.resting.Load())
	places := min(heldForEach*c.w.o.Concurrency-busy, maxHeld-fetched)
	if limited {
		places = max(min(maxHeld-len(c.tasks), c.w.o.Concurrency), shedRoom)
	}
	free := (c.w.o.HeldBytes - c.bytes) / largeCommand
	if c.bytes < c.w.o.HeldBytes {
		free = max(free, 1)
	}
	return min(places, free)
}

// relieve sheds commands beyond the bound. Where keys wait for their limits and the
// bytes are used up, it sheds some to make room for commands of other keys.
func (c *consumer) relieve() {
	limited := c.limiter.limited()
	c.mu.Lock()
	over := len(c.tasks) - c.offered - maxHeld
	switch full := c.bytes >= c.w.o.HeldBytes; {
	case limited && len(c.tasks) > maxHeld:
		over = len(c.tasks) - maxHeld
	case limited && full:
		over = shedRoom
	}
	c.mu.Unlock()
	if over > 0 {
		c.limiter.shed(over)
	}
}

// accept starts a goroutine for a command, or joins the message to the task of the same
// command. It is false for an offer without room. It does not block.
func (c *consumer) accept(d Delivery) bool {
	cmd := d.Command()
	c.mu.Lock()
	t := c.tasks[nameOf(cmd)]
	switch {
	case c.closed, t == nil && cmd.Offered && (c.offered >= maxHeld || c.bytes >= c.w.o.HeldBytes):
		c.mu.Unlock()
		return false
	case t == nil:
		c.start(cmd, d)
		c.mu.Unlock()
	case len(t.copies) >= maxCopies, cmd.Malformed != t.c.Malformed, t.c.Revoke && !cmd.Revoke:
		c.mu.Unlock()
		_ = d.Nak(c.calls, againAfter) // by then the task has ended
	default:
		if cmd.Revoke {
			t.stop(errRevoked) // without effect on a command that has begun
		}
		t.copies = append(t.copies, d)
		c.count(d, 1)
		c.mu.Unlock()
		_ = d.InProgress(c.calls)
	}
	return true
}

// start begins a task. The caller holds the mutex.
func (c *consumer) start(cmd *Command, d Delivery) {
	t := &task{job: job{w: c.w, limiter: c.limiter, c: cmd}}
	t.copies = append(t.first[:0], d)
	t.deadlines = deadlines{working: c.working, calls: c.calls}
	t.waiting, t.stop = context.WithCancelCause(c.working)
	c.tasks[nameOf(cmd)] = t
	if cmd.Offered {
		c.offered++
	}
	c.w.metrics.holding(c.name, 1)
	c.count(d, 1)
	c.commands.Add(1)
	go c.work(t)
}

// stackOfACommand is about what the calls below work need of the stack.
const stackOfACommand = 8 << 10

// growStack grows the stack of a new goroutine while it is empty. Otherwise the runtime copies it
// in the middle of the call, frame by frame, which takes 2 % of the whole CPU time under load.
//
//go:noinline
func growStack() byte {
	var room [stackOfACommand]byte
	return room[len(os.Args)%len(room)] // an index that the compiler does not know
}

// work brings a command to its end and settles its messages.
func (c *consumer) work(t *task) {
	growStack()
	defer c.commands.Done()
	how := t.handle()
	t.stop(nil)
	c.mu.Lock()
	delete(c.tasks, nameOf(t.c))
	if t.c.Offered {
		c.offered--
	}
	for _, d := range t.copies {
		c.count(d, -1)
	}
	c.mu.Unlock()
	c.w.metrics.holding(c.name, -1)
	wake(c.limiter.recheck)
	for _, d := range t.copies {
		c.settle(d, how)
	}
}

// count adds the memory of a message to that of the tasks, or takes it away. The caller
// holds the mutex.
func (c *consumer) count(d Delivery, sign int) {
	n := sign * size(d.Command())
	c.bytes += n
	c.w.metrics.heldBytes(c.name, float64(n))
}

// size is the memory of a command, about: its message and what was read of it.
func size(c *Command) int {
	const fixed = 1 << 10
	return fixed + 2*(len(c.Payload)+len(c.Metadata)) + len(c.Raw)
}

// settle acks or naks a message. An error costs a duplicate, which the ledger answers.
func (c *consumer) settle(d Delivery, how disposition) {
	var err error
	switch {
	case how.leave:
	case how.nak && !(how.ackRevokes && d.Command().Revoke):
		err = d.Nak(c.calls, how.delay)
	default:
		err = d.Ack(c.calls)
		// gofail: var effectAcked struct{}
	}
	if err != nil {
		c.w.o.Log.Debug("a message was not settled, it will come again", zap.String("effect", c.name), zap.Error(err))
	}
}

// heartbeat keeps the messages of all tasks from being redelivered, until ended is closed.
func (c *consumer) heartbeat(ended <-chan struct{}) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ended:
			return
		case <-beat.C:
		}
		var all []Delivery
		c.mu.Lock()
		for _, t := range c.tasks {
			all = append(all, t.copies...)
		}
		c.mu.Unlock()
		for _, d := range all {
			_ = d.InProgress(c.calls) // lost: the message comes again and joins its task
		}
	}
}
