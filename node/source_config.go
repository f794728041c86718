package node

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"edda/stream"
	"edda/stream/wire"
)

// sourceConfig says how events are read from a stream of others. Its texts are those of
// [wire.MappingOptions].
type sourceConfig struct {
	Stream        string          `koanf:"stream"`
	Subjects      []string        `koanf:"subjects"`
	From          string          `koanf:"from"`
	ID            string          `koanf:"id"`
	Type          string          `koanf:"type"`
	Aggregate     aggregateConfig `koanf:"aggregate"`
	Tenant        string          `koanf:"tenant"`
	Time          string          `koanf:"time"`
	CorrelationID string          `koanf:"correlation_id"`
	Data          string          `koanf:"data"`
}

type aggregateConfig struct {
	Type string `koanf:"type"`
	ID   string `koanf:"id"`
}

// streamName is what NATS takes as the name of a stream.
var streamName = regexp.MustCompile(`^[^\s.*>/\\]+$`)

// sourceName is how a source is named: its name is a part of keys and of a command's arguments.
var sourceName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// mappings compiles the sources, by stream.
func (c Config) mappings() (map[string]*wire.Mapping, error) {
	out := map[string]*wire.Mapping{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		m, err := c.mapping(name, c.Sources[name])
		if err == nil && out[m.Stream()] != nil {
			err = configf("sources.%s and sources.%s both read the stream %s: make one source of them", out[m.Stream()].Source(), name, m.Stream())
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		out[m.Stream()] = m
	}
	if len(problems) > 0 {
		return nil, &ConfigError{errors.Join(problems...)}
	}
	return out, nil
}

func (c Config) mapping(name string, s sourceConfig) (*wire.Mapping, error) {
	switch {
	case !sourceName.MatchString(name):
		return nil, configf("sources.%s: a source's name is of lower-case letters, digits, - and _, and begins with a letter", name)
	case s.Stream == "":
		return nil, configf("sources.%s.stream: want the name of a JetStream stream; nats stream ls lists them", name)
	case !streamName.MatchString(s.Stream):
		return nil, configf("sources.%s.stream: %q is no name of a stream: it holds no blank, dot, *, >, / or \\", name, s.Stream)
	case slices.Contains([]string{wire.AggregateEvents, wire.WorkflowCommands, wire.WorkflowEvents}, s.Stream) || strings.HasPrefix(s.Stream, "KV_"):
		return nil, configf("sources.%s.stream: %s is Edda's own or a bucket's: a source reads a stream of others", name, s.Stream)
	case s.From != "" && s.From != string(stream.FromNow) && s.From != string(stream.FromAll):
		return nil, configf("sources.%s.from %q: want now or all", name, s.From)
	}
	fallback := c.defaultTenant()
	if strings.HasPrefix(s.Tenant, "=") && !wire.Tenants(c.served()).Match(fallback) { // it is for dead letters only
		if i := slices.IndexFunc(c.served(), func(tenant string) bool { return !strings.Contains(tenant, "*") }); i >= 0 {
			fallback = c.served()[i]
		}
	}
	m, err := wire.NewMapping(wire.MappingOptions{
		Source: name, Stream: s.Stream, Subjects: s.Subjects, ID: s.ID, Type: s.Type,
		AggregateType: s.Aggregate.Type, AggregateID: s.Aggregate.ID, Tenant: s.Tenant, Time: s.Time,
		Correlation: s.CorrelationID, Data: s.Data, DefaultTenant: fallback,
	})
	if err != nil {
		return nil, &ConfigError{err}
	}
	tenant, known := m.Tenant()
	if !known {
		tenant = fallback // of messages whose tenant cannot be read
	}
	switch {
	case !c.Tenancy.Enabled && s.Tenant != "":
		return nil, configf("sources.%s.tenant: there are no tenants where tenancy.enabled is false: leave it out", name)
	case !wire.Tenants(c.served()).Match(tenant):
		return nil, configf("sources.%s.tenant: the tenant %q is not among those that this process serves: %s", name, tenant, strings.Join(c.served(), ", "))
	}
	return m, nil
}

// defaultTenant is the tenant of events whose source names none: the only one that is served, or else
// default.
func (c Config) defaultTenant() string {
	served := wire.Tenants(c.served())
	switch {
	case !c.Tenancy.Enabled:
		return ""
	case len(served) == 1 && served.Exact():
		return served[0]
	}
	return DevTenant
}

// begin is where reading begins in the streams of the sources that say it.
func (c Config) begin() map[string]stream.From {
	out := map[string]stream.From{}
	for _, s := range c.Sources {
		if s.From != "" {
			out[s.Stream] = stream.From(s.From)
		}
	}
	return out
}

// Mapping compiles a source by its name. The error lists the sources there are.
func (c Config) Mapping(name string) (*wire.Mapping, error) {
	if _, ok := c.Sources[name]; !ok {
		names := slices.Sorted(maps.Keys(c.Sources))
		if len(names) == 0 {
			return nil, configf("the configuration has no sources: edda source add writes one")
		}
		return nil, configf("there is no source %s%s; the configuration has %s", name, hint(name, names), strings.Join(names, ", "))
	}
	return c.mapping(name, c.Sources[name])
}

// Codec returns the codec of the configuration's streams.
func (c Config) Codec() (wire.Codec, error) {
	codec, err := c.codec()
	codec.MaxPayload = cmp.Or(c.Streams.MaxPayload, wire.DefaultMaxPayload)
	return codec, err
}

// SourceKeys lists the keys of a source, sorted.
func SourceKeys() (names []string) {
	for _, key := range configKeysOf(reflect.TypeFor[sourceConfig](), "") {
		names = append(names, key.name)
	}
	slices.Sort(names)
	return names
}
