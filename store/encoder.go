package store

import "edda"

// Encoder encodes transitions and results before their change is submitted, so that several
// goroutines can encode at once, and the submitter knows sizes. It is for one goroutine at a time.
// Its memory is used again: what it encoded is valid until [Encoder.Reset].
type Encoder struct {
	encoder
	transitions []encodedTransition
	claims      []encodedClaim
}

// Encoded is the rows of a transition, or of a handed-in result with its claim and its echo.
type Encoded struct {
	transition *encodedTransition
	claim      *encodedClaim
	work       []encodedWork
	size       int
	err        error // why it can never be written: the store refuses its change
}

// Size is the bytes of its rows.
func (e *Encoded) Size() int { return e.size }

// Transition encodes a transition. The caller must not modify it any more.
func (e *Encoder) Transition(t *edda.Transition) Encoded {
	before := e.size
	out, err := e.transition(t)
	if err != nil {
		return Encoded{err: unwritable(t, err)}
	}
	e.transitions = append(e.transitions, out)
	return Encoded{transition: &e.transitions[len(e.transitions)-1], size: e.size - before}
}

// Result encodes a claim with its result, and the echo of the result.
func (e *Encoder) Result(c *edda.Claim, echo *edda.Work) Encoded {
	before := e.size
	claim, err := e.claim(c)
	if err == nil {
		e.claims = append(e.claims, claim)
		err = e.send(echo)
	}
	if err != nil {
		return Encoded{err: edda.Classify(edda.Poison, "encode the result of %s: %w", c.CommandID, err)}
	}
	n := len(e.list)
	return Encoded{claim: &e.claims[len(e.claims)-1], work: e.list[n-1 : n : n], size: e.size - before}
}

// Reset frees the memory for the next use. Call it once all changes with its rows are committed and
// answered.
func (e *Encoder) Reset() {
	clear(e.transitions)
	clear(e.claims)
	clear(e.list)
	e.values.arena.reset()
	*e = Encoder{
		encoder:     encoder{values: e.values, list: e.list[:0], record: e.record},
		transitions: e.transitions[:0], claims: e.claims[:0],
	}
}
