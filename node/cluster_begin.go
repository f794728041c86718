package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/standby"
	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
)

// commandWithin bounds a command that begins a cluster or its log.
const commandWithin = time.Minute

// ClusterBegun is a cluster that has a store to begin with.
type ClusterBegun struct {
	Cluster     string `json:"cluster"`
	Store       string `json:"store"`
	Node        string `json:"node"` // the only one that may run first
	Transaction uint64 `json:"transaction"`
	Shard       int    `json:"shard,omitempty"`
	Shards      int    `json:"shards,omitempty"`   // that have begun; 0 for a store of all keys
	LogKept     bool   `json:"log_kept,omitempty"` // the log was whole, and only the bucket was made again
}

// InitCluster makes the store in the data folder that of a new cluster. No process may hold it.
func InitCluster(ctx context.Context, s Settings, log *zap.Logger) (b ClusterBegun, err error) {
	if err := s.mayTakeFolder(false); err != nil {
		return b, err
	}
	return initStores(ctx, s, log)
}

// initStores is [InitCluster] with a folder that may begin one.
func initStores(ctx context.Context, s Settings, log *zap.Logger) (b ClusterBegun, err error) {
	if err := s.splitDone(); err != nil {
		return b, err
	}
	n, err := s.shardsIn()
	if err != nil {
		return b, err
	}
	if n == 0 && !store.Exists(s.storeDir()) {
		return b, edda.Classify(edda.Permanent, "there is no store in folder %s: name the data folder of the cluster's store with --data", s.storeDir())
	}
	for i := range n { // before the first one begins
		if dir := s.ofShard(edda.Shard{Index: i, Of: n}).storeDir(); !store.Exists(dir) {
			return b, edda.Classify(edda.Permanent, "there is no store in folder %s: bring the stores of all shards into folder %s", dir, s.Data)
		}
	}
	for i := range n {
		one, err := initStore(ctx, s.ofShard(edda.Shard{Index: i, Of: n}), log)
		if err != nil {
			return b, fmt.Errorf("shard %d: %w", i, err)
		}
		if i == 0 {
			b = one
		}
		b.Shards = n
	}
	if n > 0 {
		return b, nil
	}
	return initStore(ctx, s, log)
}

// initStore makes a store, of all keys or of one shard, that of a new cluster.
func initStore(ctx context.Context, s Settings, log *zap.Logger) (b ClusterBegun, err error) {
	err = withStay(ctx, s, log, func(t *stay) error {
		b = ClusterBegun{Cluster: s.Cluster.Name, Node: t.node}
		if begun, err := t.hasBegun(ctx); err != nil || begun {
			b.Store = t.agreed.Store
			return err
		}
		if err := t.mayInit(ctx); err != nil {
			return err
		}
		agreed, err := t.begin(ctx)
		if err != nil {
			return err
		}
		if agreed.Founder != t.node {
			return edda.Classify(edda.Permanent, "node %s has founded the cluster meanwhile, with store %s", agreed.Founder, agreed.Store)
		}
		b.Store = agreed.Store
		return nil
	})
	return b, err
}

// hasBegun reports whether the shard has begun with the store in the folder, by a command that was cut off before it came
// to the other shards.
func (t *stay) hasBegun(ctx context.Context) (begun bool, err error) {
	if t.settings.share.Whole() || !store.Exists(t.dir()) {
		return false, nil
	}
	if t.agreed, begun, err = t.nodes.Load().Agreed(ctx); err != nil || !begun {
		return false, err
	}
	r, err := t.openCopy()
	if err != nil {
		return false, err
	}
	return t.agreed.Founder == t.node && t.agreed.Left == "" && t.agreed.Store == r.ID(), r.Close()
}

// mayInit returns an error if the cluster exists already, or the folder has the store of another cluster.
func (t *stay) mayInit(ctx context.Context) error {
	agreed, known, err := t.nodes.Load().Agreed(ctx)
	switch m, errOf := membershipOf(t.dir()); {
	case err != nil || errOf != nil:
		return errors.Join(err, errOf)
	case known && agreed.Left != "":
		return t.ended(agreed)
	case known:
		return edda.Classify(edda.Permanent, "there is a cluster %s already, and it keeps store %s: name another --cluster, or run a node of that one", t.settings.Cluster.Name, agreed.Store)
	case m != nil:
		return edda.Classify(edda.Permanent, "folder %s has a copy of the store of cluster %s: edda cluster relog begins its log again", t.dir(), m.Cluster)
	}
	return t.replicated(ctx)
}

// ended is the error of a node whose cluster has no store any more.
func (t *stay) ended(a clusternodes.Agreed) error {
	return edda.Classify(edda.Permanent, "node %s has taken the store out of cluster %s (edda cluster leave), so no node of it may start: "+
		"edda cluster end --cluster %s removes its log and its bucket", a.Left, t.settings.Cluster.Name, t.settings.Cluster.Name)
}

// LeaveOptions say how a copy leaves its cluster.
type LeaveOptions struct {
	// ToDev makes the data folder one of edda dev: the streams are copied into it.
	ToDev bool
	// Unchecked leaves without NATS. Nobody knows then whether another copy has more, and whether other nodes run.
	Unchecked bool
}

// LeaveCluster makes the copy in the data folder a store of its own, or those of all shards. All nodes must have stopped,
// and each copy must have all that its log has. A call that was cut off can be repeated.
func LeaveCluster(ctx context.Context, s Settings, log *zap.Logger, o LeaveOptions) (cluster string, err error) {
	n, err := s.shardsIn()
	if err != nil {
		return "", err
	}
	var copies []Settings
	for i := range max(n, 1) {
		one := s.ofShard(edda.Shard{Index: i, Of: n})
		m, err := membershipOf(one.storeDir())
		switch {
		case err != nil:
			return "", err
		case m == nil: // a command that was cut off has done it
			continue
		case s.Cluster.Name != "" && s.Cluster.Name != m.Cluster:
			return "", edda.Classify(edda.Permanent, "folder %s has a copy of the store of cluster %s, and not of %s", one.storeDir(), m.Cluster, s.Cluster.Name)
		}
		if one.share, err = shareIn(one.storeDir()); err != nil {
			return "", err
		}
		if o.ToDev && !one.share.Whole() {
			return "", edda.Classify(edda.Permanent, "the store in folder %s has %s, and edda dev needs all keys", one.storeDir(), one.share)
		}
		s.Cluster.Name, one.Cluster.Name = m.Cluster, m.Cluster
		copies = append(copies, one)
	}
	if len(copies) == 0 {
		return "", edda.Classify(edda.Permanent, "folder %s has no copy of a cluster's store", s.storeDir())
	}
	if !o.Unchecked {
		if err := leaveLogs(ctx, copies, log, o.ToDev); err != nil {
			return "", err
		}
	}
	for _, one := range copies {
		if o.ToDev {
			if err := one.betweenServers(ctx, log, false); err != nil {
				return "", err
			}
		}
		r, err := store.OpenReplica(one.storeDir(), store.Options{}) // no process may hold it
		if err != nil {
			return "", err
		}
		if err := errors.Join(r.Close(), store.UnmarkReplicated(one.storeDir())); err != nil {
			return "", err
		}
	}
	return s.Cluster.Name, nil
}

// leaveLogs checks that each copy is the newest. If all are, it notes that the cluster has ended: a node cannot start from
// then on, so a copy that is behind could never follow again.
func leaveLogs(ctx context.Context, copies []Settings, log *zap.Logger, toDev bool) error {
	stays := make([]*stay, len(copies))
	g, checking := errgroup.WithContext(ctx)
	for i, one := range copies {
		g.Go(func() (err error) {
			if stays[i], err = commandStay(checking, one, log); err == nil {
				err = stays[i].mayLeave(checking, toDev)
			}
			if err != nil && !one.share.Whole() {
				err = fmt.Errorf("shard %d: %w", one.share.Index, err)
			}
			return err
		})
	}
	err := g.Wait()
	for _, t := range stays {
		if t == nil {
			continue
		}
		defer t.close()
		if err == nil && t.agreed.Store != "" {
			t.agreed.Left = t.node
			err = t.nodes.Load().FoundAgain(ctx, t.agreed)
		}
	}
	return err
}

// mayLeave returns why the copy may not leave the cluster. It reads what the cluster agrees on.
func (t *stay) mayLeave(ctx context.Context, toDev bool) error {
	if err := t.alone(ctx); err != nil {
		return err
	}
	var known bool
	var err error
	if t.agreed, known, err = t.nodes.Load().Agreed(ctx); err != nil {
		return err
	}
	last, err := t.shipped.End(ctx)
	if err != nil {
		return err
	}
	r, err := t.openCopy()
	if err != nil {
		return err
	}
	// A command that was cut off has compared the copy with the log. It may have noted in the copy where its streams are.
	again := t.agreed.Left == t.node
	if last.Seq > 0 && !again { // Find removes a last transaction that the log never had
		var m *membership
		if m, err = membershipOf(t.dir()); err == nil {
			_, err = standby.Find(ctx, t.shipped, r, !m.Follows && (!known || m.of(t.agreed.Created)))
		}
		if err != nil {
			err = fmt.Errorf("the copy in folder %s does not fit the log; its node says at a start how to go on: %w", t.dir(), err)
		}
	}
	at := r.LSN()
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	switch {
	case known && t.agreed.Store != r.ID():
		return edda.Classify(edda.Permanent, "folder %s has store %s, and cluster %s keeps store %s", t.dir(), r.ID(), t.settings.Cluster.Name, t.agreed.Store)
	case t.agreed.Left != "" && !again:
		return t.ended(t.agreed)
	case at < last.LSN():
		return edda.Classify(edda.Permanent, "the copy in folder %s ends at transaction %d, and the log at %d: take the node that owned the store last, "+
			"or start this one until it follows, and stop the others first", t.dir(), at, last.LSN())
	case toDev && !again && t.settings.hasDevStreams():
		return edda.Classify(edda.Permanent, "folder %s has streams already, of an edda dev or of a command that was cut off: move it away, and call this again",
			t.settings.devStreams())
	case !toDev:
		return nil
	}
	o, err := t.settings.StoreOptions()
	if err != nil {
		return err
	}
	db, _, err := store.OpenToCheck(t.dir(), o) // it writes nothing, as its node may follow the log again
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	return errors.Join(t.settings.allSent(db), db.Close())
}

// RelogCluster begins the log of a cluster again with the copy in the data folder, after JetStream has lost the log.
// All nodes must have stopped. drop allows to lose what the log has and the copy has not.
func RelogCluster(ctx context.Context, s Settings, log *zap.Logger, drop bool) (b ClusterBegun, err error) {
	n, err := s.shardsIn()
	switch {
	case err != nil:
		return b, err
	case n > 0:
		return b, edda.Classify(edda.Permanent, "folder %s has the stores of %d shards, and each log begins again by itself: name the folder of the one that lost its log, "+
			"as in --data %s", s.Data, n, filepath.Join(s.Data, shardFolder+"0"))
	}
	if s.share, err = shareIn(s.storeDir()); err != nil {
		return b, err
	}
	err = withStay(ctx, s, log, func(t *stay) error {
		b, err = t.relog(ctx, drop)
		return err
	})
	return b, err
}

// relog begins the log again with the copy in the folder, or makes the bucket again if the log is whole.
func (t *stay) relog(ctx context.Context, drop bool) (b ClusterBegun, err error) {
	name := t.settings.Cluster.Name
	m, err := membershipOf(t.dir())
	if err != nil {
		return b, err
	}
	if m == nil || m.Cluster != name {
		return b, edda.Classify(edda.Permanent, "folder %s has no copy of the store of cluster %s", t.dir(), name)
	}
	if err := t.alone(ctx); err != nil {
		return b, err
	}
	r, err := t.openCopy()
	if err != nil {
		return b, err
	}
	defer r.Close()
	agreed, known, err := t.nodes.Load().Agreed(ctx)
	if err != nil {
		return b, err
	}
	if !known {
		agreed.Created = m.Created
	}
	c, err := t.compare(ctx, r, m, agreed.Created)
	if err != nil {
		return b, err
	}
	a := clusternodes.Agreed{Store: r.ID(), Founder: t.node, Created: m.Created, Shards: t.settings.share.Of,
		Level: cmp.Or(max(agreed.Level, c.end.Message.Level), cluster.Level)}
	b = ClusterBegun{Cluster: name, Node: t.node, Shard: t.settings.share.Index, Store: r.ID(), Transaction: r.LSN()}
	switch {
	case c.whole && known:
		return b, edda.Classify(edda.Permanent, "the log of cluster %s ends at transaction %d, and the copy in folder %s at %d: nothing is lost, start the nodes",
			name, c.end.LSN(), t.dir(), r.LSN())
	case c.whole: // the bucket alone is lost
		b.Transaction, b.LogKept = c.end.LSN(), true
		return b, t.nodes.Load().FoundAgain(ctx, a)
	case c.more != "" && !drop:
		return b, edda.Classify(edda.Permanent, "the copy in folder %s ends at transaction %d, and lacks what %s: take a copy that has it, or lose it with --drop-log",
			t.dir(), r.LSN(), c.more)
	}
	if err := clusterlog.Remove(ctx, t.js, t.settings.logName()); err != nil {
		return b, err
	}
	a.Created = t.beat().Since
	if err := t.nodes.Load().FoundAgain(ctx, a); err != nil {
		return b, err
	}
	return b, membership{name, a.Created, false, true}.write(t.dir())
}

// shareIn is the shard that the store in a folder has. No process may hold it.
func shareIn(dir string) (edda.Share, error) {
	if !store.Exists(dir) {
		return edda.Share{}, nil
	}
	r, err := store.OpenReplica(dir, store.Options{})
	if err != nil {
		return edda.Share{}, err
	}
	return r.Share(), r.Close()
}

// compared is a log beside a copy.
type compared struct {
	end   cluster.Last // zero for an empty log
	whole bool         // the log has all that this copy and other nodes have of it
	more  string       // who has what the copy lacks
}

// compare compares the log that was founded at a time with a copy. It believes that the log has less only after
// cluster.LostWithin, because a server that has just started may know less.
func (t *stay) compare(ctx context.Context, r *store.Replica, m *membership, founded time.Time) (c compared, err error) {
	for since := time.Now(); ; {
		last, err := t.shipped.End(ctx)
		if err != nil {
			return c, err
		}
		_, err = standby.Find(ctx, t.shipped, r, false)
		absent, diverged := errors.Is(err, cluster.ErrAbsent), errors.Is(err, standby.ErrDiverged)
		if err != nil && !diverged && !errors.Is(err, cluster.ErrTrimmed) {
			return c, err
		}
		c = compared{end: last}
		one := absent && !m.Follows && r.LSN() == c.end.LSN()+1 // an owner is one ahead at most, and gives that up
		has := m.of(founded) && last.Seq > 0 && (!diverged || one)
		most := standby.Most(t.others(), epochBefore(founded))
		c.whole = has && most.Beat.LSN <= c.end.LSN()
		switch {
		case most.Beat.LSN > r.LSN():
			c.more = fmt.Sprintf("node %s has, up to transaction %d", most.ID, most.Beat.LSN)
		case last.Seq > 0 && (!m.of(founded) || diverged && !absent || has && r.LSN() < c.end.LSN()):
			c.more = fmt.Sprintf("the log has, up to transaction %d", c.end.LSN())
		}
		if c.whole || time.Since(since) >= cluster.LostWithin {
			return c, nil
		}
		if err := backoff.Wait(ctx, joinAgain); err != nil {
			return c, err
		}
	}
}

// EndCluster removes the log and the bucket of a cluster, and reports whether there was one. All nodes must have stopped.
// Their copies stay.
func EndCluster(ctx context.Context, s Settings, log *zap.Logger) (was bool, err error) {
	err = withStay(ctx, s, log, func(t *stay) error {
		if err := t.alone(ctx); err != nil {
			return err
		}
		agreed, known, err := t.nodes.Load().Agreed(ctx)
		if err != nil {
			return err
		}
		if was = known; !known { // joining makes an empty bucket and an empty log
			last, unread := t.shipped.End(ctx)
			was = unread != nil || last.Seq > 0
		}
		for i := max(agreed.Shards, 1) - 1; err == nil && i >= 0; i-- { // the first one last: it says how many there are
			s.share.Index = i
			err = errors.Join(clusterlog.Remove(ctx, t.js, s.logName()), clusternodes.Remove(ctx, t.js, s.Cluster.Name, i))
		}
		return err
	})
	return was, err
}

// withStay joins the cluster for a command.
func withStay(ctx context.Context, s Settings, log *zap.Logger, do func(*stay) error) error {
	t, err := commandStay(ctx, s, log)
	if err != nil {
		return err
	}
	defer t.close()
	return do(t)
}

// commandStay joins the cluster for a command, which must close the stay.
func commandStay(ctx context.Context, s Settings, log *zap.Logger) (*stay, error) {
	t, err := newStay(s, log, newClusterMetrics(s.share.Index))
	if err != nil {
		return nil, err
	}
	t.doubtful, t.settings.Manifests = true, nil // a join founds no cluster
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	if err := t.join(ctx); err != nil {
		t.close()
		return nil, t.unjoined(err)
	}
	return t, nil
}

// aloneWithin is how long a command waits for the death of a node that has just stopped without a word. A busy machine
// takes longer than [cluster.DeadAfter].
const aloneWithin = 3 * cluster.DeadAfter

// alone returns an error if another node beats.
func (t *stay) alone(ctx context.Context) error {
	if m, err := membershipOf(t.dir()); err == nil && m != nil && m.Cluster == t.settings.Cluster.Name {
		_ = t.tellCopy() // these beats replace the last one of the node; a command that needs the copy reports the error
	}
	t.startBeats(ctx)
	defer func() { t.endBeats(true) }()
	if err := backoff.Wait(ctx, cluster.DeadAfter+2*cluster.BeatEvery); err != nil {
		return err
	}
	for begun := time.Now(); ; {
		others := t.others()
		i := slices.IndexFunc(others, func(m cluster.Member) bool { return !m.Dead })
		switch {
		case i < 0:
			return nil
		case time.Since(begun) > aloneWithin:
			return edda.Classify(edda.Permanent, "node %s runs: stop all nodes first", others[i].ID)
		}
		if err := backoff.Wait(ctx, cluster.BeatEvery); err != nil {
			return err
		}
	}
}
