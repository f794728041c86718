package effects

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"edda/expression"
	"edda/manifests"
)

// The defaults and bounds of a manifest's settings.
const (
	defaultTimeout = 10 * time.Second
	maxTimeout     = 24 * time.Hour // the default due of a step
	defaultCalls   = 5
	maxCalls       = 1000 // more is a loop, not a retry
	defaultBackoff = time.Second
	defaultCap     = time.Minute
	maxBackoff     = 24 * time.Hour
)

// Effect is one compiled effect, safe for concurrent use.
type Effect struct {
	manifest *manifests.Effect
	config   *value
	ok, fail *expression.Program
	result   *value
	schema   *schema
	upcasts  []upcast // by the version they start from
	timeout  time.Duration
	retry    retry
	breaker  *breakerSpec    // nil: none
	limit    *limit          // nil: none
	check    *check          // nil: none
	names    map[string]bool // variables that expressions read
	once     bool            // a repeated call has no second effect
	secrets  []string
	mask     atomic.Pointer[mask] // of the latest secrets
}

// retry is the checked retry policy of an effect.
type retry struct {
	calls    int // the first included
	min, cap time.Duration
	jitter   bool
}

// Name of the effect.
func (e *Effect) Name() string { return e.manifest.Name.Text }

// Version of the manifest.
func (e *Effect) Version() int { return e.manifest.Version }

// Hash of the manifest's text.
func (e *Effect) Hash() string { return e.manifest.Hash }

// Provider is the word of its provider, such as http.
func (e *Effect) Provider() string { return e.manifest.Provider }

// providers lists the words of its providers, the check's included.
func (e *Effect) providers() []string {
	if e.check == nil {
		return []string{e.Provider()}
	}
	return []string{e.Provider(), e.check.provider}
}

// Secrets lists the names of its secrets.
func (e *Effect) Secrets() []string { return slices.Clone(e.secrets) }

// repeatable reports whether a call that may have had its effect may be made again.
func (e *Effect) repeatable() bool { return e.once || e.manifest.Delivery != "at_most_once" }

// namesBefore lists the variables of expressions before a call, namesAfter those after it.
func namesBefore() []string { return []string{"payload", "id", "tenant", "secret"} }
func namesAfter() []string  { return append(namesBefore(), "status", "headers", "body") }

// Compile compiles a manifest. kinds describes the providers, by their words. It returns all
// problems; the effect is nil if one of them is an error.
func Compile(m *manifests.Effect, kinds map[string]ProviderKind) (*Effect, manifests.Problems) {
	c := &compiler{m: m, secrets: map[string]bool{}, names: map[string]bool{}}
	kind, known := kinds[m.Provider]
	if !known && m.Provider != "" { // the parser reports a missing one
		c.errorf(m.Pos, fmt.Sprintf("provider %s is not built in; this version calls %s", m.Provider, words(kinds)))
	}
	e := &Effect{manifest: m, timeout: c.timeout(cmp.Or(kind.Timeout, defaultTimeout)), retry: c.retry(), schema: c.schema(), upcasts: c.upcasts()}
	e.config = c.config(m.Config, kind)
	e.ok, e.fail = c.condition(m.OK, cmp.Or(kind.OK, "true")), c.condition(m.Fail, "false")
	e.result = c.value(m.Result, namesAfter())
	e.breaker, e.limit, e.check, e.once = c.breaker(m.Breaker), c.limit(m.Limit), c.check(m.Check, kinds), kind.Once
	c.inspect(kind, m.Config, false)
	c.problems.Sort()
	e.names = c.names
	if e.secrets = slices.Sorted(maps.Keys(c.secrets)); c.problems.Failed() {
		return nil, c.problems
	}
	return e, c.problems
}

func words(kinds map[string]ProviderKind) string {
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}

// config compiles the provider's map with its escapes.
func (c *compiler) config(config *manifests.Value, k ProviderKind) *value {
	if config == nil {
		return &value{kind: manifests.Map}
	}
	v := &value{kind: manifests.Map}
	for _, f := range config.Fields {
		c.raw = k.Raw[f.Name] != nil
		v.names, v.items = append(v.names, f.Name), append(v.items, c.valueOf(f.Value, namesBefore()))
		c.unmarked(f.Value, k.Spec.Scope(f.Name, namesBefore()))
	}
	c.raw = false
	for i, name := range v.names {
		v.items[i].escape, v.items[i].raw, v.items[i].fits = k.Escape[name], k.Raw[name], k.Fits[name]
	}
	return v
}

// condition compiles ok or fail, or the default.
func (c *compiler) condition(e *manifests.Expr, unsaid string) *expression.Program {
	if e == nil {
		e = &manifests.Expr{Pos: c.m.Pos, Source: unsaid}
	}
	return c.program(e, namesAfter())
}

func (c *compiler) timeout(unsaid time.Duration) time.Duration {
	t := c.m.Timeout
	if t == nil {
		return unsaid
	}
	if t.D < 0 || t.D > maxTimeout { // the parser reports one that is none, and leaves it at 0
		c.errorf(t.Pos, fmt.Sprintf("timeout is more than nothing and at most %s, not %s", maxTimeout, t.Text))
	}
	return t.D
}

func (c *compiler) retry() retry {
	out := retry{calls: defaultCalls, min: defaultBackoff, cap: defaultCap, jitter: true}
	r := c.m.Retry
	if r == nil {
		return out
	}
	out.jitter = r.Jitter
	if r.Max != 0 {
		out.calls = r.Max
	}
	if r.Min != 0 || r.Cap != 0 {
		out.min, out.cap = r.Min, r.Cap
	}
	if out.calls < 1 || out.calls > maxCalls {
		c.errorf(r.Pos, fmt.Sprintf("retry.max counts calls, 1 to %d, not %d", maxCalls, out.calls))
	}
	if out.min <= 0 || out.cap < out.min || out.cap > maxBackoff {
		c.errorf(r.Pos, fmt.Sprintf("retry.backoff is a range of durations up to %s such as 1s..1m, not %s..%s", maxBackoff, out.min, out.cap))
	}
	return out
}

// request evaluates a provider's map for a command.
func (e *Effect) request(c *Command, config *value, vars map[string]any) (Call, error) {
	evaluated, err := config.object(vars)
	return Call{Effect: e.Name(), ID: c.ID, Key: cmp.Or(c.IdempotencyKey, c.ID), Tenant: c.Tenant, Trace: c.Trace, Bare: !e.names["headers"], Folder: filepath.Dir(e.manifest.File.Name), Config: evaluated, Command: c}, err
}
