package clusternodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/internal/logthrottle"
	"edda/stream/kv"
)

const (
	// bucketOf begins the name of a cluster's KV bucket, and bucketOfShard that of a further shard, before its number.
	bucketOf      = "EDDA_CLUSTER_"
	bucketOfShard = "EDDA_SHARD_"
	// prefix begins the keys of nodes.
	prefix = "node."
	// operation is the header of a deletion.
	operation = "KV-Operation"
	// beatWithin and lookWithin bound one request. A beat without an answer counts as not accepted.
	beatWithin = time.Second
	lookWithin = time.Second
	// confirmWithin bounds one attempt to open the fence. A proof that took longer than cluster.LapseAfter is no use.
	confirmWithin = cluster.LapseAfter
	// watchFirst and watchMost bound the delay before the watch is begun again.
	watchFirst = 100 * time.Millisecond
	watchMost  = 2 * time.Second
)

// ErrNotOwner says that the node has nothing that it could own.
var ErrNotOwner = errors.New("this node owns nothing")

// Options describe this node. Cluster and ID are required, and are of letters, digits, - and _.
type Options struct {
	Cluster string
	Shard   int // of the cluster; the nodes of each shard beat by themselves
	ID      string
	Run     string // of the node, see cluster.Run; a newer one of the same node ends this one; empty: none does
	// Beat returns what other nodes may know of this one. It is called before each beat; nil means nothing.
	Beat func() cluster.Beat
	// Confirm proves that no other node has taken over what this node owns, by a write that another owner
	// would refuse: after a lapse a beat alone does not, because this node may be convicted already. nil means
	// that the node owns nothing, and its fence stays closed.
	Confirm func(ctx context.Context) error
	// Left may be nil. Run calls it, once or several times, when a node has taken the store out of the cluster.
	Left func(Agreed)
	// Replicas are the least that the bucket must have; 3 when zero.
	Replicas int
	// Clock also advances while the process or the machine is paused; nil means the system's.
	Clock func() time.Duration
	Log   *zap.Logger
}

// Nodes beats for this node and knows which others are dead.
type Nodes struct {
	o       Options
	kv      jetstream.KeyValue
	leader  jetstream.Stream // its GetLastMsgForSubject asks the leader
	fence   *kv.Fence
	beats   *logthrottle.Throttle
	changed chan struct{} // capacity 1: a node has died, come, or left

	// beating is a mutex for goroutines that wait for the server meanwhile. A channel takes the place of sync.Mutex,
	// because testing/synctest stops its clock while a goroutine waits for a mutex.
	beating chan struct{}      // capacity 1: one beat is in flight
	opening singleflight.Group // shares an attempt to open the fence
	gone    bool               // this node has left, and no beat may follow; the holder of beating has it

	mu       sync.Mutex // guards the fields below
	detector *cluster.Detector
	accepted time.Duration           // when the last accepted beat was sent; of the fence's clock
	newer    int                     // beats of a newer run of this node
	last     map[string]cluster.Beat // the last one of each other node
	level    int                     // of what owners may write
}

// Open opens the bucket, and creates it if it is missing. A bucket with too few replicas is an edda.Permanent
// error. Nothing beats before Run.
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Nodes, error) {
	for what, name := range map[string]string{"node": o.ID, "cluster": o.Cluster} {
		if !cluster.IsName(name) {
			return nil, edda.Classify(edda.Permanent, "%s %q: its name has letters, digits, - and _", what, name)
		}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	replicas := cmp.Or(o.Replicas, 3)
	name := bucket(o.Cluster, o.Shard)
	values, err := kv.OpenBucket(ctx, js, jetstream.KeyValueConfig{
		Bucket: name, Description: "edda: the nodes of a cluster", Storage: jetstream.FileStorage, Replicas: replicas,
	})
	if err != nil {
		return nil, err
	}
	s, err := leaderOf(ctx, js, name)
	if err != nil {
		return nil, err
	}
	if err := kv.EnoughReplicas(s.CachedInfo().Config, replicas); err != nil {
		return nil, err
	}
	n := &Nodes{
		o: o, kv: values, leader: s, beats: logthrottle.New(o.Log, "a beat was not accepted"),
		changed: make(chan struct{}, 1), beating: make(chan struct{}, 1),
		detector: cluster.NewDetector(), last: map[string]cluster.Beat{},
	}
	n.fence = kv.NewFence(cluster.LapseAfter, o.Clock, n.confirm)
	return n, nil
}

// leaderOf returns the stream of a bucket, whose GetLastMsgForSubject asks the leader.
func leaderOf(ctx context.Context, js jetstream.JetStream, bucket string) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	s.CachedInfo().Config.AllowDirect = false // only the client's view: a direct get asks any replica
	return s, nil
}

// bucket is the name of a shard's bucket. That of the first shard is also the cluster's.
func bucket(cluster string, shard int) string {
	if shard == 0 {
		return bucketOf + cluster
	}
	return fmt.Sprintf("%s%d_%s", bucketOfShard, shard, cluster)
}

// Fence is open while this node surely owns what it owns. It closes cluster.LapseAfter since the last accepted
// beat was sent, which is before another node can convict this one. It opens by Options.Confirm only.
func (n *Nodes) Fence() *kv.Fence { return n.fence }

// Others returns the other nodes, by id. It may be called concurrently.
func (n *Nodes) Others() (out []cluster.Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.detector.Nodes() {
		out = append(out, cluster.Member{Node: node, Beat: n.last[node.ID]})
	}
	return out
}

// Silence is how long no beat of this node was accepted; 0 before the first one.
func (n *Nodes) Silence() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.accepted == 0 {
		return 0
	}
	return n.fence.Now().Boot - n.accepted
}

// Expect counts the silence of the node that owns the log, also if the bucket has no beat of it. Empty: no node does.
func (n *Nodes) Expect(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detector.Expect(id, n.fence.Now().Boot)
}

// Lives voids the conviction of a node that has just written to the log.
func (n *Nodes) Lives(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detector.Lives(id, n.fence.Now().Boot)
}

// Changed receives when a node has come, died or left. It only wakes; Others says what is.
func (n *Nodes) Changed() <-chan struct{} { return n.changed }

// Run beats, watches and judges until ctx ends. Before that it returns only ErrReplaced.
func (n *Nodes) Run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end(nil)
	all.Go(func() { end(n.watch(ctx)) })
	tick := time.NewTicker(cluster.BeatEvery)
	defer tick.Stop()
	looks := make(chan string, 1)
	looking := map[string]bool{}
	for {
		for _, id := range n.beat(ctx) {
			if looking[id] {
				continue
			}
			looking[id] = true
			all.Go(func() {
				n.look(ctx, id)
				select {
				case looks <- id:
				case <-ctx.Done():
				}
			})
		}
		for ticked := false; !ticked; {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case id := <-looks:
				delete(looking, id)
			case <-tick.C:
				ticked = true
			}
		}
	}
}

// beat sends a beat. It returns the nodes that are suspected since, and none if it was not accepted.
func (n *Nodes) beat(ctx context.Context) []string {
	sent, revision, err := n.put(ctx)
	if err != nil {
		if ctx.Err() == nil {
			n.beats.Failed(err)
		}
		return nil
	}
	n.beats.Worked()
	if n.fence.Open() { // no other node has missed a beat for long enough to convict this one
		n.fence.Extend(sent)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accepted = sent.Boot
	return n.detector.Accepted(sent.Boot, revision)
}

// put writes this node's key.
func (n *Nodes) put(ctx context.Context) (sent kv.Instant, revision uint64, err error) {
	n.beating <- struct{}{}
	defer func() { <-n.beating }()
	if n.gone {
		return sent, 0, errLeft
	}
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	var value []byte
	if n.o.Beat != nil {
		if value, err = json.Marshal(n.o.Beat()); err != nil {
			return sent, 0, fmt.Errorf("encode a beat: %w", err)
		}
	}
	sent = n.fence.Now()
	revision, err = n.kv.Put(ctx, prefix+n.o.ID, value)
	return sent, revision, err
}

// errLeft refuses a beat after [Nodes.Leave].
var errLeft = errors.New("this node has left the cluster")

// confirm opens the fence after a lapse. Concurrent callers share one attempt and its error, so that none of them
// waits longer than confirmWithin.
func (n *Nodes) confirm(ctx context.Context) error {
	if n.o.Confirm == nil {
		return ErrNotOwner
	}
	attempt := n.opening.DoChan("", func() (any, error) {
		if n.fence.Open() { // an attempt has just ended
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), confirmWithin)
		defer cancel()
		return nil, n.prove(ctx)
	})
	select {
	case r := <-attempt:
		return r.Err
	case <-ctx.Done():
		return edda.Classify(edda.Temporary, "confirm what this node owns: %w", context.Cause(ctx))
	}
}

// prove opens the fence with a beat, so that nobody convicts this node from now on, and then with the proof that
// nobody has taken over.
func (n *Nodes) prove(ctx context.Context) error {
	sent, _, err := n.put(ctx)
	if err != nil {
		return edda.Classify(edda.Temporary, "beat after a lapse: %w", err)
	}
	if err := n.o.Confirm(ctx); err != nil {
		return fmt.Errorf("confirm what this node owns: %w", err)
	}
	if n.fence.Extend(sent); !n.fence.Open() {
		return edda.Classify(edda.Temporary, "what this node owns was confirmed too late")
	}
	return nil
}

// look asks the leader about a suspect. Without an answer nothing is known, and the next beat asks again.
func (n *Nodes) look(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	m, err := n.leader.GetLastMsgForSubject(ctx, "$KV."+n.kv.Bucket()+"."+prefix+id)
	var revision uint64
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
	case err != nil:
		return
	case m.Header.Get(operation) != "": // it has left, so it has no beat
		if known := n.knows(id); known > 0 && known < m.Sequence { // the watch is behind
			n.left(id)
			return
		}
	default:
		revision = m.Sequence
	}
	n.mu.Lock()
	convicted := n.detector.Looked(id, revision, n.fence.Now().Boot)
	n.mu.Unlock()
	if convicted {
		n.o.Log.Warn("a node is dead", zap.String("other", id), zap.Uint64("last_beat", revision))
		n.signal()
	}
}

// watch follows the beats of the others, and the level, until ctx ends or this run is replaced.
func (n *Nodes) watch(ctx context.Context) error {
	retry := backoff.Exponential{First: watchFirst, Most: watchMost}
	for ctx.Err() == nil {
		w, err := n.kv.Watch(ctx, jetstream.AllKeys)
		if err != nil {
			n.o.Log.Warn("watching the nodes again", zap.Error(err))
			_ = backoff.Wait(ctx, retry.Next())
			continue
		}
		retry.Reset()
		if err := n.follow(ctx, w); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// follow returns nil when ctx ends, or the client gives the watch up.
func (n *Nodes) follow(ctx context.Context, w jetstream.KeyWatcher) error {
	defer func() { _ = w.Stop() }() // the server removes its consumer in any case
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Updates():
			if !ok {
				return nil
			}
			if e == nil { // all keys were seen once
				continue
			}
			if err := n.heard(e); err != nil {
				return err
			}
		}
	}
}

// heard handles a beat, the end of a node, or what the nodes agree on. Its error ends this run.
func (n *Nodes) heard(e jetstream.KeyValueEntry) error {
	id, isNode := strings.CutPrefix(e.Key(), prefix)
	switch {
	case e.Key() == agreedKey:
		var a Agreed
		_ = json.Unmarshal(e.Value(), &a) // a join reports what is no JSON
		if n.raised(a.Level); a.Left != "" && n.o.Left != nil {
			n.o.Left(a)
		}
		return nil
	case !isNode:
		return nil
	case e.Operation() != jetstream.KeyValuePut:
		if id != n.o.ID {
			n.left(id)
		}
		return nil
	}
	var beat cluster.Beat
	_ = json.Unmarshal(e.Value(), &beat) // that the node lives does not depend on what it says
	if id == n.o.ID {
		return n.replaced(beat.Run)
	}
	n.mu.Lock()
	before, known := n.last[id]
	back := n.detector.Saw(id, e.Revision(), n.fence.Now().Boot)
	n.last[id] = beat
	n.mu.Unlock()
	switch {
	case back || !known:
		n.o.Log.Info("a node lives", zap.String("other", id))
		n.signal()
	case beat.Run != before.Run: // as after each move
		n.o.Log.Debug("a node has begun another stay", zap.String("other", id))
		n.signal()
	}
	return nil
}

// ErrReplaced ends a run because a newer process has the name of its node.
var ErrReplaced = errors.New("a newer process")

// replaced handles a beat under this node's own name. Of two processes that have started at the same time both pass
// Unique, and a standby that was frozen may go on beside its successor. The older one ends, once it has heard as many
// beats of the newer one as Unique asks for.
func (n *Nodes) replaced(run string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.o.Run == "" || run <= n.o.Run {
		return nil
	}
	if n.newer++; n.newer < nameLooks {
		return nil
	}
	return n.taken(ErrReplaced)
}

// knows returns the revision of the last known beat of a node; 0 without any.
func (n *Nodes) knows(id string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.detector.Known(id)
}

func (n *Nodes) left(id string) {
	n.mu.Lock()
	n.detector.Left(id)
	delete(n.last, id)
	n.mu.Unlock()
	n.signal()
}

func (n *Nodes) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// Forget deletes the key of another node.
func (n *Nodes) Forget(ctx context.Context, id string) error {
	if err := n.kv.Delete(ctx, prefix+id); err != nil {
		return fmt.Errorf("forget node %s: %w", id, err)
	}
	return nil
}

// Leave closes the fence and deletes this node's key, so that nobody waits for its death. Run must have returned.
func (n *Nodes) Leave(ctx context.Context) error {
	n.beating <- struct{}{}
	defer func() { <-n.beating }()
	n.gone = true
	n.fence.Shut()
	if err := n.kv.Delete(ctx, prefix+n.o.ID); err != nil {
		return fmt.Errorf("leave the cluster: %w", err)
	}
	return nil
}
