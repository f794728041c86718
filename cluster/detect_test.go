package cluster

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tick is the step of the simulation.
const tick = 10 * time.Millisecond

// table is the replicated table of beats: one sequence of revisions, which elections interrupt.
type table struct {
	revision uint64
	last     map[string]uint64          // revision of each key
	stored   map[string]time.Duration   // when that was
	closed   []window                   // elections: nothing is stored or read
	pending  map[time.Duration][]func() // what happens later
}

type window struct{ from, to time.Duration }

func (w window) has(t time.Duration) bool { return t >= w.from && t < w.to }

func in(ws []window, t time.Duration) bool {
	return slices.ContainsFunc(ws, func(w window) bool { return w.has(t) })
}

func newTable() *table {
	return &table{last: map[string]uint64{}, stored: map[string]time.Duration{}, pending: map[time.Duration][]func(){}}
}

func (k *table) at(t time.Duration, f func()) {
	t = t.Truncate(tick)
	k.pending[t] = append(k.pending[t], f)
}

func (k *table) put(now time.Duration, id string) uint64 {
	k.revision++
	k.last[id], k.stored[id] = k.revision, now
	return k.revision
}

// actor is a node: it beats, watches and detects.
type actor struct {
	id       string
	frozen   []window // it does nothing, and gets what came afterwards
	deaf     []window // its watch is behind: it hears everything later
	dead     time.Duration
	detector *Detector
	next     time.Duration // of the next beat
	waits    bool          // for an answer
	attempt  int
	inbox    []func(now time.Duration)
	until    time.Duration // it may act until then
}

// plan is what goes wrong in one run.
type plan struct {
	t            *rapid.T
	lostAnswer   int // percent
	lateStored   int // percent: a beat is stored although its sender gave it up, or not at all
	latency      time.Duration
	beatTimesOut time.Duration
}

// world runs actors against a table.
type world struct {
	*plan
	table     *table
	actors    []*actor
	now       time.Duration
	convicted func(by, of *actor)
}

func (w *world) percent(p int, of string) bool {
	return p > 0 && rapid.IntRange(0, 99).Draw(w.t, of) < p
}

func (w *world) delay(of string) time.Duration {
	return time.Duration(rapid.IntRange(1, int(w.latency/tick)).Draw(w.t, of)) * tick
}

func (w *world) run(upto time.Duration) {
	for ; w.now < upto; w.now += tick {
		for _, f := range w.table.pending[w.now] {
			f()
		}
		delete(w.table.pending, w.now)
		for _, a := range w.actors {
			w.act(a)
		}
	}
}

func (w *world) act(a *actor) {
	if a.dead > 0 && w.now >= a.dead || in(a.frozen, w.now) {
		return
	}
	inbox := a.inbox
	a.inbox = nil
	for _, f := range inbox {
		f(w.now)
	}
	if !a.waits && w.now >= a.next {
		w.beat(a)
	}
}

// beat sends a beat. One is in flight.
func (w *world) beat(a *actor) {
	sent := w.now
	a.next, a.waits = sent+BeatEvery, true
	a.attempt++
	attempt := a.attempt
	ends := func(now time.Duration) {
		if a.attempt == attempt {
			a.waits = false
		}
	}
	w.table.at(sent+w.beatTimesOut, func() { a.inbox = append(a.inbox, ends) })
	w.table.at(sent+w.delay("way"), func() { w.arrive(a, attempt, sent) })
}

// arrive stores a beat, unless an election goes on: then it is lost, or stored after that.
func (w *world) arrive(a *actor, attempt int, sent time.Duration) {
	if in(w.table.closed, w.now) {
		if w.percent(w.lateStored, "late") {
			w.table.at(w.now+w.beatTimesOut, func() { w.arrive(a, attempt, sent) })
		}
		return
	}
	revision := w.table.put(w.now, a.id)
	for _, other := range w.actors {
		if other == a {
			continue
		}
		heard := w.now + w.delay("watch")
		for in(other.deaf, heard) {
			heard += tick
		}
		w.table.at(heard, func() {
			other.inbox = append(other.inbox, func(now time.Duration) { other.detector.Saw(a.id, revision, now) })
		})
	}
	if w.percent(w.lostAnswer, "lost") {
		return
	}
	w.table.at(w.now+w.delay("way"), func() {
		a.inbox = append(a.inbox, func(now time.Duration) { w.accepted(a, attempt, sent, revision, now) })
	})
}

func (w *world) accepted(a *actor, attempt int, sent time.Duration, revision uint64, now time.Duration) {
	if a.attempt != attempt || !a.waits {
		return // it was given up
	}
	a.waits = false
	if now < a.until || a.until == 0 { // as a fence: who has lapsed needs more than a beat
		a.until = sent + LapseAfter
	}
	for _, id := range a.detector.Accepted(sent, revision) {
		w.table.at(now+w.delay("look"), func() { w.look(a, id) })
	}
}

// look reads a key from the leader.
func (w *world) look(a *actor, id string) {
	if in(w.table.closed, w.now) {
		return
	}
	revision, quiet, at := w.table.last[id], w.now-w.table.stored[id], w.now
	w.table.at(w.now+w.delay("way"), func() {
		a.inbox = append(a.inbox, func(now time.Duration) {
			if a.detector.Looked(id, revision, now) {
				w.judge(a, id, quiet, at)
			}
		})
	})
}

// judge checks a conviction: for how long no beat had been stored when the leader was asked.
func (w *world) judge(by *actor, id string, quiet, read time.Duration) {
	of := w.actors[slices.IndexFunc(w.actors, func(a *actor) bool { return a.id == id })]
	if quiet < DeadAfter {
		w.t.Fatalf("%s convicts %s, whose last beat was stored %s before the leader was asked", by.id, id, quiet)
	}
	if of.until > read {
		w.t.Fatalf("%s convicts %s, which may act for %s", by.id, id, of.until-read)
	}
	w.convicted(by, of)
}

func windows(t *rapid.T, name string, n int, least, most time.Duration, upto time.Duration) (out []window) {
	for range rapid.IntRange(0, n).Draw(t, name) {
		from := time.Duration(rapid.IntRange(0, int(upto/tick)).Draw(t, name+" from")) * tick
		ticks := rapid.IntRange(int(least/tick), int(most/tick)).Draw(t, name+" for")
		out = append(out, window{from, from + time.Duration(ticks)*tick})
	}
	return out
}

func newWorld(t *rapid.T, n int) *world {
	w := &world{table: newTable(), plan: &plan{t: t, beatTimesOut: time.Second,
		latency:    time.Duration(rapid.IntRange(1, 15).Draw(t, "latency")) * tick,
		lostAnswer: rapid.SampledFrom([]int{0, 0, 5, 30}).Draw(t, "lost answers"),
		lateStored: rapid.SampledFrom([]int{0, 50}).Draw(t, "stored late"),
	}, convicted: func(*actor, *actor) {}}
	for i := range n {
		first := time.Duration(rapid.IntRange(0, 50).Draw(t, "first")) * tick
		w.actors = append(w.actors, &actor{id: string(rune('a' + i)), detector: NewDetector(), next: first})
	}
	return w
}

// TestNobodyIsConvictedWhoseBeatsAreStored: also with frozen nodes, elections, watches that are behind, lost
// answers, and beats that are stored late. world.judge says what a conviction must mean.
func TestNobodyIsConvictedWhoseBeatsAreStored(t *testing.T) {
	convictions := 0
	rapid.Check(t, func(t *rapid.T) {
		const upto = 60 * time.Second
		w := newWorld(t, 3)
		w.convicted = func(_, _ *actor) { convictions++ }
		w.table.closed = windows(t, "election", 4, 4*time.Second, 9*time.Second, upto)
		for _, a := range w.actors {
			a.frozen = windows(t, "frozen", 3, 100*time.Millisecond, 20*time.Second, upto)
			a.deaf = windows(t, "deaf", 3, time.Second, 15*time.Second, upto)
		}
		w.run(upto)
	})
	if convictions == 0 {
		t.Error("no run convicted anybody: it shows nothing")
	}
}

// TestAnElectionConvictsNobody: all nodes live and beat. Watches may stay behind for longer than the election.
func TestAnElectionConvictsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const upto = 60 * time.Second
		w := newWorld(t, 3)
		w.lostAnswer = 0
		w.convicted = func(by, of *actor) { t.Fatalf("%s convicts %s at %s", by.id, of.id, w.now) }
		w.table.closed = windows(t, "election", 4, 4*time.Second, 9*time.Second, upto)
		for _, a := range w.actors {
			a.deaf = windows(t, "deaf", 3, time.Second, 15*time.Second, upto)
		}
		w.run(upto)
	})
}

// TestADeathIsFoundWithinThreeSecondsOfOwnBeats: the others convict it once, and nobody else.
func TestADeathIsFoundWithinThreeSecondsOfOwnBeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 3)
		w.lostAnswer = 0
		w.latency = tick
		victim := w.actors[0]
		victim.dead = 5*time.Second + time.Duration(rapid.IntRange(0, 50).Draw(t, "dies"))*tick
		found := map[string]time.Duration{}
		w.convicted = func(by, of *actor) {
			if of != victim || found[by.id] != 0 {
				t.Fatalf("%s convicts %s", by.id, of.id)
			}
			found[by.id] = w.now - victim.dead
		}
		w.run(20 * time.Second)
		for _, a := range w.actors[1:] {
			if took := found[a.id]; took < LapseAfter-BeatEvery || took > 3*time.Second+10*tick {
				t.Errorf("%s finds the death after %s", a.id, took)
			}
		}
	})
}

// TestFiveBeatsOfSilenceAreEnough, also if their intervals are a little short.
func TestFiveBeatsOfSilenceAreEnough(t *testing.T) {
	d := NewDetector()
	d.Accepted(0, 1)
	d.Saw("b", 2, 0)
	now, beats := time.Duration(0), 0
	for len(d.Accepted(now, uint64(beats)+3)) == 0 {
		if beats++; beats > 5 {
			t.Fatalf("not suspected after %v", now)
		}
		now += BeatEvery - 2*time.Millisecond
	}
	if beats < 5 || now <= LapseAfter {
		t.Errorf("suspected after %d beats, %v", beats, now)
	}
}

// TestADeadNodeThatBeatsIsBack: and can die again.
func TestADeadNodeThatBeatsIsBack(t *testing.T) {
	d := NewDetector()
	revision, now := uint64(1), time.Duration(0)
	d.Saw("b", revision, now)
	silent := func() (convicted bool) {
		for range 7 {
			now += BeatEvery
			revision++
			for _, id := range d.Accepted(now, revision) {
				convicted = d.Looked(id, d.Nodes()[0].Revision, now) || convicted
			}
		}
		return convicted
	}
	if !silent() || !d.Nodes()[0].Dead || silent() {
		t.Fatalf("want one conviction: %+v", d.Nodes())
	}
	revision++
	if !d.Saw("b", revision, now) || d.Nodes()[0].Dead {
		t.Errorf("it beats and is dead: %+v", d.Nodes())
	}
	if !silent() {
		t.Error("it does not die again")
	}
	d.Left("b")
	if len(d.Nodes()) != 0 || silent() {
		t.Errorf("it has left: %+v", d.Nodes())
	}
}

// TestSuspicionsThatConvictNobody: one case each.
func TestSuspicionsThatConvictNobody(t *testing.T) {
	const second = time.Second
	suspected := func() *Detector { // since 3 s, at revision 7; our last beat has the revision 20
		d := NewDetector()
		d.Accepted(0, 6)
		d.Saw("b", 7, 0)
		for i := range 6 {
			d.Accepted(time.Duration(i+1)*BeatEvery, uint64(15+i))
		}
		return d
	}
	if !suspected().Looked("b", 7, 3*second) {
		t.Fatal("the case of all others convicts nobody")
	}
	for name, convicts := range map[string]func(d *Detector) bool{
		"the leader has a newer beat":      func(d *Detector) bool { return d.Looked("b", 16, 3*second) },
		"the leader knows less than we do": func(d *Detector) bool { return d.Looked("b", 6, 3*second) },
		"the leader has no key":            func(d *Detector) bool { return d.Looked("b", 0, 3*second) },
		"the watch has a newer beat":       func(d *Detector) bool { d.Saw("b", 16, 3*second); return d.Looked("b", 16, 3*second) },
		"nobody was suspected":             func(d *Detector) bool { return d.Looked("c", 7, 3*second) },
		"our clock jumped":                 func(*Detector) bool { return jumped(3600*second, 4*3600*second) },
		"our own beats were not accepted":  func(*Detector) bool { return jumped(9*second, 18*second) },
	} {
		if convicts(suspected()) {
			t.Errorf("%s: convicted", name)
		}
	}
}

// jumped reports whether three beats at these times convict a node.
func jumped(second, third time.Duration) bool {
	d := NewDetector()
	d.Accepted(0, 6)
	d.Saw("b", 7, 0)
	d.Accepted(second, 8)
	d.Accepted(third, 9)
	return d.Looked("b", 7, third)
}

// TestATableThatWasMadeAnew has lower revisions: who beats there lives, and who does not is dead.
func TestATableThatWasMadeAnew(t *testing.T) {
	d := NewDetector()
	d.Accepted(0, 60)
	d.Saw("b", 70, 0)
	d.Saw("c", 71, 0)
	revision, now := uint64(0), time.Duration(0)
	convicted := map[string]bool{}
	for range 8 {
		now += BeatEvery
		revision += 2
		for _, id := range d.Accepted(now, revision-1) {
			convicted[id] = d.Looked(id, 0, now) || convicted[id]
		}
		d.Saw("b", revision, now)
	}
	if convicted["b"] || !convicted["c"] {
		t.Errorf("convicted %v: %+v", convicted, d.Nodes())
	}
}

// TestANamedNodeWithoutABeatIsConvicted: the owner of a shard, after its key was lost.
func TestANamedNodeWithoutABeatIsConvicted(t *testing.T) {
	d := NewDetector()
	d.Accepted(0, 6)
	d.Expect("b", 0)
	var suspects []string
	for i := range 5 {
		suspects = d.Accepted(time.Duration(i+1)*BeatEvery, uint64(7+i))
	}
	if !slices.Equal(suspects, []string{"b"}) || !d.Looked("b", 0, 3*time.Second) {
		t.Errorf("suspects %q, %+v", suspects, d.Nodes())
	}
}

// TestAnExpectedNodeIsForgottenWithTheNextOne, unless it beats.
func TestAnExpectedNodeIsForgottenWithTheNextOne(t *testing.T) {
	d := NewDetector()
	nodes := func() (ids string) {
		for _, n := range d.Nodes() {
			ids += n.ID
		}
		return ids
	}
	d.Saw("b", 3, 0)
	for _, step := range []struct{ expect, want string }{{"a", "ab"}, {"a", "ab"}, {"b", "b"}, {"", "b"}, {"c", "bc"}, {"", "b"}} {
		if d.Expect(step.expect, 0); nodes() != step.want {
			t.Errorf("with %q expected there are %q, want %q", step.expect, nodes(), step.want)
		}
	}
	d.Left("b")
	if d.Expect("b", 0); nodes() != "b" {
		t.Error("an owner that has left is not expected")
	}
	if d.Lives("a", 0); nodes() != "a" {
		t.Errorf("with the record of another owner there are %q", nodes())
	}
}

// TestTheSilenceOfADeadNodeGoesOn, which people are shown, and no conviction asks for another one.
func TestTheSilenceOfADeadNodeGoesOn(t *testing.T) {
	d := NewDetector()
	d.Expect("b", 0)
	now := time.Duration(0)
	convictions := 0
	for revision := range uint64(20) {
		for _, id := range d.Accepted(now, revision+1) {
			if d.Looked(id, 0, now) {
				convictions++
			}
		}
		now += 500 * time.Millisecond
	}
	b := d.Nodes()[0]
	if !b.Dead || convictions != 1 || b.Silence < 9*time.Second {
		t.Errorf("%+v after %d convictions", b, convictions)
	}
}
