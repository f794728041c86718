package main

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"edda/effects"
	"edda/engine"
	"edda/internal/files"
	"edda/manifests"
	"edda/outbox"
	"edda/store"
	"edda/stream"
	"edda/stream/kv"
	"edda/stream/wire"
)

// config is the configuration of edda run. Flags override EDDA_* variables, which override
// the file.
type config struct {
	Addr       string           `koanf:"addr"`
	ProbeAddr  string           `koanf:"probe_addr"`
	Data       string           `koanf:"data"`
	Manifests  []string         `koanf:"manifests"`
	Role       string           `koanf:"role"`
	Tenants    []string         `koanf:"tenants"`
	Tenancy    tenancyConfig    `koanf:"tenancy"`
	Tokens     tokensConfig     `koanf:"tokens"`
	TLS        tlsConfig        `koanf:"tls"`
	Encryption encryptionConfig `koanf:"encryption"`
	NATS       natsConfig       `koanf:"nats"`
	Streams    streamsConfig    `koanf:"streams"`
	Gateway    gatewayConfig    `koanf:"gateway"`
	Outbox     outboxConfig     `koanf:"outbox"`
	Parked     parkedConfig     `koanf:"parked"`
	Dead       deadConfig       `koanf:"dead_letters"`
	Effects    effectsConfig    `koanf:"effects"`
	Retention  retentionConfig  `koanf:"retention"`
	Redis      redisConfig      `koanf:"redis"`
	Hero       heroConfig       `koanf:"hero"`
	Log        logConfig        `koanf:"log"`
	// AcceptStreamLoss continues although a stream lost messages after the checkpoint.
	AcceptStreamLoss bool `koanf:"accept_stream_loss"`
	// AdoptEmpty takes over tenants of another store, without their instances.
	AdoptEmpty bool `koanf:"adopt_empty"`
}

type tenancyConfig struct {
	Enabled bool `koanf:"enabled"`
}

// tokensConfig names the token book. Without one everyone may call, on loopback only.
type tokensConfig struct {
	File string `koanf:"file"`
}

// tlsConfig is the TLS configuration of the HTTP server.
type tlsConfig struct {
	Cert     string `koanf:"cert"`
	Key      string `koanf:"key"`
	ClientCA string `koanf:"client_ca"`
	// Elsewhere says that a proxy or a mesh in front terminates TLS.
	Elsewhere bool `koanf:"elsewhere"`
}

// encryptionConfig names the keyset that encrypts the store; empty means no encryption.
type encryptionConfig struct {
	Keyset string `koanf:"keyset"` // file; see edda key
}

// natsConfig has the settings of the nats CLI. NATS_* variables fill empty ones.
type natsConfig struct {
	URL      string `koanf:"url"`
	Context  string `koanf:"context"`
	Creds    string `koanf:"creds"`
	NKey     string `koanf:"nkey"`
	User     string `koanf:"user"`
	Password string `koanf:"password"`
	Token    string `koanf:"token"`
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
	URL       string        `koanf:"url"`
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

func defaults() config {
	return config{
		Addr: defaultAddr, Data: "edda-data", Role: roleCombined, Tenancy: tenancyConfig{Enabled: true},
		Outbox: outboxConfig{Max: outbox.DefaultMax}, Parked: parkedConfig{Max: engine.DefaultMaxParked}, Dead: deadConfig{MaxBytes: store.DefaultMaxDeadBytes},
		NATS:    natsConfig{SyncInterval: defaultSyncInterval},
		Streams: streamsConfig{Replicas: 1, MaxPayload: wire.DefaultMaxPayload}, Gateway: gatewayConfig{Timeout: outbox.DefaultGatewayTimeout},
		Log: logConfig{Level: "info"}, Retention: retentionDefaults(),
		Effects: effectsConfig{Handoff: true, Retention: effects.DefaultRetention, Lease: kv.DefaultLedgerLease, AckWait: stream.DefaultAckWait, HeldBytes: effects.DefaultHeldBytes},
		Hero:    heroDefaults(),
	}
}

// masked lists the settings that config view never shows.
func masked() []string {
	return []string{"nats.password", "nats.token", "redis.url", "hero.supervisor.secret"}
}

// others lists variables with the prefix EDDA_ that are no settings.
func others() []string {
	return []string{"EDDA_CONFIG", envURL, "EDDA_TENANT", "EDDA_REDIS", "EDDA_HERO_LOGS", envToken, envTokenFile, envCA, envCert, envKey}
}

const (
	envPrefix = "EDDA_"
	// secretPrefix is the prefix of the variables with the secrets of effects.
	secretPrefix = "EDDA_SECRET_"
)

// loadConfig merges the file, the environment and the given flags.
func (t *terminal) loadConfig(file string, flags *pflag.FlagSet) (config, error) {
	k := koanf.New(".")
	if file == "" {
		file = t.getenv("EDDA_CONFIG")
	}
	if err := loadFile(k, file); err != nil {
		return config{}, err
	}
	if err := t.loadEnv(k); err != nil {
		return config{}, err
	}
	if err := loadFlags(k, flags); err != nil {
		return config{}, err
	}
	return decodeConfig(k)
}

func loadFile(k *koanf.Koanf, file string) error {
	if file == "" {
		return nil
	}
	text, err := files.Read(file, files.Most)
	if err != nil {
		return usagef("read configuration: %w", err)
	}
	read := koanf.New(".")
	if err := read.Load(rawbytes.Provider(text), yamlParser{}); err != nil {
		return usagef("%s: %w", file, err)
	}
	var problems []error
	for _, key := range read.Keys() {
		if !known(key) {
			if inside := membersOf(key); len(inside) > 0 {
				problems = append(problems, fmt.Errorf("%s: %s is a group of settings and has no value of its own; it holds %s", file, key, strings.Join(inside, ", ")))
				continue
			}
			problems = append(problems, fmt.Errorf("%s: unknown key %s%s", file, key, hint(key, append(keys(), groups()...))))
		}
	}
	if len(problems) > 0 {
		return &usageError{errors.Join(problems...)}
	}
	return k.Merge(read)
}

// yamlParser implements koanf's Parser with yaml v4.
type yamlParser struct{}

func (yamlParser) Unmarshal(text []byte) (map[string]any, error) {
	out := map[string]any{}
	return out, yaml.Unmarshal(text, &out)
}

func (yamlParser) Marshal(v map[string]any) ([]byte, error) { return yaml.Marshal(v) }

// loadEnv maps variables to settings, such as EDDA_NATS_URL to nats.url. An unknown variable
// with the prefix is an error.
func (t *terminal) loadEnv(k *koanf.Koanf) error {
	names := map[string]string{}
	for _, key := range keys() {
		names[envName(key)] = key
	}
	var problems []error
	err := k.Load(env.Provider(".", env.Opt{
		Prefix: envPrefix, EnvironFunc: func() []string { return t.env },
		TransformFunc: func(name, value string) (string, any) {
			if serviceLink(name, value) {
				return "", nil
			}
			key, ok := names[name]
			if !ok && !slices.Contains(others(), name) && !strings.HasPrefix(name, secretPrefix) {
				problems = append(problems, fmt.Errorf("unknown variable %s%s", name, cmp.Or(listeningHint(name), groupHint(name), hint(name, append(sortedKeys(names), others()...)))))
			}
			return key, value // koanf skips an empty key
		},
	}), nil)
	if len(problems) > 0 {
		return &usageError{errors.Join(problems...)}
	}
	return err
}

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

func loadFlags(k *koanf.Koanf, flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	return k.Load(posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		key := settingOf(f.Name)
		if !f.Changed || !known(key) {
			return "", nil
		}
		return key, posflag.FlagVal(flags, f)
	}), nil)
}

// settingOf returns the setting of a flag.
func settingOf(flag string) string {
	if key, ok := heroFlags()[flag]; ok {
		return key
	}
	if short, ok := strings.CutPrefix(flag, "nats-"); ok {
		return "nats." + strings.ReplaceAll(short, "-", "_")
	}
	if short, ok := strings.CutPrefix(flag, "tls-"); ok {
		return "tls." + strings.ReplaceAll(short, "-", "_")
	}
	switch flag {
	case "gateway":
		return "gateway.url"
	case "tokens":
		return "tokens.file"
	}
	return strings.ReplaceAll(flag, "-", "_")
}

func decodeConfig(k *koanf.Koanf) (config, error) {
	c := defaults()
	err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: &c, TagName: "koanf", WeaklyTypedInput: true, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	}})
	if err != nil {
		return config{}, usagef("configuration: %w", err)
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	c.Effects.Ledger, c.Effects.Handoff = c.ledger(), c.handoff()
	c.Tenants = c.served()
	return c, nil
}

func (c config) validate() error {
	if err := checkRoles(c.Role); err != nil {
		return err
	}
	if c.Streams.From != "" && c.Streams.From != "now" && c.Streams.From != "all" {
		return usagef("streams.from %q: want now or all", c.Streams.From)
	}
	if c.Outbox.Max < 1 || c.Parked.Max < 1 || c.Dead.MaxBytes < 1 {
		return usagef("outbox.max %d, parked.max %d, dead_letters.max_bytes %d: want 1 at least", c.Outbox.Max, c.Parked.Max, c.Dead.MaxBytes)
	}
	if c.NATS.SyncInterval < 0 || c.NATS.SyncInterval > maxSyncInterval {
		return usagef("nats.sync_interval %s: want between 0, where the server syncs before it acknowledges (sync_interval: always), and %s", c.NATS.SyncInterval, maxSyncInterval)
	}
	if err := c.validateHero(); err != nil {
		return err
	}
	return errors.Join(c.Effects.validate(), c.Retention.validate())
}

// differs names the settings of the first level that differ.
func (c config) differs(other config) []string {
	var out []string
	theirs := reflect.ValueOf(other)
	for f, mine := range reflect.ValueOf(c).Fields() {
		if !reflect.DeepEqual(mine.Interface(), theirs.FieldByIndex(f.Index).Interface()) {
			out = append(out, f.Tag.Get("koanf"))
		}
	}
	return out
}

// keys lists every setting by its path, as in a.b.
func keys() []string { return keysOf(reflect.TypeFor[config](), "") }

func keysOf(t reflect.Type, prefix string) []string {
	var out []string
	for f := range t.Fields() {
		key := prefix + f.Tag.Get("koanf")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, keysOf(f.Type, key+".")...)
			continue
		}
		out = append(out, key)
	}
	return out
}

// groups lists the keys that contain settings, nested ones too.
func groups() []string {
	var out []string
	for _, key := range keys() {
		for i, r := range key {
			if r == '.' {
				out = append(out, key[:i])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// groupHint explains a variable that names a group, such as EDDA_TOKENS: it lists the
// variables of the group.
func groupHint(name string) string {
	for _, group := range groups() {
		if envName(group) != name {
			continue
		}
		var names []string
		for _, key := range membersOf(group) {
			names = append(names, envName(key))
		}
		return "; the settings of " + group + " are " + strings.Join(names, ", ")
	}
	return ""
}

// membersOf lists the settings in a group; none if the key is no group.
func membersOf(group string) []string {
	return slices.DeleteFunc(keys(), func(key string) bool { return !strings.HasPrefix(key, group+".") })
}

// known tells whether a key is a setting, or an entry of a setting that is a map.
func known(key string) bool {
	return slices.Contains(keys(), key) || strings.HasPrefix(key, "streams.age.") || strings.HasPrefix(key, "hero.runner.interpreters.")
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// hint suggests the most similar word.
func hint(word string, words []string) string {
	if best := manifests.Nearest(word, words); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

func (t *terminal) configCommand() *cobra.Command {
	var file string
	noun := &cobra.Command{Use: "config", Short: "Look at the configuration", Args: noun, RunE: help}
	view := &cobra.Command{
		Use: "view", Short: "Show what edda run would use, from file, environment and defaults", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := t.loadConfig(file, nil)
			if err != nil {
				return err
			}
			return t.viewConfig(c)
		},
	}
	view.Flags().StringVar(&file, "config", "", "configuration file (EDDA_CONFIG)")
	noun.AddCommand(view)
	return noun
}

func (t *terminal) viewConfig(c config) error {
	shown := plain(reflect.ValueOf(c), "")
	text, err := yaml.Marshal(shown)
	if err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	_, err = t.out.Write(text)
	return err
}

// plain converts a configuration to the form of a file, with secrets masked.
func plain(v reflect.Value, prefix string) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case map[string][]string:
		return x
	case map[string]time.Duration:
		out := map[string]string{}
		for name, d := range x {
			out[name] = d.String()
		}
		return out
	case string:
		if x != "" && slices.Contains(masked(), strings.TrimSuffix(prefix, ".")) {
			return "(set, not shown)"
		}
		return x
	}
	if v.Kind() != reflect.Struct {
		return v.Interface()
	}
	out := map[string]any{}
	for f, field := range v.Fields() {
		key := f.Tag.Get("koanf")
		out[key] = plain(field, prefix+key+".")
	}
	return out
}
