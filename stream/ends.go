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

// endWait bounds how long Ends waits for the reader to reach the last message, when only reading it
// can tell whether it is an input.
const endWait = time.Second

// endPoll is the interval of that wait.
const endPoll = 5 * time.Millisecond

// end returns the end of the stream. A message that is stored between its two questions may make
// Need too high, but Need is never too low.
func (r *reader) end(ctx context.Context) (engine.End, error) {
	was := r.checkpoint()
	info, err := r.stream.Info(ctx)
	if err != nil {
		return engine.End{}, fmt.Errorf("look at stream %s: %w", r.name, err)
	}
	if loss := truncated(info, was); loss != nil {
		signal(r.recreate) // the reader then finds the loss, too, and returns it
		return engine.End{}, fmt.Errorf("look at stream %s: it %s", r.name, loss.What)
	}
	r.noteBegin(info)
	end := engine.End{Stream: r.name, Last: last(info)}
	end.Need, err = r.need(ctx, end.Last.Seq)
	if err != nil {
		return end, fmt.Errorf("find the end of %s: %w", r.name, err)
	}
	if end.Need > end.Last.Seq {
		m, err := r.messages.GetMsg(ctx, end.Need)
		if err != nil {
			return end, fmt.Errorf("look at message %d of %s: %w", end.Need, r.name, err)
		}
		end.Last.Seq, end.Last.Time = m.Sequence, m.Time.UTC()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if end.Last.Seq > r.reported.Seq {
		r.reported = end.Last
	}
	return end, nil
}

// need returns the last message up to last that is an input. Usually the reader has read it. A
// search backwards would cost the server a walk over all matching subjects. If only reading can
// tell, need waits up to endWait, and then the answer may be too high.
func (r *reader) need(ctx context.Context, last uint64) (uint64, error) {
	wait, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for {
		read, buffered, emptyTo := r.progress()
		if max(read, emptyTo) >= last {
			return buffered, nil
		}
		next, err := r.next(ctx, max(read, emptyTo)+1)
		if err != nil {
			return 0, err
		}
		if next == 0 || next > last {
			r.noteEmpty(last)
			return buffered, nil
		}
		if !r.mustRead() {
			return r.lastMatch(ctx, buffered, last)
		}
		for r.position() < next {
			if backoff.Wait(wait, endPoll) != nil {
				return last, ctx.Err()
			}
		}
	}
}

func (r *reader) progress() (read, buffered, emptyTo uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read, r.buffered, r.emptyTo
}

func (r *reader) noteEmpty(last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.atStart.end > 0 {
		defer signal(r.wake)
	}
	r.emptyTo = max(r.emptyTo, last)
	r.endBacklog()
}

// next returns the first message from seq on that matches the filters; 0 if there is none.
func (r *reader) next(ctx context.Context, seq uint64) (first uint64, err error) {
	patterns := r.filters()
	if len(patterns) == 0 {
		patterns = []string{">"}
	}
	for _, p := range patterns {
		m, err := r.messages.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(p))
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

// lastMatch returns the last message that matches the filters. Without filters it is the last one
// of the stream, which the server has at hand unless it was deleted. Then it is searched for up to the end
// where the subjects are not known, as in a mirror.
func (r *reader) lastMatch(ctx context.Context, buffered, end uint64) (uint64, error) {
	patterns := r.filters()
	if len(patterns) == 0 {
		last, err := r.lastOf(ctx, ">")
		if err != nil || last > 0 {
			return max(last, buffered), err
		}
		if r.mapping != nil {
			m, err := lastUntil(ctx, r.messages, 1, end, time.Unix(1<<40, 0)) // however late it was stored
			if err != nil || m == nil {
				return buffered, err
			}
			return max(m.Sequence, buffered), nil
		}
		patterns = r.codec.Filters(nil, "*", r.families...)
	}
	far := buffered
	for _, p := range patterns {
		last, err := r.lastOf(ctx, p)
		if err != nil {
			return 0, err
		}
		far = max(far, last)
	}
	return far, nil
}

// lastOf returns the sequence of the last message that matches a pattern; 0 if there is none.
func (r *reader) lastOf(ctx context.Context, pattern string) (uint64, error) {
	m, err := r.messages.GetLastMsgForSubject(ctx, pattern)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}

// mustRead reports whether only reading tells what is an input: the filters may match other
// tenants, and the last message may be an echo. Neither is ever applied, so a timer must not wait
// for one.
func (r *reader) mustRead() bool {
	tenants := *r.tenants.Load()
	if r.mapping != nil {
		tenant, known := r.mapping.Tenant()
		return !r.codec.NoTenancy && len(tenants) > 0 && !(known && tenants.Match(tenant))
	}
	return len(tenants) > 0 && !tenants.Exact() || r.results()
}
