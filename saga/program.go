package saga

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"edda"
	"edda/expression"
	"edda/manifests"
)

// Defaults of Options, and of settings that a manifest omits.
const (
	defaultMaxState   = 256 << 10
	defaultMaxActions = 1000
	// defaultMaxEvaluation bounds how long an event delays the others: a fifth of a second, or 64
	// MiB of payloads. Four expressions at their own bound use it up.
	defaultMaxEvaluation = 4 * expression.MaxSteps
	// defaultMaxInstance is a bound because every transition writes the whole instance: each step
	// of a larger one costs as much as thousands of others.
	defaultMaxInstance = 4 << 20
	// The queues of a key are bounded because every event of the key reads them.
	defaultMaxQueue      = 1000
	defaultMaxQueueBytes = 8 << 20
	defaultDue           = 24 * time.Hour // of an effect without due:
	defaultPark          = time.Hour
	recentIDs            = 64 // event ids that an instance remembers at least
)

// Options bound what a saga may do. The zero value means the defaults.
type Options struct {
	MaxState   int // bytes of state as JSON, 256 KiB
	MaxActions int // actions in one transition, 1,000
	// MaxEvaluation bounds the steps of all expressions of one transition, 4,000,000. Reading and
	// writing their values counts. Steps are counted and not time, so that a replay stops at the
	// same place. An event beyond it is poison.
	MaxEvaluation int
	// MaxInstance bounds a running instance as JSON with its steps, frames and timers, roughly, 4
	// MiB.
	MaxInstance int
	// MaxQueue bounds the events that wait for one key, parked or behind a poison event, 1,000.
	// MaxQueueBytes bounds their payloads together, 8 MiB.
	MaxQueue      int
	MaxQueueBytes int
	// Kept says that the saga is one that an earlier build compiled and stored.
	Kept bool
	// Effects are the effects of all manifests, by name. Their results say which members a saga may
	// read; it warns of others. Without them it warns of none.
	Effects map[string]*manifests.Effect
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		option *int
		usual  int
	}{
		{&o.MaxState, defaultMaxState}, {&o.MaxActions, defaultMaxActions}, {&o.MaxEvaluation, defaultMaxEvaluation},
		{&o.MaxInstance, defaultMaxInstance}, {&o.MaxQueue, defaultMaxQueue}, {&o.MaxQueueBytes, defaultMaxQueueBytes},
	} {
		if *d.option <= 0 {
			*d.option = d.usual
		}
	}
	return o
}

// defaultKey is the key of a saga that says none.
const defaultKey = "meta.correlation_id"

// Program is one compiled version of one saga. It is immutable and safe for
// concurrent use.
type Program struct {
	m        *manifests.Saga
	o        Options
	verbs    verbs
	key      *expression.Program // nil: defaultKey
	config   map[string]any
	initial  json.RawMessage
	schema   *jsonschema.Schema
	handlers []*handler
	plain    map[string]*handler   // by trigger, all but A & B
	inner    map[string]bool       // triggers that only the instance itself raises
	joins    map[string][]*handler // A & B, by part
	events   map[string]*eventDecl
	actions  map[string]*action // by path
	seqs     map[string][]*action
	groups   map[string]bool // ids of the steps that an each makes
}

// handler is one entry of on:, compiled.
type handler struct {
	src     *manifests.Handler
	trigger string
	key     *expression.Program
	lets    map[string]*expression.Program
	when    *expression.Program
	set     []assign
	unset   [][]string
	do      []*action
	cases   []*branch
	newer   *branch
	park    time.Duration
}

// branch is a case or a newer block.
type branch struct {
	when  *expression.Program
	set   []assign
	unset [][]string
	do    []*action
}

type assign struct {
	path  []string
	value *value
}

// action is one compiled action. Its path names it within the program and in derived ids: the
// handler, then its id, or else its kind and name, with #n for the nth of the same name in that
// handler.
type action struct {
	src   *manifests.Action
	verb  *verb
	path  string
	label string // the path without the handler
	iff   *expression.Program
	with  *value
	to    *value
	key   *value
	undo  *action
	each  *expression.Program
	seq   []*action
	do    []*action
	set   []assign
	unset [][]string
	after *value
	at    *value
	every *value
	zone  *value // of a timer
	index *value // of the member that an undo chooses
	due   *value // if it is an expression
	value *value // done, fail, message
	// needs has the names that the undo, or a later action of a seq, may refer to.
	needs []string // sorted
}

// stepID is the id of the step that the action makes, without a group's index. An each has the id of
// its one action that makes a step, unless it has its own.
func (a *action) stepID() string {
	if a.src.ID == nil && a.verb.each {
		i := slices.IndexFunc(a.do, func(m *action) bool { return m.verb.step })
		return a.do[i].stepID()
	}
	return stepID(a.src)
}

type eventDecl struct {
	src    manifests.EventDecl
	schema *jsonschema.Schema
	upcast map[int]upcast
}

type upcast struct {
	set   []assign
	unset [][]string
}

// Saga, Version and Hash name the program.
func (p *Program) Saga() string { return p.m.Name.Text }

// Version of the manifest.
func (p *Program) Version() int { return p.m.Version }

// Hash of the manifest's text.
func (p *Program) Hash() string { return p.m.Hash }

// Manifest is the compiled manifest.
func (p *Program) Manifest() *manifests.Saga { return p.m }

// Effects lists the effects that the program may run, sorted.
func (p *Program) Effects() []string {
	names := map[string]bool{}
	for _, a := range p.actions {
		for ; a != nil; a = a.undo {
			if a.src.Kind == verbEffect {
				names[a.src.Name.Text] = true
			}
		}
	}
	return sortedKeys(names)
}

func clockMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func keyOf(p *Program, tenant, correlation string) edda.Key {
	return edda.Key{Tenant: tenant, Saga: p.Saga(), Correlation: correlation}
}
