package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

// resume says where reading goes on once a loss is accepted: behind what was
// handled and is still there. What the server wrote in the place of lost
// messages is new, and is read.
func resume(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint) (edda.Checkpoint, string, error) {
	start := beginning(info, FromAll)
	switch {
	case recreated(info, cp), info.State.FirstSeq > cp.Seq:
		return start, fmt.Sprintf("message %d, where the stream begins", start.Seq+1), nil
	case cp.Time.IsZero():
		end := last(info)
		return end, fmt.Sprintf("message %d, the next to come, as the checkpoint does not say when its message was stored", end.Seq+1), nil
	}
	// The message at the checkpoint is lost or another one, also where the
	// server's clock went back and it seems to be older.
	m, err := lastUntil(ctx, s, start.Seq+1, min(info.State.LastSeq, cp.Seq-1), cp.Time)
	if err != nil {
		return start, "", fmt.Errorf("look for the first message after %s: %w", stamp(cp.Time), err)
	}
	if m != nil {
		start.Seq, start.Time = m.Sequence, m.Time.UTC()
	}
	return start, fmt.Sprintf("message %d, the first stored after what was handled, which was at %s", start.Seq+1, stamp(cp.Time)), nil
}

// lastUntil finds the last message from first to last that was stored no later
// than t, nil where there is none. It halves what is left with each question,
// and passes over what was deleted.
func lastUntil(ctx context.Context, s jetstream.Stream, first, last uint64, t time.Time) (*jetstream.RawStreamMsg, error) {
	var found *jetstream.RawStreamMsg
	for first <= last {
		middle := first + (last-first)/2
		m, err := s.GetMsg(ctx, middle, jetstream.WithGetMsgSubject(">")) // at middle, or the next that is there
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			last = middle - 1
		case err != nil:
			return nil, err
		case m.Sequence > last || m.Time.After(t):
			last = middle - 1
		default:
			found, first = m, m.Sequence+1
		}
	}
	return found, nil
}

// toldBack is how far back times are looked at: what a server can have written since it
// lost something, in some seconds.
const toldBack = 4096

// tellsApart tells whether what was handled can be told from what the server wrote in the place
// of lost messages, by when each was stored: the server's clock must not have gone back.
// The last that counts as handled is at upto.
func tellsApart(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint, upto uint64) (bool, error) {
	if cp.Time.IsZero() || !info.TimeStamp.IsZero() && info.TimeStamp.Before(cp.Time) {
		return false, nil
	}
	next, err := s.GetMsg(ctx, upto+1, jetstream.WithGetMsgSubject(">"))
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, fmt.Errorf("look at the message behind %d: %w", upto, err)
	}
	if err == nil && !next.Time.After(cp.Time) {
		return false, nil
	}
	first := max(info.State.FirstSeq, 1)
	if upto < first || info.State.Msgs == 0 {
		return true, nil
	}
	if upto > toldBack {
		first = max(first, upto-toldBack)
	}
	was, forth := cp.Created, true
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, HeadersOnly: true}
	err = readAgain(ctx, js, info.Config.Name, cfg, upto, func(_ jetstream.Msg, md *jetstream.MsgMetadata) error {
		forth = forth && !md.Timestamp.Before(was)
		was = md.Timestamp
		return nil
	})
	return forth, err
}
