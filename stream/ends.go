package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/engine"
	"edda/internal/backoff"
)

// endWait bounds how long Ends waits for the reader to come as far as the last
// message, when only reading it can tell whether it is ours.
const endWait = time.Second

// endPoll is how often it looks meanwhile.
const endPoll = 5 * time.Millisecond

// end finds the stream's end. What is stored after the first question may be in
// the answer to the second: Need may be too far then, but never too near.
func (r *reader) end(ctx context.Context) (engine.End, error) {
	was := r.reached()
	info, err := r.stream.Info(ctx)
	if err != nil {
		return engine.End{}, fmt.Errorf("look at stream %s: %w", r.name, err)
	}
	if loss := truncated(info, was); loss != nil {
		signal(r.again) // the reader finds it too, and ends with it
		return engine.End{}, fmt.Errorf("look at stream %s: it %s", r.name, loss.What)
	}
	end := engine.End{Stream: r.name, Last: last(info)}
	end.Need, err = r.need(ctx, end.Last.Seq)
	if err != nil {
		return end, fmt.Errorf("find the end of %s: %w", r.name, err)
	}
	if end.Need > end.Last.Seq {
		m, err := r.stream.GetMsg(ctx, end.Need)
		if err != nil {
			return end, fmt.Errorf("look at message %d of %s: %w", end.Need, r.name, err)
		}
		end.Last.Seq, end.Last.Time = m.Sequence, m.Time.UTC()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if end.Last.Seq > r.told.Seq {
		r.told = end.Last
	}
	return end, nil
}

// need is the last message up to last that is meant for the sagas. As a rule the reader has
// read it: searching the stream backwards costs the server a walk over all the subjects that
// match. Where only reading tells what is meant for the sagas, the reader is given endWait,
// and after that the answer may be too far.
func (r *reader) need(ctx context.Context, last uint64) (uint64, error) {
	wait, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for {
		read, kept, quiet := r.progress()
		if max(read, quiet) >= last {
			return kept, nil
		}
		next, err := r.next(ctx, max(read, quiet)+1)
		if err != nil {
			return 0, err
		}
		if next == 0 || next > last {
			r.quietTo(last)
			return kept, nil
		}
		if !r.unsure() {
			return r.farthest(ctx, kept)
		}
		for r.position() < next {
			if backoff.Wait(wait, endPoll) != nil {
				return last, ctx.Err()
			}
		}
	}
}

func (r *reader) progress() (read, kept, quiet uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read, r.kept, r.quiet
}

func (r *reader) quietTo(last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.atStart.end > 0 {
		defer signal(r.wake)
	}
	r.quiet = max(r.quiet, last)
	r.endBacklog()
}

// next is the first message from seq on that the filters let through, 0 where there is none.
func (r *reader) next(ctx context.Context, seq uint64) (first uint64, err error) {
	patterns := r.filters()
	if len(patterns) == 0 {
		patterns = []string{">"}
	}
	for _, p := range patterns {
		m, err := r.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(p))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return 0, err
		case first == 0 || m.Sequence < first:
			first = m.Sequence
		}
	}
	return first, nil
}

// farthest is the last message that the filters let through. Without filters it
// is the last one of all, which the server has at hand unless it was deleted.
func (r *reader) farthest(ctx context.Context, kept uint64) (uint64, error) {
	patterns := r.filters()
	if len(patterns) == 0 {
		last, err := r.lastOf(ctx, ">")
		if err != nil || last > 0 {
			return max(last, kept), err
		}
		patterns = r.codec.Filters(nil, "*", r.families...)
	}
	far := kept
	for _, p := range patterns {
		last, err := r.lastOf(ctx, p)
		if err != nil {
			return 0, err
		}
		far = max(far, last)
	}
	return far, nil
}

// lastOf is the sequence of the last message of a pattern, 0 when there is none.
func (r *reader) lastOf(ctx context.Context, pattern string) (uint64, error) {
	m, err := r.stream.GetLastMsgForSubject(ctx, pattern)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

// unsure tells whether only reading tells what is meant for the sagas: the filters may let
// other tenants through, and the last message may be an echo. Nobody applies those, and a timer
// that waited for one would wait until a look finds nothing on its way.
func (r *reader) unsure() bool {
	tenants := *r.tenants.Load()
	return len(tenants) > 0 && !tenants.Exact() || r.results()
}
