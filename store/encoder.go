package store

import "edda"

// Encoder encodes what inputs change before their change is submitted, so that several
// goroutines can encode at once and the submitter knows the size of what it submits. One
// goroutine at a time may use it. What it encoded stays valid until [Encoder.Reset].
type Encoder struct {
	encoder
	transitions []encodedTransition
	claims      []encodedClaim
	// kept is set by the committer where the store reads the rows after it has answered:
	// a compaction does.
	kept bool
}

// Encoded is a transition, or a result that was handed in with its claim and its echo, as
// the rows that a commit writes. It stands in the change in their place.
type Encoded struct {
	from       *Encoder
	transition *encodedTransition
	claim      *encodedClaim
	work       []encodedWork
	size       int
	err        error // why it can never be written; the store refuses a change that has it
}

// Size is the number of bytes of its rows.
func (e *Encoded) Size() int { return e.size }

// Transition encodes a transition, which must not change any more.
func (e *Encoder) Transition(t *edda.Transition) Encoded {
	before := e.size
	out, err := e.transition(t)
	if err != nil {
		return Encoded{from: e, err: unwritable(t, err)}
	}
	e.transitions = append(e.transitions, out)
	return Encoded{from: e, transition: &e.transitions[len(e.transitions)-1], size: e.size - before}
}

// Result encodes the claim that holds a result, and the work that tells others of it.
func (e *Encoder) Result(c *edda.Claim, echo *edda.Work) Encoded {
	before := e.size
	claim, err := e.claim(c)
	if err == nil {
		e.claims = append(e.claims, claim)
		err = e.send(echo)
	}
	if err != nil {
		return Encoded{from: e, err: edda.Classify(edda.Poison, "encode the result of %s: %w", c.CommandID, err)}
	}
	n := len(e.list)
	return Encoded{from: e, claim: &e.claims[len(e.claims)-1], work: e.list[n-1 : n : n], size: e.size - before}
}

// Reset makes the encoder's memory free for what comes next. Call it when every change
// with something of it has been answered, and was committed.
func (e *Encoder) Reset() {
	if e.kept {
		*e = Encoder{}
		return
	}
	clear(e.transitions)
	clear(e.claims)
	clear(e.list)
	e.values.arena.reset()
	*e = Encoder{
		encoder:     encoder{values: e.values, list: e.list[:0], record: e.record},
		transitions: e.transitions[:0], claims: e.claims[:0],
	}
}

// keep says that the store reads the rows of a change after it has answered.
func keep(group []*job) {
	for _, j := range group {
		for i := range j.change.ready {
			j.change.ready[i].from.kept = true
		}
	}
}
