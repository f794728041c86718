package engine

import (
	"context"

	"edda"
)

// Source reads all input streams of a saga worker as one.
type Source interface {
	// Ready is signalled (capacity 1, never closed) when there is something to take.
	Ready() <-chan struct{}
	// Take returns up to max buffered events, decoded, those of each stream in its order. It
	// does not wait. If it returns any, Ready is signalled again. The engine also calls it
	// several times a second without that signal. A message that cannot be an input comes as
	// an Event with Malformed set. A result of the past whose echo comes later has no stream.
	// Only the engine's loop calls Take and Hold.
	Take(max int) Fetched
	// Hold leaves new events in their streams, or resumes them. Results come all the while.
	Hold(held bool)
	// Ends reports how far each stream must be applied to cover everything that was stored
	// before this call. It may be called concurrently with Take.
	Ends(ctx context.Context) ([]End, error)
}

// Fetched is one fetch from a source.
type Fetched struct {
	Events []edda.Event
	// Past says that the events lay in the streams when this process began to read. Everything
	// stored before such an event comes before it, so timers due before it may fire before it.
	Past bool
	// Lived says that a process ran when these past events were stored, as before a restore of
	// its store. So no timer due between them was missed.
	Lived bool
}

// End is the end offset of one stream at one moment.
type End struct {
	Stream string
	// Need is the sequence of the last message meant for the sagas. When all messages up to it
	// are applied, the stream is applied to its end.
	Need uint64
	// Last is the stream's last message of any kind. The checkpoint may move there when Need
	// is applied, so that it does not point at an expired message.
	Last edda.Checkpoint
}
