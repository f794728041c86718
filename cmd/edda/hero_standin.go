package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"edda/hero/mycelium/standin"
	"edda/internal/httpserver"
)

// standIn is a network of Mycelium's message API within this process, for
// development: it is not Mycelium, and reaches nobody else.
type standIn struct {
	bus     *standin.Bus
	servers []*httpserver.Server
	count   *prometheus.CounterVec
	names   map[string]string // of the nodes, by key
}

// standInReads bounds how long a client may take to send its request.
const standInReads = 10 * time.Second

// newStandIn serves the JSON-RPC and the REST API of each named node. Addresses
// are taken at once.
func newStandIn(nodes ...standInNode) (*standIn, error) {
	s := &standIn{count: countCarried(), names: map[string]string{}}
	s.bus = standin.New(standin.Options{Fault: s.carried})
	for _, n := range nodes {
		s.names[s.bus.Node(n.name).Key()] = n.name
	}
	for _, n := range nodes {
		rpc, err := s.bus.Node(n.name).RPC()
		if err == nil {
			err = errors.Join(s.serve(n.rpc, rpc), s.serve(n.rest, s.bus.Node(n.name).REST()))
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("stand-in for mycelium, node %s: %w", n.name, err)
		}
	}
	return s, nil
}

// countCarried counts what the nodes send each other.
func countCarried() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "edda_hero_standin_messages_total", Help: "Messages between the nodes of the stand-in, by who sent them; a kind is call or reply.",
	}, []string{"from", "to", "kind"})
}

// carried counts a message, and lets it go as it is.
func (s *standIn) carried(e standin.Envelope) standin.Fault {
	kind := "call"
	if e.Reply {
		kind = "reply"
	}
	s.count.WithLabelValues(s.names[e.From], s.names[e.To], kind).Inc()
	return standin.Fault{}
}

// standInName is the node that edda dev is.
const standInName = "edda"

// node is the one of the name.
func (s *standIn) node(name string) *standin.Node { return s.bus.Node(name) }

// standInNode is a node and where it is served; an empty address is not.
type standInNode struct{ name, rpc, rest string }

func (s *standIn) serve(addr string, h http.Handler) error {
	refuse := func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) }
	h = httpserver.SameHost(httpserver.OwnPages(believing(h), refuse), refuse)
	d := httpserver.New(addr, h, httpserver.Options{ReadHeaders: standInReads})
	s.servers = append(s.servers, d)
	return d.Listen()
}

// believing takes every caller for one who is known, so that a pop may wait.
func believing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserver.Authenticated(r.Context())
		next.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends. Pops that wait are cut then.
func (s *standIn) Run(ctx context.Context) error {
	defer s.bus.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, d := range s.servers {
		group.Go(func() error { return d.Run(ctx) })
	}
	return group.Wait()
}

// close gives the addresses back where Run never came to.
func (s *standIn) close() {
	for _, d := range s.servers {
		_ = d.Close() // the error that it ends with is another
	}
	s.bus.Close()
}

// heroMyceliumCommand serves the stand-in by itself, for processes apart.
func (t *terminal) heroMyceliumCommand() *cobra.Command {
	var ip, metrics string
	var port, count int
	c := &cobra.Command{
		Use: "mycelium", Short: "Serve a stand-in for Mycelium on this machine, for development",
		Long: `Serve a stand-in for Mycelium's message API on this machine: several nodes that
reach each other and nobody else. It is not Mycelium: nothing is encrypted and
nothing leaves this process. Each node answers JSON-RPC on a port of its own, the
first on --port, the next ones on the following; REST is 100 ports above.`,
		Example: "  edda hero mycelium --nodes 2 --port 8990",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || port < 1 || port+100+count > 65535 {
				return usagef("--nodes and --port: want one node or more, and ports up to 65535")
			}
			return t.serveMycelium(cmd.Context(), ip, port, count, metrics)
		},
	}
	c.Flags().StringVar(&ip, "ip", loopback, "address to listen on: a loopback one")
	c.Flags().IntVar(&port, "port", defaultMyceliumPort, "port of the first node")
	c.Flags().IntVar(&count, "nodes", 2, "how many nodes")
	c.Flags().StringVar(&metrics, "metrics", "", "address that answers /metrics and /health, such as 127.0.0.1:9101")
	return c
}

func (t *terminal) serveMycelium(ctx context.Context, ip string, port, count int, metrics string) error {
	if at := net.ParseIP(ip); at == nil || !at.IsLoopback() {
		return usagef("--ip %s: the stand-in knows no secrets and listens on loopback only", ip)
	}
	at := func(port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }
	var nodes []standInNode
	for i := range count {
		nodes = append(nodes, standInNode{name: fmt.Sprintf("node%d", i+1), rpc: at(port + i), rest: at(port + 100 + i)})
	}
	s, err := newStandIn(nodes...)
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.count)
	stop, err := serveMetrics(metrics, reg, func(context.Context) error { return nil })
	if err != nil {
		s.close()
		return err
	}
	defer stop()
	fmt.Fprintln(t.out, "A stand-in for Mycelium is running; it is not Mycelium, and reaches this machine only.")
	for _, n := range nodes {
		fmt.Fprintf(t.out, "  %s  key %s  ip %s  rpc http://%s  rest http://%s\n", n.name, s.bus.Node(n.name).Key(), s.bus.Node(n.name).IP(), n.rpc, n.rest)
	}
	return s.Run(ctx)
}
