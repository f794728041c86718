package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"edda"
	"edda/effects"
	"edda/effects/ledgertest"
	"edda/internal/testkit"
	"edda/stream/wire"
)

// ledgerOf opens the ledger of a worker.
func (w *world) ledgerOf(home, run string) *Ledger {
	w.T.Helper()
	l, err := OpenLedger(w.T.Context(), w.JS, LedgerOptions{Home: home, Run: run})
	if err != nil {
		w.T.Fatal(err)
	}
	return l
}

// command1 returns the entry that the tests claim.
func command1() effects.Entry {
	return effects.Entry{Claim: edda.Claim{Tenant: "acme", CommandID: "c1", Effect: "pay", Claimed: time.Now().UTC()}}
}

func finished(e effects.Entry, result string) effects.Entry {
	e.Claim.Done, e.Claim.Outcome, e.Claim.Finished = true, edda.Succeeded, time.Now().UTC()
	e.Claim.Result = json.RawMessage(result)
	return e
}

func wantTaken(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, effects.ErrTaken) {
		t.Errorf("%s: %v, want that it is taken", what, err)
	}
}

// find returns the entry of command1.
func find(t *testing.T, l *Ledger) effects.Entry {
	t.Helper()
	return testkit.Value[effects.Entry](t)(l.Find(context.Background(), "acme", "c1"))
}

func TestOneOfTwoWorkersGetsTheClaim(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		if e := find(t, a); e.Found || e.Held {
			t.Errorf("a new command is %+v", e)
		}
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		_, err := b.Claim(ctx, command1()) // with an entry read before
		wantTaken(t, "the second claim", err)
		wantTaken(t, "a result without a claim", b.Finish(ctx, finished(command1(), `1`)))
		e := find(t, b)
		if !e.Found || !e.Held || e.Claim.Done || e.Claim.Owner != "s1/r1" {
			t.Errorf("the other one sees %+v", e)
		}
		_, err = b.Claim(ctx, e)
		wantTaken(t, "a claim over a live one", err)
		if err := a.Finish(ctx, finished(mine, `{"id":7}`)); err != nil {
			t.Fatal(err)
		}
		e = find(t, b)
		if !e.Claim.Done || e.Held || string(e.Claim.Result) != `{"id":7}` {
			t.Errorf("the result is %+v", e)
		}
		_, err = b.Claim(ctx, e)
		wantTaken(t, "a claim over a result", err)
		_, err = a.Renew(ctx, mine)
		wantTaken(t, "a late renewal", err)
		if e := find(t, b); !e.Claim.Done {
			t.Error("the late renewal undid the result")
		}
	})
}

// awaited returns the result and the duration of Await.
func awaited(ctx context.Context, t *testing.T, l *Ledger, e effects.Entry) (effects.Entry, time.Duration) {
	t.Helper()
	from := time.Now()
	e = testkit.Value[effects.Entry](t)(l.Await(ctx, e))
	return e, time.Since(from)
}

func TestAClaimExpiresWithoutRenewals(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		time.Sleep(a.Lease() - time.Second) // Await starts a new wait
		e, took := awaited(ctx, t, b, find(t, b))
		if e.Held || took < b.Lease() || took > b.Lease()*5/4 {
			t.Errorf("after %v it is %+v", took, e)
		}
		theirs := testkit.Value[effects.Entry](t)(b.Claim(ctx, e))
		_, err := a.Renew(ctx, mine)
		wantTaken(t, "the renewal of who was frozen", err)
		wantTaken(t, "the result of who was frozen", a.Finish(ctx, finished(mine, `1`)))
		wantTaken(t, "the release of who was frozen", a.Release(ctx, mine))
		if err := b.Finish(ctx, finished(theirs, `2`)); err != nil {
			t.Error(err)
		}
	})
}

func TestARenewedClaimDoesNotExpire(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		var ended time.Time
		go func() {
			for range 30 {
				time.Sleep(a.Lease() / 3)
				mine, _ = a.Renew(ctx, mine)
			}
			ended = time.Now()
			_ = a.Finish(ctx, finished(mine, `3`))
		}()
		e, _ := awaited(ctx, t, b, find(t, b))
		if !e.Claim.Done || string(e.Claim.Result) != `3` || time.Since(ended) > 2*b.Lease()/polls {
			t.Errorf("%v after the end: %+v", time.Since(ended), e)
		}
	})
}

func TestAwaitEndsWithARelease(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		held := find(t, b)
		if err := a.Release(ctx, mine); err != nil {
			t.Fatal(err)
		}
		if e, took := awaited(ctx, t, b, held); e.Held || e.Claim.Done || took > 2*b.Lease()/polls {
			t.Errorf("after %v it is %+v", took, e)
		}
		e := find(t, b)
		if !e.Found || e.Held {
			t.Errorf("it is %+v", e)
		}
		testkit.Value[effects.Entry](t)(b.Claim(ctx, e))
	})
}

func TestAClaimOfAnEarlierRunIsNotHeld(t *testing.T) {
	tests := map[string]struct {
		home, run string
		held      bool
	}{
		"the same store, later":   {"s1", "r2", false},
		"itself":                  {"s1", "r1", true},
		"another store":           {"s2", "r2", true},
		"a store named alike":     {"s", "r2", true},
		"a worker without a home": {"", "r2", true},
	}
	bubble(t, func(ctx context.Context, w *world) {
		testkit.Value[effects.Entry](t)(w.ledgerOf("s1", "r1").Claim(ctx, command1()))
		for name, test := range tests {
			if e := find(t, w.ledgerOf(test.home, test.run)); e.Held != test.held {
				t.Errorf("%s: held is %v", name, e.Held)
			}
		}
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		short, cancel := context.WithTimeout(ctx, time.Second/2)
		defer cancel()
		e, err := b.Await(short, find(t, b))
		if !errors.Is(err, context.DeadlineExceeded) || !e.Held {
			t.Errorf("%v, %+v", err, e)
		}
	})
}

func TestAwaitWaitsForTheLongerLease(t *testing.T) {
	for name, leases := range map[string][2]time.Duration{"the holder's": {time.Minute, time.Second}, "that of who waits": {time.Second, time.Minute}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				a := testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{Lease: leases[0]}))
				b := testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{Lease: leases[1]}))
				testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
				if e, took := awaited(ctx, t, b, find(t, b)); e.Held || took < time.Minute || took > 70*time.Second {
					t.Errorf("after %v it is %+v", took, e)
				}
			})
		})
	}
}

func TestAwaitFailsIfTheRecordCannotBeRead(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a, b := w.ledgerOf("s1", "r1"), w.ledgerOf("s2", "r1")
		testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		held := find(t, b)
		if _, err := b.kv.PutString(ctx, ledgerKey("acme", "c1"), "x"); err != nil {
			t.Fatal(err)
		}
		e, err := b.Await(ctx, held)
		testkit.WantError(t, err, edda.Permanent, "acme.c1")
		if !e.Held {
			t.Errorf("it is %+v", e)
		}
	})
}

// former is a store of the time before the ledger was shared.
type former map[string]edda.Claim

func (f former) Claim(tenant, id string) (edda.Claim, bool, error) {
	claim, found := f[tenant+" "+id]
	return claim, found, nil
}

func TestClaimsOfTheFormerLedgerCount(t *testing.T) {
	begun := edda.Claim{Tenant: "acme", CommandID: "c1", Effect: "pay", Owner: "r0"}
	ended := edda.Claim{Tenant: "acme", CommandID: "c2", Effect: "pay", Owner: "r0", Done: true, Outcome: edda.Succeeded, Result: json.RawMessage(`5`)}
	bubble(t, func(ctx context.Context, w *world) {
		l := testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{Former: former{"acme c1": begun, "acme c2": ended}}))
		e := find(t, l)
		if !e.Found || e.Held || e.Claim.Done {
			t.Errorf("what was begun is %+v", e)
		}
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, e))
		if e := find(t, w.ledgerOf("s2", "r1")); !e.Held {
			t.Errorf("for others it is %+v", e)
		}
		if err := l.Finish(ctx, finished(mine, `6`)); err != nil {
			t.Error(err)
		}
		if e := find(t, l); string(e.Claim.Result) != `6` { // the bucket overrides it
			t.Errorf("it is %+v", e)
		}
		if e := testkit.Value[effects.Entry](t)(l.Find(ctx, "acme", "c2")); !e.Claim.Done || string(e.Claim.Result) != `5` {
			t.Errorf("what was done is %+v", e)
		}
		if e := testkit.Value[effects.Entry](t)(l.Find(ctx, "acme", "c3")); e.Found {
			t.Errorf("what was not is %+v", e)
		}
	})
}

// TestADeletedEntryIsNotFound: an operator deletes an entry to have its command called again.
func TestADeletedEntryIsNotFound(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		a := w.ledgerOf("s1", "r1")
		mine := testkit.Value[effects.Entry](t)(a.Claim(ctx, command1()))
		if err := a.kv.Delete(ctx, ledgerKey("acme", "c1")); err != nil {
			t.Fatal(err)
		}
		if e := find(t, a); e.Found {
			t.Errorf("it is %+v", e)
		}
		if err := a.Finish(ctx, finished(mine, `1`)); err != nil { // it was under way
			t.Error(err)
		}
		if e := find(t, a); !e.Claim.Done {
			t.Errorf("it is %+v", e)
		}
	})
}

func TestEntriesExpireAfterTheRetention(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{Retention: 2 * time.Hour, Memory: true}))
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		time.Sleep(time.Hour)
		if err := l.Finish(ctx, finished(mine, `1`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + retentionSlack - time.Minute) // counted from the last write
		if e := find(t, l); !e.Claim.Done {
			t.Errorf("it is %+v", e)
		}
		time.Sleep(2 * time.Minute)
		if e := find(t, l); e.Found {
			t.Errorf("it is %+v", e)
		}
		testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
	})
}

func TestAResultOfTheLargestSizeFits(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
		result := `"` + strings.Repeat("<&>", 256<<10/3) + `"` // six bytes each if they were escaped
		if err := l.Finish(ctx, finished(mine, result)); err != nil {
			t.Fatal(err)
		}
		if e := find(t, l); string(e.Claim.Result) != result {
			t.Error("the result is another")
		}
	})
}

func TestAnUnreadableEntryIsNeverClaimed(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		for _, value := range []string{"", "{", `{"tenant":"beta","command_id":"c1"}`} {
			if _, err := l.kv.PutString(ctx, ledgerKey("acme", "c1"), value); err != nil {
				t.Fatal(err)
			}
			_, err := l.Find(ctx, "acme", "c1")
			testkit.WantError(t, err, edda.Permanent, "acme.c1", LedgerBucket)
			_, err = l.Claim(ctx, command1())
			wantTaken(t, "a claim of "+value, err)
		}
	})
}

func TestTheBucketIsCreatedAdoptedOrRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*jetstream.StreamConfig)
		says   []string // none: it is adopted
	}{
		"as made":            {func(*jetstream.StreamConfig) {}, nil},
		"just long enough":   {func(c *jetstream.StreamConfig) { c.MaxAge = defaultRetention }, nil},
		"kept longer":        {func(c *jetstream.StreamConfig) { c.MaxAge *= 2 }, nil},
		"kept for ever":      {func(c *jetstream.StreamConfig) { c.MaxAge = 0 }, nil},
		"with direct reads":  {func(c *jetstream.StreamConfig) { c.AllowDirect = true }, nil},
		"with a history":     {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, nil},
		"kept too short":     {func(c *jetstream.StreamConfig) { c.MaxAge /= 2 }, []string{"TTL is 84h30m0s", "effects.retention", "168h0m0s", "--max-age"}},
		"in memory":          {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, []string{"storage", "Memory"}},
		"no bucket":          {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = -1 }, []string{"no bucket"}},
		"limited, drops old": {func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardOld, 1<<20 }, []string{"drops", "--max-bytes"}},
		"small values":       {func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, []string{"1000 bytes", "--max-msg-size"}},
		"without acks":       {func(c *jetstream.StreamConfig) { c.NoAck = true }, []string{"acks"}},
	}
	for name, test := range tests { // one server each, because a stream recreated at once may have old messages
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, w *world) {
				var o LedgerOptions
				if err := o.validate(); err != nil {
					t.Fatal(err)
				}
				cfg := o.bucket()
				test.change(&cfg)
				testkit.Value[jetstream.Stream](t)(w.JS.CreateStream(ctx, cfg))
				l, err := OpenLedger(ctx, w.JS, LedgerOptions{})
				if len(test.says) > 0 {
					testkit.WantError(t, err, edda.Permanent, append(test.says, LedgerBucket)...)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				mine := testkit.Value[effects.Entry](t)(l.Claim(ctx, command1()))
				testkit.Value[effects.Entry](t)(l.Renew(ctx, mine))
			})
		})
	}
}

func TestDurabilityOfTheLedger(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		if d := w.ledgerOf("", "").Durability(); !d.Created || d.Synced || d.Age != defaultRetention+retentionSlack || !strings.Contains(d.Note, "sync_interval") {
			t.Errorf("made: %+v", d)
		}
		l := testkit.Value[*Ledger](t)(OpenLedger(ctx, w.JS, LedgerOptions{SyncAlways: true, Replicas: 3}))
		if d := l.Durability(); d.Created || !d.Synced || !strings.Contains(d.Note, "1 replicas instead of 3") {
			t.Errorf("adopted: %+v", d)
		}
	})
}

func TestWrongLedgerOptionsAreRefused(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		for says, o := range map[string]LedgerOptions{
			"no '/'":   {Home: "a/b"},
			"30m0s is": {Retention: 30 * time.Minute},
			"10ms is":  {Lease: 10 * time.Millisecond},
		} {
			_, err := OpenLedger(ctx, w.JS, o)
			testkit.WantError(t, err, edda.Permanent, says)
		}
	})
}

// TestACheckOfTheBucketBeginsAfterTheCall: and concurrent callers share one.
func TestACheckOfTheBucketBeginsAfterTheCall(t *testing.T) {
	bubble(t, func(ctx context.Context, w *world) {
		l := w.ledgerOf("s1", "r1")
		asked, err := w.NC.SubscribeSync("$JS.API.STREAM.INFO." + "KV_" + LedgerBucket)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { _, _ = l.Since(ctx) })
		}
		all.Wait()
		if n, _, err := asked.Pending(); err != nil || n == 0 || n > 32 {
			t.Errorf("%d looks: %v", n, err)
		}
		if err := w.JS.DeleteStream(ctx, "KV_"+LedgerBucket); err != nil {
			t.Fatal(err)
		}
		if since, err := l.Since(ctx); err == nil {
			t.Errorf("an old look is believed: %v", since)
		}
	})
}

func TestLedgerIsALedger(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T, test func(*testing.T, ledgertest.Fixture)) {
		bubble(t, func(ctx context.Context, w *world) {
			runs := 0
			next := func(home string) effects.Ledger {
				runs++
				return w.ledgerOf(home, fmt.Sprintf("r%d", runs))
			}
			test(w.T, ledgertest.Fixture{
				Ledger: next("s0"),
				Other:  func() effects.Ledger { return next(fmt.Sprintf("s%d", runs)) },
				Again:  func() effects.Ledger { return next("s0") },
				Silent: func(f func()) { w.Silence(ctx, "KV_"+LedgerBucket, f) },
			})
		})
	})
}

func TestLedgerKeys(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct{ tenant, id, want string }{
		{"acme", "0190f4c2-77aa-7000-8000-000000000001", "acme.0190f4c2-77aa-7000-8000-000000000001"},
		{"", "c", "=.c"}, {"a.b", "c", "a=2Eb.c"}, {"a", "b.c", "a.b=2Ec"}, {"a=", "=", "a=3D.=3D"},
		{"ä", "*>/\x00 ", "=C3=A4.=2A=3E=2F=00=20"},
		{"acme", long, "acme." + ledgerHash(long)}, {long, long, ledgerHash(long) + "." + ledgerHash(long)},
		{long, "c", ledgerHash(long) + "." + ledgerHash("c")},
	}
	for _, test := range tests {
		if got := ledgerKey(test.tenant, test.id); got != test.want {
			t.Errorf("%q, %q: %s, want %s", test.tenant, test.id, got, test.want)
		}
	}
}

func TestLedgerKeysAreValidAndDifferent(t *testing.T) {
	valid := regexp.MustCompile(`^[-_=a-zA-Z0-9]+\.[-_=a-zA-Z0-9]+$`)
	text := rapid.OneOf(
		rapid.SampledFrom([]string{"", "=", "==", "=3D", "a.b", ".", "*", "%-", ledgerHash("a"), strings.Repeat("a", 250), strings.Repeat(".", 80)}),
		rapid.StringOfN(rapid.RuneFrom([]rune("a=.3D-")), 0, 4, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		type command struct{ tenant, id string }
		a := command{text.Draw(t, "tenant"), text.Draw(t, "id")}
		b := command{text.Draw(t, "other tenant"), text.Draw(t, "other id")}
		keyA, keyB := ledgerKey(a.tenant, a.id), ledgerKey(b.tenant, b.id)
		if !valid.MatchString(keyA) || len(ledgerPrefix+keyA) > wire.MaxSubject {
			t.Fatalf("%q of %+v", keyA, a)
		}
		if (keyA == keyB) != (a == b) {
			t.Fatalf("%q is the key of %+v and %+v", keyA, a, b)
		}
	})
}
