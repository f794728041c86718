// Package httpserver listens on one address and serves HTTP there with bounds. A
// process takes its addresses before it starts anything else. When the context
// ends, answers in flight get time to finish.
//
// A full server closes idle and anonymous connections for new clients. Only
// connections that work for authenticated callers are never closed for others.
// The package refuses no request by itself; guard.go holds the checks for servers
// without authentication.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The defaults of Options.
const (
	defaultConnections = 1024
	defaultReadHeaders = 5 * time.Second
	defaultIdle        = 2 * time.Minute
	// defaultAnonymousWait is longer than a probe or a page of metrics takes.
	defaultAnonymousWait = 30 * time.Second
)

// Options bound a server. The zero value works.
type Options struct {
	// Name is the server's label in its metrics.
	Name string
	// Connections bounds the open connections, 1024 by default. A full server closes
	// the connection that has waited longest for its client. A new client waits only
	// while all connections work for authenticated callers.
	Connections int
	// Anonymous bounds the connections without an authenticated caller; half of
	// Connections by default. The oldest is closed for the next.
	Anonymous int
	// AnonymousWait is how long an anonymous connection may stay in one state:
	// silent, sending a request, or being answered. 30 seconds by default.
	AnonymousWait time.Duration
	// Headers bounds the headers of a request, in bytes; 1 MiB by default.
	Headers int
	// ReadHeaders and Read bound how long a request may take to arrive. Write bounds
	// how long its answer may take, and Idle the pause between two requests.
	// ReadHeaders is 5 seconds and Idle 2 minutes by default; Read and Write are
	// unbounded by default.
	ReadHeaders, Read, Write, Idle time.Duration
	// Stop is how long answers in flight may take at the end; zero cuts them.
	Stop time.Duration
	// Log gets the errors of net/http; nil is the standard logger.
	Log *log.Logger
	// Metrics registers the counts of connections; nil registers none.
	Metrics prometheus.Registerer
}

func (o *Options) validate() {
	if o.Connections <= 0 {
		o.Connections = defaultConnections
	}
	if o.Anonymous <= 0 || o.Anonymous > o.Connections {
		o.Anonymous = max(1, o.Connections/2)
	}
	if o.AnonymousWait <= 0 {
		o.AnonymousWait = defaultAnonymousWait
	}
	if o.ReadHeaders <= 0 {
		o.ReadHeaders = defaultReadHeaders
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
}

// Server serves HTTP on one address. Listen, Close and Run must not run
// concurrently; Addr and Handler may be called at any time.
type Server struct {
	addr     string
	handler  http.Handler
	options  Options
	tls      *tls.Config // nil: without TLS
	listener net.Listener
	closed   *prometheus.CounterVec // label: why
}

// New makes a server that does not listen yet. Without an address its methods do
// nothing.
func New(addr string, handler http.Handler, o Options) *Server {
	o.validate()
	return &Server{addr: addr, handler: handler, options: o, closed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_http_connections_closed_total", ConstLabels: prometheus.Labels{"server": o.Name},
		Help: "Connections that were closed to make room (full, anonymous_full) or because nobody was authenticated on them in time (anonymous_wait).",
	}, []string{"why"})}
}

// Secure has the server speak TLS only. Call it before Run.
func (s *Server) Secure(c *tls.Config) { s.tls = c }

// Handler returns the handler without the bounds, for tests.
func (s *Server) Handler() http.Handler { return s.handler }

// Addr returns the address: after Listen the real one, with its port.
func (s *Server) Addr() string {
	if s.listener == nil {
		return s.addr
	}
	return s.listener.Addr().String()
}

// Listen binds the address. A second call does nothing.
func (s *Server) Listen() error {
	if s.addr == "" || s.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.addr, err)
	}
	s.Use(l)
	return s.register()
}

// Use has the server accept from an existing listener instead of calling Listen.
// Tests pass one without a network.
func (s *Server) Use(l net.Listener) {
	s.listener = bound(l, s.options, func(why string) { s.closed.WithLabelValues(why).Inc() })
}

// register registers the server's metrics. When it fails, it closes the listener.
func (s *Server) register() error {
	if s.options.Metrics == nil {
		return nil
	}
	for _, why := range []string{closedFull, closedAnonymous, closedWait} {
		s.closed.WithLabelValues(why)
	}
	gauge := func(who string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "edda_http_connections", ConstLabels: prometheus.Labels{"server": s.options.Name, "who": who},
			Help: "Open connections of each HTTP server: anonymous ones, and those of callers who are known.",
		}, func() float64 { return float64(value()) })
	}
	count := s.listener.(*connections).count
	for _, c := range []prometheus.Collector{
		s.closed,
		gauge("anonymous", func() int { _, anonymous := count(); return anonymous }),
		gauge("known", func() int { open, anonymous := count(); return open - anonymous }),
	} {
		if err := s.options.Metrics.Register(c); err != nil {
			return errors.Join(fmt.Errorf("metrics of %s: %w", s.Addr(), err), s.Close())
		}
	}
	return nil
}

// Close releases the address if Run was never called.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}

// Run serves until ctx ends, then gives answers in flight Options.Stop to finish.
// It returns nil after a stop. Call Listen first.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	h := s.newHTTP()
	served := make(chan error, 1)
	go func() { served <- s.serve(h) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	s.stop(context.WithoutCancel(ctx), h)
	<-served
	return nil
}

func (s *Server) serve(h *http.Server) error {
	if s.tls == nil {
		return h.Serve(s.listener)
	}
	return h.ServeTLS(s.listener, "", "")
}

func (s *Server) newHTTP() *http.Server {
	o := s.options
	return &http.Server{
		Handler: counted(s.handler), ConnContext: connContext, ConnState: connState, MaxHeaderBytes: o.Headers, ErrorLog: o.Log, TLSConfig: s.tls,
		ReadHeaderTimeout: o.ReadHeaders, ReadTimeout: o.Read, WriteTimeout: o.Write, IdleTimeout: o.Idle,
	}
}

// stop waits Options.Stop for answers in flight, then closes their connections.
func (s *Server) stop(ctx context.Context, h *http.Server) {
	if s.options.Stop > 0 {
		ctx, cancel := context.WithTimeout(ctx, s.options.Stop)
		defer cancel()
		if h.Shutdown(ctx) == nil {
			return
		}
	}
	_ = h.Close() // nothing can be done for a connection that does not close
}
