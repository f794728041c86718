// Package server is Edda's HTTP side: probes, metrics, what the process runs, operator
// commands on the process, and the API of instances under /v1.
//
// The server itself changes nothing. A command on an instance is published as a
// message, and the call answers when the message is committed. The server refuses:
//   - a route without declared rights,
//   - to listen beyond loopback without tokens,
//   - requests from other web sites,
//   - bodies above a limit.
//
// It never logs payloads.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda/access"
	"edda/internal/httpserver"
	"edda/stream/wire"
)

const (
	// maxBody is larger than a NATS message, so that the stream's limit applies first:
	// its error is clearer.
	maxBody = 2 << 20
	// maxHeader is enough for tokens and traces.
	maxHeader = 32 << 10
	// headerTimeout and readTimeout end slow clients.
	headerTimeout = 5 * time.Second
	readTimeout   = 20 * time.Second
	// writeTimeout is longer than the longest wait for a commit.
	writeTimeout = commitWait + 20*time.Second
	idleTimeout  = 2 * time.Minute
	// commitWait is how long a call waits for the commit of its message: much longer
	// than a healthy engine needs, shorter than clients and proxies wait.
	commitWait = 10 * time.Second
	// shutdownWait is how long answers in flight may take at the end.
	shutdownWait = time.Second
)

// Options configure a server. Process, DeadLetters and Inbox are required, and
// Store or a call of Read.
type Options struct {
	// Addr is host:port; empty means 127.0.0.1:8700.
	Addr string
	// ProbeAddr is a second address that answers only the probes; empty means none.
	// Any address is safe, because probes change nothing and reveal no secret.
	ProbeAddr string
	Build     Build
	Log       *zap.Logger
	// Metrics is the source of /metrics; nil serves no metrics.
	Metrics prometheus.Gatherer
	// Register registers the server's own metrics; nil registers none.
	Register prometheus.Registerer
	// Tenant is the default tenant of a call. If it is empty, a call must name one.
	Tenant string
	// NoTenancy switches tenants off. Every key then has the empty tenant.
	NoTenancy bool
	// MaxPayload bounds the message of an event, in bytes; zero means the default of
	// wire.Codec.
	MaxPayload int
	// Tokens authenticates callers. Without it everyone may do everything, and the
	// server listens on loopback only.
	Tokens *access.Tokens
	// Certificates enable TLS on the API's address; nil means no TLS.
	Certificates *Certificates
	// TLSEnds says that a proxy or a mesh in front terminates TLS. With tokens the
	// server may then listen beyond loopback without TLS.
	TLSEnds bool
	// Fence is called before a read of instances. An error says that another process may have them now, so
	// the read is refused. nil: none.
	Fence func(context.Context) error
	// CommitWait overrides commitWait.
	CommitWait time.Duration

	Process     Process
	Store       Store
	DeadLetters DeadLetters
	Inbox       Inbox
	// Maintenance may be nil; the server then has no routes for the store.
	Maintenance Maintenance
	// Replays is nil if the process runs no sagas.
	Replays Replays
	// Mocks is nil if effects call the real services.
	Mocks Mocks
	// Cluster is nil in a single process.
	Cluster Cluster
	// Front is the server of a node with several shards. It listens, and passes the calls of Shard to this server. nil: this
	// server listens.
	Front *Front
	Shard int
}

// Build is the version of the program.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Commit  string `json:"commit,omitempty"`
}

// Server serves the HTTP API of a process.
type Server struct {
	options Options
	codec   wire.Codec
	status  func(context.Context) ProcessStatus
	forward *forwarder // nil at the owner of the store
	routes  *routes
	api     huma.API
	main    *httpserver.Server
	probing *httpserver.Server // does nothing without ProbeAddr
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o, codec: wire.Codec{Grammar: wire.Grammar{NoTenancy: o.NoTenancy}, MaxPayload: o.MaxPayload}}
	s.status = func(ctx context.Context) ProcessStatus { return s.options.Process.Status(ctx) }
	s.routes = &routes{mux: http.NewServeMux(), allow: s.allowed}
	s.api = humago.New(s.routes, describe(o.Build))
	s.probes(s.routes)
	s.process()
	s.instances()
	s.commands()
	s.deadLetters()
	s.records()
	s.events()
	s.replays()
	s.maintenance()
	s.mocks()
	s.cluster()
	s.docs()
	if err := s.index(); err != nil {
		return nil, err
	}
	s.routes.HandleFunc("/", notFound)
	s.servers(s.oneShard(s.routes))
	return s, nil
}

// servers makes the servers of the addresses, when all routes are registered.
func (s *Server) servers(h http.Handler) {
	o := s.options
	s.main, s.probing = s.newHTTP("api", o.Addr, s.guard(h)), s.newHTTP("probes", o.ProbeAddr, s.probesAlone())
	if o.Certificates != nil {
		s.main.Secure(o.Certificates.Config())
	}
}

func (s *Server) newHTTP(name, addr string, h http.Handler) *httpserver.Server {
	return httpserver.New(addr, h, httpserver.Options{
		Name: name, Connections: maxConnections, Anonymous: maxAnonymous, AnonymousWait: anonymousWait, Metrics: s.options.Register, Headers: maxHeader, ReadHeaders: headerTimeout, Read: readTimeout, Write: writeTimeout, Idle: idleTimeout,
		Stop: shutdownWait, Log: zap.NewStdLog(s.options.Log.Named("http")),
	})
}

func (o *Options) validate() error {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:8700"
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.CommitWait == 0 {
		o.CommitWait = commitWait
	}
	if _, _, err := net.SplitHostPort(o.ProbeAddr); o.ProbeAddr != "" && err != nil {
		return fmt.Errorf("probe address %q: want host:port, as in 0.0.0.0:8701 or :8701", o.ProbeAddr)
	}
	return o.reachable()
}

// reachable refuses an address beyond loopback if there are no tokens, or if tokens
// would cross the network without TLS.
func (o *Options) reachable() error {
	local, err := loopback(o.Addr)
	switch {
	case err != nil || local:
		return err
	case o.Tokens == nil:
		return fmt.Errorf("address %q can be reached from other machines, and nobody would have to say who they are: give edda run a file of tokens with --tokens, or use a loopback address such as 127.0.0.1:8700", o.Addr)
	case o.Certificates == nil && !o.TLSEnds:
		return fmt.Errorf("address %q can be reached from other machines, and tokens would go there in the clear: set tls.cert and tls.key, or tls.elsewhere where a proxy or a mesh before this process ends TLS", o.Addr)
	}
	return nil
}

func loopback(addr string) (bool, error) {
	local, err := httpserver.OnLoopback(addr)
	if err != nil {
		return false, fmt.Errorf("address %q: want host:port, as in 127.0.0.1:8700", addr)
	}
	return local, nil
}

func describe(b Build) huma.Config {
	c := huma.DefaultConfig("Edda", b.Version)
	c.Info.Description = "Durable sagas: instances, signals, answers and the operator's verbs."
	c.CreateHooks = nil // answers without $schema
	c.Formats = bodies()
	c.DocsPath = "" // its page loads a script from another site; see docs
	return c
}

// Handler returns the handler of the API, for tests.
func (s *Server) Handler() http.Handler { return s.main.Handler() }

// Listen binds the addresses. Call it before other parts start, so that a port in use
// fails the start early.
func (s *Server) Listen() error {
	if s.options.Front != nil {
		return nil
	}
	if err := s.main.Listen(); err != nil {
		return err
	}
	if err := s.probing.Listen(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Read sets the store, which may be opened after Listen. Call it before Run.
func (s *Server) Read(from Store, shard int) { s.options.Store, s.options.Shard = from, shard }

// Addr returns the address of the API: after Listen the real one, with its port.
func (s *Server) Addr() string {
	if f := s.options.Front; f != nil {
		return f.Addr()
	}
	return s.main.Addr()
}

// ProbeAddr returns the second address of the probes; empty without one.
func (s *Server) ProbeAddr() string {
	if f := s.options.Front; f != nil {
		return f.ProbeAddr()
	}
	return s.probing.Addr()
}

// Close releases the addresses if Run was never called.
func (s *Server) Close() error { return errors.Join(s.main.Close(), s.probing.Close()) }

// Run serves until ctx ends, then waits shutdownWait for answers in flight. It releases the
// addresses as soon as ctx ends. Call Listen first.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if f := s.options.Front; f != nil {
		g.Go(func() error { return f.shards[s.options.Shard].run(ctx, s) })
	} else {
		g.Go(func() error { return s.main.Run(ctx) })
		g.Go(func() error { return s.probing.Run(ctx) })
	}
	if s.forward != nil {
		defer s.forward.transport.CloseIdleConnections()
		g.Go(func() error { return s.forward.run(ctx) })
	}
	return g.Wait()
}
