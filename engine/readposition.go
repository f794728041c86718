package engine

import (
	"cmp"

	"edda"
)

// readPosition is how far a stream is read: all messages up to seq, and of the next one the members that
// within has.
type readPosition struct {
	seq    uint64
	within *edda.Partly
}

// readWith is how far a stream is read once the event is.
func readWith(ev *edda.Event) readPosition {
	if ev.More {
		return readPosition{ev.Seq - 1, &edda.Partly{Seq: ev.Seq, Time: ev.StoredAt(), Members: ev.Member}}
	}
	return readPosition{seq: ev.Seq}
}

// readFrom is how far a stream is read where reading begins at a checkpoint.
func readFrom(at edda.Checkpoint) readPosition { return readPosition{at.Seq, at.Partly} }

func (r readPosition) has(ev *edda.Event) bool {
	return ev.Seq <= r.seq || r.within != nil && edda.Checkpoint{Partly: r.within}.Covers(ev)
}

// further returns the further one of both.
func (r readPosition) further(other readPosition) readPosition {
	members := func(r readPosition) int {
		if r.within == nil {
			return 0
		}
		return r.within.Members
	}
	if cmp.Or(cmp.Compare(r.seq, other.seq), cmp.Compare(members(r), members(other))) < 0 {
		return other
	}
	return r
}
