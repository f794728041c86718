// Package door is one address and what is answered there over HTTP: it is taken
// before anything else starts, served with bounds until a context ends, and left
// with a time for the answers under way. There is room for the next client as long
// as not all connections work for callers who are known. It refuses nobody by
// itself; guard.go has what a server needs that believes its callers.
package door

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

// The bounds of a door whose options say nothing else.
const (
	defaultConnections = 1024
	defaultReadHeaders = 5 * time.Second
	defaultIdle        = 2 * time.Minute
	// defaultAnonymousWait is above what a probe takes and a page of metrics.
	defaultAnonymousWait = 30 * time.Second
)

// Options are the bounds of a door. The zero value works.
type Options struct {
	// Name is what the door is called in its metrics.
	Name string
	// Connections at once, 1024 unless said. Where all are taken, the one that has
	// waited longest for its client is closed for the next; the next waits only
	// where all of them work for callers who are known.
	Connections int
	// Anonymous bounds those connections on which nobody is authenticated; half of
	// Connections unless said. The oldest is closed for the next.
	Anonymous int
	// AnonymousWait is how long an anonymous connection may stay in one state:
	// silent, sending a request, or being answered. 30 seconds unless said.
	AnonymousWait time.Duration
	// Headers bounds them, in bytes; 1 MiB unless said.
	Headers int
	// ReadHeaders and Read end clients that trickle, Write and Idle those that do
	// not read, or say nothing more. ReadHeaders is 5 seconds and Idle 2 minutes
	// unless said; Read and Write have no bound then.
	ReadHeaders, Read, Write, Idle time.Duration
	// Stop is how long answers under way may take at the end; without one they are
	// cut.
	Stop time.Duration
	// Log gets what net/http complains of; the standard logger when nil.
	Log *log.Logger
	// Metrics is where the counts of connections go; nowhere when nil.
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

// Door is one address. Listen, Close and Run are called one after another; Addr
// and Handler at any time.
type Door struct {
	addr     string
	handler  http.Handler
	options  Options
	tls      *tls.Config // nil: in the clear
	listener net.Listener
	closed   *prometheus.CounterVec // by why
}

// New makes a door; nothing listens before Listen. Without an address it does
// nothing.
func New(addr string, handler http.Handler, o Options) *Door {
	o.validate()
	return &Door{addr: addr, handler: handler, options: o, closed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_http_connections_closed_total", ConstLabels: prometheus.Labels{"server": o.Name},
		Help: "Connections that were closed to make room (full, anonymous_full) or because nobody was authenticated on them in time (anonymous_wait).",
	}, []string{"why"})}
}

// Secure has it answer over TLS alone; it comes before Run.
func (d *Door) Secure(c *tls.Config) { d.tls = c }

// Handler is what is answered, for tests.
func (d *Door) Handler() http.Handler { return d.handler }

// Addr is where it listens, once it does.
func (d *Door) Addr() string {
	if d.listener == nil {
		return d.addr
	}
	return d.listener.Addr().String()
}

// Listen takes the address, once.
func (d *Door) Listen() error {
	if d.addr == "" || d.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", d.addr, err)
	}
	d.Use(l)
	return d.register()
}

// Use has it answer on a listener that was made elsewhere, such as one without a
// network; it takes the place of Listen.
func (d *Door) Use(l net.Listener) {
	d.listener = bound(l, d.options, func(why string) { d.closed.WithLabelValues(why).Inc() })
}

// register adds the door's metrics.
func (d *Door) register() error {
	if d.options.Metrics == nil {
		return nil
	}
	for _, why := range []string{closedFull, closedAnonymous, closedWait} {
		d.closed.WithLabelValues(why)
	}
	gauge := func(who string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "edda_http_connections", ConstLabels: prometheus.Labels{"server": d.options.Name, "who": who},
			Help: "Open connections of each HTTP server: anonymous ones, and those of callers who are known.",
		}, func() float64 { return float64(value()) })
	}
	count := d.listener.(*connections).count
	for _, c := range []prometheus.Collector{
		d.closed,
		gauge("anonymous", func() int { _, anonymous := count(); return anonymous }),
		gauge("known", func() int { open, anonymous := count(); return open - anonymous }),
	} {
		if err := d.options.Metrics.Register(c); err != nil {
			return errors.Join(fmt.Errorf("metrics of %s: %w", d.Addr(), err), d.Close())
		}
	}
	return nil
}

// Close gives the address back where Run never came to.
func (d *Door) Close() error {
	if d.listener == nil {
		return nil
	}
	if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}

// Run answers until ctx ends, then lets answers under way go out. It returns nil
// at a stop. Listen comes first.
func (d *Door) Run(ctx context.Context) error {
	if d.listener == nil {
		return nil
	}
	h := d.server()
	served := make(chan error, 1)
	go func() { served <- d.answer(h) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", d.Addr(), err)
	case <-ctx.Done():
	}
	d.stop(context.WithoutCancel(ctx), h)
	<-served
	return nil
}

func (d *Door) answer(h *http.Server) error {
	if d.tls == nil {
		return h.Serve(d.listener)
	}
	return h.ServeTLS(d.listener, "", "")
}

func (d *Door) server() *http.Server {
	o := d.options
	return &http.Server{
		Handler: counted(d.handler), ConnContext: connContext, ConnState: connState, MaxHeaderBytes: o.Headers, ErrorLog: o.Log, TLSConfig: d.tls,
		ReadHeaderTimeout: o.ReadHeaders, ReadTimeout: o.Read, WriteTimeout: o.Write, IdleTimeout: o.Idle,
	}
}

// stop lets the answers go out that are ready in time; the rest is cut.
func (d *Door) stop(ctx context.Context, h *http.Server) {
	if d.options.Stop > 0 {
		ctx, cancel := context.WithTimeout(ctx, d.options.Stop)
		defer cancel()
		if h.Shutdown(ctx) == nil {
			return
		}
	}
	_ = h.Close() // nothing can be done for a connection that does not close
}
