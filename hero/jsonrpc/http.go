package jsonrpc

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// bodyWait bounds how long a client takes to send a request: 10 MiB over a slow
	// line.
	bodyWait = 30 * time.Second
	// busyWait is how long a request waits for its turn before it is sent away.
	busyWait = 5 * time.Second
)

const contentType = "application/json; charset=utf-8"

// ServeHTTP answers a POST to any path. Whatever was wrong with a call is in its
// answer, with status 200; other statuses say what was wrong with the HTTP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "use POST, with a JSON-RPC request as body", http.StatusMethodNotAllowed)
		return
	case !isJSON(r.Header):
		http.Error(w, "use the content type application/json", http.StatusUnsupportedMediaType)
		return
	}
	release, ok := take(r.Context(), s.busy, busyWait)
	if !ok {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests at once, try again", http.StatusServiceUnavailable)
		return
	}
	defer release()
	raw, err := s.body(w, r)
	if err != nil {
		s.unread(w, err)
		return
	}
	s.reply(w, http.StatusOK, s.Handle(s.authenticated(r), raw))
}

// isJSON takes what jsonrpsee takes.
func isJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/json-rpc" {
		return false
	}
	if encoding := h.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return false
	}
	charset, ok := params["charset"]
	return len(params) == 0 || len(params) == 1 && ok && strings.EqualFold(charset, "utf-8")
}

// take waits for a place.
func take(ctx context.Context, places chan struct{}, wait time.Duration) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	case <-ctx.Done():
		return nil, false
	}
}

// errTooBig says that a body has more bytes than are taken.
var errTooBig = errors.New("the request is too big")

// drained is how many times the bound is read of a body that is too big, so that
// its sender gets to read why: most send everything before they read anything.
const drained = 4

func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	// Where a deadline cannot be set the HTTP server's own ones count.
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyWait))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var raw []byte
	if r.ContentLength <= s.options.MaxBody {
		var err error
		if raw, err = io.ReadAll(io.LimitReader(r.Body, s.options.MaxBody+1)); err != nil {
			return nil, err
		}
		if int64(len(raw)) <= s.options.MaxBody {
			return raw, nil
		}
	}
	_, _ = io.CopyN(io.Discard, r.Body, drained*s.options.MaxBody) // it is refused either way
	return nil, errTooBig
}

// unread answers a request whose body could not be taken.
func (s *Server) unread(w http.ResponseWriter, err error) {
	if errors.Is(err, errTooBig) {
		s.reply(w, http.StatusRequestEntityTooLarge, s.write(failed(nil, Errorf(TooBig, "a request has at most %d bytes", s.options.MaxBody))))
		return
	}
	http.Error(w, "the request did not arrive whole", http.StatusBadRequest)
}

// authenticated is the context that the calls of a request are made in.
func (s *Server) authenticated(r *http.Request) context.Context {
	if s.options.Auth == nil {
		return r.Context()
	}
	ctx, err := s.options.Auth(r.Context(), r)
	if err != nil {
		return context.WithValue(r.Context(), deniedKey{}, err)
	}
	return ctx
}

// reply writes an answer. Notifications have an empty one.
func (s *Server) reply(w http.ResponseWriter, status int, answer []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer) // a client that went away needs no answer
}
