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

// From says where a source begins in a stream that has no checkpoint.
type From string

// The beginnings. The empty From is FromNow.
const (
	FromNow From = "now" // after the last message that is there now
	FromAll From = "all" // with the first message that is still there
)

// Loss is a checkpoint that no longer fits its stream.
type Loss struct {
	Checkpoint edda.Checkpoint
	// What says what is wrong, in words.
	What string
	// Handled is set where nothing is known to be missing but what was handled: the server
	// lost the end of the stream, as after a power cut.
	Handled bool
	// Resume is where reading goes on once the loss is accepted, and Next says in
	// words at which message.
	Resume edda.Checkpoint
	Next   string
}

// Accepted says what was lost and where reading goes on, for logs and the audit.
func (l Loss) Accepted() string {
	return fmt.Sprintf("stream %s %s; reading goes on at %s", l.Checkpoint.Stream, l.What, l.Next)
}

// ErrShorter says that a server came back without the end of a stream, all of which is
// handled: a source that is opened anew goes on.
var ErrShorter = errors.New("the server lost the end of a stream")

// lossError is edda.Permanent: only a person can accept a loss.
func lossError(losses []Loss) error {
	whats := make([]string, len(losses))
	for i, l := range losses {
		whats[i] = "stream " + l.Checkpoint.Stream + " " + l.What
	}
	return edda.Classify(edda.Permanent, "%s: restore the stream from a backup, or go on without what is missing with --accept-stream-loss",
		strings.Join(whats, "; "))
}

// verdict is what the guard found out about one stream.
type verdict struct {
	start edda.Checkpoint // the position to go on from
	loss  *Loss
}

// guard holds a checkpoint against its stream. Reading on from a position in
// another stream would drop messages as already seen, or apply others twice.
func guard(ctx context.Context, js jetstream.JetStream, s jetstream.Stream, held []edda.Checkpoint, from From) (verdict, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return verdict{}, fmt.Errorf("look at stream: %w", err)
	}
	name := info.Config.Name
	i := slices.IndexFunc(held, func(c edda.Checkpoint) bool { return c.Stream == name })
	if i < 0 {
		return verdict{start: beginning(info, from)}, nil
	}
	cp := held[i]
	loss, err := inspect(ctx, s, info, cp)
	if err != nil || loss == nil {
		if restored(info) {
			cp.Created = info.Created.UTC()
		}
		return verdict{start: cp}, err
	}
	loss.Checkpoint = cp
	loss.Resume, loss.Next, err = resume(ctx, s, info, cp)
	if err == nil && loss.Handled {
		loss.Handled, err = tellsApart(ctx, js, s, info, cp, loss.Resume.Seq)
	}
	return verdict{start: loss.Resume, loss: loss}, err
}

// beginning is the position of a source that was never there before.
func beginning(info *jetstream.StreamInfo, from From) edda.Checkpoint {
	cp := edda.Checkpoint{Stream: info.Config.Name, Created: info.Created.UTC()}
	if from == FromAll {
		cp.Seq = max(info.State.FirstSeq, 1) - 1
		return cp
	}
	return last(info)
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
	if st := info.State; st.FirstSeq > cp.Seq+1 {
		return &Loss{
			What: fmt.Sprintf("begins at %d, but only messages up to %d were handled: those between are gone", st.FirstSeq, cp.Seq),
		}, nil
	}
	return sameMessage(ctx, s, info, cp)
}

// truncated is what the stream's state alone shows: it is another one, or shorter
// than it was.
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

// recreated tells whether the stream is another one of the same name.
func recreated(info *jetstream.StreamInfo, cp edda.Checkpoint) bool {
	return !cp.Created.IsZero() && !cp.Created.Equal(info.Created) && !restored(info)
}

// restored tells whether the stream was made of a backup: the server says that it was created
// then, but it has messages that were stored before. What else it has is looked at as after
// any other loss.
func restored(info *jetstream.StreamInfo) bool {
	return info.State.Msgs > 0 && info.State.FirstTime.Before(info.Created)
}

// sameMessage recognises the checkpoint's message by its stored time. A message
// that has expired proves nothing, and neither does a checkpoint without a time.
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
