package stream

import (
	"context"
	"sync"
	"time"

	"edda"
)

const (
	// bufferEvents bounds the decoded events of one stream that wait for the engine. It is two of
	// the engine's largest batches, so that the engine never waits for the network.
	bufferEvents = 2048
	// bufferBytes bounds their payloads. The events of one message always fit.
	bufferBytes = 16 << 20
)

// buffer holds the decoded events of one stream, for one producer and one consumer.
type buffer struct {
	room chan struct{} // capacity 1: take has made room

	mu     sync.Mutex // guards the fields below
	events []edda.Event
	bytes  int
}

func newBuffer() *buffer { return &buffer{room: make(chan struct{}, 1)} }

// put adds the events of one message, and waits while there is no room.
func (b *buffer) put(ctx context.Context, events ...edda.Event) error {
	for !b.tryPut(events) {
		select {
		case <-b.room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *buffer) tryPut(events []edda.Event) bool {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) > 0 && (len(b.events)+len(events) > bufferEvents || b.bytes+bytes > bufferBytes) {
		return false
	}
	b.events = append(b.events, events...)
	b.bytes += bytes
	return true
}

func (b *buffer) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events)
}

// peek returns the store times of the events that take would remove.
func (b *buffer) peek(n, bytes int) storedTimes {
	b.mu.Lock()
	defer b.mu.Unlock()
	size, w := 0, storedTimes{times: make([]time.Time, 0, min(n, len(b.events)))}
	for i := range b.events[:min(n, len(b.events))] {
		w.times = append(w.times, b.events[i].StoredAt())
		if size += len(b.events[i].Payload); size >= bytes {
			break
		}
	}
	w.complete = len(w.times) == len(b.events)
	return w
}

// take removes up to n events. The event that exceeds the bytes is the last.
func (b *buffer) take(n, bytes int) []edda.Event {
	if n == 0 {
		return nil
	}
	b.mu.Lock()
	n = b.fitting(min(n, len(b.events)), bytes)
	out := append([]edda.Event(nil), b.events[:n]...)
	rest := copy(b.events, b.events[n:])
	clear(b.events[rest:]) // frees the payloads
	b.events = b.events[:rest]
	b.mu.Unlock()
	select {
	case b.room <- struct{}{}:
	default:
	}
	return out
}

// fitting is how many of the first n events to take, and counts them as gone.
func (b *buffer) fitting(n, bytes int) int {
	size := 0
	for i, ev := range b.events[:n] {
		size += len(ev.Payload)
		if b.bytes -= len(ev.Payload); size >= bytes {
			return i + 1
		}
	}
	return n
}
