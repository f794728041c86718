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
	// lateAfter is how much longer than the others a copy needed that is late: as a rule
	// it goes out with the next delivery. Where the process died in between, or NATS was
	// away, it may be hours.
	lateAfter = time.Second
	// maxLate copies are looked for beforehand at most, and as many bytes of them: what
	// some thousand orders have under way. The others come when they were stored.
	maxLate      = 1 << 14
	maxLateBytes = 16 << 20
)

// late are results of the past whose copies were stored long after they were taken, by
// when they were. Nobody else waited with what he stored meanwhile, so a restored store
// that took a copy where it lies would take the result behind that. It is given in its
// time, of no stream, as it was then; when the copy comes it is a duplicate.
type late struct {
	copies []stamped
	least  time.Duration // how long the quickest copy needed, by both clocks
	left   int           // for which there was no room
}

// stamped is where a copy lies, and how long it was on its way.
type stamped struct {
	seq  uint64
	took time.Duration
}

// findLate looks through the headers of the copies up to the end of the backlog. Only
// a store that was restored has not applied what they are copies of.
func (r *reader) findLate(ctx context.Context, read, end uint64) ([]edda.Event, error) {
	if !r.restored || !r.results() || end <= read {
		return nil, nil
	}
	found := late{least: engine.MaxSkew}
	cfg := jetstream.OrderedConsumerConfig{
		FilterSubjects: r.codec.Filters(*r.tenants.Load(), "*", wire.FamilyResult),
		DeliverPolicy:  jetstream.DeliverByStartSequencePolicy, OptStartSeq: read + 1, HeadersOnly: true,
	}
	err := readAgain(ctx, r.js, r.name, cfg, end, func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
		if at, was := (wire.Message{Header: m.Headers(), Time: md.Timestamp}).Taken(); was {
			found.note(stamped{md.Sequence.Stream, md.Timestamp.Sub(at)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.readLate(ctx, &found)
}

// note keeps what may be late: the quickest copy says how far the clocks are apart, and
// may be still to come.
func (l *late) note(c stamped) {
	l.least = min(l.least, c.took)
	l.copies = append(l.copies, c)
	if len(l.copies) >= 2*maxLate {
		l.sift()
	}
}

// sift drops what is not late, and what is too much.
func (l *late) sift() {
	l.copies = slices.DeleteFunc(l.copies, func(c stamped) bool { return c.took <= l.least+lateAfter })
	l.left += max(0, len(l.copies)-maxLate)
	l.copies = l.copies[:min(len(l.copies), maxLate)]
}

// readLate reads what is late whole, in its order.
func (r *reader) readLate(ctx context.Context, found *late) (events []edda.Event, err error) {
	found.sift()
	for bytes := 0; len(found.copies) > 0 && bytes < maxLateBytes; found.copies = found.copies[1:] {
		ev, is, err := r.readCopy(ctx, found.copies[0].seq)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		// By the stream's clock it would have been stored then.
		ev.Stream, ev.Seq, ev.Stored = "", 0, ev.Time.Add(found.least)
		events, bytes = append(events, ev), bytes+len(ev.Payload)
	}
	if left := found.left + len(found.copies); left > 0 {
		r.log.Warn("more copies of results were stored late than are looked for: the others come when they were stored", zap.Int("others", left))
	}
	slices.SortStableFunc(events, func(a, b edda.Event) int { return a.Stored.Compare(b.Stored) })
	return events, nil
}

// readCopy is one copy; false where it is none, or none of ours.
func (r *reader) readCopy(ctx context.Context, seq uint64) (ev edda.Event, is bool, err error) {
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

// peekLate tells of the first late results, as a buffer does of its events.
func (s *Source) peekLate(n int) waiting {
	for _, r := range s.readers {
		s.late = append(s.late, r.handLate()...)
	}
	w := waiting{whole: len(s.late) <= n}
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

// handLate gives what was found, once.
func (r *reader) handLate() []edda.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.past.late
	r.past.late = nil
	return out
}
