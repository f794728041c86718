// Package ledgertest is the suite that every ledger of effects passes.
package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/effects"
)

// Fixture is a ledger under test, as one worker opens it.
type Fixture struct {
	Ledger effects.Ledger
	// Other opens the same ledger as a second worker at the same time; nil if there can be none.
	Other func() effects.Ledger
	// Again opens the same ledger as the next process.
	Again func() effects.Ledger
	// Silent runs f while the ledger does not answer; nil if the ledger is in this process.
	Silent func(f func())
}

// Open opens a subject for a test and closes it after the test. A ledger with leases is tested in a
// synctest bubble, because the suite waits for them to run out.
type Open func(t *testing.T, test func(t *testing.T, s Fixture))

// patience bounds waits that should end soon.
const patience = 10 * time.Second

// Run tests what effects.Ledger promises.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name   string
		shared bool // needs another worker
		test   func(*testing.T, Fixture)
	}{
		{"what nobody claimed is not found", false, unknown},
		{"a claim is there for the next process", false, claimed},
		{"a result is there for the next process", false, finished},
		{"a result without a claim is kept", false, unclaimed},
		{"a claim that was given up is not held", false, released},
		{"a claim that was renewed can be finished", false, renewed},
		{"nothing of an entry is kept, and what was found stays", false, memory},
		{"what is asked after its context ended is done or fails", false, cancelled},
		{"one of many gets the claim", true, raced},
		{"another's claim is not taken while it lives", true, held},
		{"a claim that is not renewed runs out", true, expired},
		{"a wait ends with its context", true, waiting},
		{"a claim whose answer never came is taken over in the end", true, late},
	} {
		t.Run(tt.name, func(t *testing.T) {
			open(t, func(t *testing.T, s Fixture) {
				if tt.shared && s.Other == nil {
					return // the ledger has one worker
				}
				tt.test(t, s)
			})
		})
	}
}

// entry makes the entry of a new command.
func entry(id string) effects.Entry {
	return effects.Entry{Claim: edda.Claim{Tenant: "acme", CommandID: id, Effect: "charge", Claimed: time.Now().UTC().Truncate(time.Millisecond)}}
}

// done sets the result of an entry.
func done(e effects.Entry, result string) effects.Entry {
	e.Claim.Done, e.Claim.Outcome, e.Claim.Finished = true, edda.Succeeded, e.Claim.Claimed.Add(time.Second)
	e.Claim.Result = json.RawMessage(result)
	return e
}

func find(t *testing.T, l effects.Ledger, id string) effects.Entry {
	t.Helper()
	e, err := l.Find(t.Context(), "acme", id)
	if err != nil {
		t.Fatalf("find %s: %v", id, err)
	}
	return e
}

func claim(t *testing.T, l effects.Ledger, e effects.Entry) effects.Entry {
	t.Helper()
	e, err := l.Claim(t.Context(), e)
	if err != nil {
		t.Fatalf("claim %s: %v", e.Claim.CommandID, err)
	}
	return e
}

func wantTaken(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, effects.ErrTaken) {
		t.Errorf("%s: %v, want that it is taken", what, err)
	}
}

// wantResult checks the result of a command.
func wantResult(t *testing.T, l effects.Ledger, id, result string) {
	t.Helper()
	e := find(t, l, id)
	if !e.Found || e.Held || !e.Claim.Done || e.Claim.Outcome != edda.Succeeded || string(e.Claim.Result) != result {
		t.Errorf("%s is %+v with %s, want the result %s", id, e, e.Claim.Result, result)
	}
}

func unknown(t *testing.T, s Fixture) {
	claim(t, s.Ledger, entry("c1"))
	for _, key := range [][2]string{{"acme", "c2"}, {"beta", "c1"}, {"", "c1"}} {
		if e, err := s.Ledger.Find(t.Context(), key[0], key[1]); err != nil || e.Found || e.Held || e.Claim.Done {
			t.Errorf("%s of %q is %+v %v", key[1], key[0], e, err)
		}
	}
}

func claimed(t *testing.T, s Fixture) {
	want := entry("c1")
	if e := claim(t, s.Ledger, want); !e.Found || e.Held || e.Claim.Done {
		t.Errorf("the claim is %+v", e)
	}
	got := find(t, s.Again(), "c1")
	if !got.Found || got.Claim.Done || got.Claim.Effect != "charge" || got.Claim.Tenant != "acme" || !got.Claim.Claimed.Equal(want.Claim.Claimed) {
		t.Errorf("the next process finds %+v", got)
	}
}

func finished(t *testing.T, s Fixture) {
	mine := claim(t, s.Ledger, entry("c1"))
	if err := s.Ledger.Finish(t.Context(), done(mine, `{"id":7}`)); err != nil {
		t.Fatal(err)
	}
	wantResult(t, s.Ledger, "c1", `{"id":7}`)
	wantResult(t, s.Again(), "c1", `{"id":7}`)
}

func unclaimed(t *testing.T, s Fixture) {
	if err := s.Ledger.Finish(t.Context(), done(entry("c1"), `1`)); err != nil {
		t.Fatal(err)
	}
	wantResult(t, s.Again(), "c1", `1`)
}

func released(t *testing.T, s Fixture) {
	mine := claim(t, s.Ledger, entry("c1"))
	if err := s.Ledger.Release(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	next := s.Again()
	e := find(t, next, "c1")
	if !e.Found || e.Held || e.Claim.Done {
		t.Fatalf("the next process finds %+v", e)
	}
	if err := next.Finish(t.Context(), done(claim(t, next, e), `2`)); err != nil {
		t.Error(err)
	}
	wantResult(t, next, "c1", `2`)
}

func renewed(t *testing.T, s Fixture) {
	mine := claim(t, s.Ledger, entry("c1"))
	for range 3 {
		var err error
		if mine, err = s.Ledger.Renew(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Ledger.Finish(t.Context(), done(mine, `3`)); err != nil {
		t.Error(err)
	}
	wantResult(t, s.Again(), "c1", `3`)
}

// memory overwrites what it passed to a ledger after the return, and later checks what the ledger
// returned.
func memory(t *testing.T, s Fixture) {
	result := func(n int) string { return fmt.Sprintf(`{"of":"command-%04d","filled":"%0100d"}`, n, n) }
	id := func(n int) string { return fmt.Sprintf("c%d", n) }
	const all = 48 // commands
	found := make([]effects.Entry, all)
	for n := range all {
		e := done(claim(t, s.Ledger, entry(id(n))), result(n))
		if err := s.Ledger.Finish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for i := range e.Claim.Result {
			e.Claim.Result[i] = '!'
		}
		found[n] = find(t, s.Ledger, id(n))
	}
	for n := range all {
		wantResult(t, s.Ledger, id(n), result(n))
		if got := string(found[n].Claim.Result); got != result(n) || found[n].Claim.CommandID != id(n) {
			t.Errorf("what was found of %s became %s of %s", id(n), got, found[n].Claim.CommandID)
		}
	}
}

func cancelled(t *testing.T, s Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, err := s.Ledger.Claim(ctx, entry("c1"))
	if errors.Is(err, effects.ErrTaken) {
		t.Error("a claim that nobody has is taken")
	}
	if err == nil {
		if got := find(t, s.Ledger, "c1"); !got.Found {
			t.Error("a claim that was said to be written is not there")
		}
		if err := s.Ledger.Finish(ctx, done(e, `1`)); err == nil {
			wantResult(t, s.Ledger, "c1", `1`)
		}
	}
	mine := claim(t, s.Ledger, entry("c2"))
	if err := s.Ledger.Finish(ctx, done(mine, `1`)); err == nil {
		wantResult(t, s.Ledger, "c2", `1`)
	} else if err := s.Ledger.Finish(t.Context(), done(mine, `1`)); err != nil {
		t.Errorf("a result is not taken after a write of it was cut off: %v", err)
	}
	wantResult(t, s.Again(), "c2", `1`)
}

func raced(t *testing.T, s Fixture) {
	const workers = 16
	var all sync.WaitGroup
	claims, errs := make([]effects.Entry, workers), make([]error, workers)
	ledgers := make([]effects.Ledger, workers)
	for i := range ledgers {
		l := s.Other()
		ledgers[i] = l
		all.Go(func() { claims[i], errs[i] = l.Claim(t.Context(), entry("c1")) })
	}
	all.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			if err := ledgers[i].Finish(t.Context(), done(claims[i], `"the winner's"`)); err != nil {
				t.Error(err)
			}
			continue
		}
		wantTaken(t, "a loser's claim", err)
	}
	if won != 1 {
		t.Errorf("%d workers have the claim", won)
	}
	for i, err := range errs {
		if err != nil {
			wantTaken(t, "a loser's result", ledgers[i].Finish(t.Context(), done(entry("c1"), `"a loser's"`)))
		}
	}
	wantResult(t, s.Again(), "c1", `"the winner's"`)
}

func held(t *testing.T, s Fixture) {
	mine, other := claim(t, s.Ledger, entry("c1")), s.Other()
	e := find(t, other, "c1")
	if !e.Found || !e.Held {
		t.Errorf("the other worker finds %+v", e)
	}
	_, err := other.Claim(t.Context(), e)
	wantTaken(t, "a claim over a live one", err)
	wantTaken(t, "a result over a live claim", other.Finish(t.Context(), done(entry("c1"), `0`)))
	if err := s.Ledger.Finish(t.Context(), done(mine, `1`)); err != nil {
		t.Error(err)
	}
	e = find(t, other, "c1")
	_, err = other.Claim(t.Context(), e)
	wantTaken(t, "a claim over a result", err)
	_, err = s.Ledger.Renew(t.Context(), mine)
	wantTaken(t, "a renewal behind the result", err)
	wantResult(t, other, "c1", `1`)
}

func expired(t *testing.T, s Fixture) {
	mine, other := claim(t, s.Ledger, entry("c1")), s.Other()
	sent := time.Now()
	for range 4 { // renewals keep it
		time.Sleep(s.Ledger.Lease() / 2)
		if e := find(t, other, "c1"); !e.Held {
			t.Fatalf("a claim that is renewed is %+v", e)
		}
		var err error
		sent = time.Now()
		if mine, err = s.Ledger.Renew(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	e, err := other.Await(t.Context(), find(t, other, "c1"))
	if err != nil || e.Held || e.Claim.Done {
		t.Fatalf("after its lease it is %+v %v", e, err)
	}
	if took := time.Since(sent); took < s.Ledger.Lease() {
		t.Errorf("it ran out after %v of %v", took, s.Ledger.Lease())
	}
	theirs := claim(t, other, e)
	_, err = s.Ledger.Renew(t.Context(), mine)
	wantTaken(t, "a renewal of what was taken over", err)
	wantTaken(t, "a result of what was taken over", s.Ledger.Finish(t.Context(), done(mine, `"late"`)))
	if err := other.Finish(t.Context(), done(theirs, `"theirs"`)); err != nil {
		t.Error(err)
	}
	wantResult(t, s.Ledger, "c1", `"theirs"`)
}

func waiting(t *testing.T, s Fixture) {
	claim(t, s.Ledger, entry("c1"))
	other := s.Other()
	e := find(t, other, "c1")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := other.Await(ctx, e)
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a claim that is live is said not to be")
		}
	case <-time.After(patience):
		t.Fatal("the wait outlived its context")
	}
}

// late cuts a claim off, which may have been written or not.
func late(t *testing.T, s Fixture) {
	if s.Silent == nil {
		return // its answers are never late
	}
	s.Silent(func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Ledger.Claim(ctx, entry("c1")); err == nil || errors.Is(err, effects.ErrTaken) {
			t.Errorf("a claim without an answer gave %v", err)
		}
	})
	other := s.Other()
	e, err := other.Await(t.Context(), find(t, other, "c1"))
	if err != nil || e.Held || e.Claim.Done {
		t.Fatalf("in the end it is %+v %v", e, err)
	}
	if !e.Found {
		e = entry("c1")
	}
	if err := other.Finish(t.Context(), done(claim(t, other, e), `1`)); err != nil {
		t.Error(err)
	}
	wantResult(t, s.Ledger, "c1", `1`)
}
