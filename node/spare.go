package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"edda/cluster"
	"edda/internal/backoff"
	"edda/store"
)

// A cluster may have more nodes than a store needs copies. The nodes whose turn it is have them (see [cluster.Holders]);
// each other one is a spare of that store: it only forwards calls.

const (
	// spareEvery is how often a node looks whether it should have a copy.
	spareEvery = time.Second
	// spareAfter is how long the other nodes must have all copies before this one gives its own up.
	spareAfter = 10 * time.Second
	// missedFor is how long a node that is gone still counts: a node that restarts finds its copies.
	missedFor = time.Minute
	// heardWithin is how long a node without a copy, or that has just given its own up, waits for the beats of the others
	// before it decides. A node that knows no other would follow again.
	heardWithin = 2 * cluster.BeatEvery
)

// errSpare ends the stay of a node whose copy is not needed any more. The next stay is another run. So if this run has just
// taken over, the other nodes see that its owner has ended.
var errSpare = errors.New("other nodes have the copies of this store")

// holds reports whether this node should have a copy.
func (t *stay) holds() bool { return slices.Contains(t.holders(), t.node) }

// holders are the nodes that should have a copy: some of those that were here lately.
func (t *stay) holders() []string {
	others, now := t.others(), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range others {
		if !m.Dead {
			t.met[m.ID] = now
		}
	}
	maps.DeleteFunc(t.met, func(_ string, last time.Time) bool { return now.Sub(last) > missedFor })
	known := slices.AppendSeq([]string{t.node}, maps.Keys(t.met))
	return cluster.Holders(t.settings.share.Index, t.settings.Cluster.Copies, known)
}

// spared reports whether the owner lives and enough nodes that should have a copy follow it.
func (t *stay) spared() bool { return enough(t.others(), t.holders(), t.settings.Cluster.Copies) }

// enough reports whether an owner and its followers have as many copies as there should be. Only the holders count: two
// nodes whose copies are not needed would both rely on the other one, and give theirs up.
func enough(nodes []cluster.Member, holders []string, copies int) bool {
	owned, have := false, 1 // the owner's
	for _, m := range nodes {
		switch {
		case m.Dead:
		case m.Beat.Owner:
			owned = true
		case m.Beat.Following && slices.Contains(holders, m.ID):
			have++
		}
	}
	return owned && have >= copies
}

// rest waits while other nodes should have the copies.
func (t *stay) rest(ctx context.Context, sup *systemd) error {
	if t.gaveUp || !store.Exists(t.dir()) {
		if err := backoff.Wait(ctx, heardWithin); err != nil {
			return err
		}
	}
	// A copy that exists is kept until the others have theirs. The founder's may be the only one.
	for told := false; !t.holds() && (t.spared() || !store.Exists(t.dir())); told = true {
		if !told {
			t.log.Info("other nodes have the copies of this store")
			sup.running()
		}
		t.say(func(b *cluster.Beat) { b.Spare, b.Following, b.LSN, b.Problem = true, false, 0, "" })
		t.more.Store(false)
		if err := backoff.Wait(ctx, spareEvery); err != nil {
			return err
		}
	}
	t.say(func(b *cluster.Beat) { b.Spare = false })
	return nil
}

// giveUp calls stop with errSpare when this node's copy has not been needed for some time.
func (t *stay) giveUp(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(spareEvery)
	defer tick.Stop()
	var since time.Time // zero while the copy is needed
	told := ""
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		told = t.tellRole(told)
		switch {
		case t.holds() || !t.spared():
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= spareAfter:
			t.log.Info("this node gives its copy up", zap.Duration("not_needed_for", spareAfter))
			stop(errSpare)
			return
		}
	}
}

// tellRole logs that the role of this node is not that of the owner, unless it has told that. It returns what is told.
func (t *stay) tellRole(told string) string {
	for _, m := range t.others() {
		if m.Dead || !m.Beat.Owner {
			continue
		}
		problem := otherRole(t.beat().Role, m.Beat.Role)
		if problem != "" && problem != told {
			t.log.Warn("this node has another role", zap.String("owner", m.ID), zap.String("problem", problem))
		}
		told = problem
	}
	return told
}
