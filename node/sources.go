package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"edda/internal/files"
	"edda/manifests"
)

const (
	envPrefix = "EDDA_"
	// secretPrefix is the prefix of the variables with the secrets of effects.
	secretPrefix = "EDDA_SECRET_"
)

// Sources are where a configuration comes from. Flags override variables, which override the
// file.
type Sources struct {
	File    string         // empty: none
	Text    []byte         // of File, before it is written; nil: the file is read
	Environ []string       // in the form of [os.Environ]
	Flags   *pflag.FlagSet // nil: none. Flags that are no settings do no harm
	// Others lists the variables with the prefix EDDA_ that are no settings.
	Others []string
}

// Load reads and checks a configuration. An unknown key, or an unknown variable with the
// prefix EDDA_, is an error.
func Load(s Sources) (Config, error) {
	k := koanf.New(".")
	if err := s.loadFile(k); err != nil {
		return Config{}, err
	}
	if err := s.loadEnv(k); err != nil {
		return Config{}, err
	}
	if err := loadFlags(k, s.Flags); err != nil {
		return Config{}, err
	}
	return decodeConfig(k)
}

func (s Sources) loadFile(k *koanf.Koanf) error {
	file, text := s.File, s.Text
	if file == "" {
		return nil
	}
	if text == nil {
		var err error
		if text, err = files.Read(file, files.Most); err != nil {
			return configf("read configuration: %w", err)
		}
	}
	read := koanf.New(".")
	if err := read.Load(rawbytes.Provider(text), yamlParser{}); err != nil {
		return configf("%s: %w", file, err)
	}
	if err := misshapen(read.Raw()); err != nil {
		return configf("%s: %w", file, err)
	}
	var problems []error
	for _, key := range read.Keys() {
		if !known(key) {
			if inside := membersOf(key); len(inside) > 0 { // it is empty
				problems = append(problems, fmt.Errorf("%s: %w", file, valueOfAGroup(key, inside)))
				continue
			}
			problems = append(problems, fmt.Errorf("%s: unknown key %s%s", file, key, hint(key, near(key))))
		}
	}
	if len(problems) > 0 {
		return &ConfigError{errors.Join(problems...)}
	}
	if err := rebase(read, filepath.Dir(file)); err != nil {
		return configf("%s: %w", file, err)
	}
	return k.Merge(read)
}

// rebase makes the relative paths of a file begin at its folder, so that the file means the same
// from every working directory. Paths in variables and flags begin at the working directory.
func rebase(read *koanf.Koanf, folder string) error {
	from := func(path any) string {
		text := fmt.Sprint(path)
		if text == "" || filepath.IsAbs(text) {
			return text
		}
		return filepath.Join(folder, text)
	}
	for _, key := range configKeys() {
		v := read.Get(key.name)
		if !key.isPath || v == nil {
			continue
		}
		if key.isList {
			v = pathsOf(v, from)
		} else {
			v = from(v)
		}
		if err := read.Set(key.name, v); err != nil {
			return err
		}
	}
	return nil
}

// pathsOf makes a path of each item of a list. A text is a list with commas.
func pathsOf(list any, path func(any) string) (out []string) {
	items, ok := list.([]any)
	if !ok {
		for item := range strings.SplitSeq(fmt.Sprint(list), ",") {
			out = append(out, path(item))
		}
	}
	for _, item := range items {
		out = append(out, path(item))
	}
	return out
}

// yamlParser implements koanf's Parser with yaml v4.
type yamlParser struct{}

func (yamlParser) Unmarshal(text []byte) (map[string]any, error) {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	switch doc.(type) {
	case nil, map[string]any, map[any]any:
	default:
		return nil, fmt.Errorf("a configuration is a map of settings, such as data: %s, and not %s", Defaults().Data, kindOf(doc))
	}
	out := map[string]any{}
	return out, yaml.Unmarshal(text, &out)
}

func (yamlParser) Marshal(v map[string]any) ([]byte, error) { return yaml.Marshal(v) }

// loadEnv maps variables to settings, such as EDDA_NATS_URL to nats.url.
func (s Sources) loadEnv(k *koanf.Koanf) error {
	names := map[string]string{}
	for _, key := range keys() {
		names[envName(key)] = key
	}
	var problems []error
	err := k.Load(env.Provider(".", env.Opt{
		Prefix: envPrefix, EnvironFunc: func() []string { return s.Environ },
		TransformFunc: func(name, value string) (string, any) {
			if serviceLink(name, value) {
				return "", nil
			}
			key, ok := names[name]
			if !ok && !slices.Contains(s.Others, name) && !strings.HasPrefix(name, secretPrefix) {
				problems = append(problems, fmt.Errorf("unknown variable %s%s", name, cmp.Or(listeningHint(name), groupHint(name), hint(name, append(slices.Sorted(maps.Keys(names)), s.Others...)))))
			}
			return key, value // koanf skips an empty key
		},
	}), nil)
	if len(problems) > 0 {
		return &ConfigError{errors.Join(problems...)}
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
	keyOf := map[string]string{}
	for _, key := range configKeys() {
		for _, flag := range key.flags {
			keyOf[flag] = key.name
		}
	}
	return k.Load(posflag.ProviderWithFlag(flags, ".", nil, func(f *pflag.Flag) (string, any) {
		if key := keyOf[f.Name]; key != "" && f.Changed {
			return key, posflag.FlagVal(flags, f)
		}
		return "", nil
	}), nil)
}

func decodeConfig(k *koanf.Koanf) (Config, error) {
	c := Defaults()
	if err := misshapen(k.Raw()); err != nil {
		return Config{}, configf("configuration: %w", err)
	}
	err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: &c, TagName: "koanf", WeaklyTypedInput: true, ErrorUnused: true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(mapstructure.StringToTimeDurationHookFunc(), mapstructure.StringToSliceHookFunc(",")),
	}})
	if err != nil {
		return Config{}, configf("configuration: %w", err)
	}
	if err := c.validate(); err != nil {
		return c, err
	}
	c.Effects.Ledger, c.Effects.Handoff = c.ledger(), c.handoff()
	c.Streams.Replicas = c.replicas()
	c.Tenants = c.served()
	return c, nil
}

// configKey is one setting: its path, as in a.b, and the flags that set it. Settings that are
// maps hold keys of their own; each of a map of structs holds the members.
type configKey struct {
	name    string
	flags   []string
	isMap   bool
	isList  bool
	isPath  bool
	members []configKey
}

// configKeys lists every setting of [Config].
func configKeys() []configKey { return configKeysOf(reflect.TypeFor[Config](), "") }

func configKeysOf(t reflect.Type, prefix string) (out []configKey) {
	for f := range t.Fields() {
		key := configKey{name: prefix + f.Tag.Get("koanf"), isMap: f.Type.Kind() == reflect.Map,
			isList: f.Type.Kind() == reflect.Slice, isPath: f.Tag.Get("path") != ""}
		if key.isMap && f.Type.Elem().Kind() == reflect.Struct {
			key.members = configKeysOf(f.Type.Elem(), "")
		}
		if f.Type.Kind() == reflect.Struct {
			out = append(out, configKeysOf(f.Type, key.name+".")...)
			continue
		}
		if flags := f.Tag.Get("flag"); flags != "" {
			key.flags = strings.Split(flags, ",")
		}
		out = append(out, key)
	}
	return out
}

// keys lists the names of all settings.
func keys() (names []string) {
	for _, key := range configKeys() {
		names = append(names, key.name)
	}
	return names
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

// known reports whether a key is a setting, or an entry of a setting that is a map.
func known(key string) bool {
	return slices.ContainsFunc(configKeys(), func(k configKey) bool {
		entry, inside := strings.CutPrefix(key, k.name+".")
		if !k.isMap || !inside {
			return k.name == key
		}
		_, member, found := strings.Cut(entry, ".")
		return len(k.members) == 0 || !found || slices.ContainsFunc(k.members, func(m configKey) bool { return m.name == member })
	})
}

// near lists the keys that an unknown one may mean.
func near(key string) []string {
	out := append(keys(), groups()...)
	for _, k := range configKeys() {
		if entry, inside := strings.CutPrefix(key, k.name+"."); inside {
			name, _, _ := strings.Cut(entry, ".")
			for _, m := range k.members {
				out = append(out, k.name+"."+name+"."+m.name)
			}
		}
	}
	return out
}

// hint suggests the most similar word.
func hint(word string, words []string) string {
	if best := manifests.Nearest(word, words); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// Kubernetes gives every container variables for each service of its namespace. A service
// edda or edda-nats makes EDDA_PORT=tcp://10.0.0.1:8700 and EDDA_NATS_SERVICE_HOST. Such
// variables are no settings. Docker's links have the same form.
var (
	serviceName  = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))$`)
	serviceURL   = regexp.MustCompile(`^[A-Z0-9_]+_PORT(_[0-9]+_(TCP|UDP|SCTP))?$`)
	serviceProto = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// serviceLink reports whether a variable is a service link. A name that a user may also set,
// such as EDDA_PORT, counts only with the value of a link.
func serviceLink(name, value string) bool {
	return serviceName.MatchString(name) || serviceURL.MatchString(name) && serviceProto.MatchString(value)
}

// listeningHint explains a variable for a port or a host: the address is one setting.
func listeningHint(name string) string {
	if rest := strings.TrimPrefix(name, envPrefix); rest == "PORT" || rest == "HOST" {
		return "; the address to listen on is " + envName("addr") + ", such as " + DefaultAddr
	}
	return ""
}
