package node

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"go.yaml.in/yaml/v4"

	"edda/effects"
	"edda/engine"
	"edda/outbox"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

// Config is the configuration of a process. [Defaults] and [Load] make one. The tags of a field
// say all that its place in the struct does not: koanf its key in the file and, in upper case, in
// the variable; flag the flags that set it; secret that config view masks it; reload that a reload
// applies it, and not only the next start.
type Config struct {
	Addr       string           `koanf:"addr" flag:"addr"`
	ProbeAddr  string           `koanf:"probe_addr" flag:"probe-addr"`
	Data       string           `koanf:"data" flag:"data"`
	Manifests  []string         `koanf:"manifests" reload:"yes"`
	Role       string           `koanf:"role" flag:"role"`
	Tenants    []string         `koanf:"tenants" flag:"tenants" reload:"yes"`
	Tenancy    tenancyConfig    `koanf:"tenancy"`
	Tokens     tokensConfig     `koanf:"tokens"`
	TLS        tlsConfig        `koanf:"tls"`
	Encryption encryptionConfig `koanf:"encryption"`
	NATS       natsConfig       `koanf:"nats"`
	Streams    streamsConfig    `koanf:"streams"`
	// Sources are the streams of others that sagas read, by name.
	Sources   map[string]sourceConfig `koanf:"sources"`
	Gateway   gatewayConfig           `koanf:"gateway"`
	Outbox    outboxConfig            `koanf:"outbox"`
	Parked    parkedConfig            `koanf:"parked"`
	Dead      deadConfig              `koanf:"dead_letters"`
	Effects   effectsConfig           `koanf:"effects"`
	Retention retentionConfig         `koanf:"retention"`
	Redis     redisConfig             `koanf:"redis"`
	Hero      heroConfig              `koanf:"hero"`
	Log       logConfig               `koanf:"log"`
	// AcceptStreamLoss continues although a stream lost messages after the checkpoint.
	AcceptStreamLoss bool `koanf:"accept_stream_loss" flag:"accept-stream-loss"`
	// AdoptEmpty takes over tenants of another store, without their instances.
	AdoptEmpty bool `koanf:"adopt_empty" flag:"adopt-empty"`
}

type tenancyConfig struct {
	Enabled bool `koanf:"enabled"`
}

// tokensConfig names the token book. Without one everyone may call, on loopback only.
type tokensConfig struct {
	File string `koanf:"file" flag:"tokens"`
}

// tlsConfig is the TLS configuration of the HTTP server.
type tlsConfig struct {
	Cert     string `koanf:"cert" flag:"tls-cert"`
	Key      string `koanf:"key" flag:"tls-key"`
	ClientCA string `koanf:"client_ca" flag:"tls-client-ca"`
	// Elsewhere says that a proxy or a mesh in front terminates TLS.
	Elsewhere bool `koanf:"elsewhere"`
}

// encryptionConfig names the keyset that encrypts the store; empty means no encryption.
type encryptionConfig struct {
	Keyset string `koanf:"keyset"` // file; see edda key
}

// natsConfig has the settings of the nats CLI. NATS_* variables fill empty ones.
type natsConfig struct {
	URL      string `koanf:"url" flag:"nats-url"`
	Context  string `koanf:"context" flag:"nats-context"`
	Creds    string `koanf:"creds"`
	NKey     string `koanf:"nkey"`
	User     string `koanf:"user"`
	Password string `koanf:"password" secret:"yes"`
	Token    string `koanf:"token" secret:"yes"`
	Cert     string `koanf:"cert"`
	Key      string `koanf:"key"`
	CA       string `koanf:"ca"`
	// SyncInterval is the server's sync_interval; zero means sync_interval: always.
	SyncInterval time.Duration `koanf:"sync_interval"`
}

type streamsConfig struct {
	Replicas   int                      `koanf:"replicas"`
	Age        map[string]time.Duration `koanf:"age"`
	Duplicates time.Duration            `koanf:"duplicates"`
	From       string                   `koanf:"from"`
	// MaxPayload bounds a message, in bytes; zero means 1 MiB. A larger message becomes
	// a dead letter. NATS has a limit of its own before that.
	MaxPayload int `koanf:"max_payload"`
}

type gatewayConfig struct {
	URL       string        `koanf:"url" flag:"gateway"`
	Path      string        `koanf:"path"`
	TokenFile string        `koanf:"token_file"`
	Timeout   time.Duration `koanf:"timeout"`
	Cert      string        `koanf:"cert"`
	Key       string        `koanf:"key"`
	CA        string        `koanf:"ca"`
}

// outboxConfig bounds the outbox.
type outboxConfig struct {
	// Max bounds the rows of one destination. Sagas and tenants share it.
	Max int `koanf:"max"`
}

// parkedConfig bounds the events that wait for their instance.
type parkedConfig struct {
	// Max bounds the parked events of a tenant. The next one becomes a dead letter.
	Max int `koanf:"max"`
}

// deadConfig bounds dead letters.
type deadConfig struct {
	// MaxBytes bounds the dead letters of a tenant, in bytes. Above it the next one is
	// stored without its payload, which stays in its stream.
	MaxBytes int `koanf:"max_bytes"`
}

type effectsConfig struct {
	// Allow lists loopback, private and link-local hosts and networks that effects may
	// call.
	Allow []string `koanf:"allow"`
	// ListedOnly refuses every host that Allow does not list.
	ListedOnly bool   `koanf:"listed_only"`
	Secrets    string `koanf:"secrets"` // folder with one file per secret
	// Ledger is the place of the claims: local or shared.
	Ledger string `koanf:"ledger"`
	// Handoff hands effect commands over within the process, if it runs the sagas and
	// has the ledger. Without it commands go through their stream.
	Handoff   bool          `koanf:"handoff"`
	Retention time.Duration `koanf:"retention"` // of claims
	// Lease and AckWait bound the silence of a worker: until another one may take its
	// claim, and until its message is redelivered.
	Lease   time.Duration `koanf:"lease"`
	AckWait time.Duration `koanf:"ack_wait"`
	// HeldBytes bounds the memory of the commands of one effect.
	HeldBytes int `koanf:"held_bytes"`
	// StandardHTTP uses Go's net/http client for plain http too.
	StandardHTTP bool `koanf:"standard_http"`
}

type logConfig struct {
	Level string `koanf:"level"`
}

// Defaults returns the configuration without a file, variables and flags.
func Defaults() Config {
	return Config{
		Addr: DefaultAddr, Data: "edda-data", Role: roleCombined, Tenancy: tenancyConfig{Enabled: true},
		Outbox: outboxConfig{Max: engine.DefaultMaxOutbox}, Parked: parkedConfig{Max: engine.DefaultMaxParked}, Dead: deadConfig{MaxBytes: store.DefaultMaxDeadBytes},
		NATS:    natsConfig{SyncInterval: defaultSyncInterval},
		Streams: streamsConfig{Replicas: 1, MaxPayload: wire.DefaultMaxPayload}, Gateway: gatewayConfig{Timeout: outbox.DefaultGatewayTimeout},
		Log: logConfig{Level: "info"}, Retention: retentionDefaults(),
		Effects: effectsConfig{Handoff: true, Retention: effects.DefaultRetention, Lease: kv.DefaultLedgerLease, AckWait: stream.DefaultAckWait, HeldBytes: effects.DefaultHeldBytes},
		Hero:    heroDefaults(),
	}
}

// DefaultAddr is the default address of the HTTP server.
const DefaultAddr = "127.0.0.1:8700"

// ConfigError is an error in the configuration, or in a file that it names.
type ConfigError struct{ err error }

func (e *ConfigError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.err }

func configf(format string, args ...any) error {
	return &ConfigError{fmt.Errorf(format, args...)}
}

func (c Config) validate() error {
	if err := checkRoles(c.Role); err != nil {
		return err
	}
	if c.Streams.From != "" && c.Streams.From != "now" && c.Streams.From != "all" {
		return configf("streams.from %q: want now or all", c.Streams.From)
	}
	if c.Outbox.Max < 1 || c.Parked.Max < 1 || c.Dead.MaxBytes < 1 {
		return configf("outbox.max %d, parked.max %d, dead_letters.max_bytes %d: want 1 at least", c.Outbox.Max, c.Parked.Max, c.Dead.MaxBytes)
	}
	if c.NATS.SyncInterval < 0 || c.NATS.SyncInterval > maxSyncInterval {
		return configf("nats.sync_interval %s: want between 0, where the server syncs before it acknowledges (sync_interval: always), and %s", c.NATS.SyncInterval, maxSyncInterval)
	}
	if err := c.validateHero(); err != nil {
		return err
	}
	_, err := c.mappings()
	return errors.Join(c.Effects.validate(), c.Retention.validate(), err)
}

// differs names the settings of the first level that differ and that a reload does not apply.
func (c Config) differs(other Config) []string {
	var out []string
	theirs := reflect.ValueOf(other)
	for f, mine := range reflect.ValueOf(c).Fields() {
		if f.Tag.Get("reload") == "" && !reflect.DeepEqual(mine.Interface(), theirs.FieldByIndex(f.Index).Interface()) {
			out = append(out, f.Tag.Get("koanf"))
		}
	}
	return out
}

// YAML returns the configuration in the form of its file, with secrets masked.
func (c Config) YAML() ([]byte, error) {
	text, err := yaml.Marshal(plain(reflect.ValueOf(c)))
	if err != nil {
		return nil, fmt.Errorf("print configuration: %w", err)
	}
	return text, nil
}

// plain converts a configuration to the form of a file, with secrets masked.
func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case map[string]time.Duration:
		out := map[string]string{}
		for name, d := range x {
			out[name] = d.String()
		}
		return out
	}
	if v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct {
		out := map[string]any{}
		for name, field := range v.Seq2() {
			out[name.String()] = plain(field)
		}
		return out
	}
	if v.Kind() != reflect.Struct {
		return v.Interface()
	}
	out := map[string]any{}
	for f, field := range v.Fields() {
		key := f.Tag.Get("koanf")
		if out[key] = plain(field); f.Tag.Get("secret") != "" && !field.IsZero() {
			out[key] = "(set, not shown)"
		}
	}
	return out
}
