package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
)

// The bounds of the HTTP servers.
const (
	// maxConnections at one address: WebSockets stay, HTTP clients keep a few.
	maxConnections = 1024
	maxHeader      = 32 << 10 // ample for tokens
	// headerTimeout ends clients that trickle; bodies have a bound of their own.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds a whole batch: what is left of it then fails at once.
	requestTimeout = 90 * time.Second
	// writeTimeout is above it, so that the answer still goes out.
	writeTimeout = 2 * time.Minute
	idleTimeout  = 2 * time.Minute
	// shutdownWait lets calls under way finish; they take callTimeout at most.
	shutdownWait = 5 * time.Second
)

// door is one address and what is answered there.
type door struct {
	addr     string
	handler  http.Handler
	log      *zap.Logger
	listener net.Listener
}

func newDoor(addr string, handler http.Handler, log *zap.Logger) *door {
	return &door{addr: addr, handler: handler, log: log}
}

func (d *door) listen() error {
	if d.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", d.addr, err)
	}
	d.listener = netutil.LimitListener(l, maxConnections)
	return nil
}

// where it listens, once it does.
func (d *door) where() string {
	if d.listener == nil {
		return d.addr
	}
	return d.listener.Addr().String()
}

func (d *door) close() error {
	if d.listener == nil {
		return nil
	}
	if err := d.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}

// serve answers until ctx ends, then lets calls under way finish.
func (d *door) serve(ctx context.Context) error {
	h := &http.Server{
		Handler: d.handler, MaxHeaderBytes: maxHeader, ErrorLog: zap.NewStdLog(d.log),
		ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	served := make(chan error, 1)
	go func() { served <- h.Serve(d.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", d.where(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownWait)
	defer cancel()
	if err := h.Shutdown(stop); err != nil {
		_ = h.Close() // the deadline passed: the rest is cut
	}
	<-served
	return nil
}

// bounded gives a request, and so a whole batch, its deadline.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sameHost refuses names that a foreign page could have pointed at loopback (DNS
// rebinding), and pages of other sites.
func sameHost(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "requests from other web sites are refused", http.StatusForbidden)
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if net.ParseIP(strings.Trim(host, "[]")) == nil && host != "localhost" {
			http.Error(w, fmt.Sprintf("this server is not called %.100q: use its address, such as 127.0.0.1", host), http.StatusMisdirectedRequest)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// loopback refuses an address that others can reach, where nobody has to say
// who they are.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: want host:port, as in 127.0.0.1:9652", addr)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("address %q can be reached from other machines, and without tokens nobody has to say who they are: give tokens, or use a loopback address such as 127.0.0.1", addr)
}
