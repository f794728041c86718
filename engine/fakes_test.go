package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// counter is a small saga that appends the id of every event to a log in its state. Types of
// events: add, both (two sagas), arm (a timer after the payload's duration), big (a state of the
// payload's size), done (the instance ends), panic, lost (routing panics), wakepanic (a timer that
// panics), drop (no saga reacts), nokey.
type counter struct{ name string }

type tally struct {
	Log []string `json:"log"`
	Pad string   `json:"pad,omitempty"`
}

func (c counter) Route(ev edda.Event) []saga.Target {
	switch {
	case ev.Malformed != "":
		return dead(ev, ev.Malformed)
	case ev.Type == "nokey":
		return dead(ev, edda.DeadNoKey)
	case ev.Type == "drop":
		return nil
	case ev.Type == "lost":
		panic("lost in routing")
	case ev.Key.Correlation != "":
		return []saga.Target{{Key: ev.Key}}
	}
	targets := []saga.Target{{Key: c.key(ev)}}
	if ev.Type == "both" {
		other := c.key(ev)
		other.Saga = "other"
		targets = append(targets, saga.Target{Key: other})
	}
	return targets
}

func (counter) Unheard(ev edda.Event) (near string, suspicious bool) {
	return "near " + ev.Type, ev.AggregateType != "fact"
}

func dead(ev edda.Event, reason string) []saga.Target {
	k := edda.Key{Tenant: ev.Tenant}
	return []saga.Target{{Key: k, Dead: &edda.DeadLetter{ID: "dead-" + ev.ID, Reason: reason, Key: k, Event: ev, Time: ev.Time}}}
}

func (c counter) key(ev edda.Event) edda.Key {
	name := c.name
	if name == "" {
		name = "counter"
	}
	return edda.Key{Tenant: ev.Tenant, Saga: name, Correlation: ev.AggregateID}
}

func (c counter) Apply(cell edda.Cell, target saga.Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	if ev.Type == "panic" {
		panic("apply fails")
	}
	cell, changed := c.write(cell, ev, func(in *edda.Instance, t *edda.Transition) {
		switch ev.Type {
		case "crowded":
			in.Reason = "room"
			if target.Crowded {
				in.Reason = "crowded"
			}
		case "arm":
			after, _ := time.ParseDuration(text(ev.Payload))
			c.arm(in, t, edda.Timer{Name: ev.ID, Due: ev.Time.Add(after)})
		case "wakepanic":
			c.arm(in, t, edda.Timer{Name: "panic", Due: ev.Time.Add(time.Second)})
		case "send":
			t.Work = []edda.Work{{ID: "work-" + ev.ID, Kind: edda.WorkEffect, From: in.Key, Name: "call", Step: "call", Payload: ev.Payload, Time: ev.Time}}
		case "done":
			in.Status, in.Ended = edda.StatusDone, ev.Time
		case "incident":
			t.Outputs = append(t.Outputs, edda.Output{Word: "incident", Name: "ship", Reason: "undo failed"})
		case "big":
			n := 0
			_, _ = fmt.Sscan(text(ev.Payload), &n)
			var s tally
			_ = json.Unmarshal(in.State, &s)
			s.Pad = strings.Repeat("x", n)
			in.State, _ = json.Marshal(s)
		}
	})
	return cell, append(target.Room, changed...)
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// write appends the event's id to the log, in a copy of the instance.
func (c counter) write(cell edda.Cell, ev edda.Event, more func(*edda.Instance, *edda.Transition)) (edda.Cell, []edda.Transition) {
	in := edda.Instance{Key: cell.Key, Version: 1, Status: edda.StatusRunning, Started: ev.Time}
	if cell.Instance != nil {
		in = *cell.Instance
	}
	var s tally
	_ = json.Unmarshal(in.State, &s)
	s.Log = append(s.Log, ev.ID)
	in.State, _ = json.Marshal(s)
	in.Revision++
	in.Updated = ev.Time
	t := edda.Transition{Key: cell.Key, Event: ev, Fate: edda.FateHandled, Outputs: []edda.Output{{Word: "event", Name: ev.ID}}}
	if more != nil {
		more(&in, &t)
	}
	cell.Instance, t.Instance = &in, &in
	return cell, []edda.Transition{t}
}

func (c counter) arm(in *edda.Instance, t *edda.Transition, timer edda.Timer) {
	in.Timers = append(slices.Clip(in.Timers), timer)
	if in.Armed.IsZero() || timer.Due.Before(in.Armed) {
		t.Arm = append(t.Arm, timer.Due)
		if !in.Armed.IsZero() {
			t.Disarm = append(t.Disarm, in.Armed)
		}
		in.Armed = timer.Due
	}
}

// Wake fires the due timers, each in a transition of its own.
func (c counter) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	if cell.Instance == nil || cell.Instance.Armed != row {
		return cell, nil
	}
	var all []edda.Transition
	timers := slices.Clone(cell.Instance.Timers)
	slices.SortStableFunc(timers, func(a, b edda.Timer) int { return a.Due.Compare(b.Due) })
	for len(timers) > 0 && !timers[0].Due.After(horizon) {
		if timers[0].Name == "panic" {
			panic("wake fails")
		}
		ev := edda.Event{Kind: edda.KindTimer, ID: "timer-" + timers[0].Name, Key: cell.Key, Time: timers[0].Due}
		timers = timers[1:]
		var ts []edda.Transition
		cell, ts = c.write(cell, ev, func(in *edda.Instance, t *edda.Transition) {
			in.Timers = timers
			if len(timers) > 0 && !timers[0].Due.After(horizon) {
				return
			}
			t.Disarm = []time.Time{row}
			in.Armed = time.Time{}
			if len(timers) > 0 {
				in.Armed = timers[0].Due
				t.Arm = []time.Time{in.Armed}
			}
		})
		all = append(all, ts...)
	}
	return cell, all
}

// streams is a source in memory.
type streams struct {
	mu      sync.Mutex
	created time.Time
	last    map[string]edda.Checkpoint
	waiting []edda.Event
	stored  []edda.Event // everything ever published
	held    bool         // Take gives nothing
	paused  bool         // Take gives nothing of stream A
	past    bool         // Take gives past events
	gone    bool         // Ends needs nothing
	mute    bool         // Ends fails
	down    error
	sip     int // Take and Fetch give at most so many, and Take signals no more; 0: all
	fetched int
	takes   int
	polls   int
	answers time.Duration // how long Ends takes; set before the engine starts
	wake    chan struct{}
}

func newStreams(names ...string) *streams {
	s := &streams{created: time.Now(), last: map[string]edda.Checkpoint{}, wake: make(chan struct{}, 1)}
	for _, name := range names {
		s.last[name] = edda.Checkpoint{Stream: name, Created: s.created}
	}
	return s
}

func (s *streams) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *streams) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	s.signal()
}

// publish stores an event and returns its sequence.
func (s *streams) publish(stream string, ev edda.Event) (seq uint64) {
	s.change(func() { seq = s.append(stream, ev) })
	return seq
}

// publishBatch stores events as the members of one message.
func (s *streams) publishBatch(stream string, events ...edda.Event) (seq uint64) {
	for i := range events {
		events[i].Member, events[i].More = i+1, i < len(events)-1
	}
	s.change(func() { seq = s.append(stream, events...) })
	return seq
}

func (s *streams) append(stream string, events ...edda.Event) uint64 {
	at := s.last[stream]
	at.Seq, at.Time = at.Seq+1, time.Now().UTC()
	s.last[stream] = at
	for _, ev := range events {
		ev.Stream, ev.Seq, ev.Time = stream, at.Seq, at.Time
		if ev.Kind == "" {
			ev.Kind = edda.KindEvent
		}
		s.waiting, s.stored = append(s.waiting, ev), append(s.stored, ev)
	}
	return at.Seq
}

func (s *streams) Ready() <-chan struct{} { return s.wake }

func (s *streams) Take(most int) Fetched {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes++
	if s.sip > 0 {
		most = min(most, s.sip)
	}
	got := s.take(most)
	if len(got) > 0 && s.sip == 0 {
		s.signal()
	}
	return Fetched{Events: got, Past: s.past}
}

// Fetch waits for the first event, as that of a Past does.
func (s *streams) Fetch(ctx context.Context, most int, wait time.Duration) (Fetched, error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		if got := s.Take(most); len(got.Events) > 0 {
			return got, nil
		}
		select {
		case <-s.wake:
		case <-t.C:
			return Fetched{}, nil
		case <-ctx.Done():
			return Fetched{}, ctx.Err()
		}
	}
}

func (s *streams) take(most int) []edda.Event {
	if s.down != nil || s.held {
		return nil
	}
	var got, left []edda.Event
	for _, ev := range s.waiting {
		if len(got) >= most || s.paused && ev.Stream == "A" {
			left = append(left, ev)
			continue
		}
		got = append(got, ev)
	}
	s.waiting = left
	s.fetched += len(got)
	return got
}

func (s *streams) Hold(yes bool) { s.change(func() { s.paused = yes }) }

func (s *streams) Ends(context.Context) ([]End, error) {
	time.Sleep(s.answers) // not under the lock: waiting for a mutex stops the bubble's clock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls++
	if s.down != nil {
		return nil, s.down
	}
	if s.mute {
		return nil, errDiskFull
	}
	var ends []End
	for name, last := range s.last {
		end := End{Stream: name, Need: last.Seq, Last: last}
		if s.gone {
			end.Need = 0
		}
		ends = append(ends, end)
	}
	return ends, nil
}

func (s *streams) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes
}

func (s *streams) polled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polls
}

// gate stands between the engine and the store. It holds commits back, fails them, and records
// them.
type gate struct {
	records
	mu        sync.Mutex
	shut      bool
	failing   error
	once      bool // failing applies to one change
	delay     time.Duration
	submitted []store.Change
	onView    func()
	viewError error
	queue     chan func()
	queued    int // not yet submitted
	opened    chan struct{}
}

func newGate(db records) *gate {
	return &gate{records: db, queue: make(chan func(), 1024), opened: make(chan struct{}, 1)}
}

// run passes submissions on, in order, while the gate is open.
func (g *gate) run(ctx context.Context) {
	for {
		select {
		case pass := <-g.queue:
			for g.isShut() && ctx.Err() == nil {
				select {
				case <-g.opened:
				case <-ctx.Done():
				}
			}
			g.mu.Lock()
			delay := g.delay
			g.mu.Unlock()
			time.Sleep(delay)
			pass()
		case <-ctx.Done():
			return
		}
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

func (g *gate) set(shut bool, failing error) {
	g.mu.Lock()
	g.shut, g.failing = shut, failing
	g.mu.Unlock()
	select {
	case g.opened <- struct{}{}:
	default:
	}
}

// failNext opens the gate, and fails the first change that comes through.
func (g *gate) failNext(err error) {
	g.mu.Lock()
	g.once = true
	g.mu.Unlock()
	g.set(false, err)
}

func (g *gate) slow(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

func (g *gate) watchViews(hook func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onView = hook
}

func (g *gate) setViewError(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.viewError = err
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.submitted)
}

// sizes returns the number of transitions and results of each change that has any.
func (g *gate) sizes() (n []int) {
	for _, c := range g.sent(0) {
		if len(c.Encoded) > 0 {
			n = append(n, len(c.Encoded))
		}
	}
	return n
}

// sent returns the changes submitted after the first n.
func (g *gate) sent(n int) []store.Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.submitted[n:])
}

func (g *gate) submitter() submitter { return &gatedSubmitter{gate: g, real: g.records.submitter()} }

type gatedSubmitter struct {
	gate   *gate
	real   submitter
	broken error
}

// SubmitWithin submits the change at once if the gate is open and nothing is queued, so that it
// returns the store's refusal.
func (l *gatedSubmitter) SubmitWithin(ctx context.Context, c store.Change, within time.Duration, done func(error)) error {
	g := l.gate
	g.mu.Lock()
	kept := c
	g.submitted = append(g.submitted, kept)
	direct := l.broken == nil && !g.shut && g.failing == nil && g.delay == 0 && g.queued == 0
	if !direct {
		g.queued++
	}
	g.mu.Unlock()
	if direct {
		return l.real.SubmitWithin(ctx, c, within, done)
	}
	g.queue <- func() { l.pass(ctx, c, within, done) }
	return nil
}

func (l *gatedSubmitter) pass(ctx context.Context, c store.Change, within time.Duration, done func(error)) {
	g := l.gate
	defer g.passed()
	g.mu.Lock()
	if l.broken == nil {
		l.broken = g.failing
		if g.once && g.failing != nil {
			g.once, g.failing = false, nil
		}
	}
	err := l.broken
	g.mu.Unlock()
	if err == nil {
		if err = l.real.SubmitWithin(ctx, c, within, done); err != nil {
			l.broke(err)
		}
	}
	if err != nil {
		done(err)
	}
}

// broke fails the changes behind one that the store refused: they build on it, and the refusal
// came after they were submitted.
func (l *gatedSubmitter) broke(err error) {
	l.gate.mu.Lock()
	defer l.gate.mu.Unlock()
	l.broken = edda.Classify(edda.Temporary, "a change before it failed: %v", err) // without the class of err
}

// passed lets the next change pass. Called earlier, it would let that change overtake this one.
func (g *gate) passed() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queued--
}

func (g *gate) View() (*store.View, error) {
	g.mu.Lock()
	hook, err := g.onView, g.viewError
	g.mu.Unlock()
	if err != nil {
		return nil, err
	}
	v, err := g.records.View()
	if hook != nil {
		hook()
	}
	return v, err
}
