package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/server"
)

// maxMoveLag is the most records that a node may be behind when the store is handed over to it.
const maxMoveLag = 1000

// served is what the HTTP server shows of the cluster; nil for a process that is alone.
func (t *stay) served() server.Cluster {
	if t == nil {
		return nil
	}
	return t
}

// processStatus is the status of a standby.
func (t *stay) processStatus(context.Context) server.ProcessStatus {
	b := t.beat()
	s := server.ProcessStatus{Components: map[string]server.ComponentStatus{"jetstream": component(t.connected())}}
	switch {
	case b.Problem != "":
		s.NotReady = b.Problem
	case !b.Following && !b.Spare:
		s.NotReady = "this node has no copy of the store yet"
	}
	s.Components["copy"] = server.ComponentStatus{State: "up"}
	if s.NotReady != "" {
		s.Components["copy"] = server.ComponentStatus{State: "down", Problem: s.NotReady}
	}
	s.NotReady = cmp.Or(s.NotReady, s.Components["jetstream"].Problem)
	return s
}

// drainBy returns the drain of a standby, which has nothing to bring to an end.
func (t *stay) drainBy(stop func()) func(context.Context, server.Operator) server.Drain {
	return func(_ context.Context, who server.Operator) server.Drain {
		t.log.Info("this node stops", zap.String("by", who.By), zap.String("why", who.Why))
		stop()
		return server.Drain{Draining: true}
	}
}

// connected returns why NATS is not reached.
func (t *stay) connected() error {
	if t.nodes.Load() == nil {
		return errors.New("not reached yet")
	}
	return t.reached()
}

// Status returns what this node knows of the cluster.
func (t *stay) Status(context.Context) server.ClusterStatus {
	b, others := t.beat(), t.others()
	t.mu.Lock()
	store := t.agreed.Store
	t.mu.Unlock()
	s := server.ClusterStatus{
		Name: t.settings.Cluster.Name, StoreID: store, Node: t.node, Epoch: b.Epoch, Level: t.level(), LSN: b.LSN,
	}
	silence := time.Duration(0) // while it lasts, the silence of the others does not grow
	if n := t.nodes.Load(); n != nil && n.Silence() > cluster.DeadAfter {
		silence = n.Silence()
		s.Problem = fmt.Sprintf("NATS has taken no beat of node %s for %s: what it knows of the others may be old", t.node, silence.Round(time.Second))
	}
	all := append(others, cluster.Member{Node: cluster.Node{ID: t.node}, Beat: b})
	for _, m := range all {
		if m.Beat.Owner && !m.Dead {
			s.LSN, s.Epoch = max(s.LSN, m.Beat.LSN), max(s.Epoch, m.Beat.Epoch)
		}
	}
	role := "" // of the owner
	for _, m := range all {
		if m.Beat.Owner && !m.Dead && m.Beat.Epoch == s.Epoch {
			role = m.Beat.Role
		}
	}
	for _, m := range all {
		n := server.ClusterNode{
			Node: m.ID, URL: m.Beat.URL, Role: server.NodeJoining, State: server.NodeAlive, Version: m.Beat.Version, Level: m.Beat.Level,
			Epoch: m.Beat.Epoch, LSN: m.Beat.LSN, Lag: s.LSN - min(s.LSN, m.Beat.LSN), Since: m.Beat.Since,
			BeatAge: m.Silence.Milliseconds(), Revision: m.Beat.Revision, Manifests: m.Beat.Manifests, Problem: cmp.Or(m.Beat.Problem, otherRole(m.Beat.Role, role)),
		}
		if m.Beat.Owner && !m.Dead && m.Beat.Epoch == s.Epoch {
			s.Owner = m.ID
		}
		switch {
		case m.Dead:
			n.State = server.NodeDead
		case silence > 0 && m.ID != t.node:
			n.State, n.BeatAge = server.NodeUnknown, (m.Silence + silence).Milliseconds()
		}
		switch {
		case m.ID == s.Owner:
			n.Role, n.Lag = server.NodeOwner, 0
		case m.Beat.Following, m.Beat.Owner:
			n.Role = server.NodeStandby
		case m.Beat.Spare:
			n.Role, n.Lag = server.NodeSpare, 0
		}
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b server.ClusterNode) int { return strings.Compare(a.Node, b.Node) })
	if s.Problem == "" {
		s.Problem = problemOf(s)
	}
	return s
}

// problemOf is what an operator should know first.
func problemOf(s server.ClusterStatus) string {
	if s.Owner == "" {
		return "no node owns the store now"
	}
	for _, n := range s.Nodes {
		if n.State == server.NodeAlive && n.Role == server.NodeStandby {
			return ""
		}
	}
	return "no other node has a copy of the store that could take over: the loss of this machine loses it"
}

// Owner returns where the owner answers.
func (t *stay) Owner() (string, bool) {
	url, _, err := t.ownerURL()
	return url, err == nil
}

// Move stops the process of this node, which owns the store, and has another node take over.
func (t *stay) Move(ctx context.Context, to string, who server.Operator) (server.ClusterMove, error) {
	s := t.shipper.Load()
	if s == nil || s.Err() != nil {
		return server.ClusterMove{}, edda.Classify(edda.Temporary, "node %s does not own the store", t.node)
	}
	if err := s.Confirm(ctx); err != nil { // a node that was paused may not know yet that another one owns the store
		return server.ClusterMove{}, edda.Classify(edda.Temporary, "node %s does not own the store: %w", t.node, err)
	}
	if to == "" {
		to = t.bestCopy()
		if to == "" {
			return server.ClusterMove{}, edda.Classify(edda.Temporary, "no other node has a copy of the store that could take over")
		}
	}
	if err := t.mayTake(to); err != nil {
		return server.ClusterMove{}, err
	}
	t.mu.Lock()
	stop, moving := t.stopProcess, t.moves
	if stop != nil && !moving {
		t.moves, t.heir = true, to
	}
	heir := t.heir
	t.mu.Unlock()
	switch {
	case stop == nil:
		return server.ClusterMove{}, edda.Classify(edda.Temporary, "node %s has just taken the store over", t.node)
	case moving:
		return server.ClusterMove{}, edda.Classify(edda.Temporary, "node %s hands the store over to %s already", t.node, heir)
	}
	t.log.Info("the store moves", zap.String("to", to), zap.String("by", who.By), zap.String("why", who.Why))
	t.audited(ctx, who, edda.ActMove, fmt.Sprintf("the store moves from %s to %s", t.node, to)) // before the stop, which ends commits
	stop()
	return server.ClusterMove{From: t.node, To: to, Epoch: s.Mark().Epoch}, nil
}

// mayTake returns why a node cannot take over now.
func (t *stay) mayTake(node string) error {
	if node == t.node {
		return edda.Classify(edda.Permanent, "node %s owns the store already", node)
	}
	others := t.others()
	i := slices.IndexFunc(others, func(m cluster.Member) bool { return m.ID == node })
	if i < 0 {
		return fmt.Errorf("%s: %w", node, server.ErrNoSuchNode)
	}
	m := others[i]
	behind := t.beat().LSN - min(t.beat().LSN, m.Beat.LSN)
	switch {
	case m.Dead:
		return edda.Classify(edda.Permanent, "node %s is dead", node)
	case m.Beat.Spare:
		return edda.Classify(edda.Permanent, "node %s is a spare, which has no copy of the store: nodes with a copy are %q", node, t.copies())
	case !m.Beat.Following && m.Beat.Problem == "":
		return edda.Classify(edda.Permanent, "node %s has no copy of the store yet: wait until edda cluster status shows it as a standby", node)
	case !m.Beat.Following:
		return edda.Classify(edda.Permanent, "node %s has no copy of the store yet: %s", node, m.Beat.Problem)
	case m.Beat.Level < t.level():
		return edda.Classify(edda.Permanent, "node %s knows the level %d, and the cluster has %d: upgrade it first", node, m.Beat.Level, t.level())
	case behind > maxMoveLag:
		return edda.Classify(edda.Permanent, "node %s is %d records behind, and %d are allowed: wait until it has them", node, behind, maxMoveLag)
	}
	return nil
}

// copies are the living standbys.
func (t *stay) copies() (nodes []string) {
	for _, m := range t.others() {
		if !m.Dead && m.Beat.Following {
			nodes = append(nodes, m.ID)
		}
	}
	return nodes
}

// agreeWithin bounds a write to the cluster's bucket.
const agreeWithin = 5 * time.Second

// Finalize raises the level of the cluster to the highest that all its nodes know.
func (t *stay) Finalize(ctx context.Context, who server.Operator) (int, error) {
	level := cluster.Level
	for _, m := range t.others() {
		if m.Beat.Level == 0 { // it has not been heard
			return 0, edda.Classify(edda.Permanent, "node %s has not said which level it knows", m.ID)
		}
		level = min(level, m.Beat.Level)
	}
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	if err := t.nodes.Load().Raise(ctx, level); err != nil {
		return 0, edda.Classify(edda.Temporary, "%w", err)
	}
	t.log.Info("the level of the cluster is raised", zap.Int("level", level), zap.String("by", who.By), zap.String("why", who.Why))
	t.audited(ctx, who, edda.ActFinalize, fmt.Sprintf("the level of the cluster is %d", level))
	return level, nil
}

// Forget removes what the other nodes know of a dead node.
func (t *stay) Forget(ctx context.Context, node string, who server.Operator) error {
	others := t.others()
	i := slices.IndexFunc(others, func(m cluster.Member) bool { return m.ID == node })
	switch {
	case node == t.node:
		return edda.Classify(edda.Permanent, "node %s is alive: it owns the store", node)
	case i < 0:
		return fmt.Errorf("%s: %w", node, server.ErrNoSuchNode)
	case !others[i].Dead:
		return edda.Classify(edda.Permanent, "node %s is alive: stop it first", node)
	}
	ctx, cancel := context.WithTimeout(ctx, agreeWithin)
	defer cancel()
	if err := t.nodes.Load().Forget(ctx, node); err != nil {
		return edda.Classify(edda.Temporary, "%w", err)
	}
	t.log.Info("a node is forgotten", zap.String("forgotten", node), zap.String("by", who.By), zap.String("why", who.Why))
	t.audited(ctx, who, edda.ActForget, fmt.Sprintf("node %s is forgotten", node))
	return nil
}

// audited writes an act on the cluster into the audit of the store, which the process of this node owns.
func (t *stay) audited(ctx context.Context, who server.Operator, verb, detail string) {
	t.mu.Lock()
	audit := t.audit
	t.mu.Unlock()
	if audit != nil {
		audit(ctx, who, verb, detail)
	}
}

// why says for the metrics why this node took the store over.
func (t *stay) why() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.owner.Run == "":
		return "founded"
	case t.owner.Sealed:
		return "handed over"
	case cluster.NodeOf(t.owner.Run) == t.node:
		return "restarted"
	}
	return "death"
}
