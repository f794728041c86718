package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/internal/httpserver"
)

// The documented addresses.
const (
	DefaultHTTPAddr = "127.0.0.1:9652"
	DefaultWSAddr   = "127.0.0.1:9653"
)

func (o *Options) validate() error {
	if o.HTTPAddr == "" {
		o.HTTPAddr = DefaultHTTPAddr
	}
	if o.WSAddr == "" {
		o.WSAddr = DefaultWSAddr
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.Secrets == nil {
		o.Secrets = hero.SecretNames()
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	for token, actor := range o.Tokens {
		if len(token) < minToken || actor == 0 {
			return fmt.Errorf("coordinator: the token of actor %d: want at least %d characters, and an actor other than 0", actor, minToken)
		}
	}
	for _, actor := range o.Hashes {
		if actor == 0 {
			return errors.New("coordinator: a token's actor: want another than 0")
		}
	}
	for _, addr := range []string{o.HTTPAddr, o.WSAddr} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("address %q: want host:port, as in %s", addr, DefaultHTTPAddr)
		}
		if err := loopback(addr); err != nil && len(o.Tokens)+len(o.Hashes) == 0 {
			return err
		}
	}
	return nil
}

// Listen listens on both addresses, so that a port in use is an error before other parts
// start. Run calls it if the caller did not.
func (c *Coordinator) Listen() error {
	if err := c.http.Listen(); err != nil {
		return err
	}
	if err := c.ws.Listen(); err != nil {
		return errors.Join(err, c.http.Close())
	}
	return c.rpc.ServesAt(jsonrpc.Address{Name: "HTTP", URL: "http://" + c.HTTPAddr()}, jsonrpc.Address{Name: "WebSocket", URL: "ws://" + c.WSAddr()})
}

// HTTPAddr and WSAddr return the addresses on which the coordinator listens.
func (c *Coordinator) HTTPAddr() string { return c.http.Addr() }
func (c *Coordinator) WSAddr() string   { return c.ws.Addr() }

// Run serves both addresses until ctx ends. Then it finishes the running calls, closes the
// WebSockets and returns nil.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := c.Listen(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.http.Run(ctx) })
	group.Go(func() error { return c.ws.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		c.rpc.Close()
		return nil
	})
	return group.Wait()
}

// The bounds of the HTTP servers.
const (
	// maxConnections at one address: WebSockets stay, HTTP clients keep a few.
	maxConnections = 1024
	// maxAnonymous bounds the connections whose client has not sent a token or, without
	// tokens, a whole request.
	maxAnonymous = 512
	// anonymousWait bounds the life of such a connection: as long as a body may take.
	anonymousWait = 30 * time.Second
	maxHeader     = 32 << 10 // ample for tokens
	// headerTimeout ends slow clients; bodies have a bound of their own.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds a whole batch: its later calls fail at once.
	requestTimeout = 90 * time.Second
	// writeTimeout is longer, so that the answer still goes out.
	writeTimeout = 2 * time.Minute
	idleTimeout  = 2 * time.Minute
	// shutdownWait bounds the wait for running calls at a stop.
	shutdownWait = 5 * time.Second
)

func (c *Coordinator) newHTTPServer(name, addr string, handler http.Handler) *httpserver.Server {
	return httpserver.New(addr, handler, httpserver.Options{
		Name: name, Metrics: c.options.Metrics, Connections: maxConnections, Anonymous: maxAnonymous, AnonymousWait: anonymousWait, Headers: maxHeader, ReadHeaders: headerTimeout, Write: writeTimeout, Idle: idleTimeout,
		Stop: shutdownWait, Log: zap.NewStdLog(c.options.Log),
	})
}

// bounded gives a request, which may be a batch, its deadline.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sameHost refuses requests of web pages, for a server without tokens.
func sameHost(next http.Handler) http.Handler {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	return httpserver.SameHost(httpserver.SameSite(next, refuse), refuse)
}

// loopback refuses an address that other machines can reach, for a server without tokens.
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
