package node

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda/hero/script"
)

// redisConfig is the address of Redis, which holds messages of sagas and the Hero systems.
type redisConfig struct {
	URL  string `koanf:"url" flag:"redis,redis-url" secret:"yes" doc:"redis:// or rediss://; for message:, job: effects and Hero"` // redis://, or rediss:// with user and password
	Addr string `koanf:"addr" flag:"redis-addr" doc:"host:port, instead of url"`                                                   // host:port, if no URL is needed
	CA   string `koanf:"ca" path:"yes" doc:"file with the authorities of its certificate"`
	Cert string `koanf:"cert" path:"yes" doc:"file with the certificate of this process"`
	Key  string `koanf:"key" path:"yes" doc:"file with its key"`
}

func (c redisConfig) configured() bool { return c.URL != "" || c.Addr != "" }

// heroConfig configures the roles coordinator and runner.
type heroConfig struct {
	// Tenant is the tenant of the flows' instances.
	Tenant     string           `koanf:"tenant" doc:"tenant of the flows' instances"`
	API        heroAPIConfig    `koanf:"api"`
	Mycelium   myceliumConfig   `koanf:"mycelium"`
	Runner     runnerConfig     `koanf:"runner"`
	Supervisor supervisorConfig `koanf:"supervisor"`
}

// heroAPIConfig holds the addresses of the coordinator's methods.
type heroAPIConfig struct {
	HTTPIP   string `koanf:"http_ip" flag:"api-http-ip" doc:"address of the coordinator's API"`
	HTTPPort int    `koanf:"http_port" flag:"api-http-port" doc:"its port"`
	WSIP     string `koanf:"ws_ip" flag:"api-ws-ip" doc:"address of its WebSocket"`
	WSPort   int    `koanf:"ws_port" flag:"api-ws-port" doc:"its port"`
	// Tokens is a file of "sha256:… actor" lines. Without it the server trusts every caller
	// and listens on loopback only.
	Tokens string `koanf:"tokens" path:"yes" doc:"file of callers; without it everyone may call, on loopback only"`
}

// myceliumConfig is the address of Mycelium's message API.
type myceliumConfig struct {
	Enabled  bool   `koanf:"enabled" doc:"send messages through Mycelium"`
	URL      string `koanf:"url" flag:"mycelium-url" doc:"URL of Mycelium's API, instead of ip and port"`
	IP       string `koanf:"ip" flag:"mycelium-ip" doc:"address of Mycelium's API"`
	Port     int    `koanf:"port" flag:"mycelium-port" doc:"its port; 0 is 8990, or 8989 for rest"`
	Protocol string `koanf:"protocol" flag:"mycelium-protocol" doc:"rpc or rest"` // rpc or rest
}

// runnerConfig configures the role runner.
type runnerConfig struct {
	ID uint32 `koanf:"id" doc:"another number for each runner of a context"`
	// Contexts lists the contexts whose queues the runner takes jobs from. Empty means every
	// context where runner:<id> is registered as local.
	Contexts []uint32 `koanf:"contexts" doc:"contexts whose jobs it takes; unset: all where it is local"`
	// Topic is the Mycelium topic that it takes jobs from; runner<id> by default.
	Topic        string              `koanf:"topic" doc:"Mycelium topic of its jobs; unset: runner<id>"`
	Interpreters map[string][]string `koanf:"interpreters" doc:"command lines by script type, such as python: [python3, \"-\"]"`
	Concurrency  int                 `koanf:"concurrency" doc:"jobs at once; 0: one for each processor"`
	Timeout      time.Duration       `koanf:"timeout" doc:"of a job without one; 0 is 10m"` // of a job without one
	Output       int64               `koanf:"output" doc:"bytes of a job; 0 is 1 MiB"`      // bytes
	Memory       int64               `koanf:"memory" doc:"bytes of a job; 0 is 1 GiB"`      // bytes
	CPU          time.Duration       `koanf:"cpu" doc:"processor time of a job; 0 is 1h"`
	// Logs of jobs: bytes before rotation, rotated parts per log, files per context, and age
	// since the last write.
	LogSize      int64         `koanf:"log_size" doc:"bytes of a log before it is rotated; 0 is 1 MiB"`
	LogRotations int           `koanf:"log_rotations" doc:"older parts of each log"`
	LogFiles     int           `koanf:"log_files" doc:"logs of a context"`
	LogAge       time.Duration `koanf:"log_age" doc:"age of a log since the last write"`
	// Sandbox runs scripts without network and without the host's files.
	Sandbox bool `koanf:"sandbox" doc:"run scripts without network and the host's files"`
	// Secrets name the variables whose values are masked in logs and results.
	Secrets []string `koanf:"secrets" doc:"variables whose values are masked; unset: names like *SECRET*"`
}

// supervisorConfig is the address at which the role runner serves the supervisor's API.
type supervisorConfig struct {
	Addr   string `koanf:"addr" doc:"HTTP address of the supervisor's API; unset: none"`                 // of HTTP; empty: none
	Secret string `koanf:"secret" secret:"yes" doc:"of its callers; without one there is no supervisor"` // of the callers
}

// The ports of Mycelium's API, JSON-RPC and REST.
const (
	MyceliumPort     = 8990
	MyceliumRESTPort = 8989
)

// Other defaults from the Hero documents.
const (
	defaultTenantHero = "hero"
	loopback          = "127.0.0.1"
	defaultAPIPort    = 9652
	defaultWSPort     = 9653
	protocolRPC       = "rpc"
	protocolREST      = "rest"
)

func heroDefaults() heroConfig {
	return heroConfig{
		Tenant:   defaultTenantHero,
		API:      heroAPIConfig{HTTPIP: loopback, HTTPPort: defaultAPIPort, WSIP: loopback, WSPort: defaultWSPort},
		Mycelium: myceliumConfig{Enabled: true, IP: loopback, Protocol: protocolRPC},
		Runner:   runnerConfig{ID: 1, LogRotations: script.DefaultLogRotations, LogFiles: script.DefaultLogFiles, LogAge: script.DefaultLogAge},
	}
}

// validateHero checks the settings of the roles coordinator and runner.
func (c Config) validateHero() error {
	h := c.Hero
	switch {
	case c.Redis.URL != "" && c.Redis.Addr != "":
		return configf("redis.url and redis.addr: want one of them")
	case !slices.Contains([]string{protocolRPC, protocolREST}, h.Mycelium.Protocol):
		return configf("hero.mycelium.protocol %q: want rpc or rest", h.Mycelium.Protocol)
	case h.Tenant == "" || strings.ContainsAny(h.Tenant, "*!"):
		return configf("hero.tenant %q: want the name of one tenant", h.Tenant)
	case h.Runner.ID == 0:
		return configf("hero.runner.id: want a number above 0, another for each runner of a context")
	case h.Runner.Concurrency < 0 || h.Runner.Timeout < 0 || h.Runner.Output < 0 || h.Runner.Memory < 0 || h.Runner.CPU < 0:
		return configf("hero.runner: bounds are not negative; 0 means the default")
	}
	if err := (script.LogBounds{Rotations: h.Runner.LogRotations, Age: h.Runner.LogAge}).Check(); err != nil {
		return configf("hero.runner: %w", err)
	}
	for name, port := range map[string]int{"api.http_port": h.API.HTTPPort, "api.ws_port": h.API.WSPort, "mycelium.port": h.Mycelium.Port} {
		if port < 0 || port > 65535 {
			return configf("hero.%s %d: want a port, 1 to 65535", name, port)
		}
	}
	return h.API.validate()
}

// validate refuses an API without tokens outside of loopback.
func (c heroAPIConfig) validate() error {
	for name, ip := range map[string]string{"http_ip": c.HTTPIP, "ws_ip": c.WSIP} {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return configf("hero.api.%s %q: want an IP address", name, ip)
		}
		if !addr.IsLoopback() && c.Tokens == "" {
			return configf("hero.api.%s %s: without tokens the coordinator believes its callers and listens on loopback only; name a file of tokens in hero.api.tokens", name, ip)
		}
	}
	return nil
}

func (c heroAPIConfig) httpAddr() string { return net.JoinHostPort(c.HTTPIP, strconv.Itoa(c.HTTPPort)) }
func (c heroAPIConfig) wsAddr() string   { return net.JoinHostPort(c.WSIP, strconv.Itoa(c.WSPort)) }

// address returns the URL of Mycelium's API.
func (c myceliumConfig) address() string {
	port := cmp.Or(c.Port, MyceliumPort)
	if c.Protocol == protocolREST {
		port = cmp.Or(c.Port, MyceliumRESTPort)
	}
	return cmp.Or(c.URL, "http://"+net.JoinHostPort(c.IP, strconv.Itoa(port)))
}

// FromEnv fills unset settings from the environment variables of the original Hero systems.
func (c Config) FromEnv(getenv func(string) string) (_ Config, err error) {
	if c.Hero, err = c.Hero.fromEnv(getenv); err != nil {
		return c, err
	}
	c.Redis.URL = cmp.Or(c.Redis.URL, redisFromEnv(c, getenv))
	return c, nil
}

func (h heroConfig) fromEnv(getenv func(string) string) (heroConfig, error) {
	if at := getenv("MYCELIUM_URL"); at != "" && h.Mycelium.URL == "" && h.Mycelium.Port == 0 {
		h.Mycelium.URL = at
	}
	at := getenv("COORDINATOR_URL")
	if at == "" || h.API.HTTPPort != defaultAPIPort || h.API.HTTPIP != loopback {
		return h, nil
	}
	u, err := url.Parse(at)
	if err != nil || u.Port() == "" {
		return h, configf("COORDINATOR_URL %q: want an address with a port, such as http://127.0.0.1:9652", at)
	}
	h.API.HTTPIP = cmp.Or(strings.TrimSuffix(u.Hostname(), "localhost"), loopback)
	h.API.HTTPPort, err = strconv.Atoi(u.Port())
	if err == nil {
		err = h.API.validate()
	}
	return h, err
}

// devSecret is the secret of edda dev's supervisor.
const devSecret = "dev-secret"

// DevHero completes the settings of edda dev. If on is set, the process has the roles coordinator
// and runner, and a stand-in for Mycelium unless a real one is configured.
func (s *Settings) DevHero(on, mycelium bool) error {
	if on {
		s.Role = roleCoordinator + "," + roleRunner
		if len(s.Manifests) > 0 {
			s.Role += "," + roleCombined
		}
		s.Tenants = s.served()
	}
	var err error
	if s.Hero, err = s.Hero.fromEnv(s.Env); err != nil {
		return err
	}
	s.StandIn = on && s.Hero.Mycelium.URL == "" && !mycelium
	if s.StandIn && s.Hero.Supervisor.Secret == "" { // only this machine can reach it
		s.Hero.Supervisor.Secret = devSecret
	}
	return s.validateHero()
}
