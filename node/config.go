package node

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
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
// the variable; flag the flags that set it; path that a relative one in the file begins at the
// file's folder; secret that config view masks it; reload that a reload applies it, and not only
// the next start; doc what it means, in the file of [Template].
type Config struct {
	Addr       string           `koanf:"addr" flag:"addr" doc:"address of the HTTP server; beyond loopback only with tokens.file"`
	ProbeAddr  string           `koanf:"probe_addr" flag:"probe-addr" doc:"second address for /health /live /ready /metrics, without a token"`
	Data       string           `koanf:"data" path:"yes" flag:"data" doc:"folder of the store"`
	Manifests  []string         `koanf:"manifests" path:"yes" reload:"yes" doc:"files and folders of sagas and effects"`
	Role       string           `koanf:"role" flag:"role" doc:"one or several of saga, effect, combined, coordinator, runner"`
	Tenants    []string         `koanf:"tenants" flag:"tenants" reload:"yes" doc:"only these tenants; names or patterns such as eu-*"`
	Tenancy    tenancyConfig    `koanf:"tenancy"`
	Tokens     tokensConfig     `koanf:"tokens"`
	TLS        tlsConfig        `koanf:"tls"`
	Encryption encryptionConfig `koanf:"encryption"`
	NATS       natsConfig       `koanf:"nats"`
	Streams    streamsConfig    `koanf:"streams"`
	Cluster    clusterConfig    `koanf:"cluster"`
	// Sources are the streams of others that sagas read, by name.
	Sources   map[string]sourceConfig `koanf:"sources" doc:"streams of others that sagas read, by name; edda source add writes one"`
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
	AcceptStreamLoss bool `koanf:"accept_stream_loss" flag:"accept-stream-loss" doc:"continue although a stream lost messages; audited"`
	// AdoptEmpty takes over tenants of another store, without their instances.
	AdoptEmpty bool `koanf:"adopt_empty" flag:"adopt-empty" doc:"take over tenants of another store, without their instances; audited"`
}

type tenancyConfig struct {
	Enabled bool `koanf:"enabled" doc:"false drops tenant.<tenant>. from every subject"`
}

// tokensConfig names the token book. Without one everyone may call, on loopback only.
type tokensConfig struct {
	File string `koanf:"file" path:"yes" flag:"tokens" doc:"callers and their roles: see edda token; without it everyone may call"`
}

// tlsConfig is the TLS configuration of the HTTP server.
type tlsConfig struct {
	Cert     string `koanf:"cert" path:"yes" flag:"tls-cert" doc:"file with the certificate of the HTTP server"`
	Key      string `koanf:"key" path:"yes" flag:"tls-key" doc:"file with its key"`
	ClientCA string `koanf:"client_ca" path:"yes" flag:"tls-client-ca" doc:"only clients with a certificate of these authorities may connect"`
	// Elsewhere says that a proxy or a mesh in front terminates TLS.
	Elsewhere bool `koanf:"elsewhere" doc:"a proxy or a mesh in front of this process ends TLS"`
}

// encryptionConfig names the keyset that encrypts the store; empty means no encryption.
type encryptionConfig struct {
	Keyset string `koanf:"keyset" path:"yes" doc:"file of edda key: encrypts the payloads in the store"` // file; see edda key
}

// natsConfig has the settings of the nats CLI. NATS_* variables fill empty ones.
type natsConfig struct {
	URL      string `koanf:"url" flag:"nats-url" doc:"servers, with commas between; unset as the nats CLI finds them"`
	Context  string `koanf:"context" flag:"nats-context" doc:"name of a context of the nats CLI"`
	Creds    string `koanf:"creds" path:"yes" doc:"file of credentials"`
	NKey     string `koanf:"nkey" path:"yes" doc:"file of an NKey's seed"`
	User     string `koanf:"user" doc:"user, with password"`
	Password string `koanf:"password" secret:"yes" doc:"better as EDDA_NATS_PASSWORD"`
	Token    string `koanf:"token" secret:"yes" doc:"better as EDDA_NATS_TOKEN"`
	Cert     string `koanf:"cert" path:"yes" doc:"file with the certificate of this process"`
	Key      string `koanf:"key" path:"yes" doc:"file with its key"`
	CA       string `koanf:"ca" path:"yes" doc:"file with the authorities of the server's certificate"`
	// SyncInterval is the server's sync_interval; zero means sync_interval: always.
	SyncInterval time.Duration `koanf:"sync_interval" doc:"the server's sync_interval; 0: it syncs every write"`
}

type streamsConfig struct {
	Replicas   int                      `koanf:"replicas" doc:"of streams that Edda makes; 0: one, and three in a cluster"`
	Age        map[string]time.Duration `koanf:"age" doc:"of streams that Edda makes, such as WORKFLOW_COMMANDS: 168h"`
	Duplicates time.Duration            `koanf:"duplicates" doc:"deduplication window of streams that Edda makes; 0 is 30s"`
	From       string                   `koanf:"from" doc:"where a new saga begins: now or all; unset as its manifest says"`
	// MaxPayload bounds a message, in bytes; zero means 1 MiB. A larger message becomes
	// a dead letter. NATS has a limit of its own before that.
	MaxPayload int `koanf:"max_payload" doc:"bytes of a message; a larger one is a dead letter"`
	// CloudEvents lists the kinds of work that go out as CloudEvents.
	CloudEvents []string `koanf:"cloudevents" doc:"what goes out as CloudEvents: facts, commands"`
}

type gatewayConfig struct {
	URL       string        `koanf:"url" flag:"gateway" doc:"receiver of aggregate commands; without one they are published"`
	Path      string        `koanf:"path" doc:"path of its URL for a command"`
	TokenFile string        `koanf:"token_file" path:"yes" doc:"file with the bearer token"`
	Timeout   time.Duration `koanf:"timeout" doc:"of one request"`
	Cert      string        `koanf:"cert" path:"yes" doc:"file with the certificate of this process"`
	Key       string        `koanf:"key" path:"yes" doc:"file with its key"`
	CA        string        `koanf:"ca" path:"yes" doc:"file with the authorities of the gateway's certificate"`
}

// outboxConfig bounds the outbox.
type outboxConfig struct {
	// Max bounds the rows of one destination. Sagas and tenants share it.
	Max int `koanf:"max" doc:"rows of one destination; beyond it new events wait in their streams"`
}

// parkedConfig bounds the events that wait for their instance.
type parkedConfig struct {
	// Max bounds the parked events of a tenant. The next one becomes a dead letter.
	Max int `koanf:"max" doc:"events of a tenant that may wait for their instance"`
}

// deadConfig bounds dead letters.
type deadConfig struct {
	// MaxBytes bounds the dead letters of a tenant, in bytes. Above it the next one is
	// stored without its payload, which stays in its stream.
	MaxBytes int `koanf:"max_bytes" doc:"bytes of dead letters of a tenant; the next is kept without payload"`
}

type effectsConfig struct {
	// Allow lists loopback, private and link-local hosts and networks that effects may
	// call.
	Allow []string `koanf:"allow" doc:"private hosts and networks that effects may call"`
	// ListedOnly refuses every host that Allow does not list.
	ListedOnly bool   `koanf:"listed_only" doc:"refuse every host that allow does not list"`
	Secrets    string `koanf:"secrets" path:"yes" doc:"folder with a file for each secret"` // folder with one file per secret
	// Ledger is the place of the claims: local or shared.
	Ledger string `koanf:"ledger" doc:"claims: local or shared; unset: shared for the role effect"`
	// Handoff hands effect commands over within the process, if it runs the sagas and
	// has the ledger. Without it commands go through their stream.
	Handoff   bool          `koanf:"handoff" doc:"commands and results stay within one process"`
	Retention time.Duration `koanf:"retention" doc:"how long claims are kept"` // of claims
	// Lease and AckWait bound the silence of a worker: until another one may take its
	// claim, and until its message is redelivered.
	Lease   time.Duration `koanf:"lease" doc:"silence after which another worker takes a claim"`
	AckWait time.Duration `koanf:"ack_wait" doc:"silence after which a message is redelivered"`
	// HeldBytes bounds the memory of the commands of one effect.
	HeldBytes int `koanf:"held_bytes" doc:"memory of the waiting commands of one effect"`
	// StandardHTTP uses Go's net/http client for plain http too.
	StandardHTTP bool `koanf:"standard_http" doc:"call http:// with Go's standard client too"`
}

type logConfig struct {
	Level string `koanf:"level" doc:"debug, info, warn or error"`
}

// Defaults returns the configuration without a file, variables and flags.
func Defaults() Config {
	return Config{
		Addr: DefaultAddr, Data: "edda-data", Role: roleCombined, Tenancy: tenancyConfig{Enabled: true},
		Outbox: outboxConfig{Max: engine.DefaultMaxOutbox}, Parked: parkedConfig{Max: engine.DefaultMaxParked}, Dead: deadConfig{MaxBytes: store.DefaultMaxDeadBytes},
		NATS:    natsConfig{SyncInterval: defaultSyncInterval},
		Streams: streamsConfig{MaxPayload: wire.DefaultMaxPayload}, Cluster: clusterConfig{LogMax: defaultLogMax, Copies: defaultCopies}, Gateway: gatewayConfig{Timeout: outbox.DefaultGatewayTimeout},
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
	for _, kind := range c.Streams.CloudEvents {
		if !slices.Contains(wire.Outgoing(), kind) {
			return configf("streams.cloudevents %q: want a list of %s", kind, strings.Join(wire.Outgoing(), ", "))
		}
	}
	if c.Outbox.Max < 1 || c.Parked.Max < 1 || c.Dead.MaxBytes < 1 {
		return configf("outbox.max %d, parked.max %d, dead_letters.max_bytes %d: want 1 at least", c.Outbox.Max, c.Parked.Max, c.Dead.MaxBytes)
	}
	if c.NATS.SyncInterval < 0 || c.NATS.SyncInterval > maxSyncInterval {
		return configf("nats.sync_interval %s: want between 0, where the server syncs before it acknowledges (sync_interval: always), and %s", c.NATS.SyncInterval, maxSyncInterval)
	}
	if err := errors.Join(c.validateHero(), c.validateCluster()); err != nil {
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
