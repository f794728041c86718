package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/engine"
	"edda/stream/wire"
)

const (
	// lateAfter is how much longer than the quickest a late echo took. Usually an echo is published
	// with the next delivery. It may take hours if the process died in between or NATS was away.
	lateAfter = time.Second
	// maxLate and maxLateBytes bound the late echoes that are read ahead: what some thousand orders
	// have in flight. The others come at their store time.
	maxLate      = 1 << 14
	maxLateBytes = 16 << 20
)

// late are results of the backlog whose echoes were stored long after the result was applied. A
// restored store that took such an echo at its place in the stream would apply the result after
// messages that came later. So the source returns the result at the time it was applied, without a
// stream. Its echo is a duplicate later.
type late struct {
	echoes   []delayedEcho
	minDelay time.Duration // delay of the quickest echo, by both clocks
	omitted  int           // echoes beyond maxLate
}

// delayedEcho is the sequence of an echo, and how long after the result it was stored.
type delayedEcho struct {
	seq   uint64
	delay time.Duration
}

// findLate reads the headers of the echoes up to the end of the backlog. Only a restored store
// lacks their results.
func (r *reader) findLate(ctx context.Context, read, end uint64) ([]edda.Event, error) {
	if !r.restored || !r.results() || end <= read {
		return nil, nil
	}
	found := late{minDelay: engine.MaxSkew}
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: r.codec.Filters(*r.tenants.Load(), "*", wire.FamilyResult, wire.FamilyEcho),
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: read + 1, HeadersOnly: true,
	}
	err := scanStream(ctx, r.js, r.name, cfg, end, func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
		if at, was := (wire.Message{Header: m.Headers(), Time: md.Timestamp}).Taken(); was {
			found.note(delayedEcho{md.Sequence.Stream, md.Timestamp.Sub(at)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.readLate(ctx, &found)
}

// note keeps an echo that may be late. The quickest one shows how far the clocks differ, and may
// still come.
func (l *late) note(c delayedEcho) {
	l.minDelay = min(l.minDelay, c.delay)
	l.echoes = append(l.echoes, c)
	if len(l.echoes) >= 2*maxLate {
		l.sift()
	}
}

// sift drops echoes that are not late, and those beyond maxLate.
func (l *late) sift() {
	l.echoes = slices.DeleteFunc(l.echoes, func(c delayedEcho) bool { return c.delay <= l.minDelay+lateAfter })
	l.omitted += max(0, len(l.echoes)-maxLate)
	l.echoes = l.echoes[:min(len(l.echoes), maxLate)]
}

// readLate reads the late echoes, in the order of their results.
func (r *reader) readLate(ctx context.Context, found *late) (events []edda.Event, err error) {
	found.sift()
	for bytes := 0; len(found.echoes) > 0 && bytes < maxLateBytes; found.echoes = found.echoes[1:] {
		ev, is, err := r.readEcho(ctx, found.echoes[0].seq)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		// the store time that a prompt echo would have
		ev.Stream, ev.Seq, ev.Stored = "", 0, ev.Time.Add(found.minDelay)
		events, bytes = append(events, ev), bytes+len(ev.Payload)
	}
	if left := found.omitted + len(found.echoes); left > 0 {
		r.log.Warn("too many echoes were stored late to read all of them ahead: the others come at their store time", zap.Int("others", left))
	}
	slices.SortStableFunc(events, func(a, b edda.Event) int { return a.Stored.Compare(b.Stored) })
	return events, nil
}

// readEcho reads one echo. It returns false if the message is none, or of a tenant that is not
// served here.
func (r *reader) readEcho(ctx context.Context, seq uint64) (ev edda.Event, is bool, err error) {
	m, err := r.stream.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return ev, false, nil
	}
	if err != nil {
		return ev, false, fmt.Errorf("look at message %d of %s: %w", seq, r.name, err)
	}
	ev = r.codec.Event(wire.Message{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: r.name, Seq: seq, Time: m.Time})
	return ev, !ev.Stored.IsZero() && (r.codec.NoTenancy || r.tenants.Load().Match(ev.Tenant)), nil
}

// peekLate is [buffer.peek] for the late results.
func (s *Source) peekLate(n int) storedTimes {
	for _, r := range s.readers {
		s.late = append(s.late, r.handLate()...)
	}
	w := storedTimes{complete: len(s.late) <= n}
	for i := range s.late[:min(n, len(s.late))] {
		w.times = append(w.times, s.late[i].Stored)
	}
	return w
}

func (s *Source) takeLate(n int) []edda.Event {
	out := s.late[:n:n]
	s.late = s.late[n:]
	return out
}

// handLate returns the results of findLate once.
func (r *reader) handLate() []edda.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.atStart.late
	r.atStart.late = nil
	return out
}
