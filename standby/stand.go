package standby

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/store"
)

// judgeEvery is how often a standby judges whether it is its turn, besides at each sign of a change.
const judgeEvery = 200 * time.Millisecond

// lookAgain is the delay after an answer of a deposed leader. Such a leader notices within some seconds.
const lookAgain = 250 * time.Millisecond

// Members knows the other nodes of the cluster, as clusternodes.Nodes does.
type Members interface {
	Others() []cluster.Member
	// Expect counts the silence of the node that owns the log, also if it has left or nobody has heard it yet. An empty
	// name ends that.
	Expect(node string)
	// Lives says that a node was alive when it wrote a record, whatever its beats say: an owner that has just proved its
	// ownership must not be taken for dead before it has been silent for as long as any other.
	Lives(node string)
	// Changed receives when a node has come, died or left.
	Changed() <-chan struct{}
}

// Options describe a standby.
type Options struct {
	Log     cluster.Log
	Nodes   Members
	Node    string // id of this node
	Run     string // of this stay: see [cluster.Run]
	Founder string // the node that may begin an empty log
	Begins  uint64 // the epoch behind which the log begins; a beat of an earlier one tells nothing of this log
	Level   int    // of what owners may write
	// Able reports whether this node could work as the owner; nil means that it always could. While it could not, it
	// does not take the log over.
	Able func() bool
	// Tell is called after each record, with what the standby knows. Calls do not overlap.
	Tell   func(cluster.Mark, cluster.Ownership)
	Logger *zap.Logger
}

// Stand keeps the replica equal to the log behind a mark until it is this node's turn to own the log, and takes it
// over. It returns the mark behind the node's Own record. From then on the replica has all that was ever acknowledged,
// and nobody else can add to it: promote it to the store, and ship with a [NewShipper]. While the owner lives, Stand goes
// on until ctx ends. cluster.ErrTrimmed says that another copy must take the replica's place. cluster.ErrLost and ErrDiverged say
// that the log has less than was acknowledged, or something else.
func Stand(ctx context.Context, r *store.Replica, after cluster.Mark, o Options) (cluster.Mark, error) {
	last, err := end(ctx, o.Log, after)
	if err != nil {
		return cluster.Mark{}, err
	}
	s := &standing{o: o, replica: r, at: after, owner: ownership(last.Message.Record), news: make(chan struct{}, 1)}
	o.Tell(s.at, s.owner)
	for {
		if err := s.follow(ctx); err != nil {
			return cluster.Mark{}, err
		}
		owned, err := s.take(ctx)
		if err == nil {
			o.Nodes.Expect("") // the owner is this node
		}
		if err == nil || ctx.Err() != nil || !errors.Is(err, errNotNow) {
			return owned, err
		}
		o.Logger.Info("this node follows on", zap.String("why", err.Error()))
	}
}

// end returns the last message of the log, or an earlier one behind the mark: then the later ones are read. A deposed
// leader may answer with a message before the mark. Its writer may be an owner before the one that owns the log now,
// and no record behind the mark would tell.
func end(ctx context.Context, log cluster.Log, after cluster.Mark) (cluster.Last, error) {
	for {
		last, err := log.End(ctx)
		if err != nil || last.Seq >= after.Seq {
			return last, err
		}
		if err := backoff.Wait(ctx, lookAgain); err != nil {
			return cluster.Last{}, err
		}
	}
}

// errNotNow says that a takeover was given up.
var errNotNow = errors.New("not this node's turn any more")

// standing is a standby at work.
type standing struct {
	o       Options
	replica *store.Replica
	news    chan struct{} // capacity 1: a record has come

	mu    sync.Mutex // guards the fields below
	at    cluster.Mark
	owner cluster.Ownership
	since time.Time // when the situation arose in which this node may try; zero while it may not
}

// ownership is what a record says about the owner.
func ownership(r cluster.Record) cluster.Ownership {
	o := cluster.Ownership{Run: r.Node, Epoch: r.Epoch, Sealed: r.Kind == cluster.Seal}
	if o.Sealed {
		o.Heir = string(r.Entry)
	}
	return o
}

// read handles a record that was applied.
func (s *standing) read(at cluster.Mark, r cluster.Record) {
	owner := ownership(r)
	if proves(r) && cluster.NodeOf(r.Node) != s.o.Node {
		s.o.Nodes.Lives(cluster.NodeOf(r.Node))
	}
	s.mu.Lock()
	changed := owner != s.owner
	s.at, s.owner = at, owner
	s.mu.Unlock()
	s.o.Tell(at, owner)
	if changed {
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// proves reports whether the writer of a record may act for a while because of it.
func proves(r cluster.Record) bool { return r.Kind == cluster.Own || r.Kind == cluster.Keep }

// turn reports whether this node should try now.
func (s *standing) turn() bool {
	s.mu.Lock()
	at, owner := s.at, s.owner
	s.mu.Unlock()
	expected := ""
	if node := cluster.NodeOf(owner.Run); !owner.Sealed && node != s.o.Node {
		expected = node
	}
	s.o.Nodes.Expect(expected)
	after, try := cluster.Standing{
		Self: s.o.Node, LSN: at.LSN, Owner: owner, Founder: s.o.Founder, Others: s.o.Nodes.Others(),
	}.Turn()
	now := time.Now()
	switch {
	case !try, s.o.Able != nil && !s.o.Able():
		s.since = time.Time{}
		return false
	case s.since.IsZero():
		s.since = now
	}
	return now.Sub(s.since) >= after
}

// judge returns when the answer of turn is the wanted one, or ctx ends.
func (s *standing) judge(ctx context.Context, want bool) {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	for ctx.Err() == nil && s.turn() != want {
		select {
		case <-s.news:
		case <-s.o.Nodes.Changed():
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// follow follows the log until it is this node's turn. An error ends the standby.
func (s *standing) follow(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- Follow(following, s.o.Log, s.replica, s.at, s.read)
		stop()
	}()
	s.judge(following, true)
	stop()
	if err := <-ended; ctx.Err() != nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// whole returns nil if the log has all that another node has said to have of it, be that node alive or dead, and
// cluster.ErrLost if it has not for cluster.LostWithin.
func (s *standing) whole(ctx context.Context) error {
	for since := time.Now(); ; {
		most := Most(s.o.Nodes.Others(), s.o.Begins)
		if most.Beat.LSN <= s.at.LSN {
			return nil
		}
		last, err := s.o.Log.End(ctx)
		if err != nil || most.Beat.LSN <= last.LSN() {
			return err
		}
		if time.Since(since) >= cluster.LostWithin {
			return edda.Classify(edda.Permanent, "the log ends at record %d, and node %s had record %d: %w", last.LSN(), most.ID, most.Beat.LSN, cluster.ErrLost)
		}
		if err := backoff.Wait(ctx, lookAgain); err != nil {
			return err
		}
	}
}

// Most is the node that has said to have the most of a log that begins behind an epoch; zero if none has said anything.
func Most(nodes []cluster.Member, begins uint64) (most cluster.Member) {
	for _, m := range nodes {
		if m.Beat.Epoch >= begins && m.Beat.LSN > most.Beat.LSN {
			most = m
		}
	}
	return most
}

// take takes the log over. errNotNow says that the owner lives after all, or that another node was faster.
func (s *standing) take(ctx context.Context) (cluster.Mark, error) {
	from := s.owner
	taking, stop := context.WithCancelCause(ctx)
	var judged sync.WaitGroup
	defer judged.Wait()
	defer stop(nil)
	judged.Go(func() {
		s.judge(taking, false)
		stop(edda.Classify(edda.Temporary, "the owner %s lives: %w", from.Run, errNotNow))
	})
	owned, err := cluster.Mark{}, s.whole(taking)
	if err == nil {
		s.o.Logger.Info("this node takes the log over", zap.String("from", from.Run), zap.Bool("handed_over", from.Sealed))
		apply := applyTo(s.replica)
		owned, err = cluster.Take(taking, s.o.Log, s.at, s.o.Run, s.o.Level, func(at cluster.Mark, r cluster.Record) error {
			if err := apply(at, r); err != nil {
				return err
			}
			if s.read(at, r); proves(r) && r.Node != s.o.Run {
				return edda.Classify(edda.Temporary, "%s owns the log: %w", r.Node, errNotNow)
			}
			return nil
		})
	}
	if err != nil && taking.Err() != nil {
		return owned, context.Cause(taking)
	}
	return owned, err
}
