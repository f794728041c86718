package edda

import (
	"errors"
	"fmt"
	"time"
)

// The three questions about an error are: try again, give up, or set aside?
// An error that answers none of them is treated as Temporary by loops that
// retry, because giving up loses work.
var (
	// Temporary: the same call may succeed later.
	Temporary = errors.New("temporary")
	// Permanent: the same call will never succeed; tell the caller.
	Permanent = errors.New("permanent")
	// Poison: this input can never be applied; set it aside and go on.
	Poison = errors.New("poison")
)

// Classified is an error with its class; errors.Is finds the class and the cause.
type Classified struct {
	Class error // Temporary, Permanent or Poison
	Err   error
	// After is how long to wait before trying again, when the other side said so.
	After time.Duration
}

func (e *Classified) Error() string   { return e.Err.Error() }
func (e *Classified) Unwrap() []error { return []error{e.Class, e.Err} }

// Classify wraps an error, made as fmt.Errorf makes it, in a class.
func Classify(class error, format string, args ...any) error {
	return &Classified{Class: class, Err: fmt.Errorf(format, args...)}
}
