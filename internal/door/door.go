// Package door is one address and what is answered there over HTTP: it is taken
// before anything else starts, served with bounds until a context ends, and left
// with a time for the answers under way. It refuses nobody by itself; guard.go has
// what a server needs that believes its callers.
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

	"golang.org/x/net/netutil"
)

// Options are the bounds of a door; the zero value of each is none, but for
// Headers.
type Options struct {
	// Connections at once; who comes then waits.
	Connections int
	// Headers bounds them, in bytes; 1 MiB unless said.
	Headers int
	// ReadHeaders and Read end clients that trickle, Write and Idle those that do
	// not read, or say nothing more.
	ReadHeaders, Read, Write, Idle time.Duration
	// Stop is how long answers under way may take at the end; without one they are
	// cut.
	Stop time.Duration
	// Log gets what net/http complains of; the standard logger when nil.
	Log *log.Logger
}

// Door is one address. Listen, Close and Run are called one after another; Addr
// and Handler at any time.
type Door struct {
	addr     string
	handler  http.Handler
	options  Options
	tls      *tls.Config // nil: in the clear
	listener net.Listener
}

// New makes a door; nothing listens before Listen. Without an address it does
// nothing.
func New(addr string, handler http.Handler, o Options) *Door {
	return &Door{addr: addr, handler: handler, options: o}
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
	if d.options.Connections > 0 {
		l = netutil.LimitListener(l, d.options.Connections)
	}
	d.listener = l
	return nil
}

// Use has it answer on a listener that was made elsewhere, such as one without a
// network; it takes the place of Listen.
func (d *Door) Use(l net.Listener) { d.listener = l }

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
		Handler: d.handler, MaxHeaderBytes: o.Headers, ErrorLog: o.Log, TLSConfig: d.tls,
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
