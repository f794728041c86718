package edda

import (
	"errors"
	"fmt"
	"time"
)

// The classes of errors: try again, give up, or set aside. A loop that retries
// treats an error without a class as Temporary, because giving up loses work.
var (
	Temporary = errors.New("temporary") // the same call may succeed later
	Permanent = errors.New("permanent") // the same call will never succeed; tell the caller
	Poison    = errors.New("poison")    // this input can never be applied; set it aside and continue
)

// Classified is an error with its class; errors.Is finds the class and the cause.
type Classified struct {
	Class error // Temporary, Permanent or Poison
	Err   error
	After time.Duration // the delay before the next try, if the other side gave one
}

func (e *Classified) Error() string   { return e.Err.Error() }
func (e *Classified) Unwrap() []error { return []error{e.Class, e.Err} }

// Classify wraps an error, made as fmt.Errorf makes it, in a class.
func Classify(class error, format string, args ...any) error {
	return &Classified{Class: class, Err: fmt.Errorf(format, args...)}
}
