// Package manifests parses YAML into sagas and effects with the position of everything, so that
// every later problem can name its line. It knows the shape of a manifest, not its meaning: the
// saga package checks names and expressions.
package manifests

import "time"

// Pos is a position in a file; both count from 1, columns in characters.
type Pos struct{ Line, Column int }

// File is one parsed file.
type File struct {
	Name    string // as given, for messages
	Source  []byte
	Sagas   []*Saga
	Effects []*Effect
}

// Expr is the source of an expression, without the = of a value.
type Expr struct {
	Pos    Pos // of its first character
	Source string
}

// ValueKind is the kind of a Value.
type ValueKind int

// The kinds of values.
const (
	Literal    ValueKind = iota // Scalar
	Expression                  // Expr
	Template                    // Parts: "… ${expr} …"
	List                        // Items
	Map                         // Fields
)

// Value is a value of a manifest: a literal, an expression, an interpolated string, or a list or
// map of values.
type Value struct {
	Pos    Pos
	Kind   ValueKind
	Scalar any // nil, bool, int, float64 or string
	Expr   *Expr
	Parts  []TemplatePart
	Items  []*Value
	Fields []Field // in document order, names unique
}

// TemplatePart is a part of a template: text, or an expression if Expr is set.
type TemplatePart struct {
	Text string
	Expr *Expr
}

// Field is one entry of a map. Name is taken literally, dots included.
type Field struct {
	Name  string
	Pos   Pos
	Value *Value
}

// Duration is a duration with its position. Text is as written.
type Duration struct {
	Pos  Pos
	Text string
	D    time.Duration
}

// Name is a name with its position.
type Name struct {
	Pos  Pos
	Text string
}

// Saga is one saga document.
type Saga struct {
	File *File
	Pos  Pos
	// Partial says that a part could not be read, and was reported: what the saga seems to lack may
	// stand there.
	Partial  bool
	Source   []byte // the document's own text, exactly as written
	Hash     string // hex SHA-256 of Source, line ends normalised to \n, surrounding blank lines cut; tests: included
	Name     Name
	Version  int // 1 if the manifest names none
	Key      *Expr
	From     string // "now" (default) or "all"
	Deadline *Duration
	Schedule []Schedule // in document order
	Config   *Value     // a Map, literals only; nil when absent
	State    *Value     // a Map, literals only; nil when absent
	Schema   *Value     // literal JSON Schema; nil when absent
	Events   []EventDecl
	Done     *Duration // retention.done
	Failed   *Duration // retention.failed
	Parallel bool      // undo_order: parallel
	Auto     bool      // upgrade: auto
	Handlers []*Handler
	Tests    []*Test
}

// Schedule is one entry of schedule:. Exactly one of Cron and Every is set.
type Schedule struct {
	Name    Name
	Cron    string
	CronPos Pos
	Every   *Duration
	Zone    string // IANA name; UTC by default
	Tenants []string
	Catchup string // last (default), all or none
	With    *Value
}

// EventDecl is one entry of events:.
type EventDecl struct {
	Name   Name
	Schema *Value
	// Upcast says what to set on a payload of an older version, by that version. They apply in
	// order. The highest key + 1 is the version that the manifest knows, or 1 without any; Version
	// overrides it.
	Upcast  []Upcast
	Version int
}

// Upcast turns version From into From+1.
type Upcast struct {
	Pos   Pos
	From  int
	Set   []Assign
	Unset []Name
}

// Trigger is the trigger of a handler, as written, or one of those of an A | B.
type Trigger struct {
	Pos   Pos
	Text  string   // with single spaces around &
	Parts []string // the names of an A & B, else one
}

// Handler is one entry of on:.
type Handler struct {
	Trigger  Trigger
	Start    bool
	Restart  bool
	Key      *Expr
	Let      []Let
	When     *Expr
	Set      []Assign
	Unset    []Name
	Do       []*Action
	Cases    []*Case
	Missing  string // "", park or drop
	Park     *Duration
	Late     bool
	Newer    *Block // runs instead for an event newer than the manifest knows
	OnPoison string // "" or skip
	Pos      Pos
}

// Let is one name of let:.
type Let struct {
	Name Name
	Expr *Expr
}

// Assign is one entry of set:. Path is a dotted path.
type Assign struct {
	Path  Name
	Value *Value
}

// Block is a set, unset and do without a trigger.
type Block struct {
	Pos   Pos
	Set   []Assign
	Unset []Name
	Do    []*Action
}

// Case is one entry of cases:. When is nil in a case that is always true.
type Case struct {
	Block
	When *Expr
}

// Action is one action. Kind is its word; fields that the kind does not use are zero.
type Action struct {
	Pos  Pos
	Kind string // effect command event message ask start seq each set timer cancel compensate undo done fail
	// Name is the effect, command (Type.Name), event, ask, saga or timer, or what is cancelled or
	// undone. The name of an undo or cancel may hold an index: hold[0].
	Name     Name
	If       *Expr
	ID       *Name
	With     *Value
	To       *Value    // command, ask
	Key      *Value    // start
	Event    *Name     // start: the trigger of the child's handler
	Undo     *Action   // kind effect or command; Short set for undo: name
	Must     bool      // effect, ask, start
	Optional bool      // effect, ask, start
	Due      *Duration // nil if there is none, or it is an expression
	DueValue *Value    // due: as an expression
	// Version is the version of the effect that with is written for; 0 if the manifest names none.
	Version    int
	VersionPos Pos
	High       bool   // priority: high
	Message    *Value // message: the whole map
	Seq        []*Action
	Each       *Expr
	As         string    // item when unsaid
	Do         []*Action // each
	Set        []Assign
	Unset      []Name
	After      *Value // timer: one of After and Every, or At alone
	At         *Value // a time; beside After or Every a time of day
	Every      *Value
	Zone       *Value // of a timer's days, months and time of day
	Catchup    string
	Index      *Value // undo: the index of a member, if it is chosen at run time; Name is its group's
	Value      *Value // done's result, fail's reason
	Short      bool   // undo: name, which means with: =input
}

// Effect is one effect document.
type Effect struct {
	File     *File
	Pos      Pos
	Source   []byte
	Hash     string
	Name     Name
	Version  int
	Provider string // http, grpc, smtp, sql, job or nats
	Config   *Value // the provider's map
	OK       *Expr
	Fail     *Expr
	Result   *Value
	Timeout  *Duration
	Retry    *Retry
	Breaker  *Value // checked by effects
	Limit    *Value
	Check    *Value
	// Delivery is at_least_once (default) or at_most_once.
	Delivery string
	Schema   *Value
	Upcast   []Upcast
}

// Retry is an effect's retry policy.
type Retry struct {
	Pos    Pos
	Max    int           // calls, the first included; 0 when unsaid
	Min    time.Duration // backoff: 1s..1m
	Cap    time.Duration
	Jitter bool
}

// Test is one entry of tests:.
type Test struct {
	Pos   Pos
	Name  string
	Steps []*TestStep
	End   *Value // literal map: status, reason, result, state, incomplete; nil when absent
}

// TestStep is one input of a test.
type TestStep struct {
	Pos Pos
	// Input is event, signal, ok, failed, timeout, answer, advance or operator.
	Input string
	Name  string // event type, signal, step, ask, verb; advance has none
	Step  string // operator: retry STEP, skip STEP
	With  string // answer: the choice
	By    string // event, signal, answer, operator: the actor
	D     time.Duration
	ID    string
	Key   string // another instance than the first one
	Data  any    // canonical literal
	// Fields of the envelope that the test of an event may set.
	AggregateType string
	AggregateID   string
	Version       int
	Correlation   string
	Tenant        string
	// Expect is nil when absent, and empty for [].
	Expect    []Expect
	HasExpect bool
	ExpectPos Pos // of its value
}

// Expect is one expected output: the fields that must match.
type Expect struct {
	Pos    Pos
	Word   string // first key that is an output word
	Fields map[string]any
	Order  []string // of the fields, as written
	Values []*Value // of the fields, in that order
}
