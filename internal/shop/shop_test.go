package shop

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"
)

// open starts a shop and gives a function that calls one of its effects.
func open(t *testing.T, o Options) (*Shop, func(name, key, id string) int) {
	t.Helper()
	s, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, func(name, key, id string) int {
		req, err := http.NewRequest(http.MethodPost, s.URL()+"/effects/"+name, bytes.NewBufferString(`{"id":"`+id+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
}

func TestARepeatedCallHasItsEffectOnce(t *testing.T) {
	s, call := open(t, Options{})
	for range 3 {
		if got := call("ship", "k1", "O1"); got != http.StatusOK {
			t.Fatalf("ship: %d", got)
		}
	}
	if got := s.Of("O1").Shipped; got != 1 {
		t.Errorf("shipped %d times", got)
	}
	if _, repeats := s.Calls(); repeats != 2 {
		t.Errorf("%d repeats, want 2", repeats)
	}
}

func TestUndoBalancesTheBooks(t *testing.T) {
	s, call := open(t, Options{})
	call("reserve_stock", "k1", "O1")
	if s.Of("O1").Undone() == nil {
		t.Error("a reservation that was never released balances")
	}
	call("release_stock", "k2", "O1")
	if err := s.Of("O1").Undone(); err != nil {
		t.Error(err)
	}
	if s.Of("O1").Done("stock") == nil {
		t.Error("a released reservation counts as done")
	}
}

func TestADeclinedCallDoesNothing(t *testing.T) {
	s, call := open(t, Options{Rates: Rates{Declines: 1000}})
	if got := call("reserve_stock", "k1", "O1"); got != http.StatusConflict {
		t.Fatalf("got %d", got)
	}
	if n := s.Of("O1").Reserved["stock"]; n != 0 {
		t.Errorf("reserved %d", n)
	}
}

func TestALostCallHasItsEffectAndNoAnswer(t *testing.T) {
	s, call := open(t, Options{Rates: Rates{Lost: 1000}, Stall: time.Millisecond})
	if got := call("book_car", "k1", "T1"); got != 0 {
		t.Errorf("it was answered: %d", got)
	}
	if n := s.Of("T1").Reserved["car"]; n != 1 {
		t.Errorf("reserved %d", n)
	}
}
