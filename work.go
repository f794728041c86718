package edda

import (
	"encoding/json"
	"time"
)

// WorkKind says where the relay takes a piece of work.
type WorkKind string

// The kinds of work and where each goes.
const (
	WorkEffect  WorkKind = "effect"  // an effect command, to WORKFLOW_COMMANDS; its outbox row stays until the result is committed
	WorkRevoke  WorkKind = "revoke"  // asks the effect worker not to begin; CommandID names the effect command
	WorkCommand WorkKind = "command" // an aggregate command, to the gateway or WORKFLOW_COMMANDS
	WorkFact    WorkKind = "fact"    // a workflow fact, to WORKFLOW_EVENTS
	WorkStart   WorkKind = "start"   // starts a child saga: a message on workflow.<saga>.<key>
	WorkCancel  WorkKind = "cancel"  // cancels a child saga, likewise
	WorkEnd     WorkKind = "end"     // tells the parent how a child ended, likewise; Outcome and CommandID are set
	WorkMessage WorkKind = "message" // a Hero message, to Redis msg_out
	// WorkResult is the echo of a result that was applied within its process, to
	// WORKFLOW_EVENTS. Name is the effect, CommandID the command, Payload the body
	// of the message.
	WorkResult WorkKind = "result"
)

// Work is one thing that goes out, in the order of the manifest. The relay
// delivers it at least once under the same ID.
type Work struct {
	// ID is derived from the cause of the work, so that the same history gives the
	// same id on every machine. The Nats-Msg-Id is the tenant and this id.
	ID   string   `json:"id"`
	Kind WorkKind `json:"kind"`
	From Key      `json:"from"` // the instance that emitted it
	// Name is the effect; "Type.Name" of an aggregate command; the fact's name.
	Name string `json:"name,omitempty"`
	// To is the aggregate id of a command.
	To string `json:"to,omitempty"`
	// Target is the instance that a start, a cancel or an end is for.
	Target Key `json:"target,omitzero"`
	// Event is the start handler's trigger that a start asks for, or empty.
	Event string `json:"event,omitempty"`
	// CommandID is the command that a revoke, a cancel or an end is about.
	CommandID string          `json:"command_id,omitempty"`
	Outcome   Outcome         `json:"outcome,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	// EffectVersion is the version of the effect that Payload is written for. 0
	// means the effect's own version, because the saga names none.
	EffectVersion int    `json:"effect_version,omitempty"`
	Step          string `json:"step,omitempty"`
	Attempt       int    `json:"attempt,omitempty"` // 1 is the first
	// IdempotencyKey is shown to the provider. It is ID, except that the retry of an
	// unknown outcome keeps the key of the call before.
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	NotAfter       time.Time `json:"not_after,omitzero"`
	Time           time.Time `json:"time"` // the trigger's; a result's is when the process applied it
	Correlation    string    `json:"correlation,omitempty"`
	Causation      string    `json:"causation,omitempty"`
	Trace          string    `json:"trace,omitempty"`
	High           bool      `json:"high,omitempty"` // priority: high
}

// Claim is one entry of the effect ledger: the worker that may call, and the outcome.
// A claim without a result is an unknown outcome once its owner is gone.
type Claim struct {
	// Tenant and CommandID name the command. Ids are unique within a tenant only.
	Tenant    string    `json:"tenant,omitempty"`
	CommandID string    `json:"command_id"`
	Effect    string    `json:"effect"`
	Owner     string    `json:"owner"`   // the worker that claimed it
	Claimed   time.Time `json:"claimed"` // selects the bucket that is dropped as a whole: completing must keep it
	// Paused says that its worker stopped between two calls, and that the outcome of
	// each is known. The worker that takes the claim over continues after Attempts calls.
	Paused bool `json:"paused,omitempty"`
	// Done is set together with the result. A command that is done is published again
	// and never called again.
	Done     bool            `json:"done,omitempty"`
	Outcome  Outcome         `json:"outcome,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	Finished time.Time       `json:"finished,omitzero"`
	// Taken is when the process applied the result that was handed over within it; zero
	// if the result goes through the stream. The message of the result carries it.
	Taken time.Time `json:"taken,omitzero"`
}
