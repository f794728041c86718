package effects

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"edda/manifests"
)

// What a breaker may be, and what it is when nothing is said.
const (
	defaultFailures = 5
	maxFailures     = 1000 // more would notice nothing in time
	defaultOpen     = 30 * time.Second
	maxOpen         = 24 * time.Hour // as long as a command's default due
	maxBreakerName  = 64
)

// The states of a breaker, as the metric shows them.
const (
	breakerClosed = iota
	breakerHalfOpen
	breakerOpen
)

// breakerSpec is a manifest's breaker, checked.
type breakerSpec struct {
	name     string
	failures uint          // consecutive ones that open it
	open     time.Duration // until a probe may go
	file     *manifests.File
	pos      manifests.Pos
	effect   string // that says so
}

// same tells whether two breakers have the same numbers.
func (s breakerSpec) same(o breakerSpec) bool { return s.failures == o.failures && s.open == o.open }

// breaker compiles a manifest's breaker; nil where there is none.
func (c *compiler) breaker(v *manifests.Value) *breakerSpec {
	if v == nil {
		return nil
	}
	s := &breakerSpec{name: c.m.Name.Text, failures: defaultFailures, open: defaultOpen, file: c.m.File, pos: v.Pos, effect: c.m.Name.Text}
	c.fields(v, "breaker", map[string]func(*manifests.Value){
		"name":     func(f *manifests.Value) { s.name = c.breakerName(f) },
		"failures": func(f *manifests.Value) { s.failures = uint(c.whole(f, "breaker.failures", maxFailures)) },
		"open":     func(f *manifests.Value) { s.open = c.span(f, "breaker.open", maxOpen) },
	})
	return s
}

// breakerName reads what a breaker is called, which is a label of the metrics.
func (c *compiler) breakerName(v *manifests.Value) string {
	name, _ := v.Scalar.(string)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if v.Kind != manifests.Literal || name == "" || len(name) > maxBreakerName || strings.Trim(name, letters) != "" {
		c.errorf(v.Pos, fmt.Sprintf("breaker.name is the upstream's name: letters, digits, _, . and -, at most %d of them, never an expression", maxBreakerName))
	}
	return name
}

// CheckBreakers finds breakers of one name with other numbers, which would be
// those of whichever effect was loaded last. Both places are shown.
func CheckBreakers(effects []*Effect) manifests.Problems {
	var specs []*breakerSpec
	for _, e := range effects {
		if e.breaker != nil {
			specs = append(specs, e.breaker)
		}
	}
	return breakerConflicts(specs)
}

func breakerConflicts(specs []*breakerSpec) manifests.Problems {
	var out manifests.Problems
	first := map[string]*breakerSpec{}
	for _, s := range specs {
		switch was := first[s.name]; {
		case was == nil:
			first[s.name] = s
		case !s.same(*was):
			out = append(out, s.contradicts(was), was.contradicts(s))
		}
	}
	return out
}

func (s *breakerSpec) contradicts(o *breakerSpec) manifests.Problem {
	message := fmt.Sprintf("breaker %s is failures: %d, open: %s here and failures: %d, open: %s in effect %s (%s:%d:%d): give both the same numbers, or one another name",
		s.name, s.failures, s.open, o.failures, o.open, o.effect, o.file.Name, o.pos.Line, o.pos.Column)
	return manifests.Problem{File: s.file, Pos: s.pos, Message: message}
}

// breakers are those that the effects of one worker name, each shared by all
// that name it.
type breakers struct {
	observe func(name string, state int)

	mu    sync.Mutex // guards named
	named map[string]*breaker
}

// newBreakers makes the set. observe hears of every state, in order for each
// breaker, and must not call back.
func newBreakers(observe func(name string, state int)) *breakers {
	return &breakers{observe: observe, named: map[string]*breaker{}}
}

// get finds or makes the breaker of a name. New numbers keep its state: an open breaker
// stays open until the new time since it opened, a closed one counts failures anew.
func (bs *breakers) get(s breakerSpec) *breaker {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.named[s.name]
	if b == nil {
		b = &breaker{observe: bs.observe, spec: s, circuit: s.circuit(s.open), refused: map[*limiter]struct{}{}}
		b.observe(s.name, breakerClosed)
		bs.named[s.name] = b
	}
	b.adjust(s)
	return b
}

// breaker stops calls to a failing upstream: it opens after a number of failures in a row,
// then lets one probe through at a time. A nil breaker is always closed. The methods may
// be called concurrently, also under the mutex of a limiter.
type breaker struct {
	observe func(name string, state int)

	mu      sync.Mutex // guards all below
	spec    breakerSpec
	circuit circuitbreaker.CircuitBreaker[any]
	opened  time.Time
	// openings counts them: a call that began before one is ignored after it.
	openings uint64
	probing  bool
	// refused are the limiters that redispatch when the state changes.
	refused map[*limiter]struct{}
}

// circuit makes the library's breaker, closed, which stays open for a time.
func (s breakerSpec) circuit(open time.Duration) circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureThreshold(s.failures).WithSuccessThreshold(1).WithDelay(open).Build()
}

// adjust takes new numbers. The caller configures the limiters, which redispatches them.
func (b *breaker) adjust(s breakerSpec) {
	b.mu.Lock()
	defer b.mu.Unlock()
	same := b.spec.same(s)
	if b.spec = s; same {
		return
	}
	switch b.circuit.State() {
	case circuitbreaker.ClosedState:
		b.circuit = s.circuit(s.open)
	case circuitbreaker.OpenState:
		b.circuit = s.circuit(max(0, time.Until(b.opened.Add(s.open))))
		b.circuit.Open()
	case circuitbreaker.HalfOpenState: // leave takes the new numbers
	}
}

// enter asks for a call. If it is refused, leave returns the limiter once it should ask
// again. after is the time until an open breaker may let a probe through; 0 if a probe
// must end first.
func (b *breaker) enter(a *limiter) (opening uint64, after time.Duration, ok bool) {
	if b == nil {
		return 0, 0, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.circuit.TryAcquirePermit() {
		b.probe()
		return b.openings, 0, true
	}
	b.refused[a] = struct{}{}
	if !b.probing { // open, if only for the moment between the two questions
		after = max(1, b.circuit.RemainingDelay())
	}
	return 0, after, false
}

// probe notes that the call that may go now is a probe, where it is one.
func (b *breaker) probe() {
	if b.circuit.IsHalfOpen() {
		b.probing = true
		b.observe(b.spec.name, breakerHalfOpen)
	}
}

// leave records how a call ended and returns the limiters that are to redispatch. The
// caller does so without a lock.
func (b *breaker) leave(opening uint64, h health) []*limiter {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if opening != b.openings {
		return nil
	}
	if b.probing {
		return b.probed(h)
	}
	switch h {
	case healthy:
		b.circuit.RecordSuccess()
	case ill:
		b.circuit.RecordFailure()
	}
	if b.circuit.IsOpen() {
		b.hasOpened()
	}
	return nil // no limiter waits at a closed breaker
}

// probed ends a probe. It makes a new circuit, because the library cannot take back a
// permit that was not used.
func (b *breaker) probed(h health) []*limiter {
	b.probing = false
	b.circuit = b.spec.circuit(b.spec.open)
	switch h {
	case healthy:
		b.observe(b.spec.name, breakerClosed)
	case ill:
		b.circuit.Open()
		b.hasOpened()
	default:
		b.circuit.Open()
		b.circuit.HalfOpen()
	}
	return b.tell()
}

func (b *breaker) hasOpened() {
	b.openings++
	b.opened = time.Now()
	b.observe(b.spec.name, breakerOpen)
}

// tell empties the set of refused limiters and returns them.
func (b *breaker) tell() []*limiter {
	out := make([]*limiter, 0, len(b.refused))
	for a := range b.refused {
		out = append(out, a)
	}
	clear(b.refused)
	return out
}

// shut tells whether calls are refused, and for how long at least; 0 if a probe must end
// first.
func (b *breaker) shut() (time.Duration, bool) {
	if b == nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.circuit.RemainingDelay()
	return left, b.probing || left > 0
}
