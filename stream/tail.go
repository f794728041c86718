package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/stream/wire"
)

// Tail is the end of what a process has published, one message for each stream, and tells
// whether the server still has it: one that acknowledges before it syncs loses its end with
// the power. Its methods may be called concurrently.
type Tail struct {
	js    jetstream.JetStream
	codec wire.Codec

	mu         sync.Mutex // guards what follows
	marks      []edda.Mark
	lost       error          // what the server is known to have lost
	since      time.Time      // the oldest mark of a stream that lost messages
	ended      []string       // the streams whose mark is not there any more
	holes      map[string]int // messages that are missing within a stream, at the last look
	connection uint64         // the number of the connection at the last look, from 1
	looked     time.Time      // when the last look began that found all there
}

// NewTail begins with what was published last.
func NewTail(js jetstream.JetStream, c wire.Codec, marks []edda.Mark) *Tail {
	t := &Tail{js: js, codec: c, marks: slices.Clone(marks), holes: map[string]int{}}
	for _, m := range marks {
		t.holes[m.Stream] = m.Missing
	}
	return t
}

// Again is one for what is published in the place of what was lost. It begins with the
// marks that are still there, and with what is known to be missing.
func (t *Tail) Again() *Tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := NewTail(t.js, t.codec, slices.DeleteFunc(slices.Clone(t.marks), func(m edda.Mark) bool { return slices.Contains(t.ended, m.Stream) }))
	again.holes = maps.Clone(t.holes)
	return again
}

// Marks are the last messages.
func (t *Tail) Marks() []edda.Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.marks)
	for i := range out {
		out[i].Missing = t.holes[out[i].Stream]
	}
	return out
}

// open is nil where a message would reach the server on the connection that was looked at:
// the client holds back what is published while there is none, and sends it before anybody
// looks. Who has never looked may publish.
func (t *Tail) open() error {
	nc := t.js.Conn()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.lost != nil || t.connection == 0:
		return t.lost
	case !nc.IsConnected() || connectionOf(nc) != t.connection:
		return nats.ErrDisconnected
	}
	return nil
}

// await is open once there is a connection, which it waits for no longer than for an ack.
func (t *Tail) await(ctx context.Context) error {
	nc := t.js.Conn()
	if err := t.open(); err == nil || nc.IsConnected() {
		return err
	}
	there := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(there)
	timer := time.NewTimer(publishWait)
	defer timer.Stop()
	if nc.IsConnected() { // since
		return t.open()
	}
	select {
	case <-there:
		return t.open()
	case <-timer.C:
		return nats.ErrDisconnected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// found notes a message that was there already: it may have been published by a process
// that was killed before it could say so.
func (t *Tail) found(stream string, seq uint64, w *edda.Work) {
	t.note(stream, seq, w, false)
}

// published notes a new message, in the order of the server's acks. One that lies no
// further than another before it is in a stream that lost its end.
func (t *Tail) published(stream string, seq uint64, w *edda.Work) { t.note(stream, seq, w, true) }

func (t *Tail) note(stream string, seq uint64, w *edda.Work, anew bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.marks, func(m edda.Mark) bool { return m.Stream == stream })
	if i < 0 {
		i = len(t.marks)
		t.marks = append(t.marks, edda.Mark{Stream: stream})
	}
	m := &t.marks[i]
	switch {
	case t.lost != nil: // the marks say what was there before
	case seq <= m.Seq && !anew:
	case seq <= m.Seq:
		t.ended = append(t.ended, stream)
		t.since, t.lost = m.Time, fmt.Errorf("stream %s has a new message at %d, after one at %d was acknowledged: %w", stream, seq, m.Seq, ErrShorter)
	default:
		m.Seq, m.ID, m.Time = seq, w.ID, time.Now().UTC()
	}
}

// Pass is nil where something may be published: the server has all that was published
// before, as far as could be seen since it was reached. An error that is not ErrShorter
// passes.
func (t *Tail) Pass(ctx context.Context) error {
	now := connectionOf(t.js.Conn())
	t.mu.Lock()
	lost, looked := t.lost, t.connection == now
	t.mu.Unlock()
	if lost != nil || looked {
		return lost
	}
	return t.Look(ctx)
}

// connectionOf counts how often the server was reached.
func connectionOf(nc *nats.Conn) uint64 { return nc.Stats().Reconnects + 1 }

// Look asks whether the server has all that was published, as far as the ends of the
// streams tell. It is ErrShorter where the server has not, from then on.
func (t *Tail) Look(ctx context.Context) error {
	began, connection := time.Now(), connectionOf(t.js.Conn())
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	for _, m := range t.Marks() {
		err := t.look(ctx, m, connection)
		if errors.Is(err, ErrShorter) {
			t.markLost(m, err)
		} else if err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil {
		t.looked, t.connection = began, connection
	}
	return t.lost
}

func (t *Tail) markLost(m edda.Mark, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost == nil || m.Time.Before(t.since) {
		t.lost, t.since = err, m.Time
	}
	if !errors.Is(err, errHole) {
		t.ended = append(t.ended, m.Stream)
	}
}

// LostSince is when the last message was acknowledged that is known not to be lost behind
// others: what the server lost was acknowledged shortly before, and no later.
func (t *Tail) LostSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Looked is when the server was last known to have everything.
func (t *Tail) Looked() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.looked
}

// look looks at one message.
func (t *Tail) look(ctx context.Context, m edda.Mark, connection uint64) error {
	s, err := t.js.Stream(ctx, m.Stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", m.Stream, err)
	}
	st := s.CachedInfo().State
	switch {
	case st.LastSeq < m.Seq:
		return fmt.Errorf("stream %s ends at %d, and the message at %d was acknowledged: %w", m.Stream, st.LastSeq, m.Seq, ErrShorter)
	case st.FirstSeq > m.Seq: // it has expired, or was purged
		return nil
	}
	found, err := s.GetMsg(ctx, m.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", m.Stream, err)
		}
		if info.State.FirstSeq > m.Seq || t.lookedAt(connection) { // a moment ago, or somebody deleted it
			return nil
		}
		return fmt.Errorf("stream %s has no message at %d, where one was acknowledged: %w", m.Stream, m.Seq, ErrShorter)
	case err != nil:
		return fmt.Errorf("look at message %d of %s: %w", m.Seq, m.Stream, err)
	}
	if id := t.codec.ID(wire.Message{Subject: found.Subject, Header: found.Header, Stream: m.Stream, Seq: m.Seq}); id != m.ID {
		return fmt.Errorf("stream %s has at %d the message %q, where %q was acknowledged: %w", m.Stream, m.Seq, id, m.ID, ErrShorter)
	}
	return t.holed(m.Stream, st.NumDeleted, connection)
}

// lookedAt tells whether all was there before on this connection: a server loses nothing
// while it runs.
func (t *Tail) lookedAt(connection uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connection == connection
}

// errHole says that messages are missing before a mark, which is there.
var errHole = fmt.Errorf("messages are missing within: %w", ErrShorter)

// holed looks whether more is missing within a stream than when the server was reached the
// time before, by this process or another: one that was cut off within a file goes on behind
// it.
func (t *Tail) holed(stream string, holes int, connection uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.holes[stream]
	t.holes[stream] = holes
	if connection != t.connection && holes > before {
		return fmt.Errorf("stream %s lacks %d messages, and lacked %d before: %w", stream, holes, before, errHole)
	}
	return nil
}
