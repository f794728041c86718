package cluster

import (
	"context"
	"errors"
	"math"
	"time"

	"edda"
)

// Errors of a Log. After ErrFenced or ErrMoved an owner stops at once, without a last append.
var (
	ErrFenced  = errors.New("another node has taken the log over")
	ErrMoved   = errors.New("the log has gone on without this record")
	ErrTrimmed = errors.New("the log has been trimmed behind this place: copy the store of another node")
	ErrAbsent  = errors.New("the log ends before this place")
	// ErrLost says that the log has less than was acknowledged. Whoever took it over would drop that.
	ErrLost = errors.New("the log has lost records")
)

// LostWithin is how long a loss of the log must show before it is believed. A NATS server that has just started, or was
// deposed, may know less than the others for a while.
const LostWithin = 15 * time.Second

// Forever is the sequence up to which a Read follows the log without end.
const Forever = math.MaxUint64

// Visit takes a whole record and the mark behind it.
type Visit func(Mark, Record) error

// Log is the replicated log of one shard.
type Log interface {
	// Append appends a record behind a mark and returns the mark behind the record, or ErrFenced or
	// ErrMoved. With any other error, such as the end of ctx, nobody knows whether the record will be
	// in the log: the caller has no mark to go on with, and must take over again. One goroutine at a
	// time appends.
	Append(ctx context.Context, after Mark, r Record) (Mark, error)

	// Read passes every whole record behind a mark to visit, in order, up to the message with the
	// sequence until; with Forever it follows the log until ctx ends. It returns the first error of
	// visit. ErrTrimmed says that the log no longer has the message behind the mark. Reads may run
	// at the same time as each other and as an append.
	Read(ctx context.Context, after Mark, until uint64, visit Visit) error

	// End returns the last message as the leader knows it, and waits for a leader until ctx ends. A
	// deposed leader may answer, too, so only an acknowledged append proves the end.
	End(ctx context.Context) (Last, error)

	// Find returns a mark behind the record with an LSN, from which a store that has it reads on; State is
	// what that store must have. An empty log has a mark before its beginning. ErrAbsent says that the log ends
	// before, and ErrTrimmed that it begins behind.
	Find(ctx context.Context, lsn uint64) (Mark, error)

	// Trim removes the messages before that of a mark. That one stays, so the log is never empty.
	Trim(ctx context.Context, upto Mark) error
}

// Take makes a node the owner of the log, as far as the log is concerned. It reads what lies behind a
// mark, passes it to visit, and appends an Own record behind it. It returns the mark of that record.
// From then on no record of an earlier epoch is appended, so everything that was ever acknowledged
// has been visited: only now may the node serve. Take goes on until it owns the log or ctx ends, so
// the caller decides whether the node should try.
func Take(ctx context.Context, log Log, after Mark, node string, level int, visit Visit) (Mark, error) {
	for {
		last, err := log.End(ctx)
		if err != nil {
			return Mark{}, err
		}
		if after.Seq > 0 && last.Seq == after.Seq && last.Message.Sum != after.Sum {
			return Mark{}, edda.Classify(edda.Permanent, "message %d is not the one that was there: %w", last.Seq, ErrLost)
		}
		err = log.Read(ctx, after, last.Seq, func(m Mark, r Record) error {
			after = m
			return visit(m, r)
		})
		if err != nil {
			return Mark{}, err
		}
		at, own := barrier(after, last.Seq, node, level)
		owned, err := log.Append(ctx, at, own)
		if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrMoved) {
			return owned, err
		}
	}
}

// barrier is the Own record of a node that has read up to the message with a sequence, and the mark
// to append it behind. The mark is behind the parts of an unfinished record, which become void.
func barrier(after Mark, seq uint64, node string, level int) (Mark, Record) {
	own := after.Own(node, level)
	after.Seq = max(after.Seq, seq)
	return after, own
}
