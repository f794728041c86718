package effects

import (
	"context"
	"errors"
	"time"
)

// Provider makes one call.
type Provider interface {
	// Call makes one call and returns the other side's answer, whatever it is.
	// An error means that there was none: one that is ErrNotSent surely did
	// nothing; any other may have. Both are tried again, but for
	// edda.Permanent. Call ends soon after ctx does; it may be called concurrently.
	Call(ctx context.Context, c Call) (Response, error)
}

// ErrNotSent marks the error of a call that surely did not reach the other side.
var ErrNotSent = errors.New("not sent")

// Call is what a provider needs to know.
type Call struct {
	Effect string
	ID     string // the command id
	Key    string // the idempotency key, to be shown to the other side
	Tenant string
	Trace  string // traceparent
	// Asks is set where the call only asks what came of an earlier one, as check does.
	Asks bool
	// Bare is set where nobody looks at the answer's headers: they may be left out.
	Bare bool
	// Folder is where the manifest's file is: what the paths in it are relative to.
	Folder string
	// Config is the manifest's provider map, evaluated: canonical values. Nobody may
	// change it, and all calls of one command share it.
	Config map[string]any
}

// Response is what expressions see after the call: status, headers, body.
type Response struct {
	Status  int
	Headers map[string]string // names in lower case
	Body    any               // a canonical value; text where it is not JSON
	// Retry says that the same call may be answered otherwise later. It and the
	// next three are looked at only where neither ok nor fail is true.
	Retry bool
	// Refused says that the other side surely did nothing, so that also an
	// at_most_once effect may call again; Unknown that it may have done it.
	Refused bool
	Unknown bool
	// Apart says that an answer which is no success is about this call alone:
	// where an earlier call for the command may have had its effect, it still may.
	Apart bool
	// After is how long it asked to wait before the next call; 0 when it did not.
	After time.Duration
}
