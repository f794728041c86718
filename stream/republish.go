package stream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/outbox"
	"edda/stream/wire"
)

const (
	// skew is by how much the clocks of the server and of this machine may differ for what
	// was stored to be looked for in the right place.
	skew = 2 * time.Minute
	// maxMissing bounds the bodies of missing messages that are in memory, in bytes.
	maxMissing = 64 << 20
)

// Republisher publishes again what a server has acknowledged and lost, under the ids that
// it had. It is for one goroutine, before anything else is published.
type Republisher struct {
	publisher *Publisher
	since     time.Time
	there     map[messageID]bool
	missing   []edda.Work
	bytes     int
	count     int
}

// messageID is a subject, and the id of a message there as its publisher knows it, short:
// somebody else may have taken the Nats-Msg-Id on another subject.
type messageID [16]byte

func messageIDOf(c wire.Codec, subject string, header nats.Header) (short messageID) {
	sum := sha256.Sum256([]byte(subject + " " + c.ID(wire.Message{Subject: subject, Header: header})))
	copy(short[:], sum[:])
	return short
}

// NewRepublisher reads which messages the streams hold that were stored since a moment, or
// since the oldest that they would still hold.
func NewRepublisher(ctx context.Context, p *Publisher, since time.Time) (*Republisher, error) {
	r := &Republisher{publisher: p, since: since, there: map[messageID]bool{}}
	for _, name := range []string{wire.WorkflowCommands, wire.WorkflowEvents} {
		s, err := p.js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", name, err)
		}
		info := s.CachedInfo()
		if age := info.Config.MaxAge; age > 0 {
			if oldest := time.Now().Add(-age); oldest.After(r.since) {
				r.since = oldest
			}
		}
		from := r.since.Add(-skew)
		cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &from}
		err = readAgain(ctx, p.js, name, cfg, info.State.LastSeq, func(m jetstream.Msg, _ *jetstream.MsgMetadata) error {
			r.there[messageIDOf(p.codec, m.Subject(), m.Headers())] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Since is from when on what was sent is to be added.
func (r *Republisher) Since() time.Time { return r.since }

// Count is how many messages were missing, and were published.
func (r *Republisher) Count() int { return r.count }

// Add publishes the work, in time, where the streams have no message of it: then it is
// missing.
func (r *Republisher) Add(ctx context.Context, w edda.Work) (missing bool, err error) {
	d := wire.NewDraft()
	if err := r.publisher.codec.WriteWork(d, &w); err == nil {
		id := messageIDOf(r.publisher.codec, d.Subject, d.Header)
		if r.there[id] {
			return false, nil
		}
		r.there[id] = true
	}
	r.missing = append(r.missing, w)
	if r.bytes += len(w.Payload); r.bytes < maxMissing {
		return true, nil
	}
	return true, r.Flush(ctx)
}

// Flush publishes what was added, in that order.
func (r *Republisher) Flush(ctx context.Context) error {
	for len(r.missing) > 0 {
		batch := r.missing[:distinct(r.missing)]
		for i, err := range r.publisher.Deliver(ctx, batch) {
			if err := r.judge(ctx, batch[i], err); err != nil {
				return err
			}
		}
		r.count += len(batch)
		r.missing = r.missing[len(batch):]
	}
	r.missing, r.bytes = nil, 0
	return nil
}

// judge takes what became of one. What was rejected is rejected again: its saga hears of
// it by a message that was published then, too.
func (r *Republisher) judge(ctx context.Context, w edda.Work, err error) error {
	var no *outbox.Rejection
	if !errors.As(err, &no) {
		return err
	}
	switch w.Kind {
	case edda.WorkCommand, edda.WorkStart, edda.WorkEnd:
		if err := r.publisher.Reject(ctx, w, *no); !errors.Is(err, edda.Permanent) {
			return err
		}
	}
	return nil
}

// distinct is how many of the first are of different instances, and of one window.
func distinct(works []edda.Work) int {
	seen := map[edda.Key]bool{}
	for i := range works[:min(len(works), publishWindow)] {
		if seen[works[i].From] {
			return i
		}
		seen[works[i].From] = true
	}
	return min(len(works), publishWindow)
}
