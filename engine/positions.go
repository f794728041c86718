package engine

import (
	"slices"
	"time"

	"edda"
)

// tidyEvery is how often positions move past messages that are not meant for the sagas. Else
// a position could point at an expired message.
const tidyEvery = 10 * time.Second

// positions are those of the main line in the streams, by stream. The durable one is never
// ahead of the applied one.
type positions struct {
	read       map[string]readPosition    // how far it is taken from the source
	applied    map[string]edda.Checkpoint // evaluated
	durable    map[string]edda.Checkpoint // committed
	created    map[string]time.Time       // when a stream was created; empty until the end poller has reported
	ends       []End                      // as the end poller reported them last
	tidied     time.Time                  // last run of tidy; zero until the end poller has reported
	livedUntil time.Time                  // stored time of the last event that a restored store had lived through
}

func newPositions(durable []edda.Checkpoint) positions {
	p := positions{
		read: map[string]readPosition{}, applied: map[string]edda.Checkpoint{}, durable: map[string]edda.Checkpoint{},
		created: map[string]time.Time{},
	}
	for _, at := range durable {
		p.applied[at.Stream], p.durable[at.Stream], p.read[at.Stream] = at, at, readFrom(at)
	}
	return p
}

// skips returns the position to which a stream moves without an event: its last message,
// when everything meant for the sagas is applied. An end that is older than a batch that is
// applied in part says nothing about the rest of it.
func (p *positions) skips(end End) (to edda.Checkpoint, known, ok bool) {
	at, known := p.applied[end.Stream]
	to = end.Last
	to.Stream = end.Stream
	return to, known, at.Seq >= end.Need && to.Seq >= at.Last() && (to.Seq > at.Seq || !known)
}

// tidy moves positions past messages that are not meant for the sagas. It writes the first
// position of a stream, which identifies the stream by its creation time.
func (v *loop) tidy(s endOffsets) {
	if s.at.Sub(v.positions.tidied) < tidyEvery || v.recovering() || v.inFlight.batches >= pipelineDepth {
		return
	}
	v.positions.tidied = s.at
	t := &set{n: v.inFlight.lastSet + 1, last: true}
	for _, end := range s.ends {
		if to, _, ok := v.positions.skips(end); ok {
			t.move(to)
		}
	}
	if len(t.change.Checkpoints) > 0 {
		v.submit([]*set{t}, nil)
	}
}

// piggyback does the work of tidy with a set that commits anyway. With the hand-off, most
// messages of the results' stream are echoes, which are not meant for the sagas.
func (v *loop) piggyback(sets []*set) {
	for _, end := range v.positions.ends {
		moved := slices.ContainsFunc(sets, func(s *set) bool { return s.moves(end.Stream) })
		if to, known, ok := v.positions.skips(end); ok && known && !moved {
			sets[len(sets)-1].move(to)
		}
	}
}
