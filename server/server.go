// Package server is Edda over HTTP: how the process is, what it runs, the
// operator's acts on the process, and the API of instances under /v1.
//
// It never changes anything itself: what people want from an instance is
// published as a message, and the call answers once the message is committed.
// What it refuses: to listen beyond loopback while nobody has to say who they
// are, requests from other web sites, bodies above a limit, and to log payloads.
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

// Options of a server. Process, Instances, DeadLetters and Inbox are required.
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
	// Tenant is meant where a call names none; empty refuses such calls.
	Tenant string
	// NoTenancy switches tenants off: every key has the empty tenant.
	NoTenancy bool
	// CommitWait overrides how long a call waits for its commit.
	CommitWait time.Duration

	Process     Process
	Instances   Instances
	DeadLetters DeadLetters
	Inbox       Inbox
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
	api     huma.API
	main    door
	probing door // has no address where none is wanted
}

// New makes a server; nothing listens before Listen.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s := &Server{options: o}
	s.api = humago.New(mux, describe(o.Build))
	s.probes(mux)
	s.process()
	s.instances()
	s.acts()
	s.deadLetters()
	s.events()
	s.replays()
	mux.HandleFunc("/", notFound)
	s.main = door{addr: o.Addr, handler: s.guard(mux)}
	s.probing = door{addr: o.ProbeAddr, handler: s.probesAlone()}
	return s, nil
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
	return loopback(o.Addr)
}

// loopback refuses an address that others can reach: there are no credentials
// to tell them apart.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("address %q: want host:port, as in 127.0.0.1:8700", addr)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("address %q can be reached from other machines, and nobody would have to say who they are: use a loopback address such as 127.0.0.1:8700", addr)
}

func describe(b Build) huma.Config {
	c := huma.DefaultConfig("Edda", b.Version)
	c.Info.Description = "Durable sagas: instances, signals, answers and the operator's verbs."
	c.CreateHooks = nil // no $schema in every answer
	return c
}

// Handler is the whole server, for tests.
func (s *Server) Handler() http.Handler { return s.main.handler }

// Listen takes the addresses, so that a port in use is known before anything
// else starts.
func (s *Server) Listen() error {
	if err := s.main.listen(); err != nil {
		return err
	}
	if err := s.probing.listen(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// Addr is where it listens, once it does.
func (s *Server) Addr() string { return s.main.where() }

// ProbeAddr is where the probes are answered as well; empty where nowhere.
func (s *Server) ProbeAddr() string { return s.probing.where() }

// Close gives the addresses back where Run never came to.
func (s *Server) Close() error { return errors.Join(s.main.close(), s.probing.close()) }

// Run serves until ctx ends, then lets answers under way go out. Listen comes first.
func (s *Server) Run(ctx context.Context) error {
	log := zap.NewStdLog(s.options.Log.Named("http"))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.main.serve(ctx, log) })
	g.Go(func() error { return s.probing.serve(ctx, log) })
	return g.Wait()
}
