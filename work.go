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
	// WorkResult is the copy of a result that was applied within its process, for
	// everyone else: to WORKFLOW_EVENTS. Name is the effect, CommandID the command,
	// Payload the body of the message.
	WorkResult WorkKind = "result"
)

// Work is one thing that goes out, in the order of the manifest. The relay
// delivers it at least once under the same ID.
type Work struct {
	// ID is derived from what caused the work, so that the same history gives
	// the same id on every machine. The Nats-Msg-Id has it behind the tenant.
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
	// CommandID is what a revoke, a cancel or an end speaks of.
	CommandID string          `json:"command_id,omitempty"`
	Outcome   Outcome         `json:"outcome,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	// EffectVersion is the version of the effect that Payload is written for;
	// 0 where the saga does not say, and then it is the effect's own.
	EffectVersion int    `json:"effect_version,omitempty"`
	Step          string `json:"step,omitempty"`
	Attempt       int    `json:"attempt,omitempty"` // 1 is the first
	// IdempotencyKey is what the provider is shown: ID, but for the retry of
	// an unknown outcome, which keeps the key of the call before.
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	NotAfter       time.Time `json:"not_after,omitzero"`
	Time           time.Time `json:"time"` // the trigger's; of a result when the sagas took it
	Correlation    string    `json:"correlation,omitempty"`
	Causation      string    `json:"causation,omitempty"`
	Trace          string    `json:"trace,omitempty"`
	High           bool      `json:"high,omitempty"` // priority: high
}

// Claim is one entry of the effect ledger: who may call, and what came of it.
// A claim without a result is an unknown outcome once its owner is gone.
type Claim struct {
	// Tenant and CommandID name the command: one tenant's ids say nothing of
	// another's.
	Tenant    string    `json:"tenant,omitempty"`
	CommandID string    `json:"command_id"`
	Effect    string    `json:"effect"`
	Owner     string    `json:"owner"`   // which worker claimed it
	Claimed   time.Time `json:"claimed"` // chooses the droppable bucket: keep it when completing
	// Paused says that its worker stopped between two calls, none of which is in
	// doubt: whoever takes it over goes on after Attempts calls.
	Paused bool `json:"paused,omitempty"`
	// Done is set together with the result, which is then published again and
	// never called again.
	Done     bool            `json:"done,omitempty"`
	Outcome  Outcome         `json:"outcome,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Attempts int             `json:"attempts,omitempty"`
	Finished time.Time       `json:"finished,omitzero"`
	// Taken is when the sagas took the result that was handed to them within the
	// process; zero where it goes to them through the stream. It goes with the result
	// whenever that is published.
	Taken time.Time `json:"taken,omitzero"`
}
