package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestTheHeroSettings(t *testing.T) {
	tests := map[string]struct{ config, says string }{
		"several roles":                 {"role: 'saga, coordinator,runner'", "role: saga, coordinator,runner"},
		"a word that is no role":        {"role: saga,coordinatr", `role "coordinatr": want one or several of saga, effect, combined, coordinator, runner; did you mean coordinator?`},
		"no role":                       {"role: ','", "role: want one or several of"},
		"the documented ports":          {"", "http_port: 9652"},
		"the other one":                 {"", "ws_port: 9653"},
		"a password is not shown":       {"redis: {url: 'redis://:geheim@127.0.0.1'}", "(set, not shown)"},
		"two ways to one Redis":         {"redis: {url: 'redis://a', addr: 'b:1'}", "redis.url and redis.addr: want one of them"},
		"a protocol that is none":       {"hero: {mycelium: {protocol: udp}}", `hero.mycelium.protocol "udp": want rpc or rest`},
		"a port that is none":           {"hero: {mycelium: {port: 70000}}", "hero.mycelium.port 70000: want a port"},
		"no loopback without tokens":    {"hero: {api: {http_ip: 0.0.0.0}}", "listens on loopback only; name a file of tokens in hero.api.tokens"},
		"no address":                    {"hero: {api: {ws_ip: here}}", `hero.api.ws_ip "here": want an IP address`},
		"a runner without a number":     {"hero: {runner: {id: 0}}", "hero.runner.id: want a number above 0"},
		"a bound below nothing":         {"hero: {runner: {memory: -1}}", "bounds are not negative"},
		"tenants of flows are no globs": {"hero: {tenant: '*'}", "want the name of one tenant"},
		"interpreters are a map":        {"hero: {runner: {interpreters: {lua: [lua, '-']}}}", "lua"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			said := configView(t, test.config)
			if !strings.Contains(said, test.says) || strings.Contains(said, "geheim") {
				t.Errorf("%q is not in %s", test.says, said)
			}
		})
	}
}

// configView is what edda config view says of a configuration.
func configView(t *testing.T, config string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, file, config)
	out, err := newScreen(), newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: err}
	term.run(t.Context(), []string{"config", "view", "--config", file})
	return out.String() + err.String()
}
