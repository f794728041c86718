// Package outbox carries the work of committed transitions out. The relay reads
// the store's outbox in commit order, gives each row to the destination of its
// kind, and removes it once it was accepted.
//
// What it promises: every row is delivered at least once, under the same id;
// rows of one instance for one destination are accepted in commit order, also
// across failures; a destination that does not answer stops neither the other
// destinations nor, where only some rows fail, the other instances. Order over
// different destinations is kept while they answer: once one fails, an
// instance's later rows for the others pass it by. Nothing passes by the copy of a
// result, on which all that comes after it rests.
//
// What it refuses: to hold more than a bounded number of rows in memory (the
// rest waits in the store), to give up on a row that may still be accepted, and
// to remove an effect's row, which stays until its result is committed.
package outbox

import (
	"context"
	"fmt"

	"edda"
)

// Destination takes work somewhere. One implementation serves one [Lane].
type Destination interface {
	// Deliver offers a batch and returns when the fate of every item is known:
	// errs[i] is nil when item i was accepted durably; a nil slice
	// means all were. Anything else is offered again later, so receivers must tolerate
	// duplicates (by Work.ID); a *Rejection is final. No two items of a batch,
	// nor of two calls at once, come from the same instance, so the items may
	// go out in any order or all at once. Deliver is called concurrently up to
	// Lane.Parallel times. It ends soon after ctx does, and keeps nothing of the slice.
	//
	// An *edda.Classified error with After says when to offer again, at the earliest.
	Deliver(ctx context.Context, batch []edda.Work) (errs []error)
}

// Taker is a destination that may take some work at once, so that it waits neither for
// a batch nor for one that is under way.
type Taker interface {
	// Take is true where it has accepted the item, durably, which tells nothing of how the
	// destination is; else the item is given to Deliver. It returns at once and is never called concurrently. What it
	// took may be kept: nobody changes it.
	Take(w *edda.Work) bool
}

// Rejecter tells a saga that a piece of its work was refused for good.
type Rejecter interface {
	// Reject publishes a Failed result for the work, and returns when the
	// stream has stored it: for a command a result of the effect "command",
	// for an effect one of that effect, with command id w.ID, payload {code,
	// message, status} and metadata saga, key and step of w. A start is answered
	// likewise. A child's end that cannot be sent is told to its parent: TimedOut
	// where the child succeeded. A Permanent error says that nobody can be told;
	// then it becomes a dead letter. It may be called concurrently, and again for
	// the same work.
	Reject(ctx context.Context, w edda.Work, r Rejection) error
}

// Rejection is a destination's final no. It is edda.Permanent.
type Rejection struct {
	Code    string // a word or a number that handlers compare
	Message string
	Status  int // of an HTTP answer; else 0
}

func (r *Rejection) Error() string { return fmt.Sprintf("rejected: %s: %s", r.Code, r.Message) }

// Unwrap makes errors.Is(r, edda.Permanent) true.
func (r *Rejection) Unwrap() error { return edda.Permanent }

// Lane is a destination and what goes there. The zero values of its numbers
// mean the defaults.
type Lane struct {
	// Name is the metric label: "jetstream", "gateway".
	Name        string
	Kinds       []edda.WorkKind
	Destination Destination
	Batch       int // most items in one Deliver
	Parallel    int // most Delivers at once
}
