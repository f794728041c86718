package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"edda/node"
)

// heroMyceliumCommand serves the stand-in by itself, for processes apart.
func (t *terminal) heroMyceliumCommand() *cobra.Command {
	var ip, metrics string
	var port, count int
	c := &cobra.Command{
		Use: "mycelium", Short: "Serve a stand-in for Mycelium on this machine, for development",
		Long: `Serve a stand-in for Mycelium's message API on this machine: several nodes that
reach only each other. It is not Mycelium: nothing is encrypted and nothing leaves
this process. Each node answers JSON-RPC on a port of its own, from --port upwards;
REST is 100 ports above.`,
		Example: "  edda hero mycelium --nodes 2 --port 8990",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 || port < 1 || port+100+count > 65535 {
				return usagef("--nodes and --port: want one node or more, and ports up to 65535")
			}
			return t.serveMycelium(cmd.Context(), ip, port, count, metrics)
		},
	}
	c.Flags().StringVar(&ip, "ip", node.Defaults().Hero.Mycelium.IP, "address to listen on: a loopback one")
	c.Flags().IntVar(&port, "port", node.MyceliumPort, "port of the first node")
	c.Flags().IntVar(&count, "nodes", 2, "number of nodes")
	c.Flags().StringVar(&metrics, "metrics", "", "address that answers /metrics and /health, such as 127.0.0.1:9101")
	return c
}

func (t *terminal) serveMycelium(ctx context.Context, ip string, port, count int, metrics string) error {
	if at := net.ParseIP(ip); at == nil || !at.IsLoopback() {
		return usagef("--ip %s: the stand-in knows no secrets and listens on loopback only", ip)
	}
	at := func(port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }
	var nodes []node.StandInNode
	for i := range count {
		nodes = append(nodes, node.StandInNode{Name: fmt.Sprintf("node%d", i+1), RPC: at(port + i), REST: at(port + 100 + i)})
	}
	s, err := node.NewStandIn(nodes...)
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.Messages())
	stop, err := serveMetrics(metrics, reg, func(context.Context) error { return nil })
	if err != nil {
		s.Close()
		return err
	}
	defer stop()
	fmt.Fprintln(t.out, "A stand-in for Mycelium is running; it is not Mycelium, and reaches this machine only.")
	for _, n := range nodes {
		fmt.Fprintf(t.out, "  %s  key %s  ip %s  rpc http://%s  rest http://%s\n", n.Name, s.Node(n.Name).Key(), s.Node(n.Name).IP(), n.RPC, n.REST)
	}
	return s.Run(ctx)
}
