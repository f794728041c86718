package server

import (
	"encoding/json"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"edda/internal/httpserver"
)

// guard wraps the routes with the checks for every request: the body limit, the bound of
// concurrent calls, no requests from other web sites, and recovery from a panic.
func (s *Server) guard(next http.Handler) http.Handler {
	next = bounded(httpserver.SameSite(limited(next), problem))
	if s.options.Tokens == nil {
		next = httpserver.SameHost(next, problem) // with tokens a foreign page cannot authenticate
	}
	return s.recovered(next)
}

func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == http.ErrAbortHandler { // net/http cuts the connection, so that the client sees a broken answer
				panic(v)
			}
			if v != nil {
				s.options.Log.Error("request panicked", zap.Any("panic", v), zap.String("route", r.Pattern), zap.ByteString("stack", debug.Stack()))
				problem(w, http.StatusInternalServerError, "internal error; the log of the server says more")
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && (r.URL.Path == "/admin/backup" || r.URL.Path == "/v1/backup") {
		w.Header().Set("Allow", http.MethodPost)
		problem(w, http.StatusMethodNotAllowed, "a backup is taken with POST: a link or a picture in a page must not begin one")
		return
	}
	problem(w, http.StatusNotFound, "there is nothing at this address; see /docs for what there is")
}

// problem writes an RFC 9457 problem.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// An error here means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(&huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
}

// unavailable answers a call that may succeed in a second.
func unavailable(w http.ResponseWriter, detail string) {
	w.Header().Set("Retry-After", "1")
	problem(w, http.StatusServiceUnavailable, detail)
}

const (
	// maxConnections bounds the open connections of one address. It is far above
	// maxCalls, so that the server always finds one to close for a new client.
	maxConnections = 2048
	// maxAnonymous bounds the connections without an authenticated caller. Probes and
	// scrapes need a few.
	maxAnonymous = 1024
	// anonymousWait is longer than a probe or a page of metrics takes.
	anonymousWait = 30 * time.Second
	// maxCalls bounds the calls in flight. Most of them wait for a commit, which costs
	// only memory: less than 1 GiB if each has maxBody bytes.
	maxCalls = 384
)

// bounded answers 503 if maxCalls calls are in flight. It exempts quick answers: a busy process
// is alive, and its operator looks at the cluster.
func bounded(next http.Handler) http.Handler {
	slots, known := make(chan struct{}, maxCalls), rights()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known[r.Method+" "+r.URL.Path].quick {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			unavailable(w, "too many calls are under way; try again")
		}
	})
}
