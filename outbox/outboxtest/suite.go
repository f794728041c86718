// Package outboxtest is the suite that every destination of the outbox passes.
package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/outbox"
)

// Fixture is a destination with another side that takes what is delivered.
type Fixture struct {
	Destination outbox.Destination
	// Work makes a piece of work that the other side accepts. Its payload carries the content.
	// Its id and instance are the suite's to set.
	Work func(content string) edda.Work
	// Refused makes one that is refused for good; nil: there is none.
	Refused func() edda.Work
	// Seen is what the other side has, in the order in which it came.
	Seen func() []Arrival
	// Once says that the other side keeps one of several arrivals with one id.
	Once bool
	// Away runs a function while the other side cannot be reached; nil: it always can.
	Away func(f func())
	// Silent runs a function while the other side takes what is sent and answers
	// nothing; what it would have answered comes afterwards or never.
	Silent func(f func())
}

// Arrival is one piece of work as the other side has it.
type Arrival struct {
	ID   string // empty where the other side has none
	Text string // contains the content
}

// Open gives a test a subject of its own, as long as the test runs; the test may be
// in a synctest bubble.
type Open func(t *testing.T, test func(t *testing.T, s Fixture))

// patience bounds what should end soon.
const patience = 10 * time.Second

// Run tests what outbox.Destination promises.
func Run(t *testing.T, open Open) {
	for _, tt := range []struct {
		name string
		test func(*testing.T, Fixture)
	}{
		{"what is accepted is there, and nothing of the batch is kept", accepted},
		{"calls may be made at once", parallel},
		{"an instance's work comes in the order of the calls", ordered},
		{"what is offered again is accepted again", duplicates},
		{"what is refused in the midst of others stops none", refused},
		{"what is offered after its context ended is not said to be accepted", cancelled},
		{"a call ends with its context, and nothing of the batch is kept", silent},
		{"what cannot be reached is tried again", away},
	} {
		t.Run(tt.name, func(t *testing.T) { open(t, tt.test) })
	}
}

// content is that of a piece by its number; none is part of another.
func content(n int) string { return fmt.Sprintf("content-%04d", n) }

// piece makes the work of a number.
func (s Fixture) piece(n int) edda.Work {
	w := s.Work(content(n))
	w.ID, w.From.Correlation = fmt.Sprintf("work-%04d", n), fmt.Sprintf("instance-%04d", n)
	return w
}

func (s Fixture) pieces(from, to int) (out []edda.Work) {
	for n := from; n < to; n++ {
		out = append(out, s.piece(n))
	}
	return out
}

// deliver offers a batch as the relay does. The memory of the batch is not the
// destination's once Deliver has returned: it is overwritten with another's work.
func (s Fixture) deliver(ctx context.Context, t *testing.T, batch []edda.Work) []error {
	t.Helper()
	lent := slices.Clone(batch)
	for i := range lent {
		lent[i].Payload = slices.Clone(lent[i].Payload)
	}
	errs := s.Destination.Deliver(ctx, lent)
	if errs != nil && len(errs) != len(batch) {
		t.Errorf("%d errors for %d pieces of work", len(errs), len(batch))
	}
	for i := range lent {
		if string(lent[i].Payload) != string(batch[i].Payload) || lent[i].ID != batch[i].ID || lent[i].From != batch[i].From {
			t.Errorf("the destination changed %s", batch[i].ID)
		}
		poison(&lent[i])
	}
	return errs
}

// poison makes work another's, in the memory that it lies in.
func poison(w *edda.Work) {
	for i := range w.Payload {
		w.Payload[i] = '!'
	}
	payload := w.Payload
	*w = edda.Work{
		ID: "poisoned", Kind: w.Kind, Name: "Poisoned.Name", To: "poisoned", Payload: payload,
		From: edda.Key{Tenant: "poisoned", Saga: "poisoned", Correlation: "poisoned"},
	}
}

// at is the error of one piece.
func at(errs []error, i int) error {
	if i < len(errs) {
		return errs[i]
	}
	return nil
}

func wantAll(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("not accepted: %v", err)
	}
}

// again tells whether an error lets the relay offer the work again.
func again(err error) bool {
	return err != nil && !errors.Is(err, edda.Permanent) && !errors.Is(err, edda.Poison)
}

// wantSeen waits until the other side has each piece, under its id and with its own
// content: once, where it keeps ids apart, else at most so many times.
func (s Fixture) wantSeen(t *testing.T, times int, want ...edda.Work) {
	t.Helper()
	if s.Once {
		times = 1
	}
	for _, w := range want {
		s.await(t, w)
	}
	for _, a := range s.Seen() {
		if strings.Contains(a.Text, "!!") || strings.Contains(a.ID+a.Text, "poisoned") {
			t.Errorf("the other side has %+v, of a batch that was delivered before", a)
		}
	}
	for _, w := range want {
		if n := s.count(w); n > times {
			t.Errorf("the other side has %s %d times, want %d at most", w.ID, n, times)
		}
	}
}

func (s Fixture) await(t *testing.T, w edda.Work) {
	t.Helper()
	for deadline := time.Now().Add(patience); s.count(w) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the other side has no %s with %s among %d pieces", w.ID, s.mark(w), len(s.Seen()))
		}
	}
}

// mark is the content of a piece.
func (Fixture) mark(w edda.Work) string { return "content-" + w.ID[len("work-"):] }

// count is how often the other side has a piece; what has its id has its content.
func (s Fixture) count(w edda.Work) (n int) {
	for _, a := range s.Seen() {
		if strings.Contains(a.Text, s.mark(w)) && (a.ID == "" || a.ID == w.ID) {
			n++
		}
	}
	return n
}

func accepted(t *testing.T, s Fixture) {
	all := s.pieces(0, 24)
	for from := 0; from < len(all); from += 8 {
		wantAll(t, s.deliver(t.Context(), t, all[from:from+8]))
	}
	s.wantSeen(t, 1, all...)
	if n := len(s.Seen()); n != len(all) {
		t.Errorf("the other side has %d pieces of %d", n, len(all))
	}
}

func parallel(t *testing.T, s Fixture) {
	all := s.pieces(0, 32)
	var calls sync.WaitGroup
	for from := 0; from < len(all); from += 4 {
		calls.Go(func() { wantAll(t, s.deliver(t.Context(), t, all[from:from+4])) })
	}
	calls.Wait()
	s.wantSeen(t, 1, all...)
}

func ordered(t *testing.T, s Fixture) {
	all := s.pieces(0, 8)
	for i := range all {
		all[i].From = all[0].From
		wantAll(t, s.deliver(t.Context(), t, all[i:i+1]))
	}
	s.wantSeen(t, 1, all...)
	for i, a := range s.Seen() {
		if i < len(all) && !strings.Contains(a.Text, s.mark(all[i])) {
			t.Errorf("%+v is number %d, want %s", a, i, all[i].ID)
		}
	}
}

func duplicates(t *testing.T, s Fixture) {
	all := s.pieces(0, 4)
	const times = 3
	for range times {
		wantAll(t, s.deliver(t.Context(), t, all))
	}
	s.wantSeen(t, times, all...)
}

func refused(t *testing.T, s Fixture) {
	if s.Refused == nil {
		return // it takes everything
	}
	all := s.pieces(0, 5)
	const no = 2
	bad := s.Refused()
	bad.ID, bad.From.Correlation = all[no].ID, all[no].From.Correlation
	all[no] = bad
	errs := s.deliver(t.Context(), t, all)
	for i := range all {
		var rejection *outbox.Rejection
		if err := at(errs, i); errors.As(err, &rejection) != (i == no) || (err == nil) != (i != no) {
			t.Errorf("number %d: %v", i, err)
		}
	}
	s.wantSeen(t, 1, slices.Delete(all, no, no+1)...)
	if n := len(s.Seen()); n != len(all)-1 {
		t.Errorf("the other side has %d pieces, want %d", n, len(all)-1)
	}
}

func cancelled(t *testing.T, s Fixture) {
	all := s.pieces(0, 4)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	errs := s.deliver(ctx, t, all)
	for i, w := range all {
		switch err := at(errs, i); {
		case err == nil && s.count(w) == 0:
			t.Errorf("%s is said to be accepted, and is not there", w.ID)
		case err != nil && !again(err):
			t.Errorf("%s: %v", w.ID, err)
		}
	}
	wantAll(t, s.deliver(t.Context(), t, all))
	s.wantSeen(t, 2, all...)
}

// silent cuts a call off while the other side may have the work. What it kept would be
// another's by the time that it is looked at.
func silent(t *testing.T, s Fixture) {
	all := s.pieces(0, 4)
	s.Silent(func() {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan []error, 1)
		go func() { ended <- s.deliver(ctx, t, all) }()
		select {
		case errs := <-ended:
			t.Errorf("the call ended without an answer: %v", errs)
			return
		case <-time.After(100 * time.Millisecond): // it waits
		}
		cancel()
		select {
		case errs := <-ended:
			for i := range all {
				if err := at(errs, i); !again(err) {
					t.Errorf("number %d: %v, want an error that lets it be offered again", i, err)
				}
			}
		case <-time.After(patience):
			t.Fatal("the call outlived its context")
		}
	})
	wantAll(t, s.deliver(t.Context(), t, all))
	wantAll(t, s.deliver(t.Context(), t, s.pieces(4, 8))) // in the memory of the first
	s.wantSeen(t, 2, append(all, s.pieces(4, 8)...)...)
}

func away(t *testing.T, s Fixture) {
	if s.Away == nil {
		return // it is in this process
	}
	all := s.pieces(0, 4)
	s.Away(func() {
		errs := s.deliver(t.Context(), t, all)
		for i := range all {
			if err := at(errs, i); !again(err) {
				t.Errorf("number %d: %v, want an error that lets it be offered again", i, err)
			}
		}
	})
	wantAll(t, s.deliver(t.Context(), t, all))
	s.wantSeen(t, 2, all...)
}
