package dispatcher

import (
	"fmt"
	"strings"
	"testing"

	"edda/hero"
)

// A job of high priority runs before the other jobs of its worker, even if it is a foreign
// worker, and by whatever way the job enters the queue.
func TestADispatchedJobOfHighPriorityWaitsBehindAllOthers(t *testing.T) {
	pairings(t, func(t *testing.T, f foreign) {
		b := f.b
		var want []string
		for i := range 12 {
			id := fmt.Sprint("n", i)
			b.dispatch(Job{ID: id, Script: "print(1)"})
			want = append(want, id)
		}
		var high []string
		for _, id := range []string{"h1", "h2"} {
			b.dispatch(Job{ID: id, Script: "print(1)", Priority: hero.PriorityHigh})
			high = append(high, id)
		}
		h := b.dispatch(Job{Script: "print(1)", Priority: "HIGH"}) // gets an id
		high = append(high, h.ID)
		b.create("h4", "print(1)", Job{Priority: hero.PriorityHigh})
		b.submit("h4", Queued)
		b.create("first", "print(1)", Job{})
		b.create("h5", "print(1)", Job{Priority: hero.PriorityHigh, Dependencies: []string{"first"}})
		b.submit("h5", Waiting)
		b.db.HSet(b.ctx, JobKey("first"), "status", "finished")
		if _, err := b.client.Sweep(b.ctx); err != nil {
			t.Fatal(err)
		}
		high = append(high, "h4", "h5")
		all := b.db.LRange(b.ctx, f.scheme.WorkQueue("w"), 0, -1).Val()
		taken := make([]string, 0, len(all))
		for i := range all { // from the end that its workers take from
			if f.order == LIFO {
				taken = append(taken, all[i])
			} else {
				taken = append(taken, all[len(all)-1-i])
			}
		}
		if f.order == LIFO {
			if strings.Join(taken[:5], " ") != strings.Join([]string{"h5", "h4", h.ID, "h2", "h1"}, " ") {
				t.Errorf("%v", taken)
			}
		} else if got := strings.Join(taken, " "); got != strings.Join(append(high, want...), " ") {
			t.Errorf("%s", got)
		}
		f.work()
		for _, id := range append(high, want...) {
			if got := b.ended(id); got != "finished 1" {
				t.Error(id, got)
			}
		}
		b.idle("w")
	})
}

func TestAPriorityThatIsNoneIsTaken(t *testing.T) {
	b := newBench(t, Options{})
	if _, err := b.client.Dispatch(b.ctx, Job{WorkerID: "w", Script: "x", Priority: "urgent"}); err == nil || !strings.Contains(err.Error(), "priority") {
		t.Error(err)
	}
	b.db.HSet(b.ctx, JobKey("theirs"), "id", "theirs", "worker_id", "w", "script", "x", "status", "dispatched", "priority", "7")
	if j, err := b.client.Job(b.ctx, "theirs"); err != nil || j.Priority != hero.PriorityNormal {
		t.Errorf("%+v, %v", j, err)
	}
}
