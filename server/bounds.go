package server

import (
	"net/http"
	"time"
)

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

// bounded answers 503 if maxCalls calls are in flight. It exempts probes, because a busy
// process is alive.
func bounded(next http.Handler) http.Handler {
	slots, known := make(chan struct{}, maxCalls), rights()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known[r.Method+" "+r.URL.Path].open {
			next.ServeHTTP(w, r)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			next.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusServiceUnavailable, "too many calls are under way; try again")
		}
	})
}
