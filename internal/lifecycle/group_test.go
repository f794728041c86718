package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// book records what happened, in order.
type book struct {
	mu    sync.Mutex
	lines []string
}

func (b *book) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
}

func (b *book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, " ")
}

func (b *book) part(name string, s Stage) Component {
	return Component{Name: name, Stage: s,
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			b.add("-" + name)
			return nil
		},
		Ready: func(context.Context) error { b.add("+" + name); return nil },
	}
}

func house(b *book) []Component {
	return []Component{
		b.part("http", HTTP), b.part("engine", Intake), b.part("store", Store),
		b.part("relay", Flush), b.part("nats", Connections), b.part("effects", InFlight),
	}
}

// stopped runs a group inside a bubble, and stops it once everything works.
func stopped(t *testing.T, g *Group) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- g.Run(t.Context()) }()
	synctest.Wait()
	g.Stop()
	g.Stop() // once more is harmless
	return <-done
}

func TestPartsStartAndStopInStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		g := New(Options{}, house(&b)...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := "+http +store +nats +relay +effects +engine -engine -effects -relay -nats -store -http"
		if got := b.String(); got != want {
			t.Errorf("order\n got %s\nwant %s", got, want)
		}
	})
}

func TestFailureOfOnePartStopsAllAndIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		boom := errors.New("boom")
		bad := Component{Name: "bad", Stage: Connections, Run: func(context.Context) error {
			time.Sleep(time.Minute)
			return boom
		}}
		err := New(Options{}, append(house(&b), bad)...).Run(t.Context())
		if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "bad: boom") {
			t.Errorf("err = %v", err)
		}
		if !strings.HasSuffix(b.String(), "-engine -effects -relay -nats -store -http") {
			t.Errorf("order %s", b.String())
		}
		if n := strings.Count(err.Error(), "boom"); n != 1 {
			t.Errorf("reported %d times: %v", n, err)
		}
	})
}

func TestTheBeginOfAStopIsReportedBeforeAnyPartStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		report := Options{Stopping: func(cause error) { b.add(fmt.Sprint(cause)) }}
		if err := stopped(t, New(report, b.part("store", Store))); err != nil || b.String() != "+store <nil> -store" {
			t.Errorf("a stop that was asked for: %s, %v", b.String(), err)
		}
		b = book{}
		if err := New(report, b.part("store", Store), Component{Name: "engine", Run: func(context.Context) error { return nil }}).Run(t.Context()); err == nil ||
			b.String() != "+store engine ended by itself -store" {
			t.Errorf("a failure: %s, %v", b.String(), err)
		}
	})
}

func TestPartThatEndsByItselfIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := New(Options{}, Component{Name: "engine", Run: func(context.Context) error { return nil }}).Run(t.Context())
		if err == nil || err.Error() != "engine ended by itself" {
			t.Errorf("err = %v", err)
		}
	})
}

func TestPanicIsCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		bad := Component{Name: "bad", Run: func(context.Context) error {
			synctest.Wait() // every part is ready
			panic("no way")
		}}
		err := New(Options{}, append(house(&b), bad)...).Run(t.Context())
		var p *Panic
		if !errors.As(err, &p) || p.Value != "no way" || !strings.Contains(string(p.Stack), "group_test.go") {
			t.Errorf("err = %v", err)
		}
		if !strings.HasSuffix(b.String(), "-store -http") {
			t.Errorf("the others were not stopped: %s", b.String())
		}
	})
}

func TestFinishRunsBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		relay := b.part("relay", Flush)
		relay.Finish = func(context.Context) error { b.add("flush"); return nil }
		relay.Close = func() error { b.add("close"); return nil }
		if err := stopped(t, New(Options{}, relay)); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasSuffix(got, "flush -relay close") {
			t.Errorf("order %s", got)
		}
	})
}

func TestAnAbandonedStopFinishesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		replaced := errors.New("replaced")
		relay := b.part("relay", Flush)
		relay.Finish = func(ctx context.Context) error { b.add("flush"); <-ctx.Done(); return ctx.Err() }
		relay.Close = func() error { b.add("close"); return nil }
		lease := Component{Name: "lease", Stage: Connections, Run: func(context.Context) error {
			synctest.Wait() // every part is ready
			return replaced
		}}
		g := New(Options{Abandon: func(cause error) bool { return errors.Is(cause, replaced) }}, relay, lease)
		begin := time.Now()
		if err := g.Run(t.Context()); !errors.Is(err, replaced) || time.Since(begin) > 0 {
			t.Errorf("err = %v after %s", err, time.Since(begin))
		}
		if got := b.String(); !strings.HasSuffix(got, "-relay close") || strings.Contains(got, "flush") {
			t.Errorf("order %s", got)
		}
	})
}

func TestNoStageWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		release := make(chan struct{})
		deaf := Component{Name: "deaf", Stage: InFlight, Run: func(context.Context) error { <-release; return nil }}
		slow := b.part("slow", Flush)
		slow.Finish = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		g := New(Options{}, deaf, slow, b.part("store", Store))
		begin := time.Now()
		err := stopped(t, g)
		if took, want := time.Since(begin), InFlight.limit()+Flush.limit(); took != want {
			t.Errorf("took %s, want %s", took, want)
		}
		if err == nil || !strings.Contains(err.Error(), "deaf did not stop in time (in flight)") {
			t.Errorf("err = %v", err)
		}
		if !strings.Contains(err.Error(), "slow: context deadline exceeded") {
			t.Errorf("err = %v", err)
		}
		// The slow one may say so after that: nobody waits for it any more.
		if !strings.Contains(b.String(), "-store") {
			t.Errorf("later stages were not stopped: %s", b.String())
		}
		close(release)
	})
}

func TestTheWholeStopFitsTheGracePeriod(t *testing.T) {
	if most := MaxStop(); most >= 30*time.Second || most < Intake.limit()+HTTP.limit() {
		t.Errorf("the stages may take %s, a pod has 30s", most)
	}
}

func TestProgressNamesStageAndParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		release := make(chan struct{})
		slow := Component{Name: "effects", Stage: InFlight, Run: func(ctx context.Context) error {
			<-ctx.Done()
			<-release
			return nil
		}}
		g := New(Options{}, b.part("engine", Intake), slow)
		if g.Progress().Draining {
			t.Error("draining before the stop")
		}
		done := make(chan error, 1)
		go func() { done <- g.Run(t.Context()) }()
		synctest.Wait()
		g.Stop()
		synctest.Wait()
		p := g.Progress()
		if !p.Draining || p.Stage != "in flight" || strings.Join(p.Waiting, " ") != "effects" || strings.Join(p.Stopped, " ") != "engine" {
			t.Errorf("progress %+v", p)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFailedStartStopsOnlyWhatStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		nats := b.part("nats", Connections)
		nats.Ready = func(context.Context) error { return errors.New("no server") }
		err := New(Options{}, b.part("store", Store), nats, b.part("engine", Intake)).Run(t.Context())
		if err == nil || err.Error() != "nats: no server" {
			t.Errorf("err = %v", err)
		}
		if got := b.String(); got != "+store -nats -store" {
			t.Errorf("order %s", got)
		}
	})
}

func TestAStopDuringTheStartIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		nats := b.part("nats", Connections)
		nats.Ready = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := New(Options{}, b.part("store", Store), nats, b.part("engine", Intake)).Run(ctx)
		if err != nil {
			t.Errorf("err = %v", err)
		}
		if got := b.String(); got != "+store -nats -store" {
			t.Errorf("order %s", got)
		}
	})
}
