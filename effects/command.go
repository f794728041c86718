package effects

import (
	"context"
	"encoding/json"
	"time"

	"edda"
)

// Command is an effect command or a revoke, as read from a stream.
type Command struct {
	Tenant string // the subject's
	ID     string // the subject's; for a revoke the id of the command to revoke
	Effect string // the subject's
	// Revoke asks not to call the command ID.
	Revoke  bool
	Payload json.RawMessage
	// Version is the version of the effect that Payload is written for. 0 is the manifest's at the
	// time of the call.
	Version int
	// Metadata is the command's metadata object. The result has the same.
	Metadata json.RawMessage
	// IdempotencyKey is the provider's key; ID when empty.
	IdempotencyKey string
	NotAfter       time.Time // zero: no bound
	Sent           time.Time // when the saga emitted it; zero: unknown
	Trace          string    // traceparent
	High           bool
	// Offered says that it did not come through the stream. Its result goes to the Applier.
	Offered bool
	// Malformed is why the message is no command. The ids are then those of its subject. Raw is the
	// message, Subject its subject.
	Malformed string
	Subject   string
	Raw       []byte
}

// late reports whether not_after has passed.
func (c Command) late(now time.Time) bool { return !c.NotAfter.IsZero() && now.After(c.NotAfter) }

// Heartbeat is the interval of InProgress for a message whose command is being worked on.
const Heartbeat = 10 * time.Second

// Delivery is a message that carries a command. Its methods may be called concurrently and
// repeatedly. An error costs a duplicate at most.
type Delivery interface {
	// Command returns the same command every time. Nobody may change it.
	Command() *Command
	// InProgress delays the redelivery by another ack wait, which must be at least three times
	// Heartbeat.
	InProgress(ctx context.Context) error
	// Ack ends the redelivery, because the command's result is published.
	Ack(ctx context.Context) error
	// Nak asks for a redelivery after the delay.
	Nak(ctx context.Context, delay time.Duration) error
}

// Source is a stream of commands.
type Source interface {
	// Fetch returns up to max commands and revokes of one effect, in stream order. It waits at
	// most wait for the first, and may return none. It is called concurrently for different
	// effects, never for one, and returns soon after ctx ends.
	Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]Delivery, error)
}

// Result is the result of a command.
type Result struct {
	Tenant    string
	CommandID string
	Effect    string
	Outcome   edda.Outcome
	// Payload of a success is the effect's result. Otherwise it is an object {code, message,
	// attempts, duration}, with {status, body} if a provider answered.
	Payload  json.RawMessage
	Metadata json.RawMessage // the command's
	Attempts int             // calls made
	Time     time.Time
	// Taken is when the sagas of this process took it; zero if they did not.
	Taken time.Time
	Trace string
}

// Applier passes results to the sagas of this process.
type Applier interface {
	// Apply makes the result, its transition and its claim durable in one commit, and publishes
	// the result as [Publisher] does. After an error the caller must do both. It may be called
	// concurrently, and returns soon after ctx ends.
	Apply(ctx context.Context, r Result, c edda.Claim) error
}

// Publisher sends results to the sagas' stream.
type Publisher interface {
	// PublishResult returns when the stream has stored the result. It may be called concurrently,
	// and again for the same command: the message id must be derived from the command id.
	PublishResult(ctx context.Context, r Result) error
}
