package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/ulid/v2"
	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/backoff"
	"edda/server"
	"edda/standby"
	"edda/store"
	"edda/stream/clusterlog"
	"edda/stream/clusternodes"
	"edda/stream/kv"
)

const (
	// sealWithin bounds the hand-over at a stop. It is less than the store may take to close. Without a hand-over the others
	// find out by the silence of this node.
	sealWithin = 2 * time.Second
	// shipWithin bounds how long a stop waits for the log to take a transaction.
	shipWithin = 10 * time.Second
	// pingEvery finds a frozen NATS server in 1.2 s. The beats must reach another server before the nodes there
	// convict this one, and before its fence closes.
	pingEvery = 400 * time.Millisecond
	// maxSkew is the most by which the clock of a node may differ from that of NATS.
	maxSkew = 5 * time.Second
)

// stay is the time of a node in its cluster from a join to the end of an ownership. It joins, has a copy of the
// store, follows the log, and owns the store when it is its turn. Everything in it is made anew for the next stay.
type stay struct {
	settings Settings
	log      *zap.Logger
	metrics  *clusterMetrics
	// lostSince is when something of the cluster began to look lost; zero while nothing does.
	lostSince time.Time
	doubtful  bool // another process may have the name of this node
	gaveUp    bool // the stay before has ended because other nodes have the copies
	node      string
	run       string
	conn      *nats.Conn
	js        jetstream.JetStream
	bytes     func(context.Context) (int, error) // of the log
	shipped   cluster.Log                        // measured
	nodes     atomic.Pointer[clusternodes.Nodes] // nil before the join
	agreed    clusternodes.Agreed
	// shipper is nil until this node owns the log, behind owned.
	shipper     atomic.Pointer[standby.Shipper]
	owned       cluster.Mark
	copy        *store.Replica // which the process is to open; nil before this node owns the log, and afterwards
	endShipping func()         // a transaction that is under way is then unsure
	hurry       func()         // bounds each append
	endBeats    func(gone bool)
	more        atomic.Bool             // the log may lack what this node has said to have, so its last beat stays
	end         context.CancelCauseFunc // ends the stay

	mu   sync.Mutex   // guards the fields below
	said cluster.Beat // what the next beat says
	// owner is what the log said last about the owner before this node.
	owner    cluster.Ownership
	named    uint64               // the last epoch whose owner was logged; records that the node reads later may be earlier
	revision revision             // of the manifests
	met      map[string]time.Time // when each other node was last alive
	heir     string               // the node that takes over when the process has stopped
	moves    bool                 // the process stops because it hands over, and this node stays
	// stopProcess asks the process to stop, and audit writes an act into its store; both are nil before one has started.
	stopProcess func()
	audit       func(ctx context.Context, who server.Operator, verb, detail string)
}

func newStay(s Settings, log *zap.Logger, m *clusterMetrics) (*stay, error) {
	node, err := s.nodeName()
	if err != nil {
		return nil, err
	}
	t := &stay{settings: s, metrics: m, endShipping: func() {}, endBeats: func(bool) {}, end: func(error) {}, met: map[string]time.Time{}, node: node, run: cluster.Run(node, ulid.Make().String())}
	t.log = log.With(zap.String("node", node))
	t.said = cluster.Beat{Run: t.run, Version: s.Build.Version, Level: cluster.Level, Role: s.owning(), Since: time.Now().UTC()}
	return t, nil
}

// beat is what the others may know of this node.
func (t *stay) beat() cluster.Beat {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.said
	if s := t.shipper.Load(); s != nil {
		at := s.Mark()
		b.Owner, b.Following, b.Epoch, b.LSN = s.Err() == nil, false, at.Epoch, at.LSN
	}
	return b
}

// others are the other nodes; none before the join.
func (t *stay) others() []cluster.Member {
	if n := t.nodes.Load(); n != nil {
		return n.Others()
	}
	return nil
}

// level is that of the cluster now; 0 before the join. What this stay writes keeps the level of its join, in agreed.
func (t *stay) level() int {
	if n := t.nodes.Load(); n != nil {
		return n.Level()
	}
	return 0
}

// say changes what the next beat says.
func (t *stay) say(change func(b *cluster.Beat)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.said)
}

// tell notes what the standby knows after a record.
func (t *stay) tell(at cluster.Mark, owner cluster.Ownership) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said.Needs = 0
	t.said.Epoch, t.said.LSN, t.said.Following, t.said.Problem = at.Epoch, at.LSN, t.revision.unfit == "", t.revision.unfit
	if node := cluster.NodeOf(owner.Run); owner.Epoch > t.named && !owner.Sealed && node != t.node {
		t.named = owner.Epoch
		t.log.Info("the log has another owner", zap.String("owner", node), zap.Uint64("epoch", owner.Epoch))
	}
	t.owner = owner
}

// shorter says that the log has lost what it had acknowledged to this owner; nil says that it has it again. No node may go
// on by itself then, because another one may have less.
func (t *stay) shorter(why error) {
	problem := ""
	if why != nil {
		problem = why.Error() + ": stop all nodes, and begin the log again with edda cluster relog"
		t.log.Error("nothing can be committed", zap.String("problem", problem))
	}
	t.say(func(b *cluster.Beat) { b.Problem = problem })
}

// join reaches the cluster. It returns an error that no retry can mend, and else goes on until ctx ends.
func (t *stay) join(ctx context.Context) error {
	c := t.settings.Connection().FromEnv(t.settings.Env)
	c.Log, c.Name, c.PingEvery = t.log.Named("nats"), "edda cluster", pingEvery
	var err error
	if t.conn, t.js, err = kv.Connect(c); err != nil {
		return err
	}
	return t.retried(ctx, "waiting for NATS with JetStream", func() error {
		if err := t.reached(); err != nil { // a request would wait for the connection, and not say so
			return err
		}
		if err := t.checkClock(ctx); err != nil {
			return err
		}
		if err := t.mayJoin(ctx); err != nil {
			return err
		}
		stored, err := clusterlog.Open(ctx, t.js, clusterlog.Options{Shard: t.settings.logName(), Unsure: t.metrics.unsure.Inc, Lost: t.shorter})
		if err != nil {
			return err
		}
		t.bytes, t.shipped = stored.Bytes, measured{stored, t.metrics}
		nodes, err := clusternodes.Open(ctx, t.js, clusternodes.Options{
			Cluster: t.settings.Cluster.Name, Shard: t.settings.share.Index, ID: t.node, Run: t.run, Beat: t.beat, Confirm: t.confirm, Log: t.log.Named("nodes"),
			Left: func(a clusternodes.Agreed) { t.end(t.ended(a)) },
		})
		if err != nil {
			return err
		}
		t.nodes.Store(nodes)
		if !t.doubtful {
			return nil
		}
		known, err := nodes.Unique(ctx)
		t.more.Store(known && store.Exists(t.dir()))
		return err
	})
}

// retried calls do until it works, its error is permanent or ctx ends. The beats and the log say what is awaited.
func (t *stay) retried(ctx context.Context, what string, do func() error) error {
	for told := ""; ; {
		err := do()
		if err == nil || errors.Is(err, edda.Permanent) && !noPeers(err) || ctx.Err() != nil {
			t.say(func(b *cluster.Beat) { b.Problem = "" })
			return err
		}
		t.say(func(b *cluster.Beat) { b.Problem = what + ": " + err.Error() })
		if err.Error() != told {
			told = err.Error()
			t.log.Warn(what, zap.Error(err))
		}
		if ended := backoff.Wait(ctx, joinAgain); ended != nil {
			return fmt.Errorf("%w: %w", err, ended)
		}
	}
}

// reached returns why there is no connection to NATS.
func (t *stay) reached() error {
	if status := t.conn.Status(); status != nats.CONNECTED {
		return fmt.Errorf("the connection to %s is %s", strings.Join(t.conn.Servers(), ", "), status)
	}
	return nil
}

// noPeers reports whether NATS found no servers for a stream. It says so also while its servers start.
func noPeers(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && refused.ErrorCode == clusterNoPeers
}

// clusterNoPeers is JSClusterNoPeersErrF of the NATS server.
const clusterNoPeers = 10005

// unjoined is the error of a node that cannot join.
func (t *stay) unjoined(err error) error {
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == notClustered {
		return edda.Classify(edda.Permanent, "join cluster %s: it needs three NATS servers that form a cluster, and this one is alone: %w", t.settings.Cluster.Name, err)
	}
	return fmt.Errorf("join cluster %s: %w", t.settings.Cluster.Name, err)
}

// notClustered is JSStreamReplicasNotSupportedErr of the NATS server.
const notClustered = 10074

// checkClock refuses a clock that is far from that of NATS: this node's timers would fire early or late.
func (t *stay) checkClock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	sent := time.Now()
	s, err := t.js.Stream(ctx, "KV_"+kv.LeaseBucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // nothing has run here yet
	}
	if err != nil {
		return fmt.Errorf("ask NATS for the time: %w", err)
	}
	return compareClocks(sent, s.CachedInfo().TimeStamp, time.Now())
}

// compareClocks compares the time of NATS in an answer with those of this node before and after. What the way took is no
// difference.
func compareClocks(sent, theirs, came time.Time) error {
	early, late := sent.Sub(theirs), theirs.Sub(came)
	if early <= maxSkew && late <= maxSkew {
		return nil
	}
	return edda.Classify(edda.Permanent, "the clock of this node differs by %s from that of NATS, and %s are allowed: "+
		"timers would fire at other times after a takeover; synchronise the clocks (chrony, ntpd)", max(early, late).Round(time.Millisecond), maxSkew)
}

// confirm proves that this node still owns the log.
func (t *stay) confirm(ctx context.Context) error {
	if s := t.shipper.Load(); s != nil {
		return s.Confirm(ctx)
	}
	return clusternodes.ErrNotOwner
}

func (t *stay) dir() string { return t.settings.storeDir() }

// replica makes the folder a copy of the cluster's store, and opens it. The mark is where it reads on. A copy that does
// not fit the log is looked at again before it is replaced, and while no owner can be copied: a deposed leader of the
// log says that it ends earlier.
func (t *stay) replica(ctx context.Context) (*store.Replica, cluster.Mark, error) {
	told := ""
	for unfit := 0; ; {
		r, at, err := t.openReplica(ctx)
		if !errors.Is(err, errLooksLost) {
			t.lostSince = time.Time{}
		}
		if err == nil {
			return r, at, nil
		}
		switch {
		case errors.Is(err, errLooksLost):
		case errors.Is(err, errNoCopy):
			unfit = unfitLooks
		case errors.Is(err, cluster.ErrTrimmed):
			unfit++
		default:
			return nil, at, err
		}
		if unfit >= unfitLooks {
			t.more.Store(false) // there is no copy, or it is merely too old
			failed := t.copyStore(ctx)
			if failed == nil {
				unfit = 0
				continue
			}
			if errors.Is(failed, edda.Permanent) {
				return nil, at, failed
			}
			err = fmt.Errorf("%w: %w", failed, err)
		}
		t.say(func(b *cluster.Beat) { b.Problem = err.Error() })
		if err.Error() != told {
			told = err.Error()
			t.log.Warn("waiting for a copy of the store that follows the log", zap.Error(err))
		}
		if err := backoff.Wait(ctx, joinAgain); err != nil {
			return nil, at, err
		}
	}
}

// unfitLooks is how often a copy must not fit the log before it is replaced.
const unfitLooks = 2

// errNoCopy says that the folder has no store.
var errNoCopy = errors.New("the folder has no store")

// found makes the folder's store that of a cluster which has none yet.
func (t *stay) found(ctx context.Context) error {
	return t.retried(ctx, "waiting for the cluster's bucket", func() error {
		agreed, known, err := t.nodes.Load().Agreed(ctx)
		switch {
		case known && agreed.Left != "":
			err = t.ended(agreed)
		case err != nil || known:
		default:
			if err = t.noCopy(); err == nil {
				err = t.mayFound(ctx)
			}
			if err == nil {
				agreed, err = t.begin(ctx)
			}
		}
		if err == nil {
			err = t.settings.fits(agreed)
		}
		if err != nil {
			return err
		}
		t.lostSince = time.Time{}
		t.mu.Lock()
		t.agreed = agreed
		t.mu.Unlock()
		if agreed.Level > cluster.Level {
			return edda.Classify(edda.Permanent, "cluster %s has the level %d, and this version of Edda knows up to %d: upgrade this node",
				t.settings.Cluster.Name, agreed.Level, cluster.Level)
		}
		return nil
	})
}

// mayFound returns why this node does not found what it has joined. The node that has founded the first shard founds
// the others, with the same manifests: its files may have changed meanwhile.
func (t *stay) mayFound(ctx context.Context) error {
	if len(t.settings.Manifests) == 0 {
		return edda.Classify(edda.Temporary, "there is no cluster %s yet, and this node cannot begin it without manifests: "+
			"name files or folders as arguments, or with manifests: in the configuration", t.settings.Cluster.Name)
	}
	if t.settings.share.Index == 0 {
		return nil
	}
	first, known, err := clusternodes.AgreedOn(ctx, t.js, t.settings.Cluster.Name)
	switch {
	case err != nil:
		return err
	case !known:
		return edda.Classify(edda.Temporary, "cluster %s has no first shard yet", t.settings.Cluster.Name)
	case first.Founder != t.node:
		return edda.Classify(edda.Temporary, "node %s has founded cluster %s, and founds its shard %d when it runs", first.Founder, t.settings.Cluster.Name, t.settings.share.Index)
	}
	if err := t.settings.fits(first); err != nil {
		return err
	}
	if _, known, err = clusternodes.BegunManifests(ctx, t.js, t.settings.Cluster.Name); err == nil && !known {
		err = edda.Classify(edda.Temporary, "the first shard of cluster %s does not run yet", t.settings.Cluster.Name)
	}
	if err == nil {
		_, err = t.first(ctx)
	}
	return err
}

// begin offers the store in the folder, or a new one, to a cluster that has none. Another node may be faster.
func (t *stay) begin(ctx context.Context) (a clusternodes.Agreed, err error) {
	if a, err = t.offer(ctx); err != nil {
		return a, err
	}
	if a, err = t.nodes.Load().Found(ctx, a); err == nil && a.Founder == t.node {
		t.log.Info("this node has founded the cluster", zap.String("cluster", t.settings.Cluster.Name), zap.String("store", a.Store))
	}
	return a, err
}

// noCopy returns an error if the folder has a copy: it was part of a cluster, so there is none to found.
func (t *stay) noCopy() error {
	m, err := membershipOf(t.dir())
	if err != nil || m == nil {
		return err
	}
	if m.Cluster != t.settings.Cluster.Name {
		return edda.Classify(edda.Permanent, "folder %s has a copy of the store of cluster %s, and there is no cluster %s yet: name that one with --cluster, "+
			"or another --data", t.dir(), m.Cluster, t.settings.Cluster.Name)
	}
	r, err := t.openCopy()
	if err != nil {
		return err
	}
	return errors.Join(t.lost("bucket", r.LSN()), r.Close())
}

// offer opens the store in the folder, or creates one, and returns what a cluster of it would agree on.
func (t *stay) offer(ctx context.Context) (a clusternodes.Agreed, err error) {
	last, err := t.shipped.End(ctx)
	if err != nil {
		return a, err
	}
	if last.Seq > 0 {
		return a, edda.Classify(edda.Temporary, "cluster %s has lost its bucket, and its log ends at transaction %d: a node that has a copy of the store "+
			"says at its start how to go on; only edda cluster end removes the log", t.settings.Cluster.Name, last.LSN())
	}
	o, err := t.settings.StoreOptions()
	if err != nil {
		return a, err
	}
	o.Log, o.Share = t.log.Named("store"), t.settings.share
	db, err := store.Open(t.dir(), o)
	if err != nil {
		return a, fmt.Errorf("open the store: %w", err)
	}
	a = clusternodes.Agreed{Store: db.ID(), Founder: t.node, Level: cluster.Level, Created: t.beat().Since, Shards: t.settings.share.Of}
	return a, errors.Join(t.mayBegin(ctx, db), db.Close())
}

// mayBegin refuses a store that a cluster cannot begin with.
func (t *stay) mayBegin(ctx context.Context, db *store.DB) error {
	if err := t.settings.sameKeys(db.Share()); err != nil {
		return err
	}
	restored, err := db.Restored()
	if err != nil {
		return err
	}
	held, err := db.Checkpoints()
	switch {
	case err != nil:
		return err
	case restored: // its work is held until then, and a copy would not know that
		return edda.Classify(edda.Permanent, "the store in folder %s was restored and has not caught up with its streams: run it without --cluster until its log says that it has, and begin the cluster then", t.dir())
	case db.Tenant() != "":
		return edda.Classify(edda.Permanent, "the store in folder %s has the tenant %s alone, and no copies are made of such a store: run it without --cluster", t.dir(), db.Tenant())
	case len(held) == 0 && !t.settings.AdoptEmpty: // it would take tenants over without their instances
		return kv.Unowned(ctx, t.js, db.ID(), t.settings.Tenants, db.Share())
	}
	return nil
}

func (t *stay) openCopy() (*store.Replica, error) {
	r, err := store.OpenReplica(t.dir(), store.Options{Log: t.log.Named("store")})
	if err != nil {
		return nil, fmt.Errorf("open the copy of the store: %w", err)
	}
	return r, nil
}

// openReplica opens the copy in the folder and finds its place in the log. errNoCopy says that there is none.
func (t *stay) openReplica(ctx context.Context) (*store.Replica, cluster.Mark, error) {
	if !store.Exists(t.dir()) {
		return nil, cluster.Mark{}, errNoCopy
	}
	r, err := t.openCopy()
	if err != nil {
		return nil, cluster.Mark{}, err
	}
	at, err := t.place(ctx, r)
	if err != nil {
		err = errors.Join(err, r.Close())
	}
	if errors.Is(err, errUnused) {
		err = errors.Join(errNoCopy, store.Remove(t.dir()))
	}
	return r, at, err
}

// errUnused says that the folder has a store that this node has offered, and another node was faster.
var errUnused = errors.New("the store was never used")

// place finds the place of a copy in the log.
func (t *stay) place(ctx context.Context, r *store.Replica) (at cluster.Mark, err error) {
	if err := t.settings.sameKeys(r.Share()); err != nil {
		return at, err
	}
	if r.ID() != t.agreed.Store {
		if unused, err := r.Unused(); err != nil || unused {
			return at, errors.Join(err, errUnused)
		}
		return at, edda.Classify(edda.Permanent, "folder %s has store %s, and cluster %s keeps store %s: name another --data for a copy of that one, "+
			"or another --cluster for this one", t.dir(), r.ID(), t.settings.Cluster.Name, t.agreed.Store)
	}
	m, err := membershipOf(t.dir())
	if err != nil {
		return at, err
	}
	last, err := t.shipped.End(ctx)
	if err != nil {
		return at, err
	}
	ours := m.of(t.agreed.Created)
	if last.Seq == 0 && (ours && m.Begun || t.agreed.Founder != t.node) { // only the founder has a store before the log has a record
		return at, t.lost("log", r.LSN())
	}
	had := r.LSN()
	at, err = standby.Find(ctx, t.shipped, r, ours && !m.Follows)
	switch diverged := errors.Is(err, standby.ErrDiverged); {
	case err == nil && at.Seq == 0 && last.Seq > 0: // a server answered that knows no record yet
		return at, errLooksLost
	case diverged && ours:
		return at, t.lostRecords(r.LSN(), err)
	case diverged, errors.Is(err, cluster.ErrTrimmed) && m == nil:
		return at, t.apart(m, r.LSN(), err)
	case err != nil:
		return at, err
	}
	if r.LSN() < had {
		t.log.Warn("the last transaction is given up: the log does not have it", zap.Uint64("transaction", had))
	}
	if at.Seq == 0 {
		at.Epoch = epochBefore(t.agreed.Created)
	}
	t.more.Store(false)
	return at, membership{t.settings.Cluster.Name, t.agreed.Created, last.Seq > 0, true}.write(t.dir())
}

// epochBefore is the epoch behind which a log begins that was founded at a time. It is later than each of a log before it,
// because that one has had fewer owners than seconds. An owner that was cut off when the log before was lost is therefore
// a former owner in the new one, too. Its lease stops no new owner.
func epochBefore(founded time.Time) uint64 { return uint64(max(0, founded.Unix())) }
