package effects

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/manifests"
)

// The defaults and bounds of a manifest's breaker.
const (
	defaultFailures = 5
	maxFailures     = 1000 // more would open it too late
	defaultOpen     = 30 * time.Second
	maxOpen         = 24 * time.Hour // the default due of a command
	maxBreakerName  = 64
)

// The states of a breaker, as in the metric.
const (
	breakerClosed = iota
	breakerHalfOpen
	breakerOpen
)

// breakerSpec is the checked breaker of a manifest.
type breakerSpec struct {
	name     string
	failures uint          // in a row that open it
	open     time.Duration // until a probe may be made
	file     *manifests.File
	pos      manifests.Pos
	effect   string // of the manifest
}

// same reports whether two breakers have the same numbers.
func (s breakerSpec) same(o breakerSpec) bool { return s.failures == o.failures && s.open == o.open }

// breaker compiles a manifest's breaker; nil if there is none.
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

// breakerName reads a breaker's name, which is a label of the metrics.
func (c *compiler) breakerName(v *manifests.Value) string {
	name, _ := v.Scalar.(string)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	if v.Kind != manifests.Literal || name == "" || len(name) > maxBreakerName || strings.Trim(name, letters) != "" {
		c.errorf(v.Pos, fmt.Sprintf("breaker.name is the upstream's name: letters, digits, _, . and -, at most %d of them, never an expression", maxBreakerName))
	}
	return name
}

// CheckBreakers reports breakers of one name with different numbers, because those of the effect
// that was loaded last would win. It reports both places.
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

// breakers has the breakers of one worker. All effects that name a breaker share it.
type breakers struct {
	observe func(name string, state int)

	mu    sync.Mutex // guards named
	named map[string]*breaker
}

// newBreakers makes the set. observe gets every state, in order for each breaker, and must not
// call back.
func newBreakers(observe func(name string, state int)) *breakers {
	return &breakers{observe: observe, named: map[string]*breaker{}}
}

// get returns the breaker of a name, with new numbers after a reload: an open breaker stays open
// for the new time since it opened, a closed one counts from zero. The caller configures the
// limiters, which redispatches them.
func (bs *breakers) get(s breakerSpec) *breaker {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	b := bs.named[s.name]
	if b == nil {
		b = &breaker{observe: bs.observe, spec: s, refused: map[*limiter]struct{}{}}
		b.observe(s.name, breakerClosed)
		bs.named[s.name] = b
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.spec.same(s) {
		b.failures = 0
	}
	b.spec = s
	return b
}

// breakerStates shows the states of breakers in the metric, and logs when one opens and when it
// has closed again.
type breakerStates struct {
	metrics *metrics
	log     *zap.Logger

	mu   sync.Mutex // guards shut
	shut map[string]bool
}

func (s *breakerStates) changed(name string, state int) {
	s.metrics.breaker(name, state)
	s.mu.Lock()
	was := s.shut[name]
	s.shut[name] = state != breakerClosed
	s.mu.Unlock()
	switch {
	case state == breakerOpen && !was:
		s.log.Warn("a breaker opened: the calls of its effects wait", zap.String("breaker", name))
	case state == breakerClosed && was:
		s.log.Info("a breaker closed: the upstream answers again", zap.String("breaker", name))
	}
}

// breaker stops calls to a failing upstream: it opens after a number of failures in a row,
// then lets one probe through at a time. A nil breaker is always closed. The methods may
// be called concurrently, also under the mutex of a limiter.
type breaker struct {
	observe func(name string, state int)

	mu       sync.Mutex // guards all below
	spec     breakerSpec
	state    int
	failures uint // in a row, while it is closed
	opened   time.Time
	// openings counts them: a call that began before one is ignored after it.
	openings uint64
	probing  bool // half-open: a probe is under way
	// refused are the limiters that redispatch when the state changes.
	refused map[*limiter]struct{}
}

// set changes the state.
func (b *breaker) set(state int) {
	b.state, b.failures = state, 0
	if state == breakerOpen {
		b.openings++
		b.opened = time.Now()
	}
	b.observe(b.spec.name, state)
}

// remaining is how long an open breaker refuses calls.
func (b *breaker) remaining() time.Duration {
	if b.state != breakerOpen {
		return 0
	}
	return max(0, time.Until(b.opened.Add(b.spec.open)))
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
	after = b.remaining()
	switch {
	case b.state == breakerClosed:
		return b.openings, 0, true
	case after == 0 && !b.probing:
		b.probing = true
		b.set(breakerHalfOpen)
		return b.openings, 0, true
	}
	b.refused[a] = struct{}{}
	return 0, after, false
}

// leave records how a call ended and returns the limiters that must redispatch. The
// caller does so without a lock.
func (b *breaker) leave(opening uint64, h health) (redispatch []*limiter) {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if opening != b.openings {
		return nil
	}
	if !b.probing { // closed, so no limiter waits
		switch h {
		case healthy:
			b.failures = 0
		case ill:
			if b.failures++; b.failures >= b.spec.failures {
				b.set(breakerOpen)
			}
		}
		return nil
	}
	b.probing = false
	switch h {
	case healthy:
		b.set(breakerClosed)
	case ill:
		b.set(breakerOpen)
	default: // no evidence: the next probe may be made
	}
	redispatch = slices.Collect(maps.Keys(b.refused))
	clear(b.refused)
	return redispatch
}

// shut reports whether calls are refused, and for how long at least; 0 if a probe must end
// first.
func (b *breaker) shut() (time.Duration, bool) {
	if b == nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.remaining()
	return left, b.probing || left > 0
}
