package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/engine"
	"edda/internal/testkit"
	"edda/saga"
	"edda/store"
)

// world is a scheduler with a real store, a recording engine and periodic schedules, in a bubble
// of virtual time.
type world struct {
	t         *testing.T
	db        *store.DB
	engine    *recorder
	sagas     *every
	scheduler *Scheduler
	logs      *observer.ObservedLogs
	stop      func()
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db, _ := testkit.OpenStore(t, dir, store.Options{})
		w := &world{t: t, db: db, engine: &recorder{db: db}, sagas: &every{}}
		w.start()
		defer func() { w.stop() }() // before the store, which t.Cleanup stops
		test(w)
	})
}

// start replaces the running scheduler by a new one.
func (w *world) start() {
	if w.stop != nil {
		w.stop()
	}
	core, logs := observer.New(zap.InfoLevel)
	w.logs = logs
	w.scheduler = New(watched{w.db, w.engine}, w.engine, w.sagas, Options{Log: zap.New(core)})
	w.stop = testkit.Run(w.t, w.scheduler.Run)
	synctest.Wait()
}

func (w *world) arm(rows ...store.Due) {
	w.t.Helper()
	testkit.Commit(w.t, w.db, store.Change{Arm: rows})
}

func due(correlation string, at time.Time) store.Due {
	return store.Due{Time: at, Key: edda.Key{Tenant: "acme", Saga: "order", Correlation: correlation}}
}

// watched counts the looks at the due index.
type watched struct {
	*store.DB
	engine *recorder
}

func (s watched) DueBut(until time.Time, limit int, waits func(store.Due) bool) ([]store.Due, time.Time, int, error) {
	s.engine.mu.Lock()
	s.engine.looks++
	s.engine.mu.Unlock()
	return s.DB.DueBut(until, limit, waits)
}

// recorder is an engine that resolves the rows that it is given.
type recorder struct {
	db     *store.DB
	mu     sync.Mutex // guards the fields below
	looks  int
	blocks chan struct{} // while set, calls wait until it is closed
	err    error
	woken  []store.Due
	at     []time.Time
	pages  int
	starts []string
	behind map[edda.Key]bool // keys of sagas that are behind the streams
}

func (r *recorder) waitsFor(k edda.Key, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind = map[edda.Key]bool{k: yes}
}

func (r *recorder) Waits(row store.Due) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behind[row.Key]
}

func (r *recorder) enter() error {
	r.mu.Lock()
	blocks, err := r.blocks, r.err
	r.mu.Unlock()
	if blocks != nil {
		<-blocks
	}
	return err
}

func (r *recorder) Wake(ctx context.Context, rows []store.Due) error {
	r.mu.Lock()
	r.pages++
	for _, row := range rows {
		r.woken, r.at = append(r.woken, row), append(r.at, time.Now())
	}
	r.mu.Unlock()
	if err := r.enter(); err != nil {
		return err
	}
	return r.db.Commit(ctx, store.Change{Disarm: rows})
}

func (r *recorder) Start(ctx context.Context, ev edda.Event, s edda.ScheduleState) error {
	if err := r.enter(); err != nil {
		return err
	}
	r.mu.Lock()
	r.starts = append(r.starts, ev.ID)
	r.mu.Unlock()
	return r.db.Commit(ctx, store.Change{Schedules: []edda.ScheduleState{s}})
}

func (r *recorder) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *recorder) block() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	blocks := make(chan struct{})
	r.blocks = blocks
	return func() {
		r.mu.Lock()
		r.blocks = nil
		r.mu.Unlock()
		close(blocks)
	}
}

func (r *recorder) wokenNames() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range r.woken {
		names = append(names, row.Key.Correlation)
	}
	return names
}

func (r *recorder) lookCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

func (r *recorder) started() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.starts)
}

// every is a set whose schedules are due at each full period.
type every struct {
	period time.Duration
	specs  []saga.ScheduleSpec
}

func (e *every) Schedules() []saga.ScheduleSpec { return e.specs }

func (e *every) NextSchedule(_, _ string, t time.Time) time.Time {
	return t.Truncate(e.period).Add(e.period)
}

func (e *every) ScheduleEvent(name, schedule, tenant string, at time.Time) edda.Event {
	return edda.Event{Kind: edda.KindSchedule, ID: fmt.Sprintf("%s/%s/%s@%s", tenant, name, schedule, at.Format("15:04")), Time: at}
}

func spec(catchup string, tenants ...string) []saga.ScheduleSpec {
	return []saga.ScheduleSpec{{Saga: "order", Name: "hourly", Tenants: tenants, Catchup: catchup}}
}

func TestARowIsHandedOverAtItsTime(t *testing.T) {
	inWorld(t, func(w *world) {
		begin := time.Now()
		for i := range 20 { // each is armed while the loop sleeps until the last one
			w.arm(due(fmt.Sprint(i), begin.Add(time.Duration(20-i)*333*time.Millisecond)))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.engine.woken) != 20 {
			t.Fatalf("woken: %v", w.engine.wokenNames())
		}
		for i, row := range w.engine.woken {
			if late := w.engine.at[i].Sub(row.Time); late < 0 || late > 50*time.Millisecond {
				t.Errorf("%s is %v late", row.Key.Correlation, late)
			}
		}
	})
}

func TestFrequentRowsAreHandedOverTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		const n = 1000
		begin := time.Now().Add(time.Second)
		var rows []store.Due
		for i := range n { // others are armed meanwhile
			rows = append(rows, due(fmt.Sprint(i), begin.Add(time.Duration(i)*time.Millisecond)))
		}
		w.arm(rows...)
		time.Sleep(time.Second)
		for i := range n {
			w.arm(due(fmt.Sprint("later", i), begin.Add(time.Hour)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := len(w.engine.woken); got != n {
			t.Fatalf("%d rows were handed over", got)
		}
		if most := n/int(lookPause/time.Millisecond) + 2; w.engine.pages > most || w.engine.pages < most/2 {
			t.Errorf("%d times, want about %d", w.engine.pages, most)
		}
		for i, row := range w.engine.woken {
			if late := w.engine.at[i].Sub(row.Time); late < 0 || late > 2*lookPause {
				t.Errorf("%s is %v late", row.Key.Correlation, late)
			}
		}
	})
}

func TestRowsComeInDueOrderAfterDowntime(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		var rows []store.Due
		var want []string
		for i := range page + 100 {
			rows = append(rows, due(fmt.Sprint(i), time.Now().Add(time.Duration(page+100-i)*time.Second)))
			want = append([]string{fmt.Sprint(i)}, want...)
		}
		w.arm(rows...)
		time.Sleep(24 * time.Hour)
		w.start()
		time.Sleep(time.Second)
		if got := w.engine.wokenNames(); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		if w.engine.pages != 2 {
			t.Errorf("%d pages", w.engine.pages)
		}
	})
}

// TestTheEngineAcceptsAPage: the engine refuses a larger page for good, and no timer would fire any
// more.
func TestTheEngineAcceptsAPage(t *testing.T) {
	if page > engine.MaxRows {
		t.Errorf("a page has %d rows, the engine takes %d", page, engine.MaxRows)
	}
}

func TestARowInProgressIsNotHandedOverAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		release := w.engine.block()
		w.arm(due("a", time.Now()))
		time.Sleep(time.Second)
		looks := w.engine.lookCount()
		w.arm(due("b", time.Now()))
		time.Sleep(time.Hour)
		if got := w.engine.lookCount(); got != looks {
			t.Errorf("%d looks while the engine waits", got-looks)
		}
		release()
		time.Sleep(time.Second)
		if got := w.engine.wokenNames(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("woken: %v", got)
		}
	})
}

// TestTimersOfASagaThatIsBehindDoNotDelayOthers: the scheduler passes over them and looks for
// them again, with pauses.
func TestTimersOfASagaThatIsBehindDoNotDelayOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		waits := due("waits", time.Now())
		w.engine.waitsFor(waits.Key, true)
		w.arm(waits, due("a", time.Now()))
		time.Sleep(time.Second)
		if got := w.engine.wokenNames(); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("woken: %v", got)
		}
		looks := w.engine.lookCount()
		time.Sleep(time.Minute)
		if got := w.engine.lookCount() - looks; got > 70 {
			t.Errorf("%d looks in a minute", got)
		}
		w.engine.waitsFor(waits.Key, false)
		time.Sleep(slowTick + lookPause + passedPause)
		if got := w.engine.wokenNames(); !slices.Equal(got, []string{"a", "waits"}) {
			t.Errorf("woken: %v", got)
		}
	})
}

func TestAnIdleSchedulerRarelyLooks(t *testing.T) {
	inWorld(t, func(w *world) {
		looks := w.engine.lookCount()
		time.Sleep(time.Minute)
		if got := w.engine.lookCount() - looks; got < 50 || got > 61 {
			t.Errorf("%d looks in an idle minute", got)
		}
	})
}

func TestAFailureIsRetriedAndLoggedOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.set(errors.New("not now"))
		w.arm(due("a", time.Now()))
		time.Sleep(time.Minute)
		if got := len(w.engine.wokenNames()); got < 55 || got > 70 {
			t.Errorf("%d tries in a minute", got)
		}
		if got := w.logs.Len(); got != 1 {
			t.Errorf("%d lines", got)
		}
		w.engine.set(nil)
		time.Sleep(retryMost)
		rows, _, err := w.db.Due(time.Now(), 10)
		if err != nil || len(rows) != 0 {
			t.Errorf("rows left: %v, %v", rows, err)
		}
	})
}

func TestRunEndsWhenTheEngineStops(t *testing.T) {
	inWorld(t, func(w *world) {
		w.engine.set(edda.Classify(edda.Permanent, "draining"))
		w.arm(due("a", time.Now()))
		time.Sleep(time.Hour)
		if got := len(w.engine.wokenNames()); got != 1 || w.logs.Len() != 0 {
			t.Errorf("%d tries, %d lines", got, w.logs.Len())
		}
	})
}

func TestAScheduleStartsWhenItIsDue(t *testing.T) {
	inWorld(t, func(w *world) { // a bubble begins at midnight UTC
		w.scheduler.Swap(&every{time.Hour, spec("last", "acme", "globex")})
		time.Sleep(2*time.Hour + time.Second)
		got := w.engine.started()
		slices.Sort(got)
		want := "acme/order/hourly@01:00 acme/order/hourly@02:00 globex/order/hourly@01:00 globex/order/hourly@02:00"
		if strings.Join(got, " ") != want {
			t.Errorf("started %v", got)
		}
	})
}

// TestANewScheduleStartsSinceTheTimeOfItsRow, whenever a process takes it in: shards take a deployment in one after the
// other, and its first due time may lie between.
func TestANewScheduleStartsSinceTheTimeOfItsRow(t *testing.T) {
	deployed := time.Hour - 200*time.Millisecond
	for _, late := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 90 * time.Minute} {
		inWorld(t, func(w *world) { // a bubble begins at midnight UTC
			began := time.Now()
			time.Sleep(deployed + late)
			row := edda.ScheduleState{Tenant: "acme", Saga: "order", Name: "hourly", Last: began.Add(deployed)}
			testkit.Must(w.t, w.db.Commit(w.t.Context(), store.Change{Schedules: []edda.ScheduleState{row}}))
			w.scheduler.Swap(&every{time.Hour, spec("all", "acme")})
			time.Sleep(2*time.Hour + time.Second - late)
			want := "acme/order/hourly@01:00 acme/order/hourly@02:00"
			if got := strings.Join(w.engine.started(), " "); !strings.HasPrefix(got, want) {
				t.Errorf("taken in %s after the deployment: started %s, want %s", late, got, want)
			}
		})
	}
}

func TestAScheduleWithoutTenantsStartsOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scheduler.Swap(&every{time.Hour, spec("last")})
		time.Sleep(time.Hour + time.Second)
		if got := w.engine.started(); !slices.Equal(got, []string{"/order/hourly@01:00"}) {
			t.Errorf("started %v", got)
		}
	})
}

func TestCatchupAfterDowntime(t *testing.T) {
	for catchup, want := range map[string]string{
		"":     "acme/order/hourly@05:00",
		"last": "acme/order/hourly@05:00",
		"none": "",
		"all":  "acme/order/hourly@02:00 acme/order/hourly@03:00 acme/order/hourly@04:00 acme/order/hourly@05:00",
	} {
		t.Run("catchup="+catchup, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.sagas.period, w.sagas.specs = time.Hour, spec(catchup, "acme")
				w.start()
				time.Sleep(time.Hour + time.Second)
				if got := w.engine.started(); !slices.Equal(got, []string{"acme/order/hourly@01:00"}) {
					t.Fatalf("before: %v", got)
				}
				w.stop()
				w.engine.starts = nil
				time.Sleep(4*time.Hour + 30*time.Minute)
				w.start()
				time.Sleep(time.Second)
				if got := strings.Join(w.engine.started(), " "); got != want {
					t.Errorf("started %q, want %q", got, want)
				}
				rows, err := w.db.Schedules()
				if err != nil || len(rows) != 1 || rows[0].Last.Hour() != 5 {
					t.Errorf("recorded %v, %v", rows, err)
				}
				w.start() // what was started or given up does not start again
				time.Sleep(time.Second)
				if got := strings.Join(w.engine.started(), " "); got != want {
					t.Errorf("again: %q", got)
				}
				time.Sleep(30 * time.Minute)
				if got := w.engine.started(); got[len(got)-1] != "acme/order/hourly@06:00" {
					t.Errorf("then %v", got)
				}
			})
		})
	}
}

func TestAFailedStartIsRetried(t *testing.T) {
	inWorld(t, func(w *world) {
		w.scheduler.Swap(&every{time.Hour, spec("last", "acme")})
		time.Sleep(time.Minute)
		w.engine.set(errors.New("not now"))
		time.Sleep(time.Hour)
		w.engine.set(nil)
		time.Sleep(retryMost)
		if got := w.engine.started(); !slices.Equal(got, []string{"acme/order/hourly@01:00"}) {
			t.Errorf("started %v", got)
		}
	})
}

func TestMissedDueTimesAreBounded(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var times []time.Time
	for i := range maxCatchup + 5 {
		times = append(times, now.Add(time.Duration(i)*time.Minute))
	}
	if got := pick(times, "all", now); len(got) != maxCatchup || got[0] != times[5] {
		t.Errorf("all: %d from %v", len(got), got[0])
	}
	late := times[len(times)-1].Add(punctual + 1)
	if got := pick(times, "none", late); got != nil {
		t.Errorf("none, late: %v", got)
	}
	if got := pick(times, "none", late.Add(-2)); len(got) != 1 || got[0] != times[len(times)-1] {
		t.Errorf("none, in time: %v", got)
	}
}

func TestTooManyMissedDueTimesAreSkipped(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sagas.period, w.sagas.specs = time.Second, spec("last", "acme")
		w.start()
		w.stop()
		time.Sleep(maxScan*time.Second + time.Hour)
		w.engine.starts = nil
		w.start()
		time.Sleep(500 * time.Millisecond)
		if got := len(w.engine.started()); got != 1 || w.logs.FilterMessageSnippet("given up").Len() != 1 {
			t.Errorf("%d starts, logs %v", got, w.logs.All())
		}
	})
}
