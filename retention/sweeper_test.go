package retention

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/testkit"
	"edda/store"
)

const day = 24 * time.Hour

// fixture is a store with its committer and its sweeper, in a bubble of virtual time.
type fixture struct {
	*store.DB
	sweeper *Sweeper
	metrics *prometheus.Registry
	logs    *observer.ObservedLogs
	ahead   atomic.Int64 // how far the sweeper's clock is ahead
	begin   func()       // starts the loop
}

func withSweeper(t *testing.T, settings Settings, test func(h *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &fixture{metrics: prometheus.NewRegistry()}
		core, logs := observer.New(zap.InfoLevel)
		h.logs = logs
		db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
		h.DB = db
		var err error
		h.sweeper, err = New(db, func() (Settings, error) { return settings, nil }, Options{Log: zap.New(core), Metrics: h.metrics})
		if err != nil {
			t.Fatal(err)
		}
		h.sweeper.now = func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }
		stop := func() {}
		h.begin = func() { stop = testkit.Run(t, h.sweeper.Run) }
		test(h)
		stop()
		synctest.Wait()
		health, err := db.Doctor(context.Background(), nil)
		if err := errors.Join(append(health.Findings, err)...); err != nil {
			t.Error(err)
		}
	})
}

func (h *fixture) commit(t *testing.T, c store.Change) {
	t.Helper()
	testkit.Commit(t, h.DB, c)
}

func key(id string) edda.Key { return edda.Key{Tenant: "acme", Saga: "order", Correlation: id} }

func finished(id string, status edda.Status) edda.Transition {
	k := key(id)
	return edda.Transition{
		Key: k, Event: edda.Event{ID: id, Time: time.Unix(0, 0)}, Fate: edda.FateHandled,
		Instance: &edda.Instance{Key: k, Version: 1, Generation: 1, Status: status, Recent: []string{id}},
	}
}

// everything makes one row of each kind.
func everything(id string) store.Change {
	return store.Change{
		Transitions: []edda.Transition{finished(id, edda.StatusDone), finished(id+"f", edda.StatusFailed)},
		Claims:      []edda.Claim{{Tenant: "acme", CommandID: id, Claimed: time.Now()}},
		Dead:        []edda.DeadLetter{{ID: id, Time: time.Unix(0, 0)}},
		Audits:      []store.Audit{{Time: time.Now(), Verb: "retry"}},
	}
}

func (h *fixture) has(t *testing.T, id string) (out []string) {
	t.Helper()
	v, err := h.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for name, k := range map[string]edda.Key{"done": key(id), "failed": key(id + "f")} {
		cell, err := v.Cell(k)
		if err != nil {
			t.Fatal(err)
		}
		if cell.Instance != nil {
			out = append(out, name)
		}
	}
	if h, err := h.History(key(id), 10); err != nil || len(h) > 0 {
		out = append(out, "history")
	}
	if _, ok, err := h.Claim("acme", id); ok || err != nil {
		out = append(out, "claim")
	}
	if _, ok, err := h.DeadLetter(id); ok || err != nil {
		out = append(out, "letter")
	}
	return out
}

func (h *fixture) expect(t *testing.T, id, when string, want ...string) {
	t.Helper()
	got := h.has(t, id)
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", when, got, want)
		return
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, " "), w) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
}

func settings() Settings {
	return Settings{
		Instances: func(_ string, s edda.Status) time.Duration {
			if s == edda.StatusDone {
				return 2 * day
			}
			return 8 * day
		},
		History: 4 * day, Claims: 6 * day, DeadLetters: 10 * day, Audit: 12 * day,
	}
}

func TestEachKindHasItsOwnRetention(t *testing.T) {
	withSweeper(t, settings(), func(h *fixture) {
		h.begin()
		synctest.Wait()
		h.commit(t, everything("a"))
		for _, step := range []struct {
			after time.Duration
			left  []string
		}{
			{2*day - 2*time.Hour, []string{"done", "failed", "history", "claim", "letter"}},
			{5 * time.Hour, []string{"failed", "history", "claim", "letter"}},
			{3 * day, []string{"failed", "claim", "letter"}}, // whole days
			{2 * day, []string{"failed", "letter"}},
			{2 * day, []string{"letter"}},
			{2 * day, nil},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			h.expect(t, "a", step.after.String(), step.left...)
		}
		audits, err := h.Audits(10)
		if err != nil || len(audits) != 1 {
			t.Errorf("audits: %v %v", audits, err)
		}
		time.Sleep(3 * day)
		synctest.Wait()
		if audits, err = h.Audits(10); err != nil || len(audits) != 0 {
			t.Errorf("audits: %v %v", audits, err)
		}
		if n := testutil.ToFloat64(h.sweeper.metrics.rows.WithLabelValues("instances")); n != 2 {
			t.Errorf("%v instances counted", n)
		}
		if h.logs.FilterMessage("removed what has expired").Len() == 0 {
			t.Error("nothing was said")
		}
	})
}

func TestZeroKeepsForEver(t *testing.T) {
	withSweeper(t, Settings{Instances: func(string, edda.Status) time.Duration { return 0 }}, func(h *fixture) {
		h.begin()
		h.commit(t, everything("a"))
		time.Sleep(40 * day)
		synctest.Wait()
		h.expect(t, "a", "after all cutoffs", "done", "failed", "history", "claim", "letter")
	})
}

// TestAClockJumpAgesNothing: the date is ten years ahead for an hour.
func TestAClockJumpAgesNothing(t *testing.T) {
	withSweeper(t, settings(), func(h *fixture) {
		h.begin()
		synctest.Wait()
		h.commit(t, everything("a"))
		h.ahead.Store(int64(3650 * day))
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		h.expect(t, "a", "ten years ahead", "done", "failed", "history", "claim", "letter")
		if h.logs.FilterMessageSnippet("is the date right?").Len() != 1 {
			t.Error("nobody was told")
		}
		h.ahead.Store(0)
		time.Sleep(time.Hour)
		at, _, err := h.RetentionClock()
		if err != nil || time.Since(at) < 0 || time.Since(at) > time.Hour {
			t.Errorf("it counts by %s, it is %s: %v", at, time.Now(), err)
		}
		h.expect(t, "a", "right again", "done", "failed", "history", "claim", "letter")
	})
}

// TestADowntimeIsCaughtUp: the store was closed for ten days.
func TestADowntimeIsCaughtUp(t *testing.T) {
	withSweeper(t, settings(), func(h *fixture) {
		h.commit(t, everything("a"))
		h.commit(t, store.Change{Remove: store.Removal{Clock: time.Now()}})
		time.Sleep(20 * day)
		h.begin()
		time.Sleep(3*time.Hour + time.Minute)
		h.expect(t, "a", "three hours, three days", "failed", "history", "claim", "letter")
		time.Sleep(20 * time.Hour)
		h.expect(t, "a", "a day later")
	})
}

func TestCollectReportsTheSameWithAndWithoutDryRun(t *testing.T) {
	withSweeper(t, settings(), func(h *fixture) {
		h.commit(t, everything("a"))
		time.Sleep(20 * day)
		h.commit(t, everything("b"))
		ask := func(q Request) Report {
			t.Helper()
			r, err := h.sweeper.Collect(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		looked := ask(Request{DryRun: true, Audit: &store.Audit{Verb: "gc"}})
		h.expect(t, "a", "looked", "done", "failed", "history", "claim", "letter")
		told := 0
		removed := ask(Request{Audit: &store.Audit{Verb: "gc", By: "ann", Reason: "room"}, Tell: func(Report) { told++ }})
		h.expect(t, "a", "removed")
		h.expect(t, "b", "the young", "done", "failed", "history", "claim", "letter")
		if looked.String() != removed.String() || removed.Rows() != 7 || told == 0 {
			t.Errorf("looked %s, removed %s, told %d", looked, removed, told)
		}
		audits, err := h.Audits(1)
		if err != nil || audits[0].By != "ann" || audits[0].Reason != "room" || audits[0].Detail != removed.String() {
			t.Errorf("%+v %v", audits, err)
		}
	})
}

func TestCollectRefusesAClockFarAhead(t *testing.T) {
	withSweeper(t, settings(), func(h *fixture) {
		h.commit(t, everything("a"))
		time.Sleep(MaxTrust + time.Hour)
		_, err := h.sweeper.Collect(context.Background(), Request{})
		if !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "--trust-clock") {
			t.Errorf("%v", err)
		}
		h.expect(t, "a", "doubted", "done", "failed", "history", "claim", "letter")
		if _, err := h.sweeper.Collect(context.Background(), Request{TrustClock: true}); err != nil {
			t.Error(err)
		}
		h.expect(t, "a", "trusted")
	})
}

func TestUnneededManifestsExpire(t *testing.T) {
	withSweeper(t, Settings{Manifests: 4 * day}, func(h *fixture) {
		for i := range 2 {
			h.commit(t, store.Change{Manifests: []edda.Manifest{{Saga: "order", Version: i + 1, Hash: "h", Text: "saga: order", Loaded: time.Now()}}})
		}
		var got []string
		for _, q := range []Request{{DryRun: true}, {}, {DryRun: true}, {}} {
			time.Sleep(36 * time.Hour)
			r, err := h.sweeper.Collect(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.String())
		}
		if got[2] != "nothing" || got[3] != "nothing" || len(must(h.Manifests())) != 2 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(36 * time.Hour)
		for _, dry := range []bool{true, false} {
			r, err := h.sweeper.Collect(context.Background(), Request{DryRun: dry})
			if left := len(must(h.Manifests())); err != nil || !strings.HasPrefix(r.String(), "manifests: 1 rows, ") || left != map[bool]int{true: 2, false: 1}[dry] {
				t.Errorf("dry %t: %s, %d texts left, %v", dry, r, left, err)
			}
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
