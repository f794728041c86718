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

// Tail is the last message that a process has published to each stream. It checks whether the
// server still has them: a server that acknowledges before it syncs loses its latest messages in a
// power cut. Its methods may be called concurrently.
type Tail struct {
	js    jetstream.JetStream
	codec wire.Codec

	mu         sync.Mutex // guards the fields below
	marks      []edda.Mark
	lost       error          // what the server has lost; nil if nothing
	since      time.Time      // ack time of the oldest mark of a stream that lost messages
	ended      []string       // streams that no longer have their mark
	holes      map[string]int // missing messages within a stream, at the last check
	connection uint64         // number of the connection at the last check, from 1
	looked     time.Time      // start of the last check without a loss
}

// NewTail starts with the messages that were published last.
func NewTail(js jetstream.JetStream, c wire.Codec, marks []edda.Mark) *Tail {
	t := &Tail{js: js, codec: c, marks: slices.Clone(marks), holes: map[string]int{}}
	for _, m := range marks {
		t.holes[m.Stream] = m.Missing
	}
	return t
}

// Again returns a tail for what is published after a loss. It starts with the marks that the server
// still has, and with the known holes.
func (t *Tail) Again() *Tail {
	t.mu.Lock()
	defer t.mu.Unlock()
	again := NewTail(t.js, t.codec, slices.DeleteFunc(slices.Clone(t.marks), func(m edda.Mark) bool { return slices.Contains(t.ended, m.Stream) }))
	again.holes = maps.Clone(t.holes)
	return again
}

// Marks returns the last message of each stream.
func (t *Tail) Marks() []edda.Mark {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.marks)
	for i := range out {
		out[i].Missing = t.holes[out[i].Stream]
	}
	return out
}

// open returns nil if a message may be published now: on the connection that was checked, or if
// nothing was checked yet. The client buffers messages while it is disconnected and would send them
// before a check.
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

// await is open, but waits up to publishWait for a connection.
func (t *Tail) await(ctx context.Context) error {
	nc := t.js.Conn()
	if err := t.open(); err == nil || nc.IsConnected() {
		return err
	}
	there := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(there)
	timer := time.NewTimer(publishWait)
	defer timer.Stop()
	if nc.IsConnected() { // in the meantime
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

// found records a message that was in the stream already. A process that was killed may have
// published it.
func (t *Tail) found(stream string, seq uint64, w *edda.Work) {
	t.note(stream, seq, w, false)
}

// published records a new message, in the order of the acks. A sequence that is not higher than the
// last one means that the stream lost messages.
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
	case t.lost != nil: // keep the marks of before the loss
	case seq <= m.Seq && !anew:
	case seq <= m.Seq:
		t.ended = append(t.ended, stream)
		t.since, t.lost = m.Time, fmt.Errorf("stream %s has a new message at %d, after one at %d was acknowledged: %w", stream, seq, m.Seq, ErrShorter)
	default:
		m.Seq, m.ID, m.Time = seq, w.ID, time.Now().UTC()
	}
}

// Pass returns nil if something may be published: the server has everything that was published
// before, as far as a check on this connection could tell. An error other than ErrShorter is
// temporary.
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

// connectionOf counts the connections that the client has made, from 1.
func connectionOf(nc *nats.Conn) uint64 { return nc.Stats().Reconnects + 1 }

// Look checks whether the server still has the last message of each stream. Once it has not, Look
// always returns ErrShorter.
func (t *Tail) Look(ctx context.Context) error {
	began, connection := time.Now(), connectionOf(t.js.Conn())
	ctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	for _, m := range t.Marks() {
		err := t.check(ctx, m, connection)
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

// LostSince returns when the last message of a stream that lost messages was acknowledged, the
// earliest of several streams. The lost messages were acknowledged shortly before that, and none
// later.
func (t *Tail) LostSince() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// Looked returns when the last check without a loss began.
func (t *Tail) Looked() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.looked
}

// check looks for the message of one mark.
func (t *Tail) check(ctx context.Context, m edda.Mark, connection uint64) error {
	s, err := t.js.Stream(ctx, m.Stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", m.Stream, err)
	}
	st := s.CachedInfo().State
	switch {
	case st.LastSeq < m.Seq:
		return fmt.Errorf("stream %s ends at %d, and the message at %d was acknowledged: %w", m.Stream, st.LastSeq, m.Seq, ErrShorter)
	case st.FirstSeq > m.Seq: // expired or purged
		return nil
	}
	found, err := s.GetMsg(ctx, m.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		info, err := s.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", m.Stream, err)
		}
		if info.State.FirstSeq > m.Seq || t.checkedOn(connection) { // just expired, or deleted by an operator
			return nil
		}
		return fmt.Errorf("stream %s has no message at %d, where one was acknowledged: %w", m.Stream, m.Seq, ErrShorter)
	case err != nil:
		return fmt.Errorf("look at message %d of %s: %w", m.Seq, m.Stream, err)
	}
	if id := t.codec.ID(wire.Message{Subject: found.Subject, Header: found.Header, Stream: m.Stream, Seq: m.Seq}); id != m.ID {
		return fmt.Errorf("stream %s has at %d the message %q, where %q was acknowledged: %w", m.Stream, m.Seq, id, m.ID, ErrShorter)
	}
	return t.checkHoles(m.Stream, st.NumDeleted, connection)
}

// checkedOn reports whether a check on this connection found everything. A server loses nothing
// while it runs.
func (t *Tail) checkedOn(connection uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connection == connection
}

// errHole says that messages before a mark are missing, and the mark is not.
var errHole = fmt.Errorf("messages are missing within: %w", ErrShorter)

// checkHoles compares the number of missing messages within a stream with that of the previous
// connection, of this process or another. A server whose file was cut off continues behind the cut.
func (t *Tail) checkHoles(stream string, holes int, connection uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.holes[stream]
	t.holes[stream] = holes
	if connection != t.connection && holes > before {
		return fmt.Errorf("stream %s lacks %d messages, and lacked %d before: %w", stream, holes, before, errHole)
	}
	return nil
}
