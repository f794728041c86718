package coordinator

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.uber.org/zap"

	"edda/internal/httpserver"
)

// The bounds of the HTTP servers.
const (
	// maxConnections at one address: WebSockets stay, HTTP clients keep a few.
	maxConnections = 1024
	// maxAnonymous bounds those of them on which no client showed a token or, without
	// tokens, has sent a request whole.
	maxAnonymous = 512
	// anonymousWait is how long one of those is listened to: as long as a body may take.
	anonymousWait = 30 * time.Second
	maxHeader     = 32 << 10 // ample for tokens
	// headerTimeout ends clients that trickle; bodies have a bound of their own.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds a whole batch: the calls after that fail at once.
	requestTimeout = 90 * time.Second
	// writeTimeout is above it, so that the answer still goes out.
	writeTimeout = 2 * time.Minute
	idleTimeout  = 2 * time.Minute
	// shutdownWait lets calls under way finish; they take callTimeout at most.
	shutdownWait = 5 * time.Second
)

func (c *Coordinator) newHTTPServer(name, addr string, handler http.Handler) *httpserver.Server {
	return httpserver.New(addr, handler, httpserver.Options{
		Name: name, Metrics: c.options.Metrics, Connections: maxConnections, Anonymous: maxAnonymous, AnonymousWait: anonymousWait, Headers: maxHeader, ReadHeaders: headerTimeout, Write: writeTimeout, Idle: idleTimeout,
		Stop: shutdownWait, Log: zap.NewStdLog(c.options.Log),
	})
}

// bounded gives a request, and so a whole batch, its deadline.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sameHost is for a server that believes its callers.
func sameHost(next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	return httpserver.SameHost(httpserver.SameSite(next, refuse), refuse)
}

// loopback refuses an address that other machines can reach, where no caller has to say
// who they are.
func loopback(addr string) error {
	mine, err := httpserver.OnLoopback(addr)
	switch {
	case err != nil:
		return fmt.Errorf("address %q: want host:port, as in 127.0.0.1:9652", addr)
	case mine:
		return nil
	}
	return fmt.Errorf("address %q can be reached from other machines, and without tokens nobody has to say who they are: give tokens, or use a loopback address such as 127.0.0.1", addr)
}
