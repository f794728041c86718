package edda

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind says what sort of input an [Event] is.
type Kind string

// The kinds of input. Every one but KindTimer and KindSchedule comes from a
// stream.
const (
	KindEvent    Kind = "event"    // an aggregate's event or a saga's fact; routed by type, Key is empty
	KindResult   Kind = "result"   // the outcome of an effect, of a rejected command, or of a child saga
	KindSignal   Kind = "signal"   // a named message for one instance
	KindAnswer   Kind = "answer"   // a person's answer to an ask
	KindOperator Kind = "operator" // an operator's verb
	KindStart    Kind = "start"    // a parent saga starts this one
	KindSchedule Kind = "schedule" // a saga's schedule came due; routed by the handler's key, Key.Saga is set
	KindTimer    Kind = "timer"    // a timer, a step's due, a deadline or a parked event's expiry
)

// Outcome is how an effect, a command or a child saga ended.
type Outcome string

// The outcomes, as they stand on the wire.
const (
	Succeeded Outcome = "Succeeded"
	Failed    Outcome = "Failed"
	TimedOut  Outcome = "TimedOut" // unknown: it may have happened
)

// Event is one input of a saga, decoded once. Fields that a kind does not use
// are zero.
type Event struct {
	Kind Kind `json:"kind"`
	// ID is the trigger id: the envelope's event id (CloudEvents: source and
	// id), else the Nats-Msg-Id, else "stream:sequence"; derived for timers.
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitempty"`
	// Key addresses one instance; set for every kind but KindEvent and
	// KindSchedule. It may lack Saga and Correlation in a result from a
	// foreign worker, which is then found by CommandID.
	Key Key `json:"key,omitzero"`
	// Type is the event type; a signal's name; an answer's choice; an
	// operator's verb; a schedule's name; for KindStart the trigger of the
	// start handler, or empty for the only one.
	Type string `json:"type,omitempty"`
	// FullType is the type of a CloudEvent as its producer wrote it, such as
	// com.github.pull_request.opened, unless AggregateType and Type say it.
	FullType      string `json:"full_type,omitempty"`
	AggregateType string `json:"aggregate_type,omitempty"` // for a workflow fact the saga's name
	AggregateID   string `json:"aggregate_id,omitempty"`
	Version       int    `json:"version,omitempty"`
	// Time is the saga's now, in UTC: when JetStream stored the message, or when a
	// timer was due. The Time of an echo is when the process applied the result
	// that was handed over within it.
	Time time.Time `json:"time"`
	// Stored is when JetStream stored an echo; zero for any other event, whose Time
	// says it. Positions and the order of streams are by [Event.StoredAt].
	Stored time.Time `json:"stored,omitzero"`
	// Timestamp is when the producer says it happened; zero when unsaid.
	Timestamp time.Time `json:"timestamp,omitzero"`
	Stream    string    `json:"stream,omitempty"`
	Seq       uint64    `json:"seq,omitempty"`
	// Member is the place of the event in a batch of CloudEvents, from 1. It is zero for an
	// event that has its message to itself.
	Member int `json:"member,omitempty"`
	// Payload is a JSON value; empty means null.
	Payload     json.RawMessage `json:"payload,omitempty"`
	Correlation string          `json:"correlation,omitempty"`
	Causation   string          `json:"causation,omitempty"`
	Trace       string          `json:"trace,omitempty"` // traceparent or trace id, carried through unread

	// Step is the step that a result, an answer, a step's due or an operator's
	// retry or skip is about.
	Step string `json:"step,omitempty"`
	// CommandID matches a result to the work that caused it; for KindStart it
	// is the id of the parent's start action.
	CommandID string  `json:"command_id,omitempty"`
	Outcome   Outcome `json:"outcome,omitempty"`
	Attempts  int     `json:"attempts,omitempty"` // calls the effect worker made
	// Parent is the instance that started this one (KindStart).
	Parent Key `json:"parent,omitzero"`
	// By names the person or program that answered, signalled, sent the event or
	// gave the operator's verb. Expressions see it as meta.by.
	By string `json:"by,omitempty"`
	// Why is the reason that By gave. Only the audit shows it.
	Why string `json:"why,omitempty"`
	// Timer names what came due (KindTimer).
	Timer TimerKind `json:"timer,omitempty"`
	// Redriven is set when a dead or held event is applied again by an
	// operator: its own earlier entry does not make it a duplicate.
	Redriven bool `json:"redriven,omitempty"`
	// Redrives counts the redrives of the event. It distinguishes a dead letter that
	// came back from the one before.
	Redrives int `json:"redrives,omitempty"`
	// Malformed is set by the adapter when the message cannot be an input;
	// it becomes a dead letter with that reason (see DeadLetter.Reason) and
	// Error says what is wrong.
	Malformed string `json:"malformed,omitempty"`
	Error     string `json:"error,omitempty"`
	// Subject is where a malformed message was published.
	Subject string `json:"subject,omitempty"`
	// More is set by the source while further members of the same message follow. The
	// position moves to the message with the last of them.
	More bool `json:"-"`
}

// Place names the event's message in its stream, for people.
func (e *Event) Place() string {
	if e.Member > 0 {
		return fmt.Sprintf("member %d of message %d of stream %s", e.Member, e.Seq, e.Stream)
	}
	return fmt.Sprintf("message %d of stream %s", e.Seq, e.Stream)
}

// Number is the event's sequence in its stream, and behind a colon its place in a batch.
func (e *Event) Number() string {
	n := strconv.FormatUint(e.Seq, 10)
	if e.Member > 0 {
		n += ":" + strconv.Itoa(e.Member)
	}
	return n
}

// StoredAt is when JetStream stored the message.
func (e *Event) StoredAt() time.Time {
	if e.Stored.IsZero() {
		return e.Time
	}
	return e.Stored
}

// Taken returns the event as sagas get it. A result that was handed over within a process
// has no stream, so its echo is given to sagas without stream and sequence: both must give
// the same transition.
func (e Event) Taken() Event {
	if !e.Stored.IsZero() {
		e.Stored, e.Stream, e.Seq = time.Time{}, "", 0
	}
	return e
}

// Redrive is the payload of VerbRedrive, VerbDrop and VerbSkip if they are about a dead
// letter. Without one they are about the event that holds the key.
type Redrive struct {
	DeadLetter string `json:"dead_letter"`
	// Data is applied instead of the event's payload.
	Data json.RawMessage `json:"data,omitempty"`
	// ReadBack says that Data was read from the event's stream, because the dead letter
	// lacks its payload, and that no person gave it.
	ReadBack bool `json:"read_back,omitempty"`
	// Event, Reason, Unseen and Cut are the dead letter's. The engine adds them from its
	// store if the dead letter holds no key. Event is nil if the dead letter is gone.
	Event  *Event `json:"event,omitempty"`
	Reason string `json:"reason,omitempty"`
	Unseen bool   `json:"unseen,omitempty"`
	Cut    int    `json:"cut,omitempty"`
}

// Lacks returns an error if the event cannot be applied, because its dead letter has no
// payload and the operator gives none.
func (r Redrive) Lacks() error {
	if r.Event == nil || len(r.Data) > 0 {
		return nil
	}
	return DeadLetter{Event: *r.Event, Cut: r.Cut}.Whole()
}

// KeepCut leaves a payload that was read back out of the event's next dead letter.
// Otherwise a redrive of many dead letters would pass the bound on their bytes.
func (r Redrive) KeepCut(d *DeadLetter) {
	if d != nil && r.ReadBack && r.Event != nil && d.Event.ID == r.Event.ID {
		d.Cut, d.Event.Payload = r.Cut, nil
	}
}

// Verb is an operator's act on one instance, in Event.Type.
type Verb = string

// The verbs. Retry, skip and edit need Event.Step; edit's payload replaces the
// undo's or step's input for the retry it causes.
const (
	VerbCancel    Verb = "cancel"    // fail(cancelled), with undo
	VerbTerminate Verb = "terminate" // end now, nothing undone
	VerbRetry     Verb = "retry"     // call a failed must step or undo again; a payload replaces its input
	VerbSkip      Verb = "skip"      // continue without the step; without a step, as drop
	VerbResolve   Verb = "resolve"   // mark an undo or a must step as done by hand
	VerbRedrive   Verb = "redrive"   // apply the poison event and those held behind it again
	VerbDrop      Verb = "drop"      // give the poison event up and apply those held behind it
	VerbReplay    Verb = "replay"    // rebuilt from its history; only in the history, never an input
)

// The audit's names for the acts that are no verbs.
const (
	ActSignal = "signal"
	ActAnswer = "answer"
	ActSend   = "send"
	ActReload = "reload"
	ActDeploy = "deploy"
	ActDrain  = "drain"
	// The acts on a cluster.
	ActMove     = "move"
	ActFinalize = "finalize"
	ActForget   = "forget"
)

// TimerKind is the kind of thing that comes due.
type TimerKind string

// The kinds of timers.
const (
	TimerNamed    TimerKind = "named"    // timer: in a manifest; Event.Type is its name
	TimerDeadline TimerKind = "deadline" // the saga's deadline
	TimerDue      TimerKind = "due"      // a step's due passed; Event.CommandID names it
	TimerPark     TimerKind = "park"     // a parked event expired
)

// MaxKey bounds the bytes of a new instance's correlation. A longer one, with each byte
// escaped, would not fit the URL or the cursor of a request.
const MaxKey = 2048

// Key names one instance of a saga. Every part may be any UTF-8 text, and Correlation has at
// most [MaxKey] bytes; Tenant is empty where tenancy is off.
type Key struct {
	Tenant      string `json:"tenant,omitempty"`
	Saga        string `json:"saga,omitempty"`
	Correlation string `json:"correlation,omitempty"`
}

// String is the key in display form, tenant/saga/correlation.
func (k Key) String() string { return k.Tenant + "/" + k.Saga + "/" + k.Correlation }

// Matches reports whether a text matches a pattern, in which '*' stands for any
// text, also an empty one.
func Matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for _, middle := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(text, middle)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}

// TimeFormat is how a time is written: RFC 3339 in UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// FormatTime writes t as values and the wire carry it.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeFormat) }
