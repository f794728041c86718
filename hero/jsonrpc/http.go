package jsonrpc

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// busyWait bounds the wait of a request for a slot.
	busyWait = 5 * time.Second
	// abandonWait bounds the time in which a client may go on sending a refused request:
	// most read the answer only after they have sent everything.
	abandonWait = time.Second
)

const contentType = "application/json; charset=utf-8"

// ServeHTTP answers a POST to any path. The error of a call is in its answer, with status
// 200. Other statuses are errors of HTTP.
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
	ctx, denied := s.authenticated(r)
	if denied != nil {
		s.deny(w, denied)
		return
	}
	room := s.roomFor(ctx)
	defer room.release()
	raw, err := s.body(ctx, room, w, r)
	if err != nil {
		s.unread(w, err)
		return
	}
	s.options.Received(ctx)
	release, ok := take(ctx, s.busy, busyWait) // after the body: a slow sender takes no slot
	if !ok {
		sendAway(w, "too many requests at once, try again")
		return
	}
	defer release()
	s.reply(w, http.StatusOK, s.Handle(ctx, raw))
}

// sendAway answers a request that may be repeated.
func sendAway(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// deny answers a request before its body is read. The ids of its calls are not known, so one
// error without an id answers them all.
func (s *Server) deny(w http.ResponseWriter, err error) {
	s.options.Observe("", 0, err)
	abandon(w)
	w.Header().Set("WWW-Authenticate", `Bearer realm="edda"`)
	s.reply(w, http.StatusUnauthorized, s.write(failed(nil, asError(err))))
	_ = http.NewResponseController(w).Flush()
}

// abandon prepares the answer to a request whose body was not read to its end. Otherwise
// net/http would wait for the rest of the body first.
func abandon(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex()
	_ = c.SetReadDeadline(time.Now().Add(abandonWait))
	w.Header().Set("Connection", "close")
}

// isJSON accepts the content types that jsonrpsee accepts.
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

// take waits for a slot.
func take(ctx context.Context, slots chan struct{}, wait time.Duration) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, true
	case <-ctx.Done():
		return nil, false
	}
}

// unread answers a request whose body could not be read.
func (s *Server) unread(w http.ResponseWriter, err error) {
	abandon(w)
	if errors.Is(err, errTooBig) {
		s.reply(w, http.StatusRequestEntityTooLarge, s.write(failed(nil, Errorf(TooBig, "a request has at most %d bytes", s.options.MaxBody))))
		return
	}
	if errors.Is(err, errNoRoom) {
		sendAway(w, err.Error())
		return
	}
	http.Error(w, "the request did not arrive whole", http.StatusBadRequest)
}

// authenticated returns the context of the request's calls, or the error that refuses them.
func (s *Server) authenticated(r *http.Request) (context.Context, error) {
	if s.options.Auth == nil {
		return r.Context(), nil
	}
	return s.options.Auth(r.Context(), r)
}

// reply writes an answer, which is empty for notifications.
func (s *Server) reply(w http.ResponseWriter, status int, answer []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the client is gone
}
