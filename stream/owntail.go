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
	// restAfter messages of our own, one behind the other and within restWithin, are a
	// stream that need not be read for now.
	restAfter  = 1024
	restWithin = 2 * time.Second
	// restLook is how long a message of others may lie behind the last of our own until it
	// is read; in front of the next of our own it is read as soon as that is acknowledged.
	restLook = 100 * time.Millisecond
	// restPause is how long the stream is read at least where others write to it, too.
	restPause = 5 * time.Second
)

// errOwn says that nothing is in the stream but what this process put there.
var errOwn = errors.New("all that comes is our own")

// ownTail is the end of a stream as far as this process has published it itself, and need not
// read it: the echoes of results that it has applied, and facts that no saga hears. The
// server says with each ack where in the stream the message is.
type ownTail struct {
	from, to uint64 // no message of others is between them; zero: there is none
	id       string // of the message at to

	counted uint64    // where the count of restAfter began
	since   time.Time // when it did; after now: reading does not rest before
	resting bool      // nothing is read: what is acknowledged counts as read
}

// Published says where a message lies that this process has published: the publisher
// tells of each new one, in the order of their acks.
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

// published notes one of our own. One that is missed before it is of others, or an ack
// that was lost: then the stream has to be read. So it has where a new message lies no
// further than one that was acknowledged: the server has lost that, and others may have
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
		if o.resting {
			o.resting, o.since = false, now.Add(restPause)
			signal(r.stir)
		}
	}
	o.to, o.id = seq, id
	switch {
	case o.resting && seq > r.read: // else it came back before its ack
		r.read, r.at, r.id = seq, time.Time{}, id
	case !o.resting && o.enough(now):
		signal(r.stir)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// enough tells whether so many came at once that it is worth it not to read them. They
// are counted anew each time that it says so, or that they took too long.
func (o *ownTail) enough(now time.Time) bool {
	least := uint64(restAfter)
	// gofail: var restSoon int
	// least = uint64(restSoon)
	if o.to-o.counted < least || now.Before(o.since) {
		return false
	}
	fast := now.Sub(o.since) <= restWithin
	o.counted, o.since = o.to, now
	return fast
}

// rest leaves the stream unread for as long as all that comes is our own. It is called
// while nothing is being read, and returns when reading is to begin again.
func (r *reader) rest(ctx context.Context) {
	if !r.recognises(ctx) || !r.beginRest() {
		return
	}
	defer r.endRest()
	r.log.Debug("a stream is not read while all that comes is our own", zap.String("stream", r.name))
	// One that stays would look as if its reader had died, and is removed in any case
	// before there is another.
	_ = r.js.DeleteConsumer(ctx, r.name, r.consumer)
	look := time.NewTicker(restLook)
	defer look.Stop()
	for last := r.position(); ; {
		select {
		case <-ctx.Done():
			return
		case <-r.again: // the consumer that is made next is the new one
			return
		case <-r.stir:
			if !r.rests() {
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

// recognises tells whether the last of our own lies where its ack said: an ack may be of
// another stream of that name, as where a leaf node has one, too. Where it does not, the
// stream is read for a while.
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
	r.tail.since = time.Now().Add(restPause)
	return false
}

// idOf is the id under which a message was published.
func (r *reader) idOf(m *jetstream.RawStreamMsg) string {
	return r.codec.ID(wire.Message{Subject: m.Subject, Header: m.Header, Stream: r.name, Seq: m.Sequence})
}

// beginRest is false where something of others is behind what was read.
func (r *reader) beginRest() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mayRest() {
		return false
	}
	if o := &r.tail; o.to > r.read {
		r.read, r.at, r.id = o.to, time.Time{}, o.id
	}
	r.tail.resting = true
	return true
}

// mayRest tells whether nothing but our own is behind what was read, as far as we know.
// Its caller holds r.mu.
func (r *reader) mayRest() bool {
	return !r.within() && r.tail.from > 0 && r.tail.from <= r.read+1
}

// tired tells whether reading is to end because it may rest.
func (r *reader) tired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mayRest()
}

func (r *reader) endRest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tail.resting = false
	r.tail.counted, r.tail.since = r.tail.to, later(r.tail.since, time.Now())
	select {
	case <-r.stir: // of a rest that is over
	default:
	}
}

// rests tells whether the stream is not read at the moment.
func (r *reader) rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.resting
}

// publishes tells whether something of our own was acknowledged since reading began.
func (r *reader) publishes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tail.from > 0
}

// still waits until what is stored up to last was acknowledged to us, and tells whether
// it was: else there is something to read.
func (r *reader) still(ctx context.Context, last uint64) bool {
	if !r.rests() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, restLook)
	defer cancel()
	for r.rests() {
		if r.position() >= last {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		_ = backoff.Wait(ctx, restPoll)
	}
	return false
}

// restPoll is how often it looks.
const restPoll = time.Millisecond

// sameOwn recognises the last message that counts as read because it was our own: by its
// id, as an ack does not say when a message was stored. From then on that is known, too.
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

// rests tells whether results are not read at the moment.
func (s *Source) rests() bool {
	for _, r := range s.readers {
		if r.results() && r.rests() {
			return true
		}
	}
	return false
}
