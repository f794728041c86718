package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/internal/backoff"
	"edda/stream/wire"
)

const (
	// pauseAfter own messages in a row, within pauseWithin, pause the consumer of the stream.
	pauseAfter  = 1024
	pauseWithin = 2 * time.Second
	// pauseLook bounds how long a foreign message waits behind our last one while the
	// consumer is paused; in front of our next message it waits for that ack only.
	pauseLook = 100 * time.Millisecond
	// readAtLeast is how long the stream is read before the next pause where others write to it, too.
	readAtLeast = 5 * time.Second
)

// errOwnTail ends the reading: behind what was read the stream has our own messages only.
var errOwnTail = errors.New("all that comes is our own")

// ownTail is the contiguous suffix of the stream that this process published: echoes of
// results that it has applied, and facts that no saga hears. The consumer may skip it. The
// server's ack says where each message lies.
type ownTail struct {
	from, to uint64 // no message of others is between them; zero: there is none
	id       string // of the message at to

	counted uint64    // where the count of pauseAfter began
	since   time.Time // when it did; after now: no pause before
	paused  bool      // the consumer is: what is acknowledged counts as read
}

// Published notes where a message lies that this process has published. The publisher calls
// it for each new one, in the order of the acks.
func (s *Source) Published(stream string, seq uint64, w *edda.Work) {
	if w.Kind != edda.WorkResult && (w.Kind != edda.WorkFact || s.hears(w)) {
		return
	}
	for _, r := range s.readers {
		if r.name == stream && r.results() {
			r.published(seq, w.ID, time.Now())
		}
	}
}

// published extends the own tail by a message. A gap before it is a foreign message or a lost
// ack, so the stream must be read. It must be read as well where the message does not lie
// behind one that was acknowledged: the server has lost that one, and others may have
// written in its place, which is found out before reading goes on.
func (r *reader) published(seq uint64, id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.tail
	if seq <= o.to {
		signal(r.again)
	}
	if o.from == 0 || seq != o.to+1 {
		o.from, o.counted, o.since = seq, seq, later(o.since, now)
		if o.paused {
			o.paused, o.since = false, now.Add(readAtLeast)
			signal(r.stir)
		}
	}
	o.to, o.id = seq, id
	switch {
	case o.paused && seq > r.read: // else it came back before its ack
		r.read, r.at, r.id = seq, time.Time{}, id
	case !o.paused && o.enough(now):
		signal(r.stir)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// enough tells whether pauseAfter own messages came within pauseWithin. The count starts
// again each time that it says so, or that they took too long.
func (o *ownTail) enough(now time.Time) bool {
	least := uint64(pauseAfter)
	// gofail: var restSoon int
	// least = uint64(restSoon)
	if o.to-o.counted < least || now.Before(o.since) {
		return false
	}
	fast := now.Sub(o.since) <= pauseWithin
	o.counted, o.since = o.to, now
	return fast
}

// pause removes the consumer for as long as all that comes is our own. It is called while
// nothing is being read, and returns when reading must begin again.
func (r *reader) pause(ctx context.Context) {
	if !r.recognises(ctx) || !r.beginPause() {
		return
	}
	defer r.endPause()
	r.log.Debug("a stream is not read while all that comes is our own", zap.String("stream", r.name))
	// One that stays would look as if its reader had died, and is removed in any case
	// before there is another.
	_ = r.js.DeleteConsumer(ctx, r.name, r.consumer)
	look := time.NewTicker(pauseLook)
	defer look.Stop()
	for last := r.position(); ; {
		select {
		case <-ctx.Done():
			return
		case <-r.again: // the consumer that is made next is the new one
			return
		case <-r.stir:
			if !r.paused() {
				return
			}
		case <-look.C:
			read := r.position()
			if read == last {
				return
			}
			last = read
		}
	}
}

// recognises tells whether our last message lies where its ack said. An ack may be of
// another stream of that name, as where a leaf node has one, too; then the stream is read
// for a while.
func (r *reader) recognises(ctx context.Context) bool {
	r.mu.Lock()
	seq, id := r.tail.to, r.tail.id
	r.mu.Unlock()
	m, err := r.stream.GetMsg(ctx, seq)
	if err == nil && r.idOf(m) == id {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tail.since = time.Now().Add(readAtLeast)
	return false
}

// idOf is the id under which a message was published.
func (r *reader) idOf(m *jetstream.RawStreamMsg) string {
	return r.codec.ID(wire.Message{Subject: m.Subject, Header: m.Header, Stream: r.name, Seq: m.Sequence})
}

// beginPause is false where a foreign message is behind what was read.
func (r *reader) beginPause() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mayPause() {
		return false
	}
	if o := &r.tail; o.to > r.read {
		r.read, r.at, r.id = o.to, time.Time{}, o.id
	}
	r.tail.paused = true
	return true
}

// mayPause tells whether all that is known behind what was read is our own. Its caller
// holds r.mu.
func (r *reader) mayPause() bool {
	return !r.backlogUnread() && r.tail.from > 0 && r.tail.from <= r.read+1
}

// tired tells whether reading should end because the consumer may pause.
func (r *reader) tired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mayPause()
}

func (r *reader) endPause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tail.paused = false
	r.tail.counted, r.tail.since = r.tail.to, later(r.tail.since, time.Now())
	select {
	case <-r.stir: // of an earlier pause
	default:
	}
}

// paused tells whether the stream is not read at the moment.
func (r *reader) paused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.paused
}

// publishes tells whether something of our own was acknowledged since reading began.
func (r *reader) publishes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.from > 0
}

// still waits until all that is stored up to last was acknowledged to us. It is false where
// it was not: then there is something to read.
func (r *reader) still(ctx context.Context, last uint64) bool {
	if !r.paused() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pauseLook)
	defer cancel()
	for r.paused() {
		if r.position() >= last {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		_ = backoff.Wait(ctx, pausePoll)
	}
	return false
}

// pausePoll is how often it looks.
const pausePoll = time.Millisecond

// sameOwn recognises the last message of the own tail by its id, because an ack does not
// say when a message was stored. From then on the time is known, too.
func (r *reader) sameOwn(ctx context.Context, s jetstream.Stream) (*Loss, error) {
	r.mu.Lock()
	seq, id := r.read, r.id
	r.mu.Unlock()
	if id == "" {
		return nil, nil
	}
	m, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) { // it has expired, which proves nothing
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at message %d: %w", seq, err)
	}
	if is := r.idOf(m); is != id {
		return &Loss{What: fmt.Sprintf("has at %d the message %q; the one that was published there is %q: the server lost messages and wrote others in their place", seq, is, id), Handled: true}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read == seq {
		r.at, r.id = m.Time.UTC(), ""
	}
	return nil, nil
}

// paused tells whether results are not read at the moment.
func (s *Source) paused() bool {
	for _, r := range s.readers {
		if r.results() && r.paused() {
			return true
		}
	}
	return false
}
