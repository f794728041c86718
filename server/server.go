// Package server is Edda over HTTP: how the process is, what it runs, the
// operator's acts on the process, and the API of instances under /v1.
//
// It never changes anything itself: what people want from an instance is
// published as a message, and the call answers once the message is committed.
// What it refuses: a route that says not who may call it, to listen beyond
// loopback while nobody has to say who they are, requests from other web sites, bodies above a limit, and to log payloads.
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
)

const (
	// maxBody is above what a NATS message may carry, so that the limit people
	// meet is the stream's, with its clearer message.
	maxBody = 2 << 20
	// maxHeader is ample for tokens and traces.
	maxHeader = 32 << 10
	// headerTimeout and readTimeout end clients that trickle.
	headerTimeout = 5 * time.Second
	readTimeout   = 20 * time.Second
	// writeTimeout is above the longest wait for a commit.
	writeTimeout = commitWait + 20*time.Second
	idleTimeout  = 2 * time.Minute
	// commitWait is how long a call waits until its message is committed: far
	// more than a healthy engine needs, less than clients and proxies wait.
	commitWait = 10 * time.Second
	// shutdownWait lets answers under way go out.
	shutdownWait = time.Second
)

// Options of a server. Process, Instances, DeadLetters, Inbox and Records are required.
type Options struct {
	// Addr is host:port; 127.0.0.1:8700 when empty.
	Addr string
	// ProbeAddr is where the probes are answered as well, and nothing else: any
	// address, since they change and tell nothing that is secret. None when empty.
	ProbeAddr string
	Build     Build
	Log       *zap.Logger
	// Metrics is what /metrics shows; nothing when nil.
	Metrics prometheus.Gatherer
	// Register is where the server's own metrics go; nowhere when nil.
	Register prometheus.Registerer
	// Tenant is meant where a call names none; empty refuses such calls.
	Tenant string
	// NoTenancy switches tenants off: every key has the empty tenant.
	NoTenancy bool
	// Tokens says who may call, and what. Without it everyone may do everything,
	// and only loopback is listened on.
	Tokens *access.Keeper
	// Certificates make the API's address TLS; nil is in the clear.
	Certificates *Certificates
	// TLSEnds says that something before this server ends TLS, a proxy or a mesh:
	// with tokens it may then be reached from other machines in the clear.
	TLSEnds bool
	// CommitWait overrides how long a call waits for its commit.
	CommitWait time.Duration

	Process     Process
	Instances   Instances
	DeadLetters DeadLetters
	Inbox       Inbox
	Records     Records
	// Upkeep is nil where the store is none of the callers' business.
	Maintenance Maintenance
	// Replays is nil where there are no sagas.
	Replays Replays
}

// Build says which program this is.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Commit  string `json:"commit,omitempty"`
}

// Server is the HTTP side of a process.
type Server struct {
	options Options
	routes  *routes
	api     huma.API
	main    *httpserver.Server
	probing *httpserver.Server // has no address where none is wanted
}

// New makes a server; nothing listens before Listen.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{options: o}
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
	if err := s.docs(); err != nil {
		return nil, err
	}
	s.routes.HandleFunc("/", notFound)
	s.main, s.probing = s.newHTTP("api", o.Addr, s.guard(s.routes)), s.newHTTP("probes", o.ProbeAddr, s.probesAlone())
	if o.Certificates != nil {
		s.main.Secure(o.Certificates.Config())
	}
	return s, nil
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

// reachable refuses an address that others can reach while callers cannot be
// told apart, or while their tokens would go over the network in the clear.
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
	c.CreateHooks = nil // no $schema in every answer
	c.Formats = bodies()
	c.DocsPath = "" // its pages load their script from elsewhere; see docs
	return c
}

// Handler is the whole server, for tests.
func (s *Server) Handler() http.Handler { return s.main.Handler() }

// Listen takes the addresses, so that a port in use is known before anything
// else starts.
func (s *Server) Listen() error {
	if err := s.main.Listen(); err != nil {
		return err
	}
	if err := s.probing.Listen(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Addr is where it listens, once it does.
func (s *Server) Addr() string { return s.main.Addr() }

// ProbeAddr is where the probes are answered as well; empty where nowhere.
func (s *Server) ProbeAddr() string { return s.probing.Addr() }

// Close gives the addresses back where Run never came to.
func (s *Server) Close() error { return errors.Join(s.main.Close(), s.probing.Close()) }

// Run serves until ctx ends, then lets answers under way go out. Listen comes first.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.main.Run(ctx) })
	g.Go(func() error { return s.probing.Run(ctx) })
	return g.Wait()
}
