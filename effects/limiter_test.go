package effects

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
)

// office is a limiter in a bubble, with a log of calls and when they began.
type office struct {
	*limiter
	t     *testing.T
	since time.Time

	mu      sync.Mutex // guards all below
	began   []string   // "who@seconds"
	sent    []string   // "who+seconds": shed for that long
	failed  []string   // "who: error"
	waits   []string   // "reason seconds"
	permits map[string]*permit
}

func newOffice(t *testing.T, o limiterOptions) *office {
	d := &office{t: t, since: time.Now(), permits: map[string]*permit{}}
	o.observe = func(reason string, waited time.Duration) {
		d.note(&d.waits, fmt.Sprintf("%s %v", reason, waited.Seconds()))
	}
	d.limiter = newLimiter(o)
	return d
}

func (d *office) note(where *[]string, what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*where = append(*where, what)
}

func (d *office) at() float64 { return time.Since(d.since).Seconds() }

// ask acquires a permit in a goroutine, and keeps it until d.end.
func (d *office) ask(who string, r request) context.CancelCauseFunc {
	ctx, cancel := context.WithCancelCause(d.t.Context())
	go func() {
		got, err := d.acquire(ctx, r)
		var away *shedError
		switch {
		case errors.As(err, &away):
			d.note(&d.sent, fmt.Sprintf("%s+%v", who, away.after.Seconds()))
		case err != nil:
			d.note(&d.failed, who+": "+err.Error())
		default:
			d.note(&d.began, fmt.Sprintf("%s@%v", who, d.at()))
			d.mu.Lock()
			d.permits[who] = got
			d.mu.Unlock()
		}
	}()
	synctest.Wait()
	return cancel
}

// call is ask, then a call of that length, and its end.
func (d *office) call(who, key string, length time.Duration, h health) {
	d.t.Helper()
	go func() {
		got, err := d.acquire(context.Background(), request{key: key})
		if err != nil {
			d.t.Error(err)
			return
		}
		d.note(&d.began, fmt.Sprintf("%s@%v", who, d.at()))
		time.Sleep(length)
		got.release(h)
	}()
	synctest.Wait()
}

func (d *office) end(who string, h health) {
	d.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	got := d.permits[who]
	delete(d.permits, who)
	d.mu.Unlock()
	if got == nil {
		d.t.Fatalf("%s has no permit", who)
	}
	got.release(h)
	synctest.Wait()
}

func (d *office) want(what string, got *[]string, want ...string) {
	d.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if got == &d.sent {
		slices.Sort(*got)
	}
	if !slices.Equal(*got, want) {
		d.t.Errorf("%s: %q, want %q", what, *got, want)
	}
	*got = nil
}

func (d *office) forgetBegan() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = nil
}

// calls lists who has begun since it was last looked at.
func (d *office) calls() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.began)
}

// empty checks that nothing is held, waits or is remembered.
func (d *office) empty(slots int) {
	d.t.Helper()
	d.redispatch()
	synctest.Wait()
	a := d.limiter
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.free != slots || a.waiting != 0 || len(a.keys) != 0 || a.ring.Len()+a.later.Len()+a.idle.Len()+a.longest.Len() != 0 {
		d.t.Errorf("free %d of %d, waiting %d, keys %d, ring %d, later %d, idle %d, longest %d",
			a.free, slots, a.waiting, len(a.keys), a.ring.Len(), a.later.Len(), a.idle.Len(), a.longest.Len())
	}
}

func spec(failures uint, open time.Duration) breakerSpec {
	return breakerSpec{name: "pay", failures: failures, open: open}
}

// states collects what the metric of breakers shows.
type states struct {
	mu  sync.Mutex
	all []int
}

func (s *states) observe(_ string, state int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, state)
}

func (s *states) want(t *testing.T, want ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.all, want) {
		t.Errorf("states %v, want %v", s.all, want)
	}
}

// Rate 2/s, burst 2, five at once: at 0, 0, 0.5, 1 and 1.5 s, and another
// tenant's call is not delayed.
func TestRateAndBurst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 2, burst: 2}})
		for _, who := range []string{"a1", "a2", "a3", "a4", "a5"} {
			d.call(who, "acme", 100*time.Millisecond, healthy)
		}
		d.call("b1", "bell", 0, healthy)
		d.want("at once", &d.began, "a1@0", "a2@0", "b1@0")
		time.Sleep(10 * time.Second)
		d.want("later", &d.began, "a3@0.5", "a4@1", "a5@1.5")
		d.want("waits", &d.waits, "rate 0.5", "rate 1", "rate 1.5")
		d.empty(64)
	})
}

// Each key has its own instant, and the alarm is for the next of them.
func TestKeysWakeInTheOrderOfTheirTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 1, burst: 1}})
		for _, key := range []string{"a", "b", "c", "d"} {
			d.ask(key+"1", request{key: key})
			time.Sleep(100 * time.Millisecond)
		}
		for _, key := range []string{"c", "a", "d", "b"} {
			d.ask(key+"2", request{key: key})
		}
		d.forgetBegan()
		time.Sleep(time.Minute)
		d.want("in order", &d.began, "a2@1", "b2@1.1", "c2@1.2", "d2@1.3")
	})
}

// A rate whose interval is no whole number of nanoseconds neither drifts nor spins.
func TestRateOfThirds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 3, burst: 1}})
		var last time.Time
		for range 301 {
			got, err := d.acquire(t.Context(), request{key: "acme"})
			if err != nil {
				t.Fatal(err)
			}
			last = time.Now()
			got.release(healthy)
		}
		if took := last.Sub(d.since); took < 100*time.Second-time.Microsecond || took > 100*time.Second+time.Microsecond {
			t.Errorf("300 intervals took %v, want 100 s", took)
		}
	})
}

func TestConcurrentBoundsOneKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{concurrent: 2, burst: 1}})
		for _, who := range []string{"a1", "a2", "a3"} {
			d.ask(who, request{key: "acme"})
		}
		d.ask("b1", request{key: "bell"})
		d.want("at once", &d.began, "a1@0", "a2@0", "b1@0")
		time.Sleep(time.Second)
		d.end("b1", healthy)
		d.want("another's end", &d.began)
		d.end("a2", ill)
		d.want("one's own end", &d.began, "a3@1")
		d.want("waits", &d.waits, "concurrent 1")
		d.end("a1", healthy)
		d.end("a3", healthy)
		d.empty(64)
	})
}

// Tokens are taken when a call begins, not when it starts to wait.
func TestWaitingForASlotTakesNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1, limit: &limit{rate: 1, burst: 1}})
		d.ask("a1", request{key: "acme"})
		d.ask("b1", request{key: "bell"})
		cancel := d.ask("b2", request{key: "bell"})
		cancel(errors.New("revoked"))
		d.want("failed", &d.failed, "b2: revoked")
		time.Sleep(5 * time.Second)
		d.end("a1", healthy)
		d.end("b1", healthy)
		d.want("began", &d.began, "a1@0", "b1@5")
	})
}

// A flood of one key delays a call of another by the one call that runs.
func TestSlotsGoRoundTheKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1})
		for i := range 6 {
			d.call(fmt.Sprint("a", i), "acme", time.Second, healthy)
		}
		d.call("b0", "bell", time.Second, healthy)
		d.call("c0", "core", time.Second, healthy)
		d.call("b1", "bell", time.Second, healthy)
		time.Sleep(time.Minute)
		d.want("began", &d.began, "a0@0", "a1@1", "b0@2", "c0@3", "a2@4", "b1@5", "a3@6", "a4@7", "a5@8")
		d.empty(1)
	})
}

func TestBegunThenHighThenNormal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1})
		d.ask("first", request{key: "acme"})
		for i := range 3 {
			d.ask(fmt.Sprint("n", i), request{key: "acme"})
		}
		for i := range 6 {
			d.ask(fmt.Sprint("h", i), request{key: "acme", high: true})
		}
		d.ask("retry", request{key: "acme", begun: true})
		before := "first"
		for _, want := range []string{"retry", "h0", "h1", "h2", "h3", "n0", "h4", "h5", "n1", "n2"} {
			d.forgetBegan()
			d.end(before, healthy)
			d.want("next", &d.began, want+"@0")
			before = want
		}
	})
}

// Five failures in a row open the breaker: no calls for its time, then one probe.
func TestBreakerOpensAndProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s states
		d := newOffice(t, limiterOptions{slots: 64, breaker: newBreakers(s.observe).get(spec(5, 30*time.Second))})
		for i := range 4 {
			d.call(fmt.Sprint("f", i), "acme", 0, ill)
		}
		d.call("well", "acme", 0, healthy) // in a row means in a row
		for i := range 5 {
			d.call(fmt.Sprint("g", i), "acme", 0, ill)
		}
		d.forgetBegan()
		for i := range 3 {
			d.ask(fmt.Sprint("w", i), request{key: fmt.Sprint(i)})
		}
		s.want(t, 0, 2)
		time.Sleep(30*time.Second - time.Nanosecond)
		d.want("open", &d.began)
		time.Sleep(time.Nanosecond)
		d.want("one probe", &d.began, "w0@30")
		s.want(t, 0, 2, 1)
		time.Sleep(time.Hour)
		d.want("while it probes", &d.began)
		d.end("w0", ill)
		s.want(t, 0, 2, 1, 2)
		time.Sleep(30 * time.Second)
		d.want("another probe", &d.began, "w1@3660")
		d.end("w1", healthy)
		d.want("closed", &d.began, "w2@3660")
		s.want(t, 0, 2, 1, 2, 1, 0)
		d.end("w2", healthy)
		d.want("waits", &d.waits, "breaker 30", "breaker 3660", "breaker 3660")
		d.empty(64)
	})
}

// What began before the breaker opened says nothing of the other side since.
func TestStragglersDoNotMoveTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s states
		d := newOffice(t, limiterOptions{slots: 64, breaker: newBreakers(s.observe).get(spec(1, 30*time.Second))})
		for _, who := range []string{"old1", "old2", "old3", "bad"} {
			d.ask(who, request{key: "acme"})
		}
		d.end("bad", ill)
		d.ask("probe", request{key: "acme"})
		d.ask("next", request{key: "acme"})
		d.end("old1", healthy)
		s.want(t, 0, 2)
		time.Sleep(30 * time.Second)
		d.end("old2", healthy)
		d.end("old3", ill)
		d.want("began", &d.began, "old1@0", "old2@0", "old3@0", "bad@0", "probe@30")
		s.want(t, 0, 2, 1)
		d.end("probe", healthy)
		d.want("began", &d.began, "next@30")
		s.want(t, 0, 2, 1, 0)
	})
}

// A probe that was cut off, or not made, gives its permit to the next.
func TestAProbeThatSaysNothingIsMadeAgain(t *testing.T) {
	for _, h := range []health{neutral, unused} {
		bubble(t, func(t *testing.T) {
			var s states
			d := newOffice(t, limiterOptions{slots: 64, breaker: newBreakers(s.observe).get(spec(1, 30*time.Second))})
			d.call("bad", "acme", 0, ill)
			for _, who := range []string{"p1", "p2", "p3"} {
				d.ask(who, request{key: "acme"})
			}
			time.Sleep(30 * time.Second)
			d.end("p1", h)
			d.end("p2", h)
			d.want("one after the other", &d.began, "bad@0", "p1@30", "p2@30", "p3@30")
			s.want(t, 0, 2, 1, 1, 1)
			d.end("p3", ill)
			d.ask("p4", request{key: "acme"})
			time.Sleep(30 * time.Second)
			d.want("open again", &d.began, "p4@60")
		})
	}
}

// Two effects that name one breaker open it together, probe once, and go on together.
func TestEffectsShareABreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s states
		bs := newBreakers(s.observe)
		one := newOffice(t, limiterOptions{slots: 64, breaker: bs.get(spec(2, 30*time.Second))})
		two := newOffice(t, limiterOptions{slots: 64, breaker: bs.get(spec(2, 30*time.Second))})
		one.call("bad", "acme", 0, ill)
		two.call("bad", "acme", 0, ill)
		for _, d := range []*office{one, two} {
			d.forgetBegan()
			d.ask("w1", request{key: "acme"})
			d.ask("w2", request{key: "acme"})
		}
		time.Sleep(30 * time.Second)
		prober, other := one, two
		if len(two.calls()) == 1 {
			prober, other = two, one
		}
		prober.want("the probe", &prober.began, "w1@30")
		other.want("who does not probe", &other.began)
		time.Sleep(7 * time.Second)
		prober.end("w1", ill)
		time.Sleep(29 * time.Second)
		prober.want("open", &prober.began)
		other.want("open", &other.began)
		time.Sleep(time.Second)
		probe := slices.Concat(prober.calls(), other.calls())
		if len(probe) != 1 {
			t.Fatalf("probes %v, want one", probe)
		}
		if len(other.calls()) == 1 {
			prober, other = other, prober
		}
		who := probe[0][:2]
		prober.end(who, healthy)
		if n := len(one.calls()) + len(two.calls()); n != 3 {
			t.Errorf("%d have begun after the breaker closed, want all 3", n)
		}
		s.want(t, 0, 2, 1, 2, 1, 0)
	})
}

func TestShedSendsAwayTheTailsOfTheLongest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 0.2, burst: 1}})
		for i := range 5 {
			d.ask(fmt.Sprint("a", i), request{key: "acme", high: i < 4})
		}
		for i := range 3 {
			d.ask(fmt.Sprint("b", i), request{key: "bell"})
		}
		d.ask("retry", request{key: "acme", begun: true})
		d.shed(1) // a4: it could begin after three and a retry, in 25 s
		d.want("the normal one", &d.sent, "a4+25")
		d.shed(1)
		d.want("the last of the longest", &d.sent, "a3+20")
		d.shed(100)
		d.want("all but what has begun", &d.sent, "a1+10", "a2+15", "b1+5", "b2+10")
		d.want("failed", &d.failed)
		d.forgetBegan()
		time.Sleep(5 * time.Second)
		d.want("the retry", &d.began, "retry@5")
	})
}

func TestShedStaysWithinItsBounds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: rate.Every(time.Hour), burst: 1}})
		slow.ask("a1", request{key: "acme"})
		slow.ask("a2", request{key: "acme"})
		slow.shed(1)
		slow.want("slow", &slow.sent, "a2+60")
		busy := newOffice(t, limiterOptions{slots: 64, limit: &limit{concurrent: 1, burst: 1}})
		busy.ask("a1", request{key: "acme"})
		busy.ask("a2", request{key: "acme"})
		busy.shed(1)
		busy.want("busy", &busy.sent, "a2+1")
		open := newOffice(t, limiterOptions{slots: 64, breaker: newBreakers(func(string, int) {}).get(spec(1, 30*time.Second))})
		open.call("bad", "acme", 0, ill)
		open.ask("a1", request{key: "acme"})
		time.Sleep(10 * time.Second)
		open.shed(1)
		open.want("open", &open.sent, "a1+20")
		open.empty(64)
	})
}

func TestLimited(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bs := newBreakers(func(string, int) {})
		d := newOffice(t, limiterOptions{slots: 3, limit: &limit{concurrent: 2, burst: 1}, breaker: bs.get(spec(1, time.Minute))})
		limited := func(when string, want bool) {
			t.Helper()
			if got := d.limited(); got != want {
				t.Errorf("%s: limited is %v", when, got)
			}
		}
		limited("nothing waits", false)
		for _, who := range []string{"a1", "a2", "a3"} {
			d.ask(who, request{key: "acme"})
		}
		limited("a slot is free, and what waits may not take it", true)
		<-d.recheck
		d.ask("a4", request{key: "acme"})
		if len(d.recheck) > 0 {
			t.Error("a recheck for a state that was known")
		}
		d.ask("b1", request{key: "bell"})
		limited("no slot is free", false)
		d.ask("b2", request{key: "bell"})
		limited("no slot is free, and another could go", false)
		d.end("b1", healthy)
		limited("b2 has the slot", false)
		d.end("b2", healthy)
		limited("again", true)
		<-d.recheck
		d.ask("b3", request{key: "bell"})
		d.end("b3", ill)
		limited("the breaker is open", false)
	})
}

// A reload changes the numbers under what waits; what was spent stays spent.
func TestConfigureKeepsWhatWasSpent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 0.1, burst: 2}})
		for i := range 5 {
			d.ask(fmt.Sprint("a", i), request{key: "acme"})
		}
		d.want("burst", &d.began, "a0@0", "a1@0")
		d.configure(&limit{rate: 0.1, burst: 2}, nil)
		d.want("the same limit gives no tokens", &d.began)
		time.Sleep(5 * time.Second)
		d.configure(&limit{rate: 1, burst: 2}, nil)
		d.want("half a token was there", &d.began)
		time.Sleep(500 * time.Millisecond)
		d.want("a faster one", &d.began, "a2@5.5")
		d.configure(&limit{rate: 1, burst: 1, key: &value{}, source: "=payload.x"}, nil)
		d.want("other keys begin anew", &d.began, "a3@5.5")
		d.configure(nil, nil)
		d.want("no limit", &d.began, "a4@5.5")
		d.configure(&limit{concurrent: 5, burst: 1}, nil)
		d.ask("a5", request{key: "acme"})
		d.want("what runs counts", &d.began)
		d.configure(&limit{concurrent: 6, burst: 1}, nil)
		d.want("one more", &d.began, "a5@5.5")
	})
}

func TestConfigureCutsTheBurst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: rate.Every(time.Hour), burst: 3}})
		d.ask("a1", request{key: "acme"})
		d.configure(&limit{rate: rate.Every(time.Hour), burst: 1}, nil)
		d.ask("a2", request{key: "acme"})
		d.ask("a3", request{key: "acme"})
		d.want("began", &d.began, "a1@0", "a2@0")
	})
}

func TestConfigureTakesAnotherBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s states
		bs := newBreakers(s.observe)
		d := newOffice(t, limiterOptions{slots: 64, breaker: bs.get(spec(1, time.Hour))})
		d.ask("old", request{key: "acme"})
		d.call("bad", "acme", 0, ill)
		d.forgetBegan()
		d.ask("w1", request{key: "acme"})
		d.ask("w2", request{key: "acme"})
		time.Sleep(10 * time.Second)
		d.configure(nil, bs.get(spec(1, 30*time.Second)))
		d.want("it stays open", &d.began)
		time.Sleep(20 * time.Second)
		d.want("for the new time since it opened", &d.began, "w1@30")
		d.configure(nil, bs.get(spec(3, time.Minute)))
		d.want("the probe goes on", &d.began)
		d.end("w1", ill)
		time.Sleep(time.Minute)
		d.want("for the newest time", &d.began, "w2@90")
		d.ask("w3", request{key: "acme"})
		d.want("while it probes", &d.began)
		d.configure(nil, nil)
		d.want("no breaker", &d.began, "w3@90")
		for _, who := range []string{"w2", "w3", "old"} {
			d.end(who, healthy)
		}
		s.want(t, 0, 2, 1, 2, 1, 0)
		d.empty(64)
	})
}

// A flood of keys is forgotten when their buckets are full, and bounded before.
func TestKeysAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: rate.Every(time.Minute), burst: 1}})
		take := func(key string) {
			got, err := d.acquire(t.Context(), request{key: key})
			if err != nil {
				t.Fatal(err)
			}
			got.release(healthy)
		}
		for i := range maxIdleKeys + 1000 {
			take(fmt.Sprint(i))
		}
		if len(d.keys) != maxIdleKeys || d.idle.Len() != maxIdleKeys {
			t.Errorf("%d keys, %d idle, want %d", len(d.keys), d.idle.Len(), maxIdleKeys)
		}
		if d.keys["0"] != nil || d.keys[fmt.Sprint(maxIdleKeys+999)] == nil {
			t.Error("not the key was forgotten that would soonest have been")
		}
		time.Sleep(time.Minute)
		d.empty(64)
	})
}

// What a flood of keys costs is bounded: each is some 400 bytes.
func TestIdleKeysAreSmall(t *testing.T) {
	a := newLimiter(limiterOptions{slots: 1, limit: &limit{rate: minRate, burst: 1}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const flood = 5000
	for i := range flood {
		w := a.join(request{key: fmt.Sprint(i)})
		w.permit.release(healthy)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if got := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / flood; got > 700 || a.idle.Len() != flood {
		t.Errorf("%d keys of %d bytes", a.idle.Len(), got)
	} else {
		t.Logf("%d bytes a key", got)
	}
}

// A permit that was granted in the moment its ctx ended is given back, token and all.
func TestATurnGivenTooLateIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1, limit: &limit{rate: rate.Every(time.Hour), burst: 1},
			breaker: newBreakers(func(string, int) {}).get(spec(1, time.Second))})
		d.call("bad", "other", 0, ill)
		w := d.join(request{key: "acme"})
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.granted || d.free != 0 {
			t.Fatal("it has no permit")
		}
		time.Sleep(time.Second)
		d.withdraw(w)
		d.forgetBegan()
		d.ask("next", request{key: "acme"})
		d.want("slot, permit and token", &d.began, "next@2")
	})
}

// TestATokenGivenBackLateLetOneTooManyGo: two calls began at once at a rate of one a second.
func TestATokenGivenBackLateLetOneTooManyGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 1, burst: 1}})
		d.ask("never", request{key: "acme"})
		time.Sleep(time.Second)
		d.ask("a1", request{key: "acme"})
		d.end("never", unused)
		d.ask("a2", request{key: "acme"})
		d.want("began", &d.began, "never@0", "a1@1")
	})
}

func TestTokensGivenBackInTurnAreAllThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 64, limit: &limit{rate: 1, burst: 2}})
		for _, who := range []string{"never1", "never2"} {
			d.ask(who, request{key: "acme"})
		}
		d.end("never2", unused)
		d.end("never1", unused)
		d.forgetBegan()
		for _, who := range []string{"a1", "a2", "a3"} {
			d.ask(who, request{key: "acme"})
		}
		d.want("began", &d.began, "a1@0", "a2@0")
	})
}

func TestEndCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1, breaker: newBreakers(func(string, int) {}).get(spec(2, time.Second))})
		got, err := d.acquire(t.Context(), request{key: "acme"})
		if err != nil {
			t.Fatal(err)
		}
		got.release(ill)
		got.release(ill)
		d.ask("next", request{key: "acme"})
		d.ask("second", request{key: "acme"})
		d.want("began", &d.began, "next@0")
	})
}

func TestAnEndedContextGetsNoTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newOffice(t, limiterOptions{slots: 1})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("revoked"))
		if _, err := d.acquire(ctx, request{}); err == nil || err.Error() != "revoked" {
			t.Errorf("error %v, want revoked", err)
		}
		d.empty(1)
	})
}

// TestALateCallHasNoTurn: not even where a slot is free.
func TestALateCallHasNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newLimiter(limiterOptions{slots: 1})
		until := time.Now().Add(time.Second)
		first, err := a.acquire(t.Context(), request{key: "acme", until: until})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.acquire(t.Context(), request{key: "acme", until: until}); !errors.Is(err, context.DeadlineExceeded) || time.Now() != until {
			t.Errorf("%v at %v", err, time.Now())
		}
		first.release(healthy)
		if _, err := a.acquire(t.Context(), request{key: "acme", until: until}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a slot was free: %v", err)
		}
	})
}

// TestNoCallBeginsAfterAStop: not in the moment before the stop is heard of, either.
func TestNoCallBeginsAfterAStop(t *testing.T) {
	working, stop := context.WithCancel(t.Context())
	stop()
	j := &job{deadlines: deadlines{working: working}, lease: &lease{ctx: t.Context()}}
	between, end := j.between()
	defer end()
	if between.Err() == nil {
		t.Error("a call may begin")
	}
}
