// Package outbox delivers the work of committed transitions. The relay reads the store's outbox in
// commit order and gives each row to the destination of its kind. It removes a row once the
// destination has accepted it.
//
// The relay promises:
//
//   - Delivery at least once: it offers a row under the same id until the destination accepts it.
//   - Order: a destination accepts the rows of one instance in commit order, also across failures.
//   - Isolation: a failing destination stops no other destination. Where only some rows fail,
//     it stops no other instance either.
//
// The relay keeps the order between different destinations only while they answer. Once one fails,
// an instance's later rows for the others overtake its row. No later row of the instance overtakes
// the echo of a result, because the later work depends on that result.
//
// The relay refuses three things. It does not hold more than a bounded number of rows in memory;
// the other rows wait in the store. It does not give up on a row that a destination may still
// accept. It does not remove an effect's row, which stays until its result is committed.
package outbox

import (
	"context"
	"fmt"

	"edda"
)

// Destination delivers work to one receiver. One implementation serves one [Route].
type Destination interface {
	// Deliver sends the batch and returns when the outcome of every item is known: errs[i] is nil
	// when item i was accepted durably, and a nil slice means that all were. The relay offers
	// other items again, so receivers must tolerate duplicates (by Work.ID). A *Rejection is
	// final. No two items of a batch or of concurrent calls come from the same instance. So the
	// items may go out in any order or all at once. Deliver is called concurrently up to
	// Route.Parallel times. It returns soon after ctx ends, and keeps nothing of the slice.
	//
	// An *edda.Classified error with After sets the earliest time of the next offer.
	Deliver(ctx context.Context, batch []edda.Work) (errs []error)
}

// Taker is a destination that can accept some work at once. Such work waits neither to be batched
// nor for a batch in flight.
type Taker interface {
	// Take reports whether it accepted the item durably. That says nothing about the health of the
	// destination. The relay gives an item that was not accepted to Deliver. Take does not block
	// and is never called concurrently. The destination may keep an accepted item, because the
	// relay does not change it any more.
	Take(w *edda.Work) bool
}

// Rejecter tells a saga that a destination has refused a piece of its work for good.
type Rejecter interface {
	// Reject publishes a Failed result for the work, and returns when the stream has stored it. A
	// command gets a result of the effect "command", an effect gets one of that effect. The result
	// has the command id w.ID, the payload {code, message, status}, and the saga, key and step of
	// w as metadata. A start gets the same answer. For a child's end that cannot be sent, the
	// parent gets TimedOut where the child succeeded. A Permanent error says that no saga can
	// receive the result; then the work becomes a dead letter. Reject may be called concurrently,
	// and again for the same work.
	Reject(ctx context.Context, w edda.Work, r Rejection) error
}

// Rejection is a destination's final refusal. It is edda.Permanent.
type Rejection struct {
	Code    string // a word or a number that handlers compare
	Message string
	Status  int // of an HTTP answer, otherwise 0
}

func (r *Rejection) Error() string { return fmt.Sprintf("rejected: %s: %s", r.Code, r.Message) }

// Unwrap makes errors.Is(r, edda.Permanent) true.
func (r *Rejection) Unwrap() error { return edda.Permanent }

// Route is a destination and the kinds of work that go to it. Zero numbers mean the defaults.
type Route struct {
	// Name is the label in the metrics: "jetstream", "gateway".
	Name        string
	Kinds       []edda.WorkKind
	Destination Destination
	Batch       int // bound of the items in one Deliver
	Parallel    int // bound of the concurrent Delivers
}
