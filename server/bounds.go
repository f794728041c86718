package server

import "net/http"

const (
	// maxConnections bounds what one address holds open: clients that trickle
	// are cut after headerTimeout, and until then take no more than these.
	maxConnections = 2048
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
