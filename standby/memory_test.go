package standby

import (
	"context"
	"sync"

	"edda/cluster"
)

// memory is a log in memory, which all nodes of a test share. A message that is appended behind another
// message than the last one is refused, as a server does.
type memory struct {
	mu       sync.Mutex // guards the fields below
	messages []cluster.Message
	grown    chan struct{} // closed, and made anew, when there is another message
}

func newMemory() *memory { return &memory{grown: make(chan struct{})} }

const memoryPart = 2 << 10

func (l *memory) Append(_ context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Entry = append([]byte(nil), r.Entry...) // it is valid until the append ends
	a, next := cluster.Begin(after, r, memoryPart)
	for {
		switch next.Do {
		case cluster.Committed:
			close(l.grown)
			l.grown = make(chan struct{})
			return next.Mark, nil
		case cluster.Fenced:
			return cluster.Mark{}, cluster.ErrFenced
		case cluster.Moved:
			return cluster.Mark{}, cluster.ErrMoved
		case cluster.Look:
			a, next = a.Looked(l.last())
		case cluster.Send:
			if next.Expected != uint64(len(l.messages)) {
				a, next = a.Unsure()
				continue
			}
			l.messages = append(l.messages, next.Message)
			a, next = a.Acked(uint64(len(l.messages)))
		}
	}
}

func (l *memory) last() cluster.Last {
	if n := len(l.messages); n > 0 {
		return cluster.Last{Seq: uint64(n), Message: l.messages[n-1]}
	}
	return cluster.Last{}
}

func (l *memory) End(context.Context) (cluster.Last, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last(), nil
}

func (l *memory) Find(_ context.Context, lsn uint64) (cluster.Mark, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cluster.Find(1, l.last(), lsn, func(seq uint64) (cluster.Message, error) { return l.messages[seq-1], nil })
}

func (l *memory) Read(ctx context.Context, after cluster.Mark, until uint64, visit cluster.Visit) error {
	r := cluster.NewReader(after)
	for r.Seq() < until {
		l.mu.Lock()
		all, grown := l.messages, l.grown
		l.mu.Unlock()
		if r.Seq() == uint64(len(all)) {
			select {
			case <-grown:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		rec, whole, err := r.Message(r.Seq()+1, all[r.Seq()])
		if err == nil && whole {
			err = visit(r.Mark(), rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *memory) Trim(context.Context, cluster.Mark) error { return nil }
