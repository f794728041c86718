package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"edda/hero/mycelium/standin"
	"edda/internal/httpserver"
)

// StandIn is a network of nodes with Mycelium's message API in this process, for
// development. It is not Mycelium, and reaches no node outside.
type StandIn struct {
	bus     *standin.Bus
	servers []*httpserver.Server
	count   *prometheus.CounterVec
	names   map[string]string // of the nodes, by key
}

// standInReads bounds the time in which a client sends its request.
const standInReads = 10 * time.Second

// NewStandIn binds the addresses of each node's JSON-RPC and REST API. Run serves them.
func NewStandIn(nodes ...StandInNode) (*StandIn, error) {
	s := &StandIn{count: standInMessages(), names: map[string]string{}}
	s.bus = standin.New(standin.Options{Fault: s.carried})
	for _, n := range nodes {
		s.names[s.bus.Node(n.Name).Key()] = n.Name
	}
	for _, n := range nodes {
		rpc, err := s.bus.Node(n.Name).RPC()
		if err == nil {
			err = errors.Join(s.serve(n.RPC, rpc), s.serve(n.REST, s.bus.Node(n.Name).REST()))
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("stand-in for mycelium, node %s: %w", n.Name, err)
		}
	}
	return s, nil
}

// Messages counts the messages between the nodes.
func (s *StandIn) Messages() prometheus.Collector { return s.count }

// carried counts a message, and makes no fault.
func (s *StandIn) carried(e standin.Envelope) standin.Fault {
	kind := "call"
	if e.Reply {
		kind = "reply"
	}
	s.count.WithLabelValues(s.names[e.From], s.names[e.To], kind).Inc()
	return standin.Fault{}
}

// standInName is the node of edda dev.
const standInName = "edda"

// Node returns the node with the name.
func (s *StandIn) Node(name string) *standin.Node { return s.bus.Node(name) }

// StandInNode is a node with the addresses of its APIs. An empty address is not served.
type StandInNode struct{ Name, RPC, REST string }

func (s *StandIn) serve(addr string, h http.Handler) error {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	h = httpserver.SameHost(httpserver.OwnPages(believing(h), refuse), refuse)
	d := httpserver.New(addr, h, httpserver.Options{ReadHeaders: standInReads})
	s.servers = append(s.servers, d)
	return d.Listen()
}

// believing treats every caller as authenticated, so that a pop may wait.
func believing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserver.Authenticated(r.Context())
		next.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends, and then cuts pops that wait.
func (s *StandIn) Run(ctx context.Context) error {
	defer s.bus.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range s.servers {
		group.Go(func() error { return d.Run(ctx) })
	}
	return group.Wait()
}

// Close releases the addresses if Run is not called.
func (s *StandIn) Close() {
	for _, d := range s.servers {
		_ = d.Close() // the caller reports the error that came before
	}
	s.bus.Close()
}
