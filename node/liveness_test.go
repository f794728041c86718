package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edda/cluster"
	"edda/standby"
)

func TestALoopThatDoesNotTurnIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		p := newLiveness(
			checkedLoop{name: "the committer", ask: func(context.Context) error { <-free; return nil }},
			checkedLoop{name: "the evaluator", ask: func(context.Context) error { return context.Canceled }}, // an error is an answer
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

// outage is a log that answers after back is closed.
type outage struct {
	cluster.Log
	back chan struct{}
}

func (l outage) Append(ctx context.Context, after cluster.Mark, r cluster.Record) (cluster.Mark, error) {
	select {
	case <-l.back:
		return cluster.Mark{Seq: after.Seq + 1, LSN: r.LSN}, nil
	case <-ctx.Done():
		return cluster.Mark{}, context.Cause(ctx)
	}
}

// TestAnOwnerOutlivesAnOutageOfNATS: a transaction that waits for the log is no sign of a stuck committer, and a disk
// that does not answer is one.
func TestAnOwnerOutlivesAnOutageOfNATS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, disk := outage{back: make(chan struct{})}, make(chan struct{})
		st := &stay{}
		st.shipper.Store(standby.NewShipper(t.Context(), log, cluster.Mark{}, "n1.1", 1))
		p := newLiveness(checkedLoop{name: "the committer", waited: st.waitedForLog, ask: func(context.Context) error {
			wait := st.ship()(1, make([]byte, 16))
			<-disk
			return wait()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(beatEvery + 10*stuckAfter) // virtual
		synctest.Wait()
		if s := p.stuck(); s != "" {
			t.Errorf("NATS does not answer: %s", s)
		}
		close(log.back)
		time.Sleep(stuckAfter - time.Second) // virtual
		synctest.Wait()
		if s := p.stuck(); s != "" {
			t.Errorf("too soon after NATS has answered: %s", s)
		}
		time.Sleep(2 * time.Second) // virtual
		synctest.Wait()
		if s := p.stuck(); !strings.Contains(s, "the committer has not answered for 1m1s") {
			t.Errorf("the disk does not answer: %q", s)
		}
		cancel()
		close(disk)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
