// Package node assembles one process: from a configuration to parts that run, and to their
// stop in stages. [Load] reads and checks a [Config], and [Run] runs the process that it
// describes. The process serves what the HTTP server asks for, and reloads manifests, tokens
// and certificates while it runs.
//
// The package knows no command line: it writes to the log only, and its caller shows the
// problems of the manifests. A program without a terminal can run a process in itself.
package node

import (
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/stream"
)

// Hooks is what a process needs of the program that runs it.
type Hooks struct {
	Log *zap.Logger
	// Problems shows the problems of the manifests at a start.
	Problems func(manifests.Problems)
	// Detached tells, at a SIGHUP, whether the terminal of the program is gone.
	Detached func() bool
	// Ready may be nil. It is called when all parts have started, after every start.
	Ready func(Running)
	// Hint may be nil. It shows a hint of a process with [Settings.Mock], and is never called
	// concurrently.
	Hint func(Running, Hint)
}

// Run runs a process until ctx ends. If the NATS server loses a suffix of a stream that was
// handled, Run stops the process in stages and starts another one, because checkpoints move
// back only at a start.
func Run(ctx context.Context, s Settings, h Hooks) error {
	if err := s.splitDone(); err != nil {
		return err
	}
	s.Reread = s.rereading()
	sup := newSystemd(h.Log)
	feeding, stop := context.WithCancel(context.WithoutCancel(ctx)) // a stop in stages is watched too
	var wg sync.WaitGroup
	wg.Go(func() { sup.feed(feeding) })
	defer wg.Wait()
	defer stop()
	if s.clustered() {
		return runCluster(ctx, s, h, sup)
	}
	if err := s.noShards(); err != nil {
		return err
	}
	return runProcess(ctx, s, h, sup, nil)
}

// runProcess runs a process, and another one after it where streams begin anew.
func runProcess(ctx context.Context, s Settings, h Hooks, sup *systemd, t *stay) error {
	for {
		err := runOnce(ctx, s, h, sup, t)
		if !startsAgain(ctx, err, t) {
			return err
		}
		s = s.reread(h.Log)
	}
}

// startsAgain reports whether another process starts on this node. If the store is to move, or has moved, the next owner
// starts anew.
func startsAgain(ctx context.Context, err error, t *stay) bool {
	return startsAnew(ctx, err) && !t.stays(nil) && !t.over()
}

// startsAnew reports whether a process that ends with err is followed by another one.
func startsAnew(ctx context.Context, err error) bool {
	return errors.Is(err, stream.ErrShorter) && ctx.Err() == nil
}

// runOnce runs one process. t is the stay of a node in its cluster that owns the store; nil for a process that is
// alone.
func runOnce(ctx context.Context, s Settings, h Hooks, sup *systemd, t *stay) error {
	if len(s.Manifests) == 0 && s.Find == nil && s.manifested() {
		return configf("no manifests: name files or folders as arguments, or with manifests: in the configuration")
	}
	l, err := startable(s, s.Manifests)
	if err != nil {
		return err
	}
	if h.Problems(l.problems); l.problems.Failed() {
		return errNothingStarted
	}
	hungUp, release := hangups() // early, because a SIGHUP during the start must not end the process
	defer release()
	log := h.Log
	p, err := newProcess(s, l, log, t)
	if err != nil {
		return clear(err)
	}
	t.listens(p.server.Addr())
	if s.front == nil {
		log.Info("listening", zap.String("addr", p.server.Addr()), zap.String("probe_addr", p.server.ProbeAddr()))
	}
	p.announce = func() {
		log.Info("started", zap.String("role", s.Role), zap.String("addr", p.server.Addr()), zap.String("store", p.db.ID()))
		p.logHero()
		sup.running()
		if h.Ready != nil {
			h.Ready(Running{p, l})
		}
	}
	if p.guide != nil && h.Hint != nil {
		p.guide.show = func(hint Hint) { h.Hint(Running{p, l}, hint) }
	}
	t.setProcess(p.group.Stop, p.audited)
	p.stopping = func(cause error) {
		p.handsOver = t != nil && !outlived(cause) && !startsAgain(ctx, cause, t)
		if startsAnew(ctx, cause) {
			sup.restarting()
			return
		}
		if t.ends(); t.stays(cause) {
			sup.restarting()
			return
		}
		sup.stopping()
	}
	sup.alive.Store(p.liveness)
	defer sup.alive.Store(nil)
	hearing, stop := context.WithCancel(ctx)
	deaf := make(chan struct{})
	go func() {
		defer close(deaf)
		onHangup(hearing, hungUp, h.Detached, sup, p.log, p.group.Stop, func() bool { return p.hungUp(hearing) })
	}()
	err = p.Run(ctx)
	stop()
	<-deaf
	if startsAnew(ctx, err) {
		log.Warn("stopped in order, and starting anew", zap.Error(err))
		return err
	}
	return clear(err)
}

// errNothingStarted follows the list of manifest errors.
var errNothingStarted = errors.New("the manifests have errors; nothing was started")

// clear removes an error that only reports the requested stop.
func clear(err error) error {
	if err == nil || errors.Is(err, context.Canceled) && !errors.Is(err, edda.Permanent) {
		return nil
	}
	return err
}
