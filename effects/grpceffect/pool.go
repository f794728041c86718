package grpceffect

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"edda/effects/dial"
)

// The bounds of connections.
const (
	// maxConns are kept: one for each target and its TLS, which a few upstreams
	// with a certificate for each of some tenants do not fill.
	maxConns = 64
	// idleFor closes a connection that nobody uses; the next call dials again.
	idleFor = 90 * time.Second
	// maxHeaders bounds what a server may send beside its answer.
	maxHeaders = 64 << 10
)

// Options of the provider. Guard is required.
type Options struct {
	Guard *dial.Guard
	// TracerProvider gives each call a span of its own; none when nil.
	TracerProvider trace.TracerProvider
}

// pool keeps connections, one for each target and its TLS; all calls to it share
// that one. Of more than maxConns the one that was used longest ago goes, and is
// closed when its last call has ended.
type pool struct {
	o Options

	mu     sync.Mutex // guards below, and the fields of conns that say so
	byKey  map[string]*conn
	uses   int // counts takes: the order of use
	closed bool
}

// conn is one connection; it is made by the first call that needs it.
type conn struct {
	cc  *grpc.ClientConn
	key string
	// failure is why it could not be made the last time, nil since it could.
	failure atomic.Pointer[error]

	broken atomic.Bool

	users int  // pool.mu
	used  int  // pool.mu
	gone  bool // pool.mu: no longer in byKey
}

func newPool(o Options) *pool { return &pool{o: o, byKey: map[string]*conn{}} }

// take hands out a connection that give must be called for.
func (p *pool) take(target string, plaintext bool, tls any) (*conn, error) {
	key := target + "\x00plaintext"
	if !plaintext {
		key = target + "\x00" + dial.TLSKey(tls)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("the process stops")
	}
	c := p.byKey[key]
	if c == nil {
		var err error
		if c, err = p.open(key, target, plaintext, tls); err != nil {
			return nil, err
		}
		p.makeRoom()
		p.byKey[key] = c
	}
	p.uses++
	c.users, c.used = c.users+1, p.uses
	return c, nil
}

// makeRoom forgets the connection that was used longest ago where there are too many.
func (p *pool) makeRoom() {
	if len(p.byKey) < maxConns {
		return
	}
	var oldest *conn
	for _, c := range p.byKey {
		if oldest == nil || c.used < oldest.used {
			oldest = c
		}
	}
	p.forget(oldest)
}

// forget keeps a connection from new calls. It is called with the lock.
func (p *pool) forget(c *conn) {
	c.gone = true
	delete(p.byKey, c.key)
	c.closeUnused()
}

// closeUnused closes a connection that is gone and that nobody uses. It is
// called with the lock.
func (c *conn) closeUnused() {
	if c.users == 0 {
		_ = c.cc.Close() // it reports only a second close
	}
}

// give takes a connection back. One that is broken is not kept: the next call
// dials anew, instead of being refused for as long as grpc waits between dials,
// or waiting for a line that may be dead.
func (p *pool) give(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.users--
	if c.gone {
		c.closeUnused()
	} else if c.broken.Load() {
		p.forget(c)
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.byKey {
		p.forget(c)
	}
}

// open makes a connection; nothing is dialled yet. The passthrough scheme keeps
// grpc from looking the name up, so that the guard sees it.
func (p *pool) open(key, target string, plaintext bool, tls any) (*conn, error) {
	security, err := transport(plaintext, tls)
	if err != nil {
		return nil, err
	}
	c := &conn{key: key}
	c.cc, err = grpc.NewClient("passthrough:///"+target, append(p.options(),
		grpc.WithTransportCredentials(security),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx, p.o.Guard, target) }))...)
	return c, err
}

func transport(plaintext bool, tls any) (credentials.TransportCredentials, error) {
	if plaintext {
		return insecure.NewCredentials(), nil
	}
	config, err := dial.TLS(tls)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// options keep grpc from everything that is ours to decide: calling again,
// proxies, what a server would like its clients to do.
func (p *pool) options() []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
		grpc.WithUserAgent("edda"), grpc.WithIdleTimeout(idleFor), grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: dial.Timeout}),
		grpc.WithStatsHandler(witness{}),
	}
	if p.o.TracerProvider == nil {
		return options
	}
	return append(options, grpc.WithStatsHandler(discreet{otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(p.o.TracerProvider), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
		otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithFilter(traced))}))
}

// discreet keeps the message of a status out of spans: it may repeat what the
// other side was shown.
type discreet struct{ stats.Handler }

func (d discreet) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, is := s.(*stats.End); is && end.Error != nil {
		silent := *end
		silent.Error = status.Error(status.Code(end.Error), "")
		s = &silent
	}
	d.Handler.HandleRPC(ctx, s)
}

// traced leaves reflection out: it is no call of an effect.
func traced(info *stats.RPCTagInfo) bool {
	return !strings.HasPrefix(info.FullMethodName, "/grpc.reflection.")
}

func (c *conn) dial(ctx context.Context, guard *dial.Guard, target string) (net.Conn, error) {
	made, err := guard.DialContext(ctx, "tcp", target)
	if err != nil {
		c.failure.Store(&err)
		return nil, err
	}
	c.failure.Store(nil)
	return made, nil
}

// why is the reason that a call did not begin, for which the connection is
// given up: of a failed dial grpc keeps only the text.
func (c *conn) why(err error) error {
	c.broken.Store(true)
	if failure := c.failure.Load(); failure != nil {
		return *failure
	}
	return errors.New(text(err))
}
