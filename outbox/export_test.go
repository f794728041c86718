package outbox

import (
	"testing"

	"edda"
)

// Fake is the destination of the relay's own tests: it passes the suite that real ones pass.
type Fake struct{ h *fakeDestination }

// NewFake refuses the work of a name for good.
func NewFake(t *testing.T, refused string) (Fake, Destination) {
	h := newFakeDestination(t)
	h.refuse = func(w edda.Work) error {
		if w.Name == refused {
			return &Rejection{Code: "no"}
		}
		return nil
	}
	return Fake{h}, h
}

// Got is what it has accepted.
func (f Fake) Got() []edda.Work {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	return append([]edda.Work(nil), f.h.got...)
}

// Silent runs a function while it answers nothing.
func (f Fake) Silent(during func()) {
	set := func(d bool) {
		f.h.mu.Lock()
		defer f.h.mu.Unlock()
		f.h.silent = d
	}
	set(true)
	during()
	set(false)
}
