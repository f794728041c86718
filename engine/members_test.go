package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

// members are events for one key, as a batch of CloudEvents has them.
func members(n int) (events []edda.Event) {
	for i := range n {
		events = append(events, event(fmt.Sprint("m", i+1), "add", "k"))
	}
	return events
}

// sip makes the streams give so many events a tick; 0: all.
func (w *world) sip(n int) {
	w.streams.change(func() { w.streams.sip = n })
}

// restart stops the engine, and starts another that reads the streams from the durable positions.
func (w *world) restart(o Options) {
	w.stop()
	w.rewind()
	w.start(o)
	settle()
}

// TestACrashBetweenTwoMembersLosesAndDoublesNothing stops the engine after each member of a batch. The
// saga of the test remembers no ids.
func TestACrashBetweenTwoMembersLosesAndDoublesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("before", "add", "k"))
		settle()
		w.sip(1)
		w.streams.publishBatch("A", members(20)...)
		crashes := 0
		for n := 1; n < 20; n = len(w.log(key("k"))) {
			for len(w.log(key("k"))) <= n {
				settle()
			}
			w.stop()
			if n = len(w.log(key("k"))) - 1; n == 20 {
				break
			}
			at := w.position("A")
			if at.Seq != 1 || at.Time.IsZero() || at.Created.IsZero() || at.Partly == nil || at.Partly.Seq != 2 || at.Partly.Members != n {
				t.Fatalf("after %d members the position is %+v with %+v", n, at, at.Partly)
			}
			w.restart(Options{})
			crashes++
		}
		if crashes < 5 {
			t.Errorf("%d crashes", crashes)
		}
		w.sip(0)
		w.streams.publish("A", event("after", "add", "k"))
		settle()
		w.wantLog(key("k"), slices.Concat([]string{"before"}, many(20, func(i int) string { return fmt.Sprint("m", i+1) }), []string{"after"})...)
		if at := w.position("A"); at.Seq != 3 || at.Partly != nil {
			t.Errorf("the position behind the batch is %+v", at)
		}
	})
}

// TestMembersThatNoSagaWantsCountAsHandled: a crash must not bring one back, because by then another
// member may have begun the instance that takes it.
func TestMembersThatNoSagaWantsCountAsHandled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sip(1)
		w.streams.publishBatch("A", event("m1", "drop", "k"), event("m2", "drop", "k"), event("m3", "add", "k"))
		for at := w.position("A"); at.Partly == nil || at.Partly.Members != 2; at = w.position("A") {
			settle()
		}
		w.streams.change(func() {
			for i := range w.streams.stored {
				w.streams.stored[i].Type = "add" // now somebody wants them
			}
		})
		w.sip(0)
		w.restart(Options{})
		w.wantLog(key("k"), "m3")
	})
}

// TestABatchMayBeTheFirstMessageThatIsRead of a stream that begins late.
func TestABatchMayBeTheFirstMessageThatIsRead(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dir)
		defer w.stop()
		w.streams.last["A"] = edda.Checkpoint{Stream: "A", Seq: 40, Created: w.streams.created}
		w.sip(1)
		w.streams.publishBatch("A", members(3)...)
		w.start(Options{})
		for len(w.log(key("k"))) == 0 {
			settle()
		}
		if at := w.position("A"); at.Seq != 40 || at.Created.IsZero() || at.Partly == nil || *at.Partly != (edda.Partly{Seq: 41, Time: at.Partly.Time, Members: 1}) {
			t.Errorf("position %+v with %+v", at, at.Partly)
		}
		w.sip(0)
		w.restart(Options{})
		w.wantLog(key("k"), "m1", "m2", "m3")
	})
}

// TestAPositionDoesNotLeaveABatch that is applied in part, because of an older look at the stream's end.
func TestAPositionDoesNotLeaveABatch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.change(func() { w.streams.gone = true })
		w.streams.publish("A", event("before", "add", "k"))
		settle()
		w.streams.change(func() { // a message for nobody
			at := w.streams.last["A"]
			at.Seq++
			w.streams.last["A"] = at
		})
		time.Sleep(2 * pollEvery)
		w.streams.change(func() { w.streams.mute, w.streams.sip = true, 1 })
		w.streams.publishBatch("A", members(3)...)
		for len(w.log(key("k"))) < 2 {
			settle()
		}
		w.streams.change(func() { w.streams.paused = true })
		w.streams.publish("B", event("meanwhile", "add", "other"))
		for len(w.log(key("other"))) == 0 {
			settle()
		}
		w.stop()
		if at := w.position("A"); at.Seq != 1 || at.Partly == nil {
			t.Fatalf("the position is %+v", at)
		}
		w.streams.change(func() { w.streams.gone, w.streams.mute, w.streams.paused, w.streams.sip = false, false, false, 0 })
		w.restart(Options{})
		w.wantLog(key("k"), "before", "m1", "m2", "m3")
	})
}

// TestAnotherBatchAtTheSamePlaceIsRead: the server lost the end of the stream, and wrote a new message
// there.
func TestAnotherBatchAtTheSamePlaceIsRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sip(1)
		w.streams.publishBatch("A", members(3)...)
		for len(w.log(key("k"))) == 0 {
			settle()
		}
		w.stop()
		w.streams.change(func() {
			for i := range w.streams.stored {
				w.streams.stored[i].Time = w.streams.stored[i].Time.Add(time.Minute)
				w.streams.stored[i].ID = fmt.Sprint("new", i+1)
			}
		})
		w.sip(0)
		w.restart(Options{})
		if got := w.log(key("k")); !slices.Equal(got[len(got)-3:], []string{"new1", "new2", "new3"}) {
			t.Errorf("applied %v", got)
		}
	})
}

// TestABadMemberDiesAlone: the store refuses one, another is malformed, a third panics.
func TestABadMemberDiesAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		batch := members(9)
		batch[2].AggregateID = strings.Repeat("long", 20_000)
		batch[4].Malformed, batch[4].Error = edda.DeadUndecodable, "no CloudEvent"
		batch[6].Type, batch[6].AggregateID = "panic", "other"
		seq := w.streams.publishBatch("A", batch...)
		for w.position("A").Seq != seq {
			settle()
		}
		w.wantLog(key("k"), "m1", "m2", "m4", "m6", "m8", "m9")
		letters, err := w.db.DeadLetters("", 10)
		if err != nil || len(letters) != 3 {
			t.Fatalf("dead letters: %+v, %v", letters, err)
		}
		for _, d := range letters {
			if want := fmt.Sprint("m", d.Event.Member); d.Event.ID != want || d.Event.Seq != seq {
				t.Errorf("the dead letter of %s at %s", d.Event.ID, d.Event.Number())
			}
		}
		if at := w.position("A"); at.Partly != nil {
			t.Errorf("position %+v", at.Partly)
		}
	})
}

// TestALostSetOfMembersIsAppliedAgain: the disk is full while a batch is on its way.
func TestALostSetOfMembersIsAppliedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sip(2)
		w.gate.set(true, nil)
		w.streams.publishBatch("A", members(7)...)
		time.Sleep(2 * tickEvery)
		w.gate.failNext(errDiskFull)
		for w.position("A").Seq == 0 {
			settle()
		}
		w.wantLog(key("k"), many(7, func(i int) string { return fmt.Sprint("m", i+1) })...)
	})
}

// TestALaggardAppliesEachMemberOnce that was paused before a batch, or within it, also where the
// process ends while the others are within the batch.
func TestALaggardAppliesEachMemberOnce(t *testing.T) {
	for _, paused := range []string{"before", "within"} {
		for _, crash := range []bool{false, true} {
			withShares(t, sagaList{"slow", "quick"}, func(w *world, l *archive, room *fakeShares) {
				pause := func() {
					room.set(SagaTenant{"acme", "slow"})
					waitTicks()
				}
				w.streams.publish("A", event("m0", "add", "k"))
				waitTicks()
				if paused == "before" {
					pause()
				}
				w.sip(1)
				w.streams.publishBatch("A", members(40)...)
				for len(w.logOf("quick", "k")) < 4 {
					settle()
				}
				if paused == "within" {
					pause()
				}
				for n := len(w.logOf("quick", "k")); len(w.logOf("quick", "k")) < n+4; {
					settle()
				}
				w.streams.change(func() { w.streams.held = true })
				room.set()
				if crash {
					w.restart(Options{CatchUp: l.catchUp(), room: room})
				}
				waitTicks()
				w.streams.change(func() { w.streams.held, w.streams.sip = false, 0 })
				for w.position("A").Seq < 2 {
					settle()
				}
				w.waitCaughtUp()
				want := joined(many(41, numbered("m")))
				for _, saga := range []string{"slow", "quick"} {
					if got := joined(w.logOf(saga, "k")); got != want {
						t.Errorf("paused %s the batch, crash %t: %s applied\n%s", paused, crash, saga, got)
					}
				}
			})
		}
	}
}

// TestAPositionLeavesABatchOfWhichNothingMoreIsRead: the other members are of tenants that are not served
// any more.
func TestAPositionLeavesABatchOfWhichNothingMoreIsRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sip(1)
		w.streams.publishBatch("A", members(3)...)
		for len(w.log(key("k"))) == 0 {
			settle()
		}
		w.streams.change(func() { w.streams.waiting, w.streams.gone = nil, true })
		time.Sleep(2 * tidyEvery)
		settle()
		if at := w.position("A"); at.Seq != 1 || at.Partly != nil {
			t.Errorf("the position is %+v with %+v", at, at.Partly)
		}
	})
}

// TestAReaderBeginsBehindTheMembersInTheQueue of its laggard, also where its stream was restored meanwhile.
func TestAReaderBeginsBehindTheMembersInTheQueue(t *testing.T) {
	batch := members(9)
	at := time.Now().UTC()
	for i := range batch {
		batch[i].Stream, batch[i].Seq, batch[i].Time, batch[i].Member, batch[i].More = "A", 7, at, i+1, i < 8
	}
	for _, applied := range []edda.Checkpoint{
		{Stream: "A", Seq: 4},
		{Stream: "A", Seq: 6},
		{Stream: "A", Seq: 6, Partly: &edda.Partly{Seq: 7, Time: at, Members: 2}},
	} {
		l := newLaggard(SagaTenant{"acme", "slow"})
		l.startAt(applied)
		l.read["A"], l.withheld["A"] = readWith(&batch[4]), 7
		l.queue = []*item{arrival(batch[4], Fetched{})}
		a := &assignment{ready: make(chan struct{}), cancel: func() {}}
		v := &loop{Engine: &Engine{}, catchUp: catchUp{laggards: laggards{l.SagaTenant: l}, idle: []*assignment{a}}}
		v.opts.CatchUp.Open = func(context.Context, SagaTenant, []edda.Checkpoint) (Past, error) { return nil, errDiskFull }
		v.assignReaders()
		if len(a.from) != 1 || a.from[0].Seq != 6 || !a.from[0].Covers(&batch[4]) || a.from[0].Covers(&batch[5]) {
			t.Errorf("behind %+v it begins at %+v", applied, a.from)
		}
		start := a.from[0]
		start.Created = at
		if err := v.readBegan(a, []edda.Checkpoint{start}, nil); err != nil {
			t.Fatal(err)
		}
		if !l.has(&batch[4]) || l.has(&batch[5]) {
			t.Errorf("behind %+v it has %+v with %+v", applied, l.read["A"], l.read["A"].within)
		}
	}
}

// TestTheFurtherOfTwoPlaces: a set that the store refuses returns members to the queue, and the reader may
// already have read later members.
func TestTheFurtherOfTwoPlaces(t *testing.T) {
	within := func(n int) readPosition {
		return readWith(&edda.Event{Seq: 7, Member: n, More: true})
	}
	order := []readPosition{{}, {seq: 6}, within(1), within(3), {seq: 7}, {seq: 8}}
	for i, near := range order {
		for _, far := range order[i:] {
			if near.further(far) != far || far.further(near) != far {
				t.Errorf("%+v is not behind %+v", near, far)
			}
		}
	}
}

// TestRejudgeReachesIntoABatch: the main line has passed members that are meant for the laggard now.
func TestRejudgeReachesIntoABatch(t *testing.T) {
	withShares(t, sagaList{"slow"}, func(w *world, l *archive, room *fakeShares) {
		w.streams.publish("A", event("before", "add", "k"))
		waitTicks()
		room.set(SagaTenant{"acme", "slow"})
		waitTicks()
		w.sip(1)
		batch := members(20)
		for i := range batch {
			batch[i].Type = "drop"
		}
		w.streams.publishBatch("A", batch...)
		for range 1000 {
			if at := w.position("A"); at.Partly != nil && at.Partly.Members >= 3 {
				break
			}
			settle()
		}
		w.streams.change(func() {
			w.streams.held = true
			for i := range w.streams.stored {
				w.streams.stored[i].Type = "add"
			}
		})
		waitTicks()
		at := w.position("A")
		if at.Partly == nil || at.Partly.Members < 3 || at.Partly.Members > 19 {
			t.Fatalf("the position is %+v", at)
		}
		if err := w.engine.Rejudge(context.Background()); err != nil {
			t.Fatal(err)
		}
		room.set()
		waitTicks()
		w.sip(0)
		w.waitCaughtUp()
		if got, want := joined(w.logOf("slow", "k")), "before "+joined(many(at.Partly.Members, func(i int) string { return fmt.Sprint("m", i+1) })); got != want {
			t.Errorf("applied %s, want %s", got, want)
		}
	})
}
