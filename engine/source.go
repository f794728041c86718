package engine

import (
	"context"
	"time"

	"edda"
)

// Source is every input stream of a saga worker, read as one.
type Source interface {
	// Fetch returns up to max events that are waiting, each stream's in its
	// own order, decoded once; it waits at most wait for the first and returns
	// none when there is none. A message that cannot be an input comes as an
	// Event with Malformed set. A result of the past whose copy comes later is of no
	// stream. Only the engine's intake calls it.
	Fetch(ctx context.Context, max int, wait time.Duration) (Fetched, error)
	// Ends reports, for each stream, how far it must be applied so that
	// everything stored before this call is. It may be called concurrently
	// with Fetch.
	Ends(ctx context.Context) ([]End, error)
}

// Fetched is what one Fetch gives.
type Fetched struct {
	Events []edda.Event
	// Past says that the events lay in the streams when this process began to read,
	// and that everything stored before each of them comes before it: so what was
	// due before it may fire before it.
	Past bool
	// Lived says of events of the past that the process worked when they were stored,
	// as that of a restored store did: what was due between them was not missed.
	Lived bool
}

// End is the end of one stream at one moment.
type End struct {
	Stream string
	// Need is the sequence of the last message meant for the sagas: once it
	// and all before are applied, the stream is at its end.
	Need uint64
	// Last is the stream's last message of any kind; the checkpoint may move
	// there when Need is applied, so that it does not point at messages that expire.
	Last edda.Checkpoint
}
