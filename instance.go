package edda

import (
	"encoding/json"
	"time"
)

// Status is the state of an instance's lifecycle.
type Status string

// The statuses. The last three are ends.
const (
	StatusRunning Status = "running"
	StatusUndoing Status = "undoing" // failed: settling what is pending, then undoing
	StatusStuck   Status = "stuck"   // an undo failed; an operator must choose
	StatusDone    Status = "done"
	StatusFailed  Status = "failed" // ended with nothing undone, or not all of it
	StatusUndone  Status = "undone" // failed, and everything was undone
)

// Finished reports whether the status is an end.
func (s Status) Finished() bool {
	return s == StatusDone || s == StatusFailed || s == StatusUndone
}

// Instance is one run of a saga for one key, whole: given it and an event, the
// next transition is a pure function.
type Instance struct {
	Key        Key    `json:"key"`
	Version    int    `json:"version"`
	Hash       string `json:"hash"` // of the manifest's text
	Generation int    `json:"generation"`
	Status     Status `json:"status"`
	// Reason is why it failed or is undoing.
	Reason string          `json:"reason,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	State  json.RawMessage `json:"state,omitempty"` // an object
	// Started, Updated and Ended are triggers' times, never a clock's. Updated is the
	// instance's now and never goes back. A poison event and the events held behind it
	// leave it unchanged, because they are applied later as of their own times.
	Started time.Time `json:"started"`
	Updated time.Time `json:"updated"`
	Ended   time.Time `json:"ended,omitzero"`
	// Revision counts transitions of this key, over all generations.
	Revision uint64 `json:"revision"`

	Steps  []Step      `json:"steps,omitempty"`  // the latest round of each, in the order they were first emitted
	Older  []Step      `json:"older,omitempty"`  // pending steps of superseded rounds, tracked until settled
	Groups []EachRound `json:"groups,omitempty"` // latest round of each
	Frames []Frame     `json:"frames,omitempty"` // undo stack, oldest first
	Undos  []Undo      `json:"undos,omitempty"`  // undos under way or failed
	Timers []Timer     `json:"timers,omitempty"` // in the order they were armed
	// Threads are the seqs that wait for a step.
	Threads []Thread `json:"threads,omitempty"`
	// Seen holds the parts of A & B triggers; Joined those that have fired.
	Seen   map[string]json.RawMessage `json:"seen,omitempty"`
	Joined []string                   `json:"joined,omitempty"`
	// Recent are the ids of the events that the key handled last, oldest first.
	Recent []string `json:"recent,omitempty"`
	// Incomplete names the steps whose undo an operator skipped.
	Incomplete []string `json:"incomplete,omitempty"`
	// Unwound is set once a frame was taken off the stack to be undone. The
	// instance then ends undone, not failed.
	Unwound   bool       `json:"unwound,omitempty"`
	Incidents []Incident `json:"incidents,omitempty"` // open ones
	// Past is set once a must step was emitted: no way back.
	Past bool `json:"past,omitempty"`
	// Held is set while a poison event holds the key: the id of its dead letter.
	Held string `json:"held,omitempty"`
	// Parent and ParentCommand are set on a child: its end is sent to them.
	Parent        Key    `json:"parent,omitzero"`
	ParentCommand string `json:"parent_command,omitempty"`
	// Correlation and Trace are the starting trigger's, for what timers emit.
	Correlation string `json:"correlation,omitempty"`
	Trace       string `json:"trace,omitempty"`
	// Ordinal numbers what the instance makes: timers and threads.
	Ordinal int `json:"ordinal,omitempty"`
	// Armed is the time of its row in the due index; zero when there is none.
	Armed time.Time `json:"armed,omitzero"`
	// Parts counts the parts of the state besides State. Each part has a row of its own,
	// so that a step writes only the parts that it changes.
	Parts int `json:"parts,omitempty"`
	// Memo is the decoded state, if its program keeps it. It is not stored. An instance
	// with a memo needs no parts. See [Cell].
	Memo Memo `json:"-"`
}

// Memo is a value that a program keeps in memory with an instance that it made. It is
// immutable.
type Memo interface {
	Size() int // bytes in memory, roughly
}

// Part is a part of an instance's state.
type Part struct {
	N    uint64          `json:"n"`
	Data json.RawMessage `json:"data"` // of a transition: nil removes it
}

// StepKind says what a step waits for.
type StepKind string

// The kinds of steps.
const (
	StepEffect  StepKind = "effect"
	StepAsk     StepKind = "ask"
	StepStart   StepKind = "start"
	StepCommand StepKind = "command" // waits for nothing; may be rejected
)

// StepStatus is the state of a step's lifecycle.
type StepStatus string

// The statuses of a step.
const (
	StepPending   StepStatus = "pending"
	StepOK        StepStatus = "ok"
	StepFailed    StepStatus = "failed"
	StepTimeout   StepStatus = "timeout"
	StepCancelled StepStatus = "cancelled"
	StepUndone    StepStatus = "undone"
)

// Step is one effect, ask, child or named command of an instance.
type Step struct {
	ID      string          `json:"id"` // "ship", "hold[0]"
	Kind    StepKind        `json:"kind"`
	Name    string          `json:"name"`    // of the effect, ask or saga; Type.Name of a command
	Command string          `json:"command"` // its command id
	Status  StepStatus      `json:"status"`
	Attempt int             `json:"attempt"`
	Input   json.RawMessage `json:"input,omitempty"`
	// EffectVersion is the version of the effect that Input is written for.
	EffectVersion int             `json:"effect_version,omitempty"`
	Result        json.RawMessage `json:"result,omitempty"`
	Error         json.RawMessage `json:"error,omitempty"`
	Emitted       time.Time       `json:"emitted"`
	Due           time.Time       `json:"due,omitzero"`
	// Wait is the evaluated due, if due is an expression.
	Wait    time.Duration `json:"wait,omitempty"`
	Order   int           `json:"order"`           // of arming, among timers due at one instant
	Target  Key           `json:"target,omitzero"` // the child
	Must    bool          `json:"must,omitempty"`
	Choices []string      `json:"choices,omitempty"` // of an ask
	To      string        `json:"to,omitempty"`      // the addressee of an ask or a command
	// Late is set on a step that a late handler emitted: no frame, not waited for.
	Late  bool            `json:"late,omitempty"`
	Group string          `json:"group,omitempty"`
	Index int             `json:"index,omitempty"`
	Item  json.RawMessage `json:"item,omitempty"`
	// Action is the path of the action in the manifest, where undo: and the
	// options are found again; Scope is what undo: may refer to.
	Action string `json:"action"`
	Scope  *Scope `json:"scope,omitempty"`
	// Revoked is set when it was asked not to begin.
	Revoked bool `json:"revoked,omitempty"`
}

// EachRound is one round of an each.
type EachRound struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

// Frame is one thing to undo.
type Frame struct {
	Step    string          `json:"step"`
	Command string          `json:"command"` // of the step being undone
	Action  string          `json:"action"`  // path of the action whose undo: or compensate: runs
	Input   json.RawMessage `json:"input,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Scope   *Scope          `json:"scope,omitempty"`
	Attempt int             `json:"attempt,omitempty"` // undos already tried
	Order   int             `json:"order,omitempty"`   // of the push, so that a frame that is pushed back gets its place
	// Key is the idempotency key of an undo whose outcome was unknown.
	Key string `json:"idempotency_key,omitempty"`
}

// Undo is the undo of one frame, under way or failed.
type Undo struct {
	Frame   Frame           `json:"frame"`
	Step    string          `json:"step"` // "charge.undo"
	Effect  string          `json:"effect"`
	Command string          `json:"command"` // its own command id; empty if it failed before it was sent
	Input   json.RawMessage `json:"input,omitempty"`
	// EffectVersion is the version of the effect that Input is written for.
	EffectVersion int           `json:"effect_version,omitempty"`
	Due           time.Time     `json:"due,omitzero"`
	Wait          time.Duration `json:"wait,omitempty"` // the evaluated due, if due is an expression
	Order         int           `json:"order"`
	Attempt       int           `json:"attempt"`
	// Key is the idempotency key that the provider is shown.
	Key string `json:"idempotency_key"`
	// Explicit is set for undo: in a running saga.
	Explicit bool `json:"explicit,omitempty"`
	// Raise is the step or group whose .undone an explicit undo raises when
	// the frames in Rest, newest last, are undone too.
	Raise   string          `json:"raise,omitempty"`
	Rest    []Frame         `json:"rest,omitempty"`
	Failed  bool            `json:"failed,omitempty"`  // waits for an operator
	Unknown bool            `json:"unknown,omitempty"` // its last outcome was a timeout
	Error   json.RawMessage `json:"error,omitempty"`
}

// Timer is a named timer, or the deadline.
type Timer struct {
	Name     string        `json:"name"`
	Due      time.Time     `json:"due"`
	Every    time.Duration `json:"every,omitempty"`
	Catchup  string        `json:"catchup,omitempty"` // all, last or none
	Order    int           `json:"order"`
	Deadline bool          `json:"deadline,omitempty"`
	// Calendar says how a timer repeats by the calendar; Every is zero then.
	Calendar *Calendar `json:"calendar,omitempty"`
}

// Calendar is the series of due times of a timer that repeats each day, month or year. Every one is
// counted from the anchor, so that the 31st of a month does not become the 28th for ever.
type Calendar struct {
	Every  string    `json:"every"` // 1 month
	Zone   string    `json:"zone"`
	At     string    `json:"at,omitempty"` // a time of day; without it that of the anchor
	Anchor time.Time `json:"anchor"`       // when the timer was armed
	N      int       `json:"n"`            // the number of the next due time, from 1
}

// Thread is a seq that waits for a step. It continues when the step is ok.
type Thread struct {
	N     int           `json:"n"`
	Stack []SeqPosition `json:"stack"` // innermost last
	// Waits is the step or group; Command the round of the step.
	Waits   string `json:"waits"`
	Command string `json:"command,omitempty"`
	Scope   *Scope `json:"scope,omitempty"`
	Late    bool   `json:"late,omitempty"`
}

// SeqPosition is the next element of one seq.
type SeqPosition struct {
	Seq  string `json:"seq"` // path of the seq in the manifest
	Next int    `json:"next"`
}

// Scope keeps what expressions that run later may still refer to: the trigger
// of the handler, its let values, the items of each. Only what is referred to is kept.
type Scope struct {
	Handler string                     `json:"handler"`
	Event   json.RawMessage            `json:"event,omitempty"`
	Meta    json.RawMessage            `json:"meta,omitempty"`
	Values  map[string]json.RawMessage `json:"values,omitempty"`
	// Broken are let names whose value failed; using one is poison.
	Broken map[string]string `json:"broken,omitempty"`
}

// Incident is something only an operator can settle.
type Incident struct {
	Step   string          `json:"step"` // "ship", "charge.undo"
	Reason string          `json:"reason"`
	Error  json.RawMessage `json:"error,omitempty"`
	Time   time.Time       `json:"time"`
	Orphan bool            `json:"orphan,omitempty"`
}

// About what the names and small fields of a part of an instance take as JSON.
const (
	sizeInstance = 300
	sizeStep     = 250
	sizeSmall    = 100 // of a frame, a timer, a group
)

// Size is about how many bytes the instance takes as JSON. It costs no encoding.
func (in *Instance) Size() int {
	n := sizeInstance + len(in.State) + len(in.Result) + len(in.Reason)
	n += stepsSize(in.Steps) + stepsSize(in.Older)
	for i := range in.Frames {
		n += frameSize(&in.Frames[i])
	}
	for i := range in.Undos {
		n += sizeStep + frameSize(&in.Undos[i].Frame) + len(in.Undos[i].Input) + len(in.Undos[i].Error)
	}
	for i := range in.Threads {
		n += sizeSmall + sizeSmall*len(in.Threads[i].Stack) + scopeSize(in.Threads[i].Scope)
	}
	for _, id := range in.Recent {
		n += len(id) + len(`"",`)
	}
	for i := range in.Incidents {
		n += sizeSmall + len(in.Incidents[i].Error)
	}
	return n + valuesSize(in.Seen) + sizeSmall*(len(in.Timers)+len(in.Groups)+len(in.Joined))
}

func stepsSize(steps []Step) (n int) {
	for i := range steps {
		s := &steps[i]
		n += sizeStep + len(s.Input) + len(s.Result) + len(s.Error) + len(s.Item) + scopeSize(s.Scope)
	}
	return n
}

func frameSize(f *Frame) int {
	return sizeSmall + len(f.Input) + len(f.Result) + scopeSize(f.Scope)
}

func scopeSize(s *Scope) int {
	if s == nil {
		return 0
	}
	return sizeSmall + len(s.Event) + len(s.Meta) + valuesSize(s.Values)
}

func valuesSize(values map[string]json.RawMessage) (n int) {
	for name, v := range values {
		n += len(name) + len(v)
	}
	return n
}
