package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestALoopThatDoesNotTurnIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		p := newLiveness(
			checkedLoop{"the committer", func(context.Context) error { <-free; return nil }},
			checkedLoop{"the evaluator", func(context.Context) error { return context.Canceled }}, // an error is an answer
		)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(beatEvery + stuckAfter - time.Second) // virtual
		synctest.Wait()
		if s := p.stuck(); s != "" {
			t.Errorf("too soon: %s", s)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := p.stuck(); !strings.Contains(s, "the committer has not answered for 1m1s") || strings.Contains(s, "evaluator") {
			t.Errorf("%q", s)
		}
		close(free)
		synctest.Wait()
		if s := p.stuck(); s != "" {
			t.Errorf("after it went on: %s", s)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
