package engine

import (
	"context"

	"edda"
)

// Source is every input stream of a saga worker, read as one.
type Source interface {
	// Ready is signalled (capacity 1, never closed) when there is something to take.
	Ready() <-chan struct{}
	// Take returns up to max events that are waiting, each stream's in its own order,
	// decoded once, and none when there is none. It does not wait. Where it returned some,
	// Ready is signalled again. While the engine takes events in, it calls Take several times
	// a second, also where Ready is silent. A message that cannot be an input comes as an Event with
	// Malformed set. A result of the past whose echo comes later is of no stream. Only the
	// engine's loop calls Take and Hold.
	Take(max int) Fetched
	// Hold leaves new events in their streams, or lets them come again. Answers to work
	// that went out come all the while.
	Hold(held bool)
	// Ends reports, for each stream, how far it must be applied so that
	// everything stored before this call is. It may be called concurrently
	// with Take.
	Ends(ctx context.Context) ([]End, error)
}

// Fetched is what a source gives at once.
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
