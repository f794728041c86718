package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"edda/hero/coordinator"
)

// devSecret is what callers of edda dev's supervisor say.
const devSecret = "dev-secret"

// registerHero offers the settings of the Hero systems under the names that the
// original has.
func (s *settings) registerHero(f *pflag.FlagSet) {
	f.StringVar(&s.Redis.URL, "redis", "", "where Redis is: redis://host:port; with --hero an embedded one unless said")
	f.StringVar(&s.Redis.URL, "redis-url", "", "the same as --redis")
	f.StringVar(&s.Redis.Addr, "redis-addr", "", "where Redis is: host:port")
	h := &s.Hero
	f.StringVar(&h.API.HTTPIP, "api-http-ip", loopback, "address of the coordinator")
	f.IntVar(&h.API.HTTPPort, "api-http-port", defaultAPIPort, "port of the coordinator")
	f.StringVar(&h.API.WSIP, "api-ws-ip", loopback, "address of the coordinator's WebSocket")
	f.IntVar(&h.API.WSPort, "api-ws-port", defaultWSPort, "port of the coordinator's WebSocket")
	f.StringVar(&h.Mycelium.IP, "mycelium-ip", loopback, "where Mycelium is")
	f.IntVar(&h.Mycelium.Port, "mycelium-port", 0, fmt.Sprintf("port of Mycelium's API (%d, or %d for REST)", defaultMyceliumPort, defaultRESTPort))
	f.StringVar(&h.Mycelium.URL, "mycelium-url", "", "URL of Mycelium's API (MYCELIUM_URL)")
	f.StringVar(&h.Mycelium.Protocol, "mycelium-protocol", protocolRPC, "rpc or rest")
}

// devHero makes the settings of edda dev --hero.
func (s *settings) devHero(on bool, said func(flag string) bool) error {
	if on {
		s.Role = roleCoordinator + "," + roleRunner
		if len(s.Manifests) > 0 {
			s.Role += "," + roleCombined
		}
		s.Tenants = s.served()
	}
	var err error
	if s.Hero, err = s.Hero.fromEnv(s.env); err != nil {
		return err
	}
	s.standIn = on && s.Hero.Mycelium.URL == "" && !said("mycelium-port") && !said("mycelium-ip")
	if s.standIn && s.Hero.Supervisor.Secret == "" { // it is no secret, and only this machine can use it
		s.Hero.Supervisor.Secret = devSecret
	}
	return s.validateHero()
}

// welcomeHero says where the Hero systems are.
func (t *terminal) welcomeHero(p *process) {
	c := p.hero.coordinator
	if c == nil {
		return
	}
	fmt.Fprintf(t.out, "  hero     coordinator http://%s and ws://%s\n", c.HTTPAddr(), c.WSAddr())
	fmt.Fprintf(t.out, "  redis    %s\n", p.redisAt())
	switch {
	case p.hero.standIn != nil:
		fmt.Fprintf(t.out, "  mycelium %s (a stand-in of this process, not Mycelium: it reaches this machine only)\n", p.settings.Hero.Mycelium.address())
		n := p.hero.standIn.node(standInName)
		fmt.Fprintf(t.out, "           this node: key %s  ip %s\n", n.Key(), n.IP())
	case p.hero.mesh != nil:
		fmt.Fprintf(t.out, "  mycelium %s\n", p.settings.Hero.Mycelium.address())
	}
	if w := p.hero.works; w != nil {
		fmt.Fprintf(t.out, "  runner   %d, for %s\n", p.settings.Hero.Runner.ID, list(w.scripts.Types()))
	}
}

// heroSuggestions are commands that lead to a flow that runs: who, where, and by what.
func (p *process) heroSuggestions() []string {
	at := ""
	if addr := p.hero.coordinator.HTTPAddr(); addr != coordinator.DefaultHTTPAddr {
		at = " --coordinator http://" + addr
	}
	out := []string{
		`edda hero call actor.create '{"actor": {"id": 12, "pubkey": "", "address": []}}'` + at,
		`edda hero call context.create '{"context": {"id": 7, "admins": [12], "readers": [], "executors": []}}'` + at,
	}
	if p.hero.works != nil {
		out = append(out, fmt.Sprintf(`edda hero call runner.create '{"context_id": 7, "caller_id": 12, "runner": {"id": %d, "local": true}}'%s`, p.settings.Hero.Runner.ID, at))
	}
	return append(out, "edda hero flow create FILE --start"+at+"    # edda hero flow create --help shows a FILE")
}
