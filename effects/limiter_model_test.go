package effects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"
)

// step is one random operation of a plan.
type step struct {
	what  string
	key   string
	high  bool
	begun bool
	pick  int // which waiter or permit
	h     health
	pause time.Duration
}

// plan is a random life of a limiter.
type plan struct {
	slots   int
	limit   *limit
	breaker *breakerSpec
	steps   []step
}

func drawPlan(rt *rapid.T) plan {
	p := plan{slots: rapid.IntRange(1, 4).Draw(rt, "slots")}
	if rapid.Bool().Draw(rt, "limited") {
		p.limit = &limit{
			rate: rate.Limit(rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(rt, "rate")), burst: rapid.IntRange(1, 3).Draw(rt, "burst"),
			concurrent: rapid.IntRange(0, 2).Draw(rt, "concurrent"),
		}
	}
	if rapid.Bool().Draw(rt, "broken") {
		p.breaker = &breakerSpec{name: "pay", failures: uint(rapid.IntRange(1, 3).Draw(rt, "failures")), open: 5 * time.Second}
	}
	words := []string{"ask", "ask", "ask", "ask", "end", "end", "end", "cancel", "shed", "pause", "same"}
	p.steps = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			what: rapid.SampledFrom(words).Draw(rt, "what"), key: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "key"),
			high: rapid.Bool().Draw(rt, "high"), begun: rapid.IntRange(0, 4).Draw(rt, "begun") == 0, pick: rapid.IntRange(0, 99).Draw(rt, "pick"),
			h:     rapid.SampledFrom([]health{neutral, unused, healthy, healthy, ill, ill}).Draw(rt, "health"),
			pause: time.Duration(rapid.IntRange(1, 3000).Draw(rt, "pause")) * time.Millisecond,
		}
	}), 30, 200).Draw(rt, "steps")
	return p
}

// began is when a call did.
type began struct {
	w  *waiter
	at time.Time
}

// life runs a plan beside a model of the promises.
type life struct {
	plan
	*limiter
	waiters []*waiter
	permits []*waiter
	calls   map[string][]began // that were made, or may be yet
	// The breaker, told in other words.
	failures, openings uint64
	opened             time.Time
	probe              *waiter
	state              int
	problem            string
}

func (p plan) life() *life {
	l := &life{plan: p, calls: map[string][]began{}}
	o := limiterOptions{slots: p.slots, limit: p.limit}
	if p.breaker != nil {
		o.breaker = newBreakers(func(string, int) {}).get(*p.breaker)
	}
	l.limiter = newLimiter(o)
	return l
}

func (l *life) fail(format string, args ...any) {
	if l.problem == "" {
		l.problem = fmt.Sprintf(format, args...)
	}
}

// do makes one step, and gives what has begun by it.
func (l *life) do(s step) []*waiter {
	switch s.what {
	case "ask":
		l.waiters = append(l.waiters, l.join(request{key: s.key, high: s.high, begun: s.begun}))
	case "end":
		if len(l.permits) > 0 {
			l.ended(pull(&l.permits, s.pick), s.h)
		}
	case "cancel":
		if len(l.waiters) > 0 {
			l.withdraw(pull(&l.waiters, s.pick))
		}
	case "shed":
		l.shedding(s.pick % 4)
	case "pause":
		return l.pause(time.Now().Add(s.pause))
	case "same":
		l.configure(l.plan.limit, l.limiter.breaker)
	}
	synctest.Wait()
	return l.harvest()
}

// pause lets time pass, and looks at every instant at which something may begin.
func (l *life) pause(until time.Time) (began []*waiter) {
	for time.Now().Before(until) {
		time.Sleep(min(time.Until(until), l.quiet()))
		synctest.Wait()
		began = append(began, l.harvest()...)
	}
	return began
}

// quiet is how long surely nothing begins by itself.
func (l *life) quiet() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := time.Hour
	if q := l.later.first(); q != nil && q.when.After(time.Now()) {
		out = time.Until(q.when)
	}
	if left, _ := l.limiter.breaker.shut(); left > 0 {
		out = min(out, left)
	}
	return out
}

func pull(list *[]*waiter, n int) *waiter {
	n %= len(*list)
	w := (*list)[n]
	*list = slices.Delete(*list, n, n+1)
	return w
}

func (l *life) shedding(n int) {
	may := 0
	for _, w := range l.waiters {
		if !w.begun {
			may++
		}
	}
	l.shed(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.waiters)
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		if w.shed != nil && (w.begun || w.shed.after < minShed || w.shed.after > maxShed) {
			l.fail("shed %+v for %v", w.request, w.shed)
		}
		return w.shed != nil
	})
	if got := before - len(l.waiters); got != min(n, may) {
		l.fail("shed %d of %d, shed %d", n, may, got)
	}
}

// harvest moves what has begun, and has the model agree.
func (l *life) harvest() []*waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	var new []*waiter
	l.waiters = slices.DeleteFunc(l.waiters, func(w *waiter) bool {
		if w.granted {
			new = append(new, w)
		}
		return w.granted
	})
	for _, w := range new {
		l.calls[w.key] = append(l.calls[w.key], began{w, time.Now()})
		l.entered(w)
	}
	l.permits = append(l.permits, new...)
	return new
}

func (l *life) entered(w *waiter) {
	switch {
	case l.plan.breaker == nil || l.state == breakerClosed:
	case l.probe != nil:
		l.fail("a second probe")
	case time.Since(l.opened) < l.plan.breaker.open:
		l.fail("a call %v after the breaker opened", time.Since(l.opened))
	default:
		l.state, l.probe = breakerHalfOpen, w
	}
}

func (l *life) ended(w *waiter, h health) {
	if h == unused {
		l.calls[w.key] = slices.DeleteFunc(l.calls[w.key], func(b began) bool { return b.w == w })
	}
	w.permit.release(h)
	if l.plan.breaker == nil {
		return
	}
	switch {
	case w == l.probe:
		l.probe = nil
		l.probed(h)
	case l.state != breakerClosed || w.permit.opening != l.openings: // too late to say anything
	case h == healthy:
		l.failures = 0
	case h == ill:
		if l.failures++; l.failures == uint64(l.plan.breaker.failures) {
			l.open()
		}
	}
}

func (l *life) probed(h health) {
	switch h {
	case healthy:
		l.state, l.failures = breakerClosed, 0
	case ill:
		l.open()
	}
}

func (l *life) open() {
	l.state, l.opened = breakerOpen, time.Now()
	l.openings++
}

// check compares what must be true between steps.
func (l *life) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	running := map[string]int{}
	for _, w := range l.permits {
		running[w.key]++
	}
	if l.free != l.slots-len(l.permits) || l.waiting != len(l.waiters) {
		l.fail("free %d, waiting %d with %d permits, %d waiting", l.free, l.waiting, len(l.permits), len(l.waiters))
	}
	for key, n := range running {
		if l.plan.limit != nil && l.plan.limit.concurrent > 0 && n > l.plan.limit.concurrent {
			l.fail("%d calls of %s at once", n, key)
		}
	}
	may := l.plan.breaker == nil || l.state == breakerClosed || l.probe == nil && time.Since(l.opened) >= l.plan.breaker.open
	for _, w := range l.waiters {
		if l.free > 0 && may && l.able(w.key) {
			l.fail("%s waits although it could go", w.key)
		}
	}
	for key, at := range l.calls {
		l.spent(key, at)
	}
}

// able tells whether a key waits, and its own limit lets it go.
func (l *life) able(key string) bool {
	q := l.keys[key]
	return q != nil && q.waiting() > 0 && !l.saturated(q) && !ready(q.bucket, 1, time.Now()).After(time.Now())
}

func (l *life) allAble() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]bool{}
	for key := range l.keys {
		out[key] = l.able(key)
	}
	return out
}

// spent checks that no span of time holds more calls than the bucket gives.
func (l *life) spent(key string, calls []began) {
	if l.plan.limit == nil || l.plan.limit.rate == 0 {
		return
	}
	for i, first := range calls {
		for j, last := range calls[i:] {
			span := last.at.Sub(first.at)
			if got, most := float64(j+1), float64(l.plan.limit.burst)+span.Seconds()*float64(l.plan.limit.rate); got > most+1e-6 {
				l.fail("%v calls of %s in %v, at most %v", got, key, span, most)
			}
		}
	}
}

// over ends all, and checks that nothing is kept.
func (l *life) over() {
	for len(l.waiters)+len(l.permits) > 0 {
		if len(l.waiters) > 0 {
			l.withdraw(pull(&l.waiters, 0))
		} else {
			l.ended(pull(&l.permits, 0), healthy)
		}
	}
	time.Sleep(time.Minute)
	l.redispatch()
	synctest.Wait() // what the alarm does is done, and nothing is left that could set it
	if l.free != l.slots || l.waiting != 0 || len(l.keys) != 0 || l.ring.Len()+l.later.Len()+l.idle.Len()+l.longest.Len() != 0 {
		l.fail("in the end free %d, waiting %d, keys %d", l.free, l.waiting, len(l.keys))
	}
	w := l.join(request{key: "last"})
	if !w.granted {
		l.fail("in the end a call must wait for its %s", w.reason)
		return
	}
	w.permit.release(healthy)
}

// Slots, tokens and permits are neither lost nor given twice, whatever happens,
// and what can go goes.
func TestAdmissionKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, problem := drawPlan(rt), ""
		bubble(t, func(t *testing.T) {
			l := p.life()
			for _, s := range p.steps {
				l.do(s)
				l.check()
			}
			l.over()
			problem = l.problem
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// No key that can go waits for more than one call of each other key.
func TestNoKeyWaitsMoreThanOneRound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, problem := drawPlan(rt), ""
		p.breaker = nil
		bubble(t, func(t *testing.T) {
			problem = p.rounds()
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// rounds counts, for each key that could go, the calls of others before its own.
func (p plan) rounds() string {
	l, passed := p.life(), map[string]map[string]int{}
	for _, s := range p.steps {
		began, able := l.do(s), l.allAble()
		if len(began) > 1 {
			clear(passed) // in one instant: their order is not seen
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			if !able[key] || slices.ContainsFunc(began, func(w *waiter) bool { return w.key == key }) {
				delete(passed, key)
				continue
			}
			if passed[key] == nil {
				passed[key] = map[string]int{}
				continue // it could not go before this step
			}
			for _, w := range began {
				if passed[key][w.key]++; passed[key][w.key] > 1 {
					return fmt.Sprintf("%s waits although %s went twice", key, w.key)
				}
			}
		}
	}
	return l.problem
}

// Many goroutines, whose contexts end at any moment, leave nothing behind.
func TestNothingLeaks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bs := newBreakers(func(string, int) {})
		one := newLimiter(limiterOptions{slots: 5, limit: &limit{rate: 100, burst: 5, concurrent: 3}, breaker: bs.get(spec(3, time.Second))})
		two := newLimiter(limiterOptions{slots: 5, breaker: bs.get(spec(3, time.Second))})
		var all sync.WaitGroup
		for i := range 40 {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			all.Go(func() {
				for range 100 {
					clerk(t, []*limiter{one, two}[random.IntN(2)], random)
				}
			})
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			one.shed(3)
			two.shed(3)
			one.configure(&limit{rate: 100, burst: 5, concurrent: 3}, bs.get(spec(3, time.Second)))
		}
		all.Wait()
		time.Sleep(time.Minute)
		for _, a := range []*limiter{one, two} {
			a.redispatch()
			if a.free != 5 || a.waiting != 0 || len(a.keys) != 0 {
				t.Errorf("free %d, waiting %d, keys %d", a.free, a.waiting, len(a.keys))
			}
		}
	})
}

// clerk applies once, and calls where it may.
func clerk(t *testing.T, a *limiter, random *rand.Rand) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Duration(random.IntN(300))*time.Millisecond, errors.New("enough"))
	defer cancel()
	got, err := a.acquire(ctx, request{key: fmt.Sprint(random.IntN(5)), high: random.IntN(2) == 0, begun: random.IntN(3) == 0})
	var away *shedError
	if err != nil {
		if !errors.As(err, &away) && err.Error() != "enough" {
			t.Error(err)
		}
		return
	}
	time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	got.release(health(random.IntN(4)))
}

// BenchmarkAcquire is what a call pays where it need not wait.
func BenchmarkAcquire(b *testing.B) {
	for _, bm := range []struct {
		name string
		o    limiterOptions
	}{
		{"slots", limiterOptions{slots: 64}},
		{"all", limiterOptions{slots: 64, limit: &limit{rate: 1e5, burst: 1e5, concurrent: 10}, breaker: newBreakers(func(string, int) {}).get(spec(5, time.Minute))}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			a := newLimiter(bm.o)
			b.ReportAllocs()
			for b.Loop() {
				got, err := a.acquire(b.Context(), request{key: "acme"})
				if err != nil {
					b.Fatal(err)
				}
				got.release(healthy)
			}
		})
	}
}

// BenchmarkQueue is what a call pays behind 10,000 others of as many keys.
func BenchmarkQueue(b *testing.B) {
	a := newLimiter(limiterOptions{slots: 1, limit: &limit{concurrent: 1, burst: 1}})
	running := a.join(request{key: "first"})
	waiters := make([]*waiter, 10_000)
	for i := range waiters {
		waiters[i] = a.join(request{key: fmt.Sprint(i)})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		running.permit.release(healthy)
		running = waiters[i%len(waiters)]
		waiters[i%len(waiters)] = a.join(request{key: running.key})
	}
}
