package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

// A NATS server with one replica acknowledges before it syncs. So the store keeps published
// messages until the server has synced them, and publishes those again that it lost.

// defaultSyncInterval is the default sync_interval of a NATS server.
const defaultSyncInterval = 2 * time.Minute

// maxSyncInterval bounds sync_interval, because the store keeps what is published meanwhile.
const maxSyncInterval = time.Hour

// syncSlack is how long one sync of the server may take.
const syncSlack = 5 * time.Second

// syncInterval is the sync interval of the server; zero means that it syncs before it
// acknowledges.
func (s Settings) syncInterval() time.Duration {
	switch {
	case s.Dev && s.SyncStreams:
		return 0
	case s.Dev:
		return kv.EmbeddedSync
	}
	return s.NATS.SyncInterval
}

// keptFor is how long published messages are kept. Older acknowledged messages are synced.
func (s Settings) keptFor() time.Duration {
	interval := s.syncInterval()
	return interval + interval/4 + syncSlack + store.TellAfter
}

// keepSent returns KeepSent of [store.Options]; nil for a process that publishes nothing. If
// the server syncs before it acknowledges, older kept messages are removed.
func (p *process) keepSent() func() time.Time {
	if !p.settings.sagas() {
		return nil
	}
	always := p.settings.syncInterval() == 0
	return func() time.Time {
		if always || p.synced.Load() {
			return time.Now().Add(time.Hour) // keep nothing
		}
		tail := p.tail.Load()
		if tail == nil || tail.Looked().IsZero() {
			return time.Time{} // unknown: keep everything
		}
		return tail.Looked().Add(-p.settings.keptFor())
	}
}

// followSent checks whether the server has the messages published before the start, and
// publishes missing ones again. From now on the publisher notes what it publishes last.
func (p *process) followSent(ctx context.Context, l *pipeline) error {
	synced := p.settings.syncInterval() == 0
	if !synced {
		synced = true
		for _, d := range l.durable {
			synced = synced && (d.Synced || d.Stream == wire.AggregateEvents)
		}
	}
	p.synced.Store(synced)
	if synced {
		return nil
	}
	marks, err := p.db.Marks()
	if err != nil {
		return edda.Classify(edda.Permanent, "read what was published last: %w", err)
	}
	tail := stream.NewTail(l.js, l.codec, marks)
	if err := tail.Look(ctx); errors.Is(err, stream.ErrShorter) {
		lost := tail.LostSince()
		tail = tail.Again()
		if err := tail.Look(ctx); err != nil {
			return err
		}
		l.publisher.Follow(tail)
		if err := p.republish(ctx, l, tail, lost, err); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	l.publisher.Follow(tail)
	l.tail = tail
	p.tail.Store(tail)
	return nil
}

// republish publishes the messages that the server has lost. After a failure it starts over
// and finds the messages that it has published.
func (p *process) republish(ctx context.Context, l *pipeline, tail *stream.Tail, lost time.Time, why error) error {
	p.log.Warn("the NATS server lost what it had acknowledged; looking for what was published lately", zap.Error(why))
	r, err := stream.NewRepublisher(ctx, l.publisher, lost.Add(-p.settings.keptFor()))
	if err != nil {
		return fmt.Errorf("look for what was published: %w", err)
	}
	toStreams := map[edda.WorkKind]bool{}
	for _, k := range p.settings.published() {
		toStreams[k] = true
	}
	// Record them as sent now, because a second power failure may lose them again.
	var sent store.Change
	err = p.db.Sent(r.Since(), func(row store.Row) error {
		if !toStreams[row.Work.Kind] {
			return nil
		}
		if missing, err := r.Add(ctx, row.Work); err != nil || !missing {
			return err
		}
		if sent.Sent = append(sent.Sent, row); sent.Size() < store.MaxChange {
			return nil
		}
		err := p.db.Commit(ctx, sent)
		sent.Sent = nil
		return err
	})
	if err == nil {
		err = r.Flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("publish again what the server lost: %w", err)
	}
	marks, err := p.marksAnew(tail)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("%d messages that the NATS server had acknowledged and lost were published again: %v", r.Count(), why)
	sent.Marks, sent.Audits = marks, []store.Audit{{Time: time.Now(), By: "edda", Verb: "republish", Detail: detail}}
	if err := p.db.Commit(ctx, sent); err != nil {
		return fmt.Errorf("note what was published again: %w", err)
	}
	p.republished.Add(float64(r.Count()))
	p.log.Warn("what the NATS server had lost was published again", zap.Int("messages", r.Count()))
	return nil
}

// marksAnew returns the marks of the tail, and empty marks that clear stored ones.
func (p *process) marksAnew(tail *stream.Tail) ([]edda.Mark, error) {
	marks := tail.Marks()
	before, err := p.db.Marks()
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "read what was published last: %w", err)
	}
	for _, b := range before {
		if !slices.ContainsFunc(marks, func(m edda.Mark) bool { return m.Stream == b.Stream }) {
			marks = append(marks, edda.Mark{Stream: b.Stream})
		}
	}
	return marks, nil
}

// mayPublish returns nil if the leases are held and the server has the published messages.
func (l *pipeline) mayPublish(ctx context.Context) error {
	if err := l.fences.pass(ctx); err != nil || l.tail == nil {
		return err
	}
	return l.tail.Pass(ctx)
}

// marks returns the positions of the last published messages.
func (l *pipeline) marks() []edda.Mark {
	if l.tail == nil {
		return nil
	}
	return l.tail.Marks()
}
