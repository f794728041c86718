package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/standby"
)

// errStays says that a stay has ended and the node begins another one.
var errStays = errors.New("this node does not own the store any more")

// runNode runs a node of a cluster until ctx ends. Between two ownerships the node is a standby.
func runNode(ctx context.Context, s Settings, h Hooks, sup *systemd) error {
	if len(s.Manifests) == 0 {
		return configf("no manifests: name files or folders as arguments, or with manifests: in the configuration")
	}
	// A node must be able to run the manifests before it takes over.
	l, err := startable(s, s.Manifests)
	if err != nil {
		return err
	}
	if h.Problems(l.problems); l.problems.Failed() {
		return errNothingStarted
	}
	for {
		err := runStay(ctx, s, h, sup)
		if ctx.Err() != nil || !errors.Is(err, errStays) {
			return clear(err)
		}
		h.Log.Warn("this node goes on as a standby", zap.Error(err))
		if err := backoff.Wait(ctx, joinAgain); err != nil {
			return nil
		}
	}
}

// runStay joins the cluster, stands by, and runs the process that owns the store. errStays asks for another stay.
func runStay(ctx context.Context, s Settings, h Hooks, sup *systemd) error {
	t, err := newStay(s, h.Log)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.join(ctx); err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	leave := t.beats(ctx)
	err = t.stand(ctx, sup)
	if err == nil {
		err = t.own(ctx, h, sup)
	}
	leave(ctx.Err() != nil || !errors.Is(err, errStays))
	return err
}

func (t *stay) close() {
	t.endShipping()
	if t.conn != nil {
		t.conn.SetDisconnectErrHandler(nil) // this disconnect is intended
		t.conn.Close()
	}
}

// beats beats until the returned function is called. With gone it tells the others that the node is not there any
// more.
func (t *stay) beats(ctx context.Context) (end func(gone bool)) {
	ctx = context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { _ = t.nodes.Run(beating) }) // it returns the end of beating
	return func(gone bool) {
		stop()
		all.Wait()
		if !gone {
			return
		}
		leaving, cancel := context.WithTimeout(ctx, releaseWithin)
		defer cancel()
		if err := t.nodes.Leave(leaving); err != nil {
			t.log.Warn("the other nodes find out by themselves that this one has left", zap.Error(err))
		}
	}
}

// stand follows the log until this node owns it. The error of a copy that cannot follow is mended by another stay.
func (t *stay) stand(ctx context.Context, sup *systemd) error {
	r, at, err := t.replica(ctx)
	if err != nil {
		return err
	}
	t.log.Info("following the log", zap.Uint64("record", at.LSN), zap.Uint64("epoch", at.Epoch))
	sup.running()
	t.owned, err = standby.Stand(ctx, r, at, standby.Options{
		Log: t.shipped, Nodes: t.nodes, Node: t.node, Run: t.run, Founder: t.agreed.Founder, Level: t.agreed.Level,
		Tell: t.tell, Logger: t.log,
	})
	t.say(func(b *cluster.Beat) { b.Following = false })
	err = errors.Join(err, r.Close())
	if errors.Is(err, standby.ErrDiverged) || errors.Is(err, cluster.ErrTrimmed) {
		return fmt.Errorf("%w: %w", errStays, err)
	}
	return err
}

// own runs the process that owns the store, and hands the log over when it has stopped.
func (t *stay) own(ctx context.Context, h Hooks, sup *systemd) error {
	shipping, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	t.endShipping = func() { stop(errShippingEnded) }
	t.shipper.Store(standby.NewShipper(shipping, t.shipped, t.owned, t.run, t.agreed.Level))
	t.log.Info("this node owns the store", zap.Uint64("epoch", t.owned.Epoch), zap.Uint64("record", t.owned.LSN))
	h.Log = t.log
	err := runProcess(ctx, t.settings, h, sup, t)
	if outlived(err) {
		return fmt.Errorf("%w: %w", errStays, err)
	}
	t.handOver()
	if t.stays(nil) && err == nil {
		return errStays
	}
	return err
}

// errShippingEnded ends appends that the log does not answer.
var errShippingEnded = edda.Classify(edda.Temporary, "this process stops, and the log does not answer")

// handOver tells the other nodes that the store is closed, and who should take over. A failure costs them some
// seconds.
func (t *stay) handOver() {
	t.mu.Lock()
	heir := t.heir
	t.mu.Unlock()
	if heir == "" {
		heir = t.bestCopy()
	}
	sealing, cancel := context.WithTimeout(context.Background(), sealWithin)
	defer cancel()
	defer context.AfterFunc(sealing, t.endShipping)()
	if err := t.shipper.Load().Seal(heir); err != nil {
		t.log.Warn("the store is not handed over: the other nodes take it over when this one is silent", zap.Error(err))
		return
	}
	t.log.Info("handed the store over", zap.String("to", heir))
}

// bestCopy is the standby with the most records; empty without any.
func (t *stay) bestCopy() (best string) {
	var most uint64
	for _, m := range t.nodes.Others() {
		if !m.Dead && m.Beat.Following && m.Beat.LSN >= most {
			best, most = m.ID, m.Beat.LSN
		}
	}
	return best
}
