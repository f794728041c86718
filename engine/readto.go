package engine

import (
	"cmp"

	"edda"
)

// readTo is how far a stream is read: all messages up to seq, and of the next one the members that
// within has.
type readTo struct {
	seq    uint64
	within *edda.Partly
}

// readUpTo is how far a stream is read with the event.
func readUpTo(ev *edda.Event) readTo {
	if ev.More {
		return readTo{ev.Seq - 1, &edda.Partly{Seq: ev.Seq, Time: ev.StoredAt(), Members: ev.Member}}
	}
	return readTo{seq: ev.Seq}
}

// readFrom is how far a stream is read where reading begins at a checkpoint.
func readFrom(at edda.Checkpoint) readTo { return readTo{at.Seq, at.Partly} }

func (r readTo) has(ev *edda.Event) bool {
	return ev.Seq <= r.seq || r.within != nil && edda.Checkpoint{Partly: r.within}.Covers(ev)
}

// further returns the further one of both.
func (r readTo) further(other readTo) readTo {
	members := func(r readTo) int {
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
