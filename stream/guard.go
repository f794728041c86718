package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
)

// From is where a source begins in a stream without a checkpoint.
type From string

// The values of From. The empty one is FromNow.
const (
	FromNow From = "now" // after the last message of now
	FromAll From = "all" // with the first message of the stream
)

// Loss describes a checkpoint that no longer fits its stream.
type Loss struct {
	Checkpoint edda.Checkpoint
	// What describes the loss.
	What string
	// Handled is set if only handled messages are known to be missing: the server lost the end of
	// the stream, as after a power cut.
	Handled bool
	// Resume is where reading continues after the loss is accepted. Next describes that message.
	Resume edda.Checkpoint
	Next   string
}

// Accepted describes the loss and where reading continues, for logs and the audit.
func (l Loss) Accepted() string {
	return fmt.Sprintf("stream %s %s; reading goes on at %s", l.Checkpoint.Stream, l.What, l.Next)
}

// ErrShorter says that a server came back without the end of a stream, and that everything lost was
// handled. A source that is opened again can continue.
var ErrShorter = errors.New("the server lost the end of a stream")

// lossError is edda.Permanent, because only an operator can accept a loss.
func lossError(losses []Loss) error {
	whats := make([]string, len(losses))
	for i, l := range losses {
		whats[i] = "stream " + l.Checkpoint.Stream + " " + l.What
	}
	return edda.Classify(edda.Permanent, "%s: restore the stream from a backup, or go on without what is missing with --accept-stream-loss",
		strings.Join(whats, "; "))
}

// verdict is the guard's result for one stream.
type verdict struct {
	start edda.Checkpoint // where to continue
	loss  *Loss
}

// guard compares a checkpoint with its stream. Reading on from a position of another stream would
// drop messages as duplicates, or apply others twice.
func guard(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, held []edda.Checkpoint, from From, of string, agree Agree) (verdict, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return verdict{}, fmt.Errorf("look at stream: %w", err)
	}
	first := from
	if of != "" && info.Config.Metadata[storeOf] == of { // messages could come as soon as it was there
		first = FromAll
	}
	name := info.Config.Name
	var cp edda.Checkpoint
	if i := slices.IndexFunc(held, func(c edda.Checkpoint) bool { return c.Stream == name }); i >= 0 {
		cp = held[i]
	} else if cp = beginning(info, first); from == FromAll || agree == nil {
		return verdict{start: cp}, nil
	} else if cp, err = agree(ctx, cp); err != nil {
		return verdict{}, err
	}
	loss, err := inspect(ctx, s, info, cp)
	if err != nil || loss == nil {
		if restored(info) {
			cp.Created = info.Created.UTC()
		}
		return verdict{start: cp}, err
	}
	if p := cp.Partly; p != nil && loss.Handled { // the rest of the batch is lost, too, and was not handled
		loss.What += fmt.Sprintf("; of the batch at %d only the first %d CloudEvents were handled", p.Seq, p.Members)
		loss.Handled = false
	}
	if loss.Checkpoint = cp; loss.Next == "" {
		loss.Resume, loss.Next, err = resume(ctx, s, info, cp)
	}
	if err == nil && loss.Handled {
		loss.Handled, err = separable(ctx, js, s, info, cp, loss.Resume.Seq)
	}
	return verdict{start: loss.Resume, loss: loss}, err
}

// beginning returns the first position in a stream without a checkpoint.
func beginning(info *jetstream.StreamInfo, from From) edda.Checkpoint {
	cp := edda.Checkpoint{Stream: info.Config.Name, Created: info.Created.UTC()}
	if from == FromAll {
		cp.Seq = max(info.State.FirstSeq, 1) - 1
		return cp
	}
	return last(info)
}

// behind returns the position behind what was stored until a time, but no later one than upto.
func behind(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, upto uint64, t time.Time) (edda.Checkpoint, error) {
	start := beginning(info, FromAll)
	m, err := lastUntil(ctx, s, start.Seq+1, upto, t)
	if err != nil {
		return start, fmt.Errorf("look for the first message after %s: %w", stamp(t), err)
	}
	if m != nil {
		start.Seq, start.Time = m.Sequence, m.Time.UTC()
	}
	return start, nil
}

func last(info *jetstream.StreamInfo) edda.Checkpoint {
	return edda.Checkpoint{
		Stream: info.Config.Name, Seq: info.State.LastSeq,
		Time: info.State.LastTime.UTC(), Created: info.Created.UTC(),
	}
}

func inspect(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint) (*Loss, error) {
	if loss := truncated(info, cp); loss != nil {
		return loss, nil
	}
	if st := info.State; st.FirstSeq > cp.Seq+1 && st.FirstSeq > cp.Last() {
		return &Loss{
			What: fmt.Sprintf("begins at %d, but only messages up to %d were handled: those between are gone", st.FirstSeq, cp.Seq),
		}, nil
	}
	loss, err := sameMessage(ctx, s, info, cp)
	if loss != nil || err != nil || cp.Partly == nil {
		return loss, err
	}
	return sameBatch(ctx, s, info, cp)
}

// sameBatch reports a loss if the stream no longer has the batch that is partly handled, because the rest
// of the batch is then lost.
func sameBatch(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint) (*Loss, error) {
	p := cp.Partly
	whole := edda.Checkpoint{Stream: cp.Stream, Seq: p.Seq, Time: p.Time, Created: cp.Created}
	loss := truncated(info, whole)
	if loss == nil {
		var err error
		if loss, err = sameMessage(ctx, s, info, whole); loss == nil {
			return nil, err
		}
	}
	cp.Partly = nil
	return &Loss{
		What:   fmt.Sprintf("lost the batch at %d, of which only the first %d CloudEvents were handled", p.Seq, p.Members),
		Resume: cp, Next: fmt.Sprintf("message %d, behind what was handled before the batch", cp.Seq+1),
	}, nil
}

// truncated returns the loss that the stream's state alone shows: the stream is another one, or
// shorter.
func truncated(info *jetstream.StreamInfo, cp edda.Checkpoint) *Loss {
	st := info.State
	switch {
	case recreated(info, cp):
		return &Loss{
			What: fmt.Sprintf("was created anew on %s; the checkpoint is of the one of %s", stamp(info.Created), stamp(cp.Created)),
		}
	case st.LastSeq < cp.Seq:
		return &Loss{
			What:    fmt.Sprintf("ends at %d, but everything up to %d was already handled: the server lost messages", st.LastSeq, cp.Seq),
			Handled: true,
		}
	}
	return nil
}

// recreated reports whether the stream is another one of the same name.
func recreated(info *jetstream.StreamInfo, cp edda.Checkpoint) bool {
	return !cp.Created.IsZero() && !cp.Created.Equal(info.Created) && !restored(info)
}

// restored reports whether the stream was restored from a backup: it has messages that are older
// than itself. Its messages are then checked as after any other loss.
func restored(info *jetstream.StreamInfo) bool {
	return info.State.Msgs > 0 && info.State.FirstTime.Before(info.Created)
}

// sameMessage compares the store time of the checkpoint's message. An expired message proves
// nothing, nor does a checkpoint without a time.
func sameMessage(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint) (*Loss, error) {
	if cp.Seq == 0 || cp.Time.IsZero() || cp.Seq < info.State.FirstSeq {
		return nil, nil
	}
	m, err := s.GetMsg(ctx, cp.Seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at message %d: %w", cp.Seq, err)
	}
	if m.Time.Equal(cp.Time) {
		return nil, nil
	}
	return &Loss{
		What: fmt.Sprintf("has at %d a message stored at %s; the one handled there was stored at %s: the server lost messages and wrote others in their place",
			cp.Seq, stamp(m.Time), stamp(cp.Time)),
		Handled: true,
	}, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// resume returns where reading continues after an accepted loss: behind the handled messages that
// are still there. New messages in place of lost ones are read.
func resume(ctx context.Context, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint) (edda.Checkpoint, string, error) {
	start := beginning(info, FromAll)
	switch {
	case recreated(info, cp), info.State.FirstSeq > cp.Seq:
		return start, fmt.Sprintf("message %d, where the stream begins", start.Seq+1), nil
	case cp.Time.IsZero():
		end := last(info)
		return end, fmt.Sprintf("message %d, the next to come, as the checkpoint does not say when its message was stored", end.Seq+1), nil
	}
	// The message at the checkpoint is lost or replaced. If the server's clock went
	// back, the replacement seems to be older.
	start, err := behind(ctx, s, info, min(info.State.LastSeq, cp.Seq-1), cp.Time)
	if err != nil {
		return start, "", err
	}
	return start, fmt.Sprintf("message %d, the first stored after what was handled, which was at %s", start.Seq+1, stamp(cp.Time)), nil
}

// lastUntil returns the last message from first to last that was stored no later than t; nil if
// there is none. It is a binary search that skips deleted messages.
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

// separableWithin bounds the messages whose store times are checked: more than a server can write
// between its loss and this check.
const separableWithin = 4096

// separable reports whether store times separate handled messages from those that the server wrote
// in place of lost ones. For that its clock must not have gone back. upto is the last sequence
// that counts as handled.
func separable(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, info *jetstream.StreamInfo, cp edda.Checkpoint, upto uint64) (bool, error) {
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
	if upto > separableWithin {
		first = max(first, upto-separableWithin)
	}
	was, forth := cp.Created, true
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, HeadersOnly: true}
	err = scanStream(ctx, js, info.Config.Name, cfg, upto, func(_ jetstream.Msg, md *jetstream.MsgMetadata) error {
		forth = forth && !md.Timestamp.Before(was)
		was = md.Timestamp
		return nil
	})
	return forth, err
}
