//go:build !race

package standby_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"edda/cluster"
)

// The waits of stream/clusterlog.
const (
	simAckWithin  = 500 * time.Millisecond
	simLookWithin = time.Second
	simRetryFirst = 5 * time.Millisecond
	simRetryMost  = 250 * time.Millisecond
)

// simPart is the largest part of a record, so small that many records have several.
const simPart = 400

// window is a span of time.
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// leader is the leader of a stream, which is away during elections.
type leader struct {
	mu   sync.Mutex // guards the fields below
	away window
}

func (l *leader) elect(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !l.away.has(now) {
		l.away = window{now, now.Add(d)}
	}
}

// back returns how long the leader is away.
func (l *leader) back() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away.has(time.Now()) {
		return time.Until(l.away.to)
	}
	return 0
}

// dice draws from a seed of its own, so that other draws do not change these.
type dice struct {
	mu sync.Mutex // guards the fields below
	r  *rand.Rand
}

func (d *dice) percent(p int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(100) < p
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// between draws a time.
func (d *dice) between(least, most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return least + time.Duration(d.r.Int64N(int64(most-least)+1))
}

// stored is the log as its servers have it.
type stored struct {
	leader
	w *world

	mu       sync.Mutex // guards the fields below
	messages []cluster.Message
	since    []time.Time // when each was stored
	reader   *cluster.Reader
	owners   []string // runs of the Own records
	grown    chan struct{}
	pending  int // sends that have not arrived
}

func newStored(w *world) *stored {
	return &stored{w: w, reader: cluster.NewReader(cluster.Mark{}), grown: make(chan struct{})}
}

// arrive stores a message if the log ends where its sender says. It returns 0 if not.
func (s *stored) arrive(i cluster.Instruction) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.Expected != uint64(len(s.messages)) {
		return 0
	}
	s.messages, s.since = append(s.messages, i.Message), append(s.since, time.Now())
	seq := uint64(len(s.messages))
	// The reader knows what a log must be: no gap, one chain, no older epoch.
	if _, _, err := s.reader.Message(seq, i.Message); err != nil {
		s.w.fail("the log is not sound: %v", err)
	}
	if i.Message.Kind == cluster.Own {
		s.owners = append(s.owners, i.Message.Node)
	}
	if i.Message.Kind != cluster.Entry {
		s.w.note("log %d: %s of %s, epoch %d, record %d", seq, i.Message.Kind, i.Message.Node, i.Message.Epoch, i.Message.LSN)
	}
	close(s.grown)
	s.grown = make(chan struct{})
	return seq
}

// loses has the log end before some of its records, as after a power cut of all its servers. It returns how many it keeps.
func (s *stored) loses(records int) (kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept = len(s.messages)
	for last := uint64(math.MaxUint64); records > 0 && kept > 1; kept-- {
		if m := s.messages[kept-1]; m.Kind == cluster.Entry && m.LSN != last {
			last = m.LSN
			records--
		}
	}
	for kept > 1 && s.messages[kept-1].Part < s.messages[kept-1].Parts {
		kept--
	}
	s.messages, s.since = slices.Clone(s.messages[:kept]), slices.Clone(s.since[:kept])
	s.reader = cluster.NewReader(cluster.Mark{})
	for i, m := range s.messages {
		if _, _, err := s.reader.Message(uint64(i+1), m); err != nil {
			s.w.fail("the log is not sound: %v", err)
		}
	}
	close(s.grown)
	s.grown = make(chan struct{})
	return kept
}

func (s *stored) view() (all []cluster.Message, grown chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages, s.grown
}

// end is the end that a server knows that is behind by an age.
func (s *stored) end(age time.Duration) cluster.Last {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, at := len(s.messages), time.Now().Add(-age)
	for age > 0 && n > 1 && s.since[n-1].After(at) {
		n--
	}
	if n == 0 {
		return cluster.Last{}
	}
	return cluster.Last{Seq: uint64(n), Message: s.messages[n-1]}
}

func (s *stored) ownerships() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.owners...)
}

func (s *stored) underWay(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending += n
	return s.pending
}

// simLog is the log as one process reaches it. It does what stream/clusterlog does.
type simLog struct {
	l *life
	d *dice
}

var _ cluster.Log = (*simLog)(nil)

var errNoAnswer = errors.New("no answer")

func (l *simLog) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	if err := after.Follows(r); err != nil {
		return cluster.Mark{}, err
	}
	a, next := cluster.Begin(after, r, simPart)
	for tries := 0; ; {
		var err error
		looks := next.Do == cluster.Look
		switch next.Do {
		case cluster.Committed:
			return next.Mark, nil
		case cluster.Fenced:
			return cluster.Mark{}, cluster.ErrFenced
		case cluster.Moved:
			return cluster.Mark{}, cluster.ErrMoved
		case cluster.Send:
			var seq uint64
			if seq, err = l.send(ctx, next); err != nil {
				a, next = a.Unsure()
			} else {
				a, next = a.Acked(seq)
			}
		case cluster.Look:
			var last cluster.Last
			if last, err = l.look(ctx); err == nil {
				a, next = a.Looked(last)
			}
		}
		if errors.Is(err, errDead) || ctx.Err() != nil {
			return cluster.Mark{}, fmt.Errorf("append record %d: %w", r.LSN, errors.Join(err, context.Cause(ctx)))
		}
		if looks && next.Do != cluster.Committed {
			tries++
			_ = l.l.sleep(ctx, min(simRetryFirst<<min(tries, 10), simRetryMost))
		}
	}
}

// send sends a message and waits for its acknowledgement. The message may come later, twice, or never, and its
// acknowledgement may be lost.
func (l *simLog) send(ctx context.Context, i cluster.Instruction) (uint64, error) {
	if err := l.l.pass(); err != nil {
		return 0, err
	}
	w, p := l.l.w, l.l.w.plan
	i.Message.Entry = bytes.Clone(i.Message.Entry) // the sender reuses it
	answer := make(chan uint64, 2)
	copies := 1
	if l.d.percent(p.twice) {
		copies = 2
	}
	for range copies {
		delay, answers, way := l.d.between(0, p.latency), !l.d.percent(p.lostAnswer), l.d.between(0, p.latency)
		if l.d.percent(p.late) {
			delay = l.d.between(0, p.lateMost)
		}
		if l.d.percent(p.lost) {
			continue
		}
		election := l.d.percent(50)
		w.stored.underWay(1)
		var arrive func()
		arrive = func() {
			if back := w.stored.back(); back > 0 { // it waits for a leader, or is lost
				if election {
					time.AfterFunc(back+way, arrive)
				} else {
					w.stored.underWay(-1)
				}
				return
			}
			seq := w.stored.arrive(i)
			w.stored.underWay(-1)
			if answers {
				time.AfterFunc(way, func() { answer <- seq })
			}
		}
		time.AfterFunc(delay, arrive)
	}
	if i.Message.Kind == cluster.Own {
		l.l.point("own is sent")
	}
	timer := time.NewTimer(simAckWithin)
	defer timer.Stop()
	select {
	case seq := <-answer:
		if err := l.l.pass(); err != nil {
			return 0, err
		}
		if seq == 0 {
			return 0, errors.New("wrong last sequence")
		}
		return seq, nil
	case <-timer.C:
	case <-ctx.Done():
	case <-l.l.dead:
	}
	if err := l.l.pass(); err != nil {
		return 0, err
	}
	return 0, errNoAnswer
}

func (l *simLog) look(ctx context.Context) (cluster.Last, error) {
	p, s := l.l.w.plan, l.l.w.stored
	if err := l.l.sleep(ctx, l.d.between(0, p.latency)); err != nil {
		return cluster.Last{}, err
	}
	stale := l.d.percent(p.stale)
	if s.back() > 0 && !stale {
		if err := l.l.sleep(ctx, simLookWithin); err != nil {
			return cluster.Last{}, err
		}
		return cluster.Last{}, errNoAnswer
	}
	age := time.Duration(0)
	if stale { // a leader that was deposed answers
		age = l.d.between(0, 10*time.Second)
	}
	last := s.end(age)
	if err := l.l.sleep(ctx, l.d.between(0, p.latency)); err != nil {
		return cluster.Last{}, err
	}
	return last, nil
}

func (l *simLog) End(ctx context.Context) (cluster.Last, error) {
	for {
		last, err := l.look(ctx)
		if err == nil {
			return last, nil
		}
		if err := l.l.sleep(ctx, simRetryMost); err != nil {
			return cluster.Last{}, err
		}
	}
}

func (l *simLog) Find(ctx context.Context, lsn uint64) (cluster.Mark, error) {
	last, err := l.End(ctx)
	if err != nil {
		return cluster.Mark{}, err
	}
	all, _ := l.l.w.stored.view()
	at, err := cluster.Find(1, last, lsn, func(seq uint64) (cluster.Message, error) { return all[seq-1], nil })
	if err != nil {
		err = fmt.Errorf("find record %d: %w", lsn, err)
	}
	return at, err
}

// Read reads on behind a mark. A reader may be behind by seconds, and its connection may lose a message.
func (l *simLog) Read(ctx context.Context, after cluster.Mark, until uint64, visit cluster.Visit) error {
	r, p := cluster.NewReader(after), l.l.w.plan
	for r.Seq() < until {
		if err := l.l.pass(); err != nil {
			return err
		}
		all, grown := l.l.w.stored.view()
		if r.Seq() >= uint64(len(all)) {
			select {
			case <-grown:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-l.l.dead:
				return errDead
			}
			wait := l.d.between(0, p.latency)
			if l.d.percent(p.lags) {
				wait = l.d.between(0, p.lagMost)
			}
			if err := l.l.sleep(ctx, wait); err != nil {
				return err
			}
			continue
		}
		seq := r.Seq() + 1
		if seq < uint64(len(all)) && l.d.percent(p.gaps) {
			if _, _, err := r.Message(seq+1, all[seq]); !errors.Is(err, cluster.ErrGap) {
				l.l.w.fail("a reader does not miss message %d: %v", seq, err)
			}
			if err := l.l.sleep(ctx, simRetryFirst); err != nil {
				return err
			}
			continue
		}
		rec, whole, err := r.Message(seq, all[seq-1])
		if err == nil && whole {
			err = visit(r.Mark(), rec)
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (l *simLog) Trim(context.Context, cluster.Mark) error { return nil }
