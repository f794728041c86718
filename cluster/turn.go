package cluster

import "time"

// Several nodes may take a log over. The log decides between those that try at once; the times below have one node
// try as a rule.
const (
	// turnStep is how much later each further node tries. An own record takes less. It is no longer than a beat,
	// because the first node may have started lately: then it convicts the owner after the others.
	turnStep = BeatEvery
	// heirStep is how much later the others try when the owner has chosen a node.
	heirStep = time.Second
)

// Ownership is what a standby knows about the owner of the log.
type Ownership struct {
	Run    string // the writer of the last record; empty if the log has none
	Epoch  uint64 // of that record
	Sealed bool   // that record is a Seal: the owner has stopped
	Heir   string // the node that the Seal names; may be empty
}

// Standing is the situation in which a standby decides whether to take the log over.
type Standing struct {
	Self    string // this node
	LSN     uint64 // of the last record that it has
	Owner   Ownership
	Founder string // the node that may begin an empty log
	Others  []Member
}

// Turn reports whether the node should try to take the log over, and how long after the situation arose. A node
// tries when the owner has handed over, is dead, or was an earlier run of this node. The node with the most
// records tries at once, and the others after it: the owner's choice comes first.
func (s Standing) Turn() (after time.Duration, try bool) {
	switch {
	case s.Owner.Run == "":
		return 0, s.Self == s.Founder
	case s.Owner.Sealed:
	case NodeOf(s.Owner.Run) == s.Self:
		return 0, true
	case !s.ended(s.Owner.Run):
		return 0, false
	}
	if s.Owner.Heir == s.Self {
		return 0, true
	}
	for _, p := range s.Others {
		switch {
		case p.Dead, !p.Beat.Following:
		case p.ID == s.Owner.Heir:
			after += heirStep
		case s.before(p):
			after += turnStep
		}
	}
	return after, true
}

// before reports whether another standby comes before this one.
func (s Standing) before(p Member) bool {
	return p.Beat.LSN > s.LSN || p.Beat.LSN == s.LSN && p.ID < s.Self
}

// ended reports whether the node of a run is convicted, or is in a later run. A node that nobody has heard is
// neither: the detector expects it.
func (s Standing) ended(run string) bool {
	for _, p := range s.Others {
		if p.ID == NodeOf(run) {
			return p.Dead || p.Beat.Run > run
		}
	}
	return false
}
