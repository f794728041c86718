package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/server"
	"edda/standby"
	"edda/stream"
	"edda/stream/clusternodes"
)

// errStays says that a stay has ended and the node begins another one.
var errStays = errors.New("this node does not own the store any more")

// clusterNode runs one stay after another.
type clusterNode struct {
	settings Settings
	hooks    Hooks
	sup      *systemd
	metrics  *clusterMetrics
	doubtful bool // another process may have the name of this node when the next stay begins
	gaveUp   bool // the last stay has given its copy up
	// endBeats ends those of the last stay, which go on until the next one beats: the node is there all the time.
	endBeats func(gone bool)
	more     bool // the log may lack what the last stay has said to have
}

// runNode runs a node of a cluster until ctx ends. Between two ownerships the node is a standby.
func runNode(ctx context.Context, s Settings, h Hooks, sup *systemd) error {
	return newClusterNode(s, h, sup).run(ctx)
}

func newClusterNode(s Settings, h Hooks, sup *systemd) *clusterNode {
	return &clusterNode{doubtful: true, endBeats: func(bool) {}, settings: s, hooks: h, sup: sup, metrics: newClusterMetrics(s.share.Index)}
}

func (n *clusterNode) run(ctx context.Context) error {
	if err := beginnable(n.settings, n.hooks); err != nil {
		return err
	}
	hungUp, release := hangups() // between two parts that handle it a SIGHUP must not end the process
	defer release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for {
		err := n.runStay(ctx, hungUp, stop)
		if ctx.Err() != nil || !errors.Is(err, errStays) {
			n.endBeats(!errors.Is(err, clusternodes.ErrReplaced)) // then the name is that of the newer process
			return clear(err)
		}
		// This process may have been frozen while a successor of its name has started, and taken over.
		if n.doubtful = outlived(err); n.doubtful || n.more {
			n.endBeats(false) // the next stay looks for those of a successor, and the others need not wait for it
			n.endBeats = func(bool) {}
		}
		if n.gaveUp = errors.Is(err, errSpare); !n.gaveUp {
			n.hooks.Log.Warn("this node goes on as a standby", zap.Error(err))
		}
		if err == errStays { // handed over in order
			continue
		}
		_ = backoff.Wait(ctx, joinAgain) // the next stay ends at once if ctx has ended
	}
}

// beginnable checks the manifests that a new cluster would begin with. A folder with a copy of a cluster's store has its
// own manifests, so nothing is checked there.
func beginnable(s Settings, h Hooks) error {
	m, err := membershipOf(s.storeDir())
	if err != nil || m != nil || len(s.Manifests) == 0 {
		return err
	}
	l, err := startable(s, s.Manifests)
	if err == nil && l.problems.Failed() {
		h.Problems(l.problems)
		err = errNothingStarted
	}
	return err
}

// runStay joins the cluster, stands by, and runs the process that owns the store. errStays asks for another stay.
func (n *clusterNode) runStay(ctx context.Context, hungUp <-chan os.Signal, stop func()) error {
	t, err := newStay(n.settings, n.hooks.Log, n.metrics)
	if err != nil {
		return err
	}
	t.doubtful, t.gaveUp, t.endBeats = n.doubtful, n.gaveUp, n.endBeats
	n.endBeats = func(gone bool) {
		t.endBeats(gone)
		t.close()
	}
	t.more.Store(n.more)
	defer func() {
		t.endShipping()
		n.more = t.more.Load()
	}()
	ctx, t.end = context.WithCancelCause(ctx)
	defer t.end(nil)
	n.metrics.stay.Store(t)
	defer n.metrics.stay.Store(nil)
	err = n.stand(ctx, t, hungUp, stop)
	if err == nil {
		err = t.own(ctx, n.hooks, n.sup)
	}
	if cause := context.Cause(ctx); errors.Is(cause, edda.Permanent) { // err only says how the stay has ended
		err = cause
	}
	return err
}

// stand serves what a standby serves until this node owns the log.
func (n *clusterNode) stand(ctx context.Context, t *stay, hungUp <-chan os.Signal, stop func()) error {
	guards, err := n.settings.openGuards(t.log)
	if err != nil {
		return &ConfigError{err}
	}
	s, err := n.standbyServer(t, guards, stop)
	if err != nil {
		return err
	}
	t.listens(s.Addr())
	if n.settings.front == nil {
		t.log.Info("listening", zap.String("addr", s.Addr()), zap.String("probe_addr", s.ProbeAddr()))
	}
	g, ctx := errgroup.WithContext(ctx)
	standing, end := context.WithCancel(ctx)
	defer end()
	g.Go(func() error { return s.Run(standing) })
	g.Go(func() error {
		onHangup(standing, hungUp, n.hooks.Detached, n.sup, t.log, stop, func() bool {
			err := guards.reload()
			if n.settings.Reread != nil { // a takeover keeps what was read last, if it cannot read it
				_, unread := n.settings.Reread()
				err = errors.Join(err, unread)
			}
			if err != nil {
				t.log.Error("SIGHUP: not everything was taken in", zap.Error(err))
			}
			return err == nil
		})
		return nil
	})
	g.Go(func() error {
		defer end()
		return t.follow(standing, n.sup)
	})
	return g.Wait()
}

// standbyServer is the HTTP server of a standby. It listens.
func (n *clusterNode) standbyServer(t *stay, g guards, stop func()) (*server.Server, error) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildGauge(n.settings.Build))
	n.metrics.register(metrics)
	client, err := ClientTLS(n.settings.Cluster.Cert, n.settings.Cluster.Key, n.settings.Cluster.CA)
	if err != nil {
		return nil, configf("cluster: %w", err)
	}
	s, err := server.NewStandby(server.StandbyOptions{
		Options: server.Options{
			Addr: n.settings.Addr, ProbeAddr: n.settings.ProbeAddr, Build: n.settings.Build, Log: t.log, Metrics: metrics, Register: metrics,
			Tokens: g.tokens, Certificates: g.certificates, TLSEnds: n.settings.TLS.Elsewhere,
			Cluster: t, Front: n.settings.front.shared(), Shard: n.settings.share.Index,
		},
		Status: t.processStatus, Drain: t.drainBy(stop), Node: t.node, Client: client,
	})
	if err != nil {
		return nil, &ConfigError{n.settings.callersVariable(err)}
	}
	return s, n.settings.listen(s)
}

func (t *stay) close() {
	t.endShipping()
	if t.conn != nil {
		hangUp(t.conn)
	}
}

// hangUp closes a connection, and does not log that.
func hangUp(conn *nats.Conn) {
	conn.SetDisconnectErrHandler(nil)
	conn.Close()
}

// startBeats beats until endBeats is called. That tells the others, with gone, that the node is not there any more, unless
// its last beat must stay.
func (t *stay) startBeats(ctx context.Context) {
	t.endBeats(false) // those of the stay before
	ctx = context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(ctx)
	nodes := t.nodes.Load()
	var all sync.WaitGroup
	all.Go(func() {
		if err := nodes.Run(beating); errors.Is(err, clusternodes.ErrReplaced) {
			t.end(err)
		}
	})
	t.endBeats = func(gone bool) {
		stop()
		all.Wait()
		if !gone || t.more.Load() {
			return
		}
		leaving, cancel := context.WithTimeout(ctx, releaseWithin)
		defer cancel()
		if err := nodes.Leave(leaving); err != nil {
			t.log.Warn("the other nodes find out by themselves that this one has left", zap.Error(err))
		}
	}
}

// follow joins the cluster and follows its log until this node owns it. The error of a copy that cannot follow is
// mended by another stay.
func (t *stay) follow(ctx context.Context, sup *systemd) error {
	if err := t.unheld(ctx); err != nil {
		return err
	}
	if err := t.join(ctx); err != nil {
		return t.unjoined(err)
	}
	t.startBeats(ctx)
	if err := t.found(ctx); err != nil {
		return err
	}
	for told := ""; ; {
		if err := t.rest(ctx, sup); err != nil {
			return err
		}
		err := t.standBy(ctx, sup, told == "")
		switch {
		case errors.Is(err, standby.ErrDiverged) || errors.Is(err, cluster.ErrTrimmed) || errors.Is(err, errSpare):
			t.more.Store(errors.Is(err, standby.ErrDiverged)) // until the next stay has found its place
			return fmt.Errorf("%w: %w", errStays, err)
		case err == nil || ctx.Err() != nil || errors.Is(err, edda.Permanent):
			return err
		}
		// The disk is full, or it fails.
		t.say(func(b *cluster.Beat) { b.Problem = err.Error() })
		if err.Error() != told {
			told = err.Error()
			t.log.Error("this node follows the log no more, and tries again", zap.Error(err))
		}
		if err := backoff.Wait(ctx, joinAgain); err != nil {
			return err
		}
	}
}

// standBy follows the log until this node owns it. tell is false where it only tries again.
func (t *stay) standBy(ctx context.Context, sup *systemd, tell bool) error {
	r, at, err := t.replica(ctx)
	if err != nil {
		return err
	}
	if tell {
		t.log.Info("following the log", zap.Uint64("record", at.LSN), zap.Uint64("epoch", at.Epoch))
	}
	t.lookAtManifests(ctx, r)
	sup.running()
	standing, stop := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { t.watchManifests(standing, r) })
	watch.Go(func() { t.giveUp(standing, stop) })
	t.owned, err = standby.Stand(standing, r, at, standby.Options{
		Log: t.shipped, Nodes: t.nodes.Load(), Node: t.node, Run: t.run, Founder: t.agreed.Founder, Begins: epochBefore(t.agreed.Created), Level: t.agreed.Level,
		Able: t.able, Tell: t.tell, Logger: t.log,
	})
	if err != nil && errors.Is(context.Cause(standing), errSpare) {
		err = errSpare
	}
	stop(nil)
	watch.Wait()
	t.say(func(b *cluster.Beat) { b.Following = false })
	switch {
	case errors.Is(err, cluster.ErrLost):
		err = fmt.Errorf("%w; %w", t.hasLost("records", r.LSN()), err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = fmt.Errorf("%w; %w", t.hasLost("log", r.LSN()), err)
	}
	if err != nil {
		return errors.Join(err, r.Close())
	}
	t.lookAtManifests(ctx, r) // a revision may have come right before the end of the former owner
	t.copy = r
	return nil
}

// own runs the process that owns the store, and hands the log over when it has stopped.
func (t *stay) own(ctx context.Context, h Hooks, sup *systemd) (err error) {
	defer func() {
		if t.copy != nil { // no process has come so far
			err = errors.Join(err, t.copy.Close())
		}
	}()
	shipping, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	t.endShipping = func() { stop(errShippingEnded) }
	var stops context.Context
	stops, t.hurry = context.WithCancel(shipping)
	defer t.hurry()
	defer context.AfterFunc(ctx, t.hurry)() // the store may commit before there is a process to stop
	t.metrics.takeovers.WithLabelValues(t.why()).Inc()
	t.more.Store(true) // until the log has taken the end of this ownership
	t.shipper.Store(standby.NewShipper(shipping, hurried{t.shipped, stops}, t.owned, t.run, t.agreed.Level))
	t.log.Info("this node owns the store", zap.Uint64("epoch", t.owned.Epoch), zap.Uint64("record", t.owned.LSN))
	h.Log = t.log
	err = membership{t.settings.Cluster.Name, t.agreed.Created, true, false}.write(t.dir())
	switch {
	case err != nil: // the disk is full, or it fails
		err = fmt.Errorf("%w: %w", errStays, err)
	case !t.able():
		err = fmt.Errorf("%w, because it cannot run its manifests: %s", errStays, t.unfit())
	default:
		s := t.settings.reread(t.log)
		s.Find = t.deployed
		err = runProcess(ctx, s, h, sup, t)
	}
	if outlived(err) {
		t.more.Store(false) // the next owner has all that was acknowledged
	} else {
		t.handOver()
	}
	switch {
	case !t.goesOn(err):
		return err
	case err == nil:
		return errStays
	}
	return errors.Join(errStays, err)
}

// goesOn reports whether the node goes on as a standby when its process has ended with err. If a stream became shorter
// while the store was to move, the next owner finds that.
func (t *stay) goesOn(err error) bool {
	return t.stays(err) && (err == nil || outlived(err) || errors.Is(err, errSick) || errors.Is(err, stream.ErrShorter))
}

// errShippingEnded ends appends that the log does not answer.
var errShippingEnded = edda.Classify(edda.Temporary, "this process stops, and the log does not answer")

// handOver tells the other nodes that this one writes nothing any more, and who should take over. A failure costs them
// some seconds.
func (t *stay) handOver() {
	if t.over() {
		return
	}
	t.mu.Lock()
	heir := t.heir
	t.mu.Unlock()
	if heir == "" {
		heir = t.bestCopy()
	}
	defer time.AfterFunc(sealWithin, t.endShipping).Stop()
	err := t.shipper.Load().Seal(heir)
	if outlived(err) {
		t.more.Store(false)
		t.log.Info("another node has taken the store over already")
		return
	}
	if err != nil {
		t.log.Warn("the store is not handed over: the other nodes take it over when this one is silent", zap.Error(err))
		return
	}
	t.more.Store(false)
	to := zap.Skip()
	if heir != "" {
		to = zap.String("to", heir)
	}
	t.log.Info("handed the store over", to)
}

// over reports whether the ownership of the log has ended.
func (t *stay) over() bool {
	if t == nil {
		return false
	}
	s := t.shipper.Load()
	return s != nil && s.Err() != nil
}

// bestCopy is the standby with the most records; empty without any.
func (t *stay) bestCopy() (best string) {
	var most uint64
	for _, m := range t.others() {
		if !m.Dead && m.Beat.Following && m.Beat.Level >= t.level() && m.Beat.LSN >= most {
			best, most = m.ID, m.Beat.LSN
		}
	}
	return best
}
