package effects

import (
	"context"
	"errors"
	"time"

	kindspec "edda/effects/spec"
	"edda/manifests"
)

// Provider makes calls.
type Provider interface {
	// Call makes one call and returns the other side's answer, a negative one too. An error
	// means that there is no answer: after ErrNotSent the call surely had no effect, after any
	// other error it may have had it. The worker tries again unless the error is edda.Permanent.
	// Call returns soon after ctx ends, and may be called concurrently.
	Call(ctx context.Context, c Call) (Response, error)
}

// ErrNotSent marks the error of a call that surely did not reach the other side.
var ErrNotSent = errors.New("not sent")

// Call is one call for a provider.
type Call struct {
	Effect string
	ID     string // the command id
	Key    string // the idempotency key for the other side
	Tenant string
	Trace  string // traceparent
	// Asks says that the call is a check: it only asks about an earlier one.
	Asks bool
	// Bare says that the effect does not read the answer's headers.
	Bare bool
	// Folder is the manifest's folder. Paths in the manifest are relative to it.
	Folder string
	// Config is the evaluated map of the manifest, in canonical values. All calls of a command
	// share it, and nobody may change it.
	Config map[string]any
	// Command is the command of the call. Nobody may change it.
	Command *Command
}

// Response is an answer. Expressions see its status, headers and body.
type Response struct {
	Status  int
	Headers map[string]string // names in lower case
	Body    any               // a canonical value; a text if it is not JSON
	// Retry says that the same call may be answered differently later. This and the next three
	// count only if neither ok nor fail is true.
	Retry bool
	// Refused says that the call surely had no effect, so that at_most_once may call again.
	// Unknown says that it may have had its effect.
	Refused bool
	Unknown bool
	// Apart says that a negative answer is about this call only: an earlier call for the command
	// may still have had its effect.
	Apart bool
	// After is the wait that the other side asked for; 0 if it asked for none.
	After time.Duration
}

// ProviderKind describes a provider to the compiler of manifests.
type ProviderKind struct {
	// Spec describes the provider's map, which Compile checks. nil: the map is not checked.
	Spec *kindspec.Fields
	// NoCheck is why an effect's check cannot use the provider; empty if it can.
	NoCheck string
	// Escape writes a value into the template of a field, given the text before it.
	Escape map[string]func(before, value string) string
	// Raw does so for a value in raw(…), in the fields that allow it. Fits returns what is wrong
	// with a field's evaluated text, which has an x for each value in raw(…): the manifest is
	// responsible for those.
	Raw  map[string]func(before, value string) string
	Fits map[string]func(text string) error
	// OK is the default of ok: "true" when empty.
	OK string
	// Timeout is the default of timeout: 10 s when zero.
	Timeout time.Duration
	// Once says that the provider makes a command have its effect once. A call of unknown outcome
	// may then be repeated, also with at_most_once.
	Once bool
}

// inspect checks a provider's map. The map is nil after a problem that the parser has reported.
func (c *compiler) inspect(k ProviderKind, config *manifests.Value, asks bool) {
	switch {
	case config == nil:
	case asks && k.NoCheck != "":
		c.errorf(config.Pos, k.NoCheck)
	case k.Spec != nil:
		checker := kindspec.Checker{File: c.m.File, Asks: asks}
		checker.Map(k.Spec, config)
		c.problems = append(c.problems, checker.Problems...)
	}
}
