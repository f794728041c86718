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
	// bodyWait bounds how long a client takes to send a request: 10 MiB over a slow
	// line.
	bodyWait = 30 * time.Second
	// anonymousBodyWait is the same for a client that has not said who it is.
	anonymousBodyWait = 10 * time.Second
	// smallBody is what a request holds without asking for room, so that large ones
	// never keep small ones waiting.
	smallBody = 64 << 10
	// maxBodies bounds the bytes of the requests that are larger than that, together,
	// from their arrival to their answer. Their objects take some four times as much.
	maxBodies = 128 << 20
	// maxAnonymousBodies is the same for clients that have not said who they are.
	maxAnonymousBodies = 32 << 20
)

// errTooBig says that a body has more bytes than are taken.
var errTooBig = errors.New("the request is too big")

// errNoRoom says that other requests hold all the bytes that there are for bodies.
var errNoRoom = errors.New("too many large requests at once, try again")

// anonymousKey marks a context whose caller is not authenticated yet.
type anonymousKey struct{}

// Anonymous marks the context of a request whose caller is known only once its
// body was read: what Auth returns for a secret among the parameters. Such
// requests share a smaller room, and have less time to arrive.
func Anonymous(ctx context.Context) context.Context {
	return context.WithValue(ctx, anonymousKey{}, true)
}

func isAnonymous(ctx context.Context) bool { return ctx.Value(anonymousKey{}) != nil }

// held is what one body has of the room for all.
type held struct {
	room *semaphore.Weighted
	n    int64
}

// grow takes as much as a body of so many bytes needs.
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

// read reads a body of at most so many bytes, taking room for it as it arrives:
// a client that announces a large length and sends nothing takes none.
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

// roomFor is the room that the bodies of such a caller share.
func (s *Server) roomFor(ctx context.Context) *held {
	if isAnonymous(ctx) {
		return &held{room: s.anonymousBodies}
	}
	return &held{room: s.bodies}
}

// drained is how many times the bound is read of a body that is too big, so that
// its sender gets to read why: most send everything before they read anything.
const drained = 4

// body reads the request's body into the room.
func (s *Server) body(ctx context.Context, h *held, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	wait := bodyWait
	if isAnonymous(ctx) {
		wait = anonymousBodyWait
	}
	// Where a deadline cannot be set the HTTP server's own ones count.
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
	_, _ = io.CopyN(io.Discard, r.Body, drained*s.options.MaxBody) // it is refused either way
	return nil, errTooBig
}
