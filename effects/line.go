package effects

import (
	"context"
	"time"

	"go.uber.org/zap"
)

// line is the work of one effect: it fetches ahead, so that revokes and high
// priorities overtake what waits, and begins as many as may run at once. The
// goroutine of run owns it.
type line struct {
	w      *Worker
	name   string
	tasks  map[taskName]*task // held: waiting or begun
	high   []*task
	normal []*task
	streak int // high tasks begun since the last normal one
	active int

	asking   bool
	want     chan int // to the fetcher; capacity 1
	fetched  chan catch
	finished chan *task
	failing  bool // the last fetch failed; logged once
}

// taskName tells commands apart: one tenant's ids say nothing of another's.
type taskName struct{ tenant, id string }

func nameOf(c Command) taskName { return taskName{c.Tenant, c.ID} }

// task is one command and every message that carries it.
type task struct {
	cmd    Command
	copies []Delivery
	begun  bool
	// revoked is set when a revoke came before it began.
	revoked bool
	again   time.Duration // set when done: 0 acks, else the message comes back after it
}

// catch is what one Fetch brought.
type catch struct {
	deliveries []Delivery
	err        error
}

func newLine(w *Worker, name string) *line {
	return &line{
		w: w, name: name, tasks: map[taskName]*task{},
		want: make(chan int, 1), fetched: make(chan catch), finished: make(chan *task),
	}
}

// run works until ctx ends and what was begun has ended.
func (l *line) run(ctx context.Context) {
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	fetcher := make(chan struct{})
	go func() { defer close(fetcher); l.fetch(ctx) }()
	l.loop(ctx, calls)
	l.release(calls)
	grace := time.AfterFunc(l.w.o.Grace, cut)
	defer grace.Stop()
	l.finish(calls)
	<-fetcher
}

// loop is the line's life.
func (l *line) loop(ctx, calls context.Context) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for ctx.Err() == nil {
		l.begin(calls)
		l.ask()
		select {
		case <-ctx.Done():
		case c := <-l.fetched:
			l.take(calls, c)
		case t := <-l.finished:
			l.done(calls, t)
		case <-beat.C:
			l.beat(calls)
		}
	}
}

// finish waits for what was begun.
func (l *line) finish(calls context.Context) {
	beat := time.NewTicker(Heartbeat)
	defer beat.Stop()
	for l.active > 0 {
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
				pause(ctx, fetchAgain)
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ask lets the fetcher fill what is free: twice what may run at once.
func (l *line) ask() {
	if room := 2*l.w.o.Concurrency - len(l.tasks); !l.asking && room > 0 {
		l.asking = true
		l.want <- room
	}
}

func (l *line) take(ctx context.Context, c catch) {
	l.asking = false
	if c.err != nil && !l.failing {
		l.w.o.Log.Warn("commands cannot be fetched, trying again", zap.String("effect", l.name), zap.Error(c.err))
	}
	l.failing = c.err != nil
	for _, d := range c.deliveries {
		l.accept(ctx, d)
	}
}

// accept queues a command, or joins it to what is held of the same id.
func (l *line) accept(ctx context.Context, d Delivery) {
	cmd := d.Command()
	held := l.tasks[nameOf(cmd)]
	switch {
	case held == nil:
		l.push(&task{cmd: cmd, copies: []Delivery{d}})
	case len(held.copies) >= maxCopies, cmd.Malformed != held.cmd.Malformed, held.cmd.Revoke && !cmd.Revoke:
		_ = d.Nak(ctx, againAfter) // it is looked at when the held one is done
	default:
		held.revoked = held.revoked || cmd.Revoke // where it has begun, that is too late and changes nothing
		held.copies = append(held.copies, d)
		_ = d.InProgress(ctx)
	}
}

func (l *line) push(t *task) {
	l.tasks[nameOf(t.cmd)] = t
	if t.cmd.High || t.cmd.Revoke {
		l.high = append(l.high, t)
		return
	}
	l.normal = append(l.normal, t)
}

// next is the task to begin: high before normal, but not always.
func (l *line) next() *task {
	if len(l.high) > 0 && (l.streak < highShare || len(l.normal) == 0) {
		l.streak++
		return shift(&l.high)
	}
	l.streak = 0
	return shift(&l.normal)
}

func shift(q *[]*task) *task {
	t := (*q)[0]
	(*q)[0] = nil // or the array would keep it alive
	*q = (*q)[1:]
	return t
}

// begin starts what may run, each in a goroutine that reports to finished.
func (l *line) begin(calls context.Context) {
	for l.active < l.w.o.Concurrency && len(l.high)+len(l.normal) > 0 {
		t := l.next()
		revoked := t.revoked || t.cmd.Revoke
		t.begun = true
		l.active++
		l.w.metrics.inFlight(l.name, 1)
		go func() {
			t.again = l.w.handle(calls, t.cmd, revoked)
			l.finished <- t
		}()
	}
}

// done settles every message of a task.
func (l *line) done(ctx context.Context, t *task) {
	l.active--
	l.w.metrics.inFlight(l.name, -1)
	delete(l.tasks, nameOf(t.cmd))
	for _, d := range t.copies {
		l.settle(ctx, d, t.again)
	}
}

// settle acks or returns a message; an error costs a duplicate, which the
// ledger answers.
func (l *line) settle(ctx context.Context, d Delivery, again time.Duration) {
	var err error
	if again > 0 {
		err = d.Nak(ctx, again)
	} else {
		err = d.Ack(ctx)
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

// release returns what was fetched and not begun.
func (l *line) release(ctx context.Context) {
	for id, t := range l.tasks {
		if t.begun {
			continue
		}
		delete(l.tasks, id)
		for _, d := range t.copies {
			_ = d.Nak(ctx, 0)
		}
	}
	l.high, l.normal = nil, nil
}
