package edda

import (
	"cmp"
	"encoding/json"
	"time"
)

// Fate is the outcome of one event for one key. Every delivered event ends with
// exactly one fate.
type Fate string

// The fates. FateIgnored alone is not written to the history.
const (
	FateHandled   Fate = "handled"
	FateGuarded   Fate = "guarded" // its when was false, or no case was true
	FateParked    Fate = "parked"
	FateLate      Fate = "late"
	FateDuplicate Fate = "duplicate"
	FateDead      Fate = "dead"
	FateIgnored   Fate = "ignored" // no saga wants it, or missing: drop
	// FateHeld is not an end: the event waits behind a poisoned one.
	FateHeld Fate = "held"
)

// Output describes one thing that a transition did, for tests, history and people.
// Word is effect, command, event, message, ask, start, timer, cancel, fired,
// expired, revoke, parked, unparked, held, redriven, upgraded, replayed, late, duplicate, dead,
// incident, refused, guarded, ignored, dropped or end, and of a flow of jobs dispatch, stop or node;
// Name is the word's value.
type Output struct {
	Word       string          `json:"word"`
	Name       string          `json:"name,omitempty"`
	Step       string          `json:"step,omitempty"`
	ID         string          `json:"id,omitempty"` // of the work, where there is any
	To         string          `json:"to,omitempty"`
	Key        string          `json:"key,omitempty"`
	With       json.RawMessage `json:"with,omitempty"`
	Due        string          `json:"due,omitempty"` // a duration, as evaluated
	For        string          `json:"for,omitempty"` // a duration or an RFC 3339 time, as evaluated
	Undoes     string          `json:"undoes,omitempty"`
	Attempt    int             `json:"attempt,omitempty"`
	Version    int             `json:"version,omitempty"` // of the effect, where the saga says it
	Reason     string          `json:"reason,omitempty"`
	Incomplete []string        `json:"incomplete,omitempty"`
}

// Transition is everything that one event changed for one key. It is an
// immutable value: the core never touches it again after returning it, so it
// may be encoded and committed while the next one is computed.
type Transition struct {
	Key      Key
	Event    Event
	Fate     Fate
	Handlers []string // the triggers of the handlers that ran
	Outputs  []Output
	// Instance is the instance as it is now; nil when it did not change.
	Instance *Instance
	Work     []Work
	// Settled lists the command ids whose result is applied by this
	// transition (or whose round is over): their outbox rows go.
	Settled []string
	// Park and Hold add the event to the key's queues; Unpark and Release
	// remove entries by their N.
	Park    *Entry
	Unpark  []uint64
	Hold    *Entry
	Release []uint64
	Dead    *DeadLetter
	// Resolved names dead letters that this transition settled (redrive, drop).
	Resolved []string
	// Parts are those of the instance's state that this transition wrote or removed.
	Parts []Part
	// Arm and Disarm are rows of the due index to add and to remove.
	Arm    []time.Time
	Disarm []time.Time
}

// Cell is the whole durable record of one key.
type Cell struct {
	Key      Key
	Instance *Instance // nil: none yet
	Parts    []Part    // of its state, by N, where it has parts and no memo
	Parked   []Entry   // in order; only where there is no instance
	Held     []Entry   // in order; the first is the poison event that holds the key
}

// Entry is an event that waits for its instance (parked) or behind a poisoned
// event (held).
type Entry struct {
	N       uint64    `json:"n"` // order within the key and queue, from 1
	Event   Event     `json:"event"`
	Expires time.Time `json:"expires,omitzero"` // parked only
	// DeadLetter is set on the first held entry: the dead letter of the
	// poison event itself.
	DeadLetter string `json:"dead_letter,omitempty"`
}

// DeadLetter is an event that could not be applied, with everything a person
// needs to decide what to do.
type DeadLetter struct {
	ID string `json:"id"` // derived: the same input gives the same id
	// Reason is one of the Dead constants.
	Reason  string    `json:"reason"`
	Key     Key       `json:"key,omitzero"` // as far as it is known
	Subject string    `json:"subject,omitempty"`
	Event   Event     `json:"event"`
	Error   string    `json:"error,omitempty"`
	Path    string    `json:"path,omitempty"`       // where in the manifest
	Source  string    `json:"expression,omitempty"` // the expression that failed
	Inputs  string    `json:"inputs,omitempty"`     // its inputs as JSON, bounded
	Time    time.Time `json:"time"`
	// Unseen is set on a poison or version letter whose event no instance remembers.
	// The event may have come again and been applied since.
	Unseen bool `json:"unseen,omitempty"`
	// Raw is the message as received, bounded, when it could not be decoded.
	Raw []byte `json:"raw,omitempty"`
	// Work is what a destination refused (DeadRejected).
	Work *Work `json:"work,omitempty"`
	// Cut counts the bytes of the event's payload and of Raw that were left out,
	// because the tenant had too many bytes of dead letters. Event.Stream has the
	// message at Event.Seq.
	Cut int `json:"cut,omitempty"`
}

// Whole returns an error if the dead letter lacks the payload that a redrive
// needs. The error says where the payload is and what to do.
func (d DeadLetter) Whole() error {
	if d.Cut == 0 {
		return nil
	}
	return Classify(Permanent, "its payload was left out, because its tenant had too many bytes of dead letters: it is in %s (nats stream get %s %d); edda deadletter redrive reads it from there, or give it with --data", d.Event.Place(), d.Event.Stream, d.Event.Seq)
}

// InStream reports whether the event can be read again from its stream. A redriven
// event may have another payload than its message.
func (d DeadLetter) InStream() bool {
	return d.Work == nil && d.Event.Stream != "" && d.Event.Seq > 0 && !d.Event.Redriven
}

// Tenant is the key's tenant, or the subject's if the key is not known.
func (d DeadLetter) Tenant() string { return cmp.Or(d.Key.Tenant, d.Event.Tenant) }

// The reasons of dead letters.
const (
	DeadUndecodable = "undecodable" // not JSON, or not an envelope
	DeadNoType      = "no-type"
	DeadNoKey       = "no-key"
	DeadTenant      = "tenant" // the body contradicts the subject
	DeadTooLarge    = "too-large"
	DeadUnmatched   = "unmatched" // parked until it expired
	DeadPoison      = "poison"
	DeadFull        = "full"        // no more events may wait for its instance, or behind a poison event
	DeadVersion     = "version"     // newer than the manifest knows
	DeadNoInstance  = "no-instance" // a signal, an answer or a verb for an instance that does not exist
	DeadMalformed   = "malformed"   // the message is no effect command
	DeadRejected    = "rejected"    // work that its destination refused for good, and no saga waits for it
)

// DeadReasons lists the reasons of dead letters.
var DeadReasons = []string{
	DeadUndecodable, DeadNoType, DeadNoKey, DeadTenant, DeadTooLarge, DeadUnmatched, DeadPoison, DeadFull, DeadVersion,
	DeadNoInstance, DeadMalformed, DeadRejected,
}
