package effects

import (
	"context"
	"encoding/json"
	"time"

	"edda"
)

// Command is one effect command, or one revoke, as a stream gave it.
type Command struct {
	Tenant string // the subject's
	ID     string // the subject's; for a revoke the id of the command to revoke
	Effect string // the subject's
	// Revoke asks not to begin the command ID.
	Revoke  bool
	Payload json.RawMessage
	// Version is the version of the effect that Payload is written for; where it
	// is not said, 0, that of the manifest at the time of the call.
	Version int
	// Metadata is the command's metadata object, echoed in the result as it is.
	Metadata json.RawMessage
	// IdempotencyKey is what the provider is shown; ID when empty.
	IdempotencyKey string
	NotAfter       time.Time // zero: no bound
	Sent           time.Time // when the saga emitted it; zero: not said
	Trace          string    // traceparent
	High           bool
	// Offered says that it did not come through the stream: its result goes where
	// it came from.
	Offered bool
	// Malformed says why the message is no command; the ids are then those of
	// its subject. Raw is the message, Subject where it was.
	Malformed string
	Subject   string
	Raw       []byte
}

// late tells whether the command may no longer be called.
func (c Command) late(now time.Time) bool { return !c.NotAfter.IsZero() && now.After(c.NotAfter) }

// Heartbeat is how often a message that is being worked on says so.
const Heartbeat = 10 * time.Second

// Delivery is one message that carries a command. Its methods may be called
// concurrently and more than once; their errors cost a duplicate at most.
type Delivery interface {
	// Command is always the same one; nobody changes it.
	Command() *Command
	// InProgress keeps the message from being delivered again for another ack
	// wait, which must be at least three times Heartbeat.
	InProgress(ctx context.Context) error
	// Ack says that the command's result is published: never deliver it again.
	Ack(ctx context.Context) error
	// Nak asks for the message again after the delay.
	Nak(ctx context.Context, delay time.Duration) error
}

// Source is where commands come from.
type Source interface {
	// Fetch returns up to max waiting commands and revokes of one effect, in
	// stream order; it waits at most wait for the first, and returns none when
	// there is none. It is called concurrently for different effects, never for
	// the same one, and ends soon after ctx does.
	Fetch(ctx context.Context, effect string, max int, wait time.Duration) ([]Delivery, error)
}

// Result is what came of a command.
type Result struct {
	Tenant    string
	CommandID string
	Effect    string
	Outcome   edda.Outcome
	// Payload of a success is the effect's result; of the others an object
	// {code, message, attempts, duration} and, where a provider answered, {status, body}.
	Payload  json.RawMessage
	Metadata json.RawMessage // the command's
	Attempts int             // calls made
	Time     time.Time
	// Taken is when the sagas of this process took it; zero where they did not.
	Taken time.Time
	Trace string
}

// Applier gives results to the sagas of this process.
type Applier interface {
	// Apply makes the result, what it changes, and its claim durable, all at once,
	// and sees to it that all others hear of it as by [Publisher]. An error says that
	// somebody else must see to both. It may be called concurrently, and ends soon
	// after ctx does.
	Apply(ctx context.Context, r Result, c edda.Claim) error
}

// Publisher sends results where the sagas find them.
type Publisher interface {
	// PublishResult returns when the stream has stored the result. It may be
	// called concurrently, and again for the same command: the message id must
	// be derived from the command id.
	PublishResult(ctx context.Context, r Result) error
}
