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
	// skew bounds the difference between the server's clock and this machine's, for the search by
	// store time.
	skew = 2 * time.Minute
	// maxMissing bounds the payloads of missing work in memory, in bytes.
	maxMissing = 64 << 20
)

// Republisher publishes messages again that a server has acknowledged and lost, under their old
// ids. It must run before anything else is published, and is not safe for concurrent use.
type Republisher struct {
	publisher *Publisher
	since     time.Time
	there     map[messageID]bool
	missing   []edda.Work
	bytes     int
	count     int
}

// messageID is a hash of a subject and the id of a message there. It is not the Nats-Msg-Id, which
// somebody may have taken on another subject.
type messageID [16]byte

func messageIDOf(c wire.Codec, subject string, header nats.Header) (short messageID) {
	sum := sha256.Sum256([]byte(subject + " " + c.ID(wire.Message{Subject: subject, Header: header})))
	copy(short[:], sum[:])
	return short
}

// NewRepublisher reads the ids of the messages that the streams have stored since a time. It goes
// back no further than the streams keep messages.
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
		err = scanStream(ctx, p.js, name, cfg, info.State.LastSeq, func(m jetstream.Msg, _ *jetstream.MsgMetadata) error {
			r.there[messageIDOf(p.codec, m.Subject(), m.Headers())] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Since returns the time from which work must be added.
func (r *Republisher) Since() time.Time { return r.since }

// Count returns the number of messages that were missing and are published again.
func (r *Republisher) Count() int { return r.count }

// Add reports whether the streams lack the message of the work, and queues it for publication. It
// publishes when the queue is full.
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

// Flush publishes the queued work in its order.
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

// judge handles one outcome of Deliver. It rejects rejected work again, because the rejection was a
// message, too.
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

// distinct returns how many leading works are from different instances, up to one window.
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
