package grpceffect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
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
	// maxConns bounds the connections, one for each target and its TLS. A few servers with a
	// certificate for each tenant need fewer.
	maxConns = 64
	// idleFor is how long an unused connection is kept.
	idleFor = 90 * time.Second
	// maxHeaders bounds the metadata of an answer.
	maxHeaders = 64 << 10
)

// Options of the provider. Guard is required.
type Options struct {
	Guard *dial.Guard
	// TracerProvider makes a span for each call; nil makes none.
	TracerProvider trace.TracerProvider
}

// pool has one connection for each target and its TLS, which all calls share. At maxConns it drops
// the connection that was used longest ago. A dropped connection is closed when its last call ends.
type pool struct {
	o Options

	mu     sync.Mutex // guards below, and the fields of conns that say so
	byKey  map[string]*conn
	uses   int // counts takes, for the order of use
	closed bool
}

// conn is one connection. The first call dials it.
type conn struct {
	cc  *grpc.ClientConn
	key string
	// failure is the error of the last dial, nil after a success.
	failure atomic.Pointer[error]

	broken atomic.Bool

	// The pool's mutex guards these.
	users int
	used  int
	gone  bool // no longer in byKey
}

func newPool(o Options) *pool { return &pool{o: o, byKey: map[string]*conn{}} }

// take returns a connection. The caller must give it back.
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
		if len(p.byKey) >= maxConns {
			p.forget(slices.MinFunc(slices.Collect(maps.Values(p.byKey)), func(a, b *conn) int { return cmp.Compare(a.used, b.used) }))
		}
		p.byKey[key] = c
	}
	p.uses++
	c.users, c.used = c.users+1, p.uses
	return c, nil
}

// forget drops a connection for new calls. The caller holds the mutex.
func (p *pool) forget(c *conn) {
	c.gone = true
	delete(p.byKey, c.key)
	c.closeUnused()
}

// closeUnused closes a dropped connection without calls. The caller holds the mutex.
func (c *conn) closeUnused() {
	if c.users == 0 {
		_ = c.cc.Close() // its only error is a second close
	}
}

// give takes a connection back. A broken one is dropped, so that the next call dials at once: grpc
// would refuse it until its own wait between dials ends, or let it wait on a dead connection.
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

// open makes a connection without dialling it. The passthrough scheme leaves the resolving to the
// guard.
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

// options disable what Edda decides: retries, proxies and the server's service config.
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

// discreet removes the message of a status from spans, because it may repeat the request.
type discreet struct{ stats.Handler }

func (d discreet) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if end, is := s.(*stats.End); is && end.Error != nil {
		silent := *end
		silent.Error = status.Error(status.Code(end.Error), "")
		s = &silent
	}
	d.Handler.HandleRPC(ctx, s)
}

// traced leaves reflection without spans, because it is no call of an effect.
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

// why returns why a call did not begin, and marks the connection as broken. grpc keeps only the
// text of a failed dial.
func (c *conn) why(err error) error {
	c.broken.Store(true)
	if failure := c.failure.Load(); failure != nil {
		return *failure
	}
	return errors.New(text(err))
}
