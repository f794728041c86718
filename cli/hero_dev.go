package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"edda/hero/coordinator"
	"edda/node"
)

// registerHero offers the settings of the Hero systems under the names that the
// original has. Their defaults are those of the configuration.
func registerHero(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.Redis.URL, "redis", "", "where Redis is: redis://host:port; with --hero an embedded one unless said")
	f.StringVar(&c.Redis.URL, "redis-url", "", "the same as --redis")
	f.StringVar(&c.Redis.Addr, "redis-addr", "", "where Redis is: host:port")
	h := &c.Hero
	f.StringVar(&h.API.HTTPIP, "api-http-ip", h.API.HTTPIP, "address of the coordinator")
	f.IntVar(&h.API.HTTPPort, "api-http-port", h.API.HTTPPort, "port of the coordinator")
	f.StringVar(&h.API.WSIP, "api-ws-ip", h.API.WSIP, "address of the coordinator's WebSocket")
	f.IntVar(&h.API.WSPort, "api-ws-port", h.API.WSPort, "port of the coordinator's WebSocket")
	f.StringVar(&h.Mycelium.IP, "mycelium-ip", h.Mycelium.IP, "where Mycelium is")
	f.IntVar(&h.Mycelium.Port, "mycelium-port", 0, fmt.Sprintf("port of Mycelium's API (%d, or %d for REST)", node.MyceliumPort, node.MyceliumRESTPort))
	f.StringVar(&h.Mycelium.URL, "mycelium-url", "", "URL of Mycelium's API (MYCELIUM_URL)")
	f.StringVar(&h.Mycelium.Protocol, "mycelium-protocol", h.Mycelium.Protocol, "rpc or rest")
}

// welcomeHero says where the Hero systems are.
func (t *terminal) welcomeHero(h node.HeroRunning) {
	fmt.Fprintf(t.out, "  hero     coordinator http://%s and ws://%s\n", h.Coordinator, h.WebSocket)
	fmt.Fprintf(t.out, "  redis    %s\n", h.Redis)
	switch {
	case h.StandIn != nil:
		fmt.Fprintf(t.out, "  mycelium %s (a stand-in of this process, not Mycelium: it reaches this machine only)\n", h.Mycelium)
		fmt.Fprintf(t.out, "           this node: key %s  ip %s\n", h.StandIn.Key(), h.StandIn.IP())
	case h.Mycelium != "":
		fmt.Fprintf(t.out, "  mycelium %s\n", h.Mycelium)
	}
	if h.Runner != 0 {
		fmt.Fprintf(t.out, "  runner   %d, for %s\n", h.Runner, list(h.Scripts))
	}
}

// heroSuggestions are commands that lead to a flow that runs: who, where, and by what.
func heroSuggestions(h node.HeroRunning) []string {
	at := ""
	if h.Coordinator != coordinator.DefaultHTTPAddr {
		at = " --coordinator http://" + h.Coordinator
	}
	out := []string{
		`edda hero call actor.create '{"actor": {"id": 12, "pubkey": "", "address": []}}'` + at,
		`edda hero call context.create '{"context": {"id": 7, "admins": [12], "readers": [], "executors": []}}'` + at,
	}
	if h.Runner != 0 {
		out = append(out, fmt.Sprintf(`edda hero call runner.create '{"context_id": 7, "caller_id": 12, "runner": {"id": %d, "local": true}}'%s`, h.Runner, at))
	}
	return append(out, "edda hero flow create FILE --start"+at+"    # edda hero flow create --help shows a FILE")
}
