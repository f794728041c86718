package server

import (
	"net/http"
	"time"
)

const (
	// maxConnections bounds what one address holds open. It is far above maxCalls,
	// so that there is always one to close for the next client.
	maxConnections = 2048
	// maxAnonymous bounds those of them on which nobody showed a token: with probes
	// and scrapes there are a few.
	maxAnonymous = 1024
	// anonymousWait is what a probe and a page of metrics take at most.
	anonymousWait = 30 * time.Second
	// maxCalls bounds the calls under way. Most of them wait for a commit, which
	// costs memory alone; at maxBody each it stays below 1 GiB.
	maxCalls = 384
)

// bounded answers 503 where too many calls are under way, but for the probes:
// a busy process is alive.
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
