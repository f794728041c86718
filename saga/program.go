package saga

import (
	"encoding/json"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"edda"
	"edda/expression"
	"edda/manifests"
)

// Defaults of Options, and of what a manifest leaves unsaid.
const (
	defaultMaxState   = 256 << 10
	defaultMaxActions = 1000
	// What an event may cost the others that wait behind it: a fifth of a second, or 64 MiB
	// of payloads. It is as much as four expressions may do that go to their own bound.
	defaultMaxEvaluation = 4 * expression.MaxSteps
	// A transition writes its instance whole: a larger one makes each of its
	// steps as dear as thousands of others.
	defaultMaxInstance = 4 << 20
	// What waits for a key is read with every event of the key.
	defaultMaxQueue      = 1000
	defaultMaxQueueBytes = 8 << 20
	defaultDue           = 24 * time.Hour // of an effect
	defaultPark          = time.Hour
	recentIDs            = 64 // event ids an instance remembers at least
)

// Options bound what a saga may do. The zero value means the defaults.
type Options struct {
	MaxState   int // bytes of state as JSON, 256 KiB
	MaxActions int // actions in one transition, 1,000
	// MaxEvaluation is how many steps the expressions of one transition may do together,
	// with what it costs to read and write their values, 4,000,000. Steps are counted, so
	// that a replay ends at the same place; an event that passes it is poison.
	MaxEvaluation int
	// MaxInstance is about how many bytes an instance that runs may have as JSON
	// with its steps, frames and timers, 4 MiB.
	MaxInstance int
	// MaxQueue is how many events may wait for one key, parked or behind a poison
	// one, 1,000; MaxQueueBytes how large their payloads may be together, 8 MiB.
	MaxQueue      int
	MaxQueueBytes int
}

func (o Options) withDefaults() Options {
	if o.MaxState <= 0 {
		o.MaxState = defaultMaxState
	}
	if o.MaxActions <= 0 {
		o.MaxActions = defaultMaxActions
	}
	if o.MaxEvaluation <= 0 {
		o.MaxEvaluation = defaultMaxEvaluation
	}
	if o.MaxInstance <= 0 {
		o.MaxInstance = defaultMaxInstance
	}
	if o.MaxQueue <= 0 {
		o.MaxQueue = defaultMaxQueue
	}
	if o.MaxQueueBytes <= 0 {
		o.MaxQueueBytes = defaultMaxQueueBytes
	}
	return o
}

// Program is one compiled version of one saga. It is immutable and safe for
// concurrent use.
type Program struct {
	m        *manifests.Saga
	o        Options
	key      *expression.Program // nil: meta.correlation_id
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
	groups   map[string]bool // step ids that an each makes
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

// action is one action, compiled. Its path names it within the program and in
// derived ids: the handler, then its id, else its kind and name, #n for the nth
// alike in that handler.
type action struct {
	src   *manifests.Action
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
	due   *value // where it is an expression
	value *value // done, fail, message
	// needs are the names that the undo, or what follows in a seq, may refer to.
	needs []string // sorted
}

// stepID is the id of the step that the action makes, without a group's index.
func (a *action) stepID() string {
	switch {
	case a.src.ID != nil:
		return a.src.ID.Text
	case a.src.Kind == kindEach:
		return a.member().stepID()
	}
	return a.src.Name.Text
}

// member is the one action of an each that makes a step; nil when there is none.
func (a *action) member() *action {
	for _, m := range a.do {
		if m.makesStep() {
			return m
		}
	}
	return nil
}

func (a *action) makesStep() bool {
	switch a.src.Kind {
	case kindEffect, kindAsk, kindStart:
		return true
	}
	return false
}

type eventDecl struct {
	src    manifests.EventDecl
	known  int // the newest version known; 0: versions are not named
	schema *jsonschema.Schema
	upcast map[int]upcast
}

type upcast struct {
	set   []assign
	unset [][]string
}

// The words of actions.
const (
	kindEffect     = "effect"
	kindCommand    = "command"
	kindEvent      = "event"
	kindMessage    = "message"
	kindAsk        = "ask"
	kindStart      = "start"
	kindSeq        = "seq"
	kindEach       = "each"
	kindSet        = "set"
	kindTimer      = "timer"
	kindCancel     = "cancel"
	kindCompensate = "compensate"
	kindUndo       = "undo"
	kindDone       = "done"
	kindFail       = "fail"
)

// Saga, Version and Hash name the program.
func (p *Program) Saga() string { return p.m.Name.Text }

// Version of the manifest.
func (p *Program) Version() int { return p.m.Version }

// Hash of the manifest's text.
func (p *Program) Hash() string { return p.m.Hash }

// Manifest is what the program was compiled from.
func (p *Program) Manifest() *manifests.Saga { return p.m }

// Effects lists the names of the effects the program may run, sorted.
func (p *Program) Effects() []string {
	names := map[string]bool{}
	for _, a := range p.actions {
		if a.src.Kind == kindEffect || a.src.Kind == kindCompensate {
			names[a.src.Name.Text] = true
		}
		if a.undo != nil && a.undo.src.Kind == kindEffect {
			names[a.undo.src.Name.Text] = true
		}
	}
	return sortedKeys(names)
}

func clockMillis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func keyOf(p *Program, tenant, correlation string) edda.Key {
	return edda.Key{Tenant: tenant, Saga: p.Saga(), Correlation: correlation}
}
