package cluster

import (
	"cmp"
	"slices"
	"time"
)

// The times of failure detection. An owner stops acting at LapseAfter since its last accepted beat, so before
// another node can take it for dead.
const (
	// BeatEvery is the interval of a node's beats.
	BeatEvery = 500 * time.Millisecond
	// DeadAfter is the silence after which a node is suspected: five beats as a rule. It is a little less, because their
	// intervals are not exact, and a sixth one would take half a second more.
	DeadAfter = 2400 * time.Millisecond
	// LapseAfter is how long a node may act since it sent its last accepted beat.
	LapseAfter = 2 * time.Second
	// maxStep bounds the silence that one own beat adds. It is a beat on a busy machine.
	maxStep = 700 * time.Millisecond
)

// Detector decides which nodes are dead. Each node writes a beat, its own key in a replicated table, and watches
// the beats of the others. Each accepted write has a revision, which grows.
//
// A node's silence is measured in own beats that were accepted, so a table that takes no writes, as during an
// election, silences nobody. Neither does a clock that jumps: one beat adds at most maxStep. A suspicion comes
// from the watch, which may be behind; the leader's answer confirms or clears it. So a conviction means that the
// table took our beats for DeadAfter and none of the other node.
//
// The leader that answers may have been deposed. So a conviction only says who should try to take over; the
// log decides who does.
//
// The times are those of one clock that also advances while the process or the machine is paused, and of no
// other node. The zero value is not usable; use NewDetector. A Detector is not safe for concurrent use.
type Detector struct {
	nodes    map[string]*peer
	expected string        // the owner of the log; see Expect
	revision uint64        // of the last own beat
	sent     time.Duration // when it was sent
}

// peer is what a detector knows of another node.
type peer struct {
	revision uint64
	seen     time.Duration // when we learned of that revision
	silence  time.Duration // since then, in own accepted beats
	dead     bool
}

// NewDetector returns a detector that knows no other node.
func NewDetector() *Detector { return &Detector{nodes: map[string]*peer{}} }

// Accepted handles an own beat that was accepted, with the time before it was sent. It returns the nodes whose
// keys must be read from the leader: see Looked. They are returned again with each beat until something is known.
func (d *Detector) Accepted(sent time.Duration, revision uint64) (suspects []string) {
	if revision <= d.revision { // the table was made anew, and its revisions begin again
		for _, n := range d.nodes {
			n.revision, n.seen, n.silence = 0, sent, 0
		}
		d.revision = 0
	}
	before, first := d.sent, d.revision == 0
	d.sent, d.revision = sent, revision
	if first {
		return nil
	}
	step := min(sent-before, maxStep)
	for id, n := range d.nodes {
		if before < n.seen { // the node may have been heard during this step
			continue
		}
		if n.silence += step; n.silence >= DeadAfter && !n.dead {
			suspects = append(suspects, id)
		}
	}
	slices.Sort(suspects)
	return suspects
}

// Expect sets the owner of the log; an empty id says that no other node owns it. The detector counts the silence of the
// owner also if the table has no beat of it. It forgets the owner before, unless that one has a beat.
func (d *Detector) Expect(id string, now time.Duration) {
	if p := d.nodes[d.expected]; d.expected != id && p != nil && p.revision == 0 {
		delete(d.nodes, d.expected)
	}
	if d.expected = id; id != "" && d.nodes[id] == nil {
		d.nodes[id] = &peer{seen: now}
	}
}

// Lives handles another sign of life than a beat: a record of the log that the node has just written. A conviction
// before it is void, also if its beats have not been seen since.
func (d *Detector) Lives(id string, now time.Duration) {
	d.Expect(id, now)
	n := d.nodes[id]
	n.seen, n.silence, n.dead = now, 0, false
}

// Saw handles a revision of another node's key, from the watch or from a read. A later revision than the last
// known one shows that the node lives. It reports whether a dead node has come back.
func (d *Detector) Saw(id string, revision uint64, now time.Duration) (back bool) {
	n := d.nodes[id]
	if n == nil {
		n = &peer{}
		d.nodes[id] = n
	}
	if revision <= n.revision {
		return false
	}
	back = n.dead
	*n = peer{revision: revision, seen: now}
	return back
}

// Looked handles the leader's answer about a suspect: the revision of its beat, 0 if the table has none. It reports
// whether the node is now convicted.
func (d *Detector) Looked(id string, revision uint64, now time.Duration) (convicted bool) {
	n := d.nodes[id]
	switch {
	case n == nil || n.dead || revision < n.revision: // a deposed leader knows less than we do
		return false
	case revision > n.revision:
		d.Saw(id, revision, now)
		return false
	}
	n.dead = n.silence >= DeadAfter // it may have been heard since it was suspected
	return n.dead
}

// Known is the revision of the last beat of a node that is known; 0 without any.
func (d *Detector) Known(id string) uint64 {
	if n := d.nodes[id]; n != nil {
		return n.revision
	}
	return 0
}

// Left handles a node that has deleted its key, because it stopped.
func (d *Detector) Left(id string) { delete(d.nodes, id) }

// Node is what a detector knows of another node.
type Node struct {
	ID       string
	Revision uint64
	Silence  time.Duration // in own accepted beats
	Dead     bool
}

// Nodes returns the other nodes, by id.
func (d *Detector) Nodes() []Node {
	out := make([]Node, 0, len(d.nodes))
	for id, n := range d.nodes {
		out = append(out, Node{ID: id, Revision: n.revision, Silence: n.silence, Dead: n.dead})
	}
	slices.SortFunc(out, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
