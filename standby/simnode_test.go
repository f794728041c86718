//go:build !race

package standby_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/testkit"
	"edda/standby"
	"edda/store"
	"edda/store/wal"
	"edda/stream/clusternodes"
)

// The times of a node.
const (
	joinAgain  = time.Second
	sealWithin = 3 * time.Second
	shipWithin = 10 * time.Second
)

var (
	errDead  = errors.New("this process is dead")
	errStays = errors.New("this node does not own the store any more")
	// errNoCopy says that the folder has no store.
	errNoCopy = errors.New("the folder has no store")
	errEnded  = errors.New("this process stops, and the log does not answer")
	errLost   = edda.Classify(edda.Permanent, "the log has lost records of this copy")
)

// life is one process of a node, from its start to its end. What the process calls outside stops while the process
// is frozen, and fails when it is dead.
type life struct {
	w      *world
	node   string
	n      int // of all lives
	dir    string
	log    *zap.Logger
	ctx    context.Context
	stop   context.CancelFunc // asks the process to stop
	dead   chan struct{}
	ended  chan struct{}
	moves  chan string // the node that is to take over
	wiped  bool        // the folder was lost
	copies atomic.Bool // the folder has a copy of the cluster's store

	mu      sync.Mutex    // guards the fields below
	thawed  chan struct{} // nil while the process is not frozen
	armed   string        // the point at which it dies
	mute    time.Time     // its beats are lost until then
	deaf    time.Time     // its watch is behind until then
	said    cluster.Beat
	nodes   *clusternodes.Nodes
	running bool // as the owner
	replica *store.Replica
	shipper *standby.Shipper
	db      *store.DB
	busy    chan struct{} // capacity 1: held for a commit, a copy of the store, and its end
}

// pass waits while the process is frozen.
func (l *life) pass() error {
	for {
		l.mu.Lock()
		thawed := l.thawed
		l.mu.Unlock()
		select {
		case <-l.dead:
			return errDead
		default:
		}
		if thawed == nil {
			return nil
		}
		select {
		case <-thawed:
		case <-l.dead:
		}
	}
}

func (l *life) sleep(ctx context.Context, d time.Duration) error {
	if err := l.pass(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return l.pass()
	case <-ctx.Done():
		return errors.Join(l.pass(), context.Cause(ctx))
	case <-l.dead:
		return errDead
	}
}

// point is a place at which a process may die.
func (l *life) point(name string) {
	l.mu.Lock()
	dies := l.armed == name
	l.mu.Unlock()
	if !dies {
		return
	}
	select {
	case l.w.dying <- l:
		<-l.dead
	case <-l.dead:
	}
}

func (l *life) freeze(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.thawed != nil {
		return
	}
	thawed := make(chan struct{})
	l.thawed = thawed
	time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.thawed = nil
		close(thawed)
	})
}

func (l *life) isDead() bool {
	return testkit.Closed(l.dead)
}

func (l *life) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.mute)
}

func (l *life) deafness() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.deaf)
}

// acts reports whether the process owns the store and its fence is open.
func (l *life) acts() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running && l.nodes.Fence().Open() && !l.isDead()
}

// run is the process: it stays in the cluster until it is stopped.
func (l *life) run() error {
	for {
		err := l.stay()
		if l.ctx.Err() != nil || !errors.Is(err, errStays) {
			return err
		}
		l.w.note("%s stays: %v", l.node, err)
		if err := l.sleep(l.ctx, joinAgain); err != nil {
			return nil
		}
	}
}

// stay is what node.stay does.
type stay struct {
	*life
	run     string
	shipped *simLog
	agreed  clusternodes.Agreed
	owned   cluster.Mark
	held    *store.Replica // the copy, which becomes the store
	lost    time.Time      // when the copy was first found to be no part of the log
	more    bool           // the log may lack what this node has said to have, so its last beat stays
}

func (l *life) stay() error {
	t := &stay{life: l, run: cluster.Run(l.node, fmt.Sprintf("%06d", l.w.number()))}
	t.shipped = &simLog{l: l, d: l.w.dice(t.run + " log")}
	l.say(func(b *cluster.Beat) { *b = cluster.Beat{Run: t.run, URL: l.node, Level: cluster.Level} })
	l.mu.Lock()
	l.shipper = nil
	l.mu.Unlock()
	var nodes *clusternodes.Nodes
	if err := t.retried(func() (err error) {
		js := simJS{b: &simBucket{l: l, d: l.w.dice(t.run + " table")}}
		nodes, err = clusternodes.Open(l.ctx, js, clusternodes.Options{
			Cluster: "sim", ID: l.node, Run: t.run, Beat: l.beat, Confirm: l.confirm, Clock: l.w.since, Log: l.log,
		})
		if err != nil {
			return err
		}
		t.more, err = nodes.Unique(l.ctx)
		return err
	}); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	l.mu.Lock()
	l.nodes = nodes
	l.mu.Unlock()
	if err := t.tellCopy(); err != nil {
		return err
	}
	beating, end := context.WithCancel(context.WithoutCancel(l.ctx))
	var beats sync.WaitGroup
	beats.Go(func() { _ = nodes.Run(beating) })
	err := t.stand()
	if err == nil {
		err = t.own()
	}
	end()
	beats.Wait()
	if (l.ctx.Err() != nil || !errors.Is(err, errStays)) && !t.more {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), joinAgain)
		defer cancel()
		_ = nodes.Leave(leaving)
	}
	return err
}

// tellCopy has the first beat say what the copy surely has of the log.
func (t *stay) tellCopy() error {
	if !t.copies.Load() || !store.Exists(t.dir) {
		return nil
	}
	r, err := store.OpenReplica(t.dir, store.Options{})
	if err != nil {
		return err
	}
	sure := r.LSN()
	if t.wasOwner() && sure > 0 {
		sure--
	}
	t.say(func(b *cluster.Beat) { b.LSN = sure })
	return r.Close()
}

// mark is a file that says that the node has owned the store since the copy was found in the log.
func (t *stay) mark() string { return filepath.Join(t.dir, "owned") }

func (t *stay) wasOwner() bool {
	_, err := os.Stat(t.mark())
	return err == nil
}

func (t *stay) retried(do func() error) error {
	for {
		err := do()
		if err == nil || errors.Is(err, edda.Permanent) || t.ctx.Err() != nil {
			return err
		}
		if err := t.sleep(t.ctx, joinAgain); err != nil {
			return err
		}
	}
}

func (l *life) say(change func(b *cluster.Beat)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.said)
}

func (l *life) beat() cluster.Beat {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.said
	if s := l.shipper; s != nil {
		at := s.Mark()
		b.Owner, b.Following, b.Epoch, b.LSN = s.Err() == nil, false, at.Epoch, at.LSN
	}
	return b
}

func (l *life) confirm(ctx context.Context) error {
	l.mu.Lock()
	s := l.shipper
	l.mu.Unlock()
	if s == nil {
		return clusternodes.ErrNotOwner
	}
	return s.Confirm(ctx)
}

// stand follows the log until this node owns it.
func (t *stay) stand() error {
	r, at, err := t.copy()
	if err != nil {
		return err
	}
	t.copies.Store(true)
	t.w.note("%s follows from record %d", t.node, at.LSN)
	t.mu.Lock()
	t.replica = r
	t.mu.Unlock()
	t.owned, err = standby.Stand(t.ctx, r, at, standby.Options{
		Log: t.shipped, Nodes: t.nodes, Node: t.node, Run: t.run, Founder: t.agreed.Founder, Level: t.agreed.Level,
		Logger: t.log, Tell: func(at cluster.Mark, owner cluster.Ownership) {
			t.say(func(b *cluster.Beat) { b.Epoch, b.LSN, b.Following = at.Epoch, at.LSN, true })
		},
	})
	t.mu.Lock()
	t.replica = nil
	t.said.Following = false
	t.mu.Unlock()
	if err == nil {
		t.point("own is stored")
		t.held = r
		return nil
	}
	err = errors.Join(err, r.Close())
	if errors.Is(err, standby.ErrDiverged) || errors.Is(err, cluster.ErrTrimmed) {
		return fmt.Errorf("%w: %w", errStays, err)
	}
	return err
}

// copy makes the folder a copy of the cluster's store, and opens it.
func (t *stay) copy() (*store.Replica, cluster.Mark, error) {
	if err := t.retried(t.found); err != nil {
		return nil, cluster.Mark{}, err
	}
	for unfit := 0; ; {
		r, at, err := t.open()
		if err == nil || !errors.Is(err, errNoCopy) && !errors.Is(err, standby.ErrDiverged) && !errors.Is(err, cluster.ErrTrimmed) {
			return r, at, err
		}
		if unfit++; !errors.Is(err, standby.ErrDiverged) && (unfit > 1 || errors.Is(err, errNoCopy)) {
			t.w.note("%s copies the store: %v", t.node, err)
			if err := t.fetch(); err == nil {
				unfit = 0
				continue
			}
		}
		if err := t.sleep(t.ctx, joinAgain); err != nil {
			return nil, at, err
		}
	}
}

func (t *stay) found() error {
	a, known, err := t.nodes.Agreed(t.ctx)
	if err == nil && !known {
		if t.wiped {
			return errors.New("nobody else has founded the cluster yet")
		}
		db, err := store.Open(t.dir, store.Options{})
		if err != nil {
			return err
		}
		a = clusternodes.Agreed{Store: db.ID(), Founder: t.node, Level: cluster.Level}
		if err := db.Close(); err != nil {
			return err
		}
		if a, err = t.nodes.Found(t.ctx, a); err != nil {
			return err
		}
	}
	t.agreed = a
	return err
}

func (t *stay) open() (*store.Replica, cluster.Mark, error) {
	if !store.Exists(t.dir) {
		return nil, cluster.Mark{}, errNoCopy
	}
	r, err := store.OpenReplica(t.dir, store.Options{})
	if err != nil {
		return nil, cluster.Mark{}, err
	}
	if r.ID() != t.agreed.Store {
		return nil, cluster.Mark{}, errors.Join(errNoCopy, r.Close(), store.Remove(t.dir))
	}
	at, err := standby.Find(t.ctx, t.shipped, r, t.wasOwner())
	switch {
	case errors.Is(err, standby.ErrDiverged):
		if t.more = true; t.lost.IsZero() {
			t.lost = time.Now()
		}
		if time.Since(t.lost) >= cluster.LostWithin {
			err = errLost
		}
	case err == nil:
		if t.more, t.lost = false, (time.Time{}); t.wasOwner() {
			err = os.Remove(t.mark())
		}
	}
	if err != nil {
		return nil, at, errors.Join(err, r.Close())
	}
	return r, at, nil
}

// fetch puts a copy of the owner's store into the folder.
func (t *stay) fetch() error {
	owner := ""
	for _, m := range t.nodes.Others() {
		if m.Beat.Owner && !m.Dead {
			owner = m.Beat.URL
		}
	}
	if err := t.sleep(t.ctx, t.w.plan.latency); err != nil {
		return err
	}
	o := t.w.life(owner)
	if o == nil || o.isDead() {
		return errors.New("no node owns the store now")
	}
	backup := filepath.Join(t.dir, "copying")
	if err := o.backup(t.ctx, backup); err != nil {
		return err
	}
	if err := t.sleep(t.ctx, t.w.plan.latency); err != nil {
		return err
	}
	_, err := store.RestoreReplica(t.ctx, backup, t.dir, t.agreed.Store, store.ReplaceAside)
	return errors.Join(err, os.Remove(backup))
}

// backup copies the store to a file.
func (l *life) backup(ctx context.Context, to string) error {
	wait := time.NewTimer(joinAgain)
	defer wait.Stop()
	select {
	case l.busy <- struct{}{}:
	case <-wait.C:
		return errors.New("the owner does not answer")
	}
	defer func() { <-l.busy }()
	l.mu.Lock()
	db, frozen := l.db, l.thawed != nil
	l.mu.Unlock()
	if db == nil || frozen || db.Healthy() != nil {
		return errors.New("the owner does not answer")
	}
	s, err := db.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(s.WriteTo(ctx, f), f.Close())
}

// own runs the store until this node does not own it any more, and hands the log over.
func (t *stay) own() error {
	if err := os.WriteFile(t.mark(), nil, 0o600); err != nil {
		return errors.Join(err, t.held.Close())
	}
	shipping, end := context.WithCancelCause(context.WithoutCancel(t.ctx))
	endShipping := func() { end(errEnded) }
	defer endShipping()
	s := standby.NewShipper(shipping, t.shipped, t.owned, t.run, t.agreed.Level)
	t.mu.Lock()
	t.shipper = s
	t.mu.Unlock()
	moves, cause := t.serve(s, endShipping)
	if errors.Is(cause, cluster.ErrFenced) || errors.Is(cause, cluster.ErrMoved) {
		return fmt.Errorf("%w: %w", errStays, cause)
	}
	if cause == nil && moves {
		return errStays
	}
	return cause
}

func (t *stay) bestCopy() (best string) {
	var most uint64
	for _, m := range t.nodes.Others() {
		if !m.Dead && m.Beat.Following && m.Beat.LSN >= most {
			best, most = m.ID, m.Beat.LSN
		}
	}
	return best
}

// handOver ends the ownership, while the store is open.
func (t *stay) handOver(s *standby.Shipper, heir string, endShipping func()) {
	if heir == "" {
		heir = t.bestCopy()
	}
	defer time.AfterFunc(sealWithin, endShipping).Stop()
	err := s.Seal(heir)
	if t.more = err != nil; t.more {
		t.w.note("%s does not hand over: %v", t.node, err)
	}
}

// serve opens the store and works with it until it is lost, or this process is to stop or to hand over.
func (t *stay) serve(s *standby.Shipper, endShipping func()) (moves bool, cause error) {
	db, err := t.held.Promote(store.Options{Ship: t.ship(s)})
	if err != nil {
		return false, errors.Join(err, t.held.Close())
	}
	heir := ""
	if at := db.Point(); at.Transaction != t.owned.LSN || at.Sum != t.owned.State {
		t.w.fail("%s opens its store at %+v and owns the log at %+v", t.node, at, t.owned)
	}
	db.Fence(t.nodes.Fence().Pass)
	committing, stopCommits := context.WithCancel(context.Background())
	working, stopWork := context.WithCancel(t.ctx)
	var committer, work sync.WaitGroup
	committer.Go(func() { _ = db.Run(committing) })
	t.mu.Lock()
	t.db, t.running = db, true
	t.mu.Unlock()
	work.Go(func() { t.load(working, db) })
	work.Go(func() { t.deliver(working) })
	select {
	case <-s.Lost():
		cause = s.Err()
	case heir = <-t.moves:
		moves = true
	case <-t.ctx.Done():
	}
	time.AfterFunc(shipWithin, endShipping)
	stopWork()
	work.Wait()
	stopCommits()
	committer.Wait()
	t.busy <- struct{}{}
	defer func() { <-t.busy }()
	t.mu.Lock()
	t.db, t.running = nil, false
	t.mu.Unlock()
	if err := s.Err(); cause == nil && err != nil && !errors.Is(err, errEnded) {
		cause = err
	}
	t.more = !errors.Is(cause, cluster.ErrFenced) && !errors.Is(cause, cluster.ErrMoved)
	if cause == nil {
		t.handOver(s, heir, endShipping)
	}
	if moves {
		_ = db.Leave()
	} else {
		_ = db.Close()
	}
	return moves, cause
}

// ship ships with one of three orders: the disk and the log at once, the log first, the disk first.
func (t *stay) ship(s *standby.Shipper) wal.Ship {
	d := t.w.dice(t.run + " ship")
	return func(seq uint64, entry []byte) func() error {
		switch d.n(3) {
		case 0: // a slow disk
			wait := s.Ship(seq, entry)
			err := wait()
			t.point("log has it")
			_ = t.sleep(t.ctx, d.between(0, t.w.plan.latency))
			return func() error { return err }
		case 1: // a slow network
			return func() error {
				t.point("disk has it")
				_ = t.sleep(t.ctx, d.between(0, t.w.plan.latency))
				return s.Ship(seq, entry)()
			}
		}
		return s.Ship(seq, entry)
	}
}

// load commits numbered rows, and notes those that are answered.
func (t *stay) load(ctx context.Context, db *store.DB) {
	d := t.w.dice(t.run + " load")
	for ctx.Err() == nil {
		if t.sleep(ctx, d.between(5*time.Millisecond, 400*time.Millisecond)) != nil {
			return
		}
		if t.w.quiet.Load() {
			continue
		}
		t.commit(db, 1+d.n(3), d.n(3) == 0)
	}
}

// commit commits rows at once and waits for all answers.
func (t *stay) commit(db *store.DB, n int, large bool) {
	t.busy <- struct{}{}
	defer func() { <-t.busy }()
	var all sync.WaitGroup
	for range n {
		id := t.w.row()
		size := 20
		if large {
			size = 900
		}
		k := key(id)
		c := store.Change{Transitions: []edda.Transition{{
			Key: k, Fate: edda.FateHandled, Event: edda.Event{ID: id, Time: time.Unix(1, 0).UTC()},
			Instance: &edda.Instance{Key: k, Version: 1, Status: edda.StatusRunning, State: []byte(`"` + strings.Repeat(id, size/len(id)+1) + `"`)},
		}}}
		all.Go(func() {
			err := db.Commit(context.Background(), c)
			if t.pass() == nil && err == nil { // only a living process answers
				t.w.answered(id)
			}
		})
	}
	all.Wait()
}

func key(id string) edda.Key { return edda.Key{Tenant: "t", Saga: "s", Correlation: id} }

// deliver acts outside as a relay does: behind the fence.
func (t *stay) deliver(ctx context.Context) {
	d := t.w.dice(t.run + " deliver")
	for t.sleep(ctx, d.between(5*time.Millisecond, 200*time.Millisecond)) == nil {
		if t.nodes.Fence().Pass(ctx) == nil && t.acts() {
			t.w.delivers(t.life)
		}
	}
}
