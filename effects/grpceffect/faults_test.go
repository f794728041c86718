package grpceffect

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
)

// TestLostCallsMayHaveBeenDone: whatever the network does after the message went
// out, the call is made once and is never said to be unsent.
func TestLostCallsMayHaveBeenDone(t *testing.T) {
	for name, tt := range map[string]struct {
		fault       func(*effecttest.Faults)
		least, most int  // how often the bank sees it
		faster      bool // the connection may be gone before the call: then it is surely unsent
	}{
		"answers are lost":              {(*effecttest.Faults).NoAnswers, 1, 1, false},
		"the connection is reset":       {(*effecttest.Faults).ResetAnswers, 0, 1, true},
		"the answer breaks off":         {func(f *effecttest.Faults) { f.CutAnswers(20) }, 0, 1, true},
		"requests are lost on the line": {(*effecttest.Faults).NoRequests, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := openBank(t, describedV1)
			f := effecttest.NewFaults(t, b.addr)
			p, through := local(t), map[string]any{"target": f.Address()}
			if _, err := b.call(p, "before", through); err != nil {
				t.Fatal(err)
			}
			tt.fault(f)
			lost := b.silence(p, 300*time.Millisecond, "lost", through)
			f.None()
			until(t, "the network is well again", func() bool {
				_, err := b.call(p, "after", through)
				return err == nil
			})
			n := b.count("lost")
			if n < tt.least || n > tt.most {
				t.Errorf("the bank saw %d calls", n)
			}
			if unsent := errors.Is(lost, effects.ErrNotSent); lost == nil || errors.Is(lost, edda.Permanent) || unsent && (n > 0 || !tt.faster) {
				t.Errorf("error %v, and the bank saw %d calls", lost, n)
			}
		})
	}
}

func TestNetworkThatIsDown(t *testing.T) {
	b := openBank(t, describedV1)
	f := effecttest.NewFaults(t, b.addr)
	p, through := local(t), map[string]any{"target": f.Address()}
	f.Down()
	for range 2 {
		if _, err := b.call(p, "k", through); !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) {
			t.Errorf("error %v", err)
		}
	}
	f.Up()
	if _, err := b.call(p, "k", through); err != nil {
		t.Errorf("the network is up again: %v", err)
	}
}

// TestServerThatStopsGracefully ends what is under way and takes no more: what
// it did not take is sent to the next one, and nothing twice.
func TestServerThatStopsGracefully(t *testing.T) {
	b := openBank(t, describedV1, grpc.MaxConcurrentStreams(1))
	p := local(t)
	first := make(chan error, 1)
	release := make(chan struct{})
	b.answers(func(context.Context, *dynamicpb.Message) (any, error) {
		<-release
		return `{"id":"P1"}`, nil
	})
	go func() {
		_, err := b.call(p, "first")
		first <- err
	}()
	until(t, "the first call is there", func() bool { return b.count("first") == 1 })
	stopped := make(chan struct{})
	go func() {
		b.server.GracefulStop()
		close(stopped)
	}()
	until(t, "nobody new is let in", func() bool {
		_, err := b.call(p, "second")
		return errors.Is(err, effects.ErrNotSent)
	})
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	<-stopped
	if b.count("first") != 1 || b.count("second") != 0 {
		t.Errorf("the bank saw %d and %d calls", b.count("first"), b.count("second"))
	}
}
