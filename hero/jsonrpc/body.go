package jsonrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// bodyWait bounds the time in which a client sends a request: 10 MiB over a slow line.
	bodyWait = 30 * time.Second
	// anonymousBodyWait is bodyWait for a client that is not authenticated.
	anonymousBodyWait = 10 * time.Second
	// smallBody is the size up to which a request needs no room: large requests never keep
	// small ones waiting.
	smallBody = 64 << 10
	// maxBodies bounds the bytes of all larger requests together, from their arrival to
	// their answer. Their decoded objects take about four times as much.
	maxBodies = 128 << 20
	// maxAnonymousBodies is maxBodies for clients that are not authenticated.
	maxAnonymousBodies = 32 << 20
)

// errTooBig means that a body is larger than MaxBody.
var errTooBig = errors.New("the request is too big")

// errNoRoom means that other requests hold all the room for bodies.
var errNoRoom = errors.New("too many large requests at once, try again")

// anonymousKey is the key of a context whose caller is not authenticated yet.
type anonymousKey struct{}

// Anonymous marks the context of a request whose caller is not known before its body is
// read. Auth returns it if the secret is among the parameters. Such requests share a
// smaller room and have less time to arrive.
func Anonymous(ctx context.Context) context.Context {
	return context.WithValue(ctx, anonymousKey{}, true)
}

func isAnonymous(ctx context.Context) bool { return ctx.Value(anonymousKey{}) != nil }

// held is the part of the room for bodies that one body holds.
type held struct {
	room *semaphore.Weighted
	n    int64
}

// grow acquires the room for a body of that size.
func (h *held) grow(ctx context.Context, size int64) error {
	if size <= smallBody || size <= h.n {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	if h.room.Acquire(ctx, size-h.n) != nil {
		return errNoRoom
	}
	h.n = size
	return nil
}

func (h *held) release() {
	if h.n > 0 {
		h.room.Release(h.n)
		h.n = 0
	}
}

// read reads a body of at most that size. It acquires room as bytes arrive: a client that
// announces a large length and sends nothing holds none.
func (h *held) read(ctx context.Context, r io.Reader, most int64) ([]byte, error) {
	raw := make([]byte, 0, 512)
	for {
		if len(raw) == cap(raw) {
			size := min(2*int64(cap(raw)), most+1)
			if err := h.grow(ctx, size); err != nil {
				return nil, err
			}
			raw = append(make([]byte, 0, size), raw...)
		}
		n, err := r.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > most:
			return nil, errTooBig
		case errors.Is(err, io.EOF):
			return raw, nil
		case err != nil:
			return nil, err
		}
	}
}

// roomFor returns the room for a body of the caller.
func (s *Server) roomFor(ctx context.Context) *held {
	if isAnonymous(ctx) {
		return &held{room: s.anonymousBodies}
	}
	return &held{room: s.bodies}
}

// drained is the multiple of MaxBody up to which a body that is too big is read and dropped:
// most clients send everything before they read the error.
const drained = 4

// body reads the request's body and holds room for it.
func (s *Server) body(ctx context.Context, h *held, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	wait := bodyWait
	if isAnonymous(ctx) {
		wait = anonymousBodyWait
	}
	// If a deadline cannot be set, the HTTP server's own count.
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(wait))
	if r.ContentLength <= s.options.MaxBody {
		raw, err := h.read(ctx, r.Body, s.options.MaxBody)
		if err == nil {
			_ = c.SetReadDeadline(time.Time{})
		}
		if !errors.Is(err, errTooBig) {
			return raw, err
		}
	}
	_, _ = io.CopyN(io.Discard, r.Body, drained*s.options.MaxBody) // an error changes nothing: the request is refused
	return nil, errTooBig
}
