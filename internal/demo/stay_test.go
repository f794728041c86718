package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"edda/internal/harness"
	"edda/internal/shop"
)

func TestAStayShowsOneInstanceOfEachEndAndEndsWithItsContext(t *testing.T) {
	s, err := shop.Listen(shop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"instances":[{"saga":"order","key":"O1","status":"done"},{"saga":"order","key":"O2","status":"done"},{"saga":"order","key":"O3","status":"undone","reason":"ship.failed"}]}`))
	}))
	t.Cleanup(api.Close)
	out := &said{lines: make(chan string, 8)}
	r := &run{Options: Options{Out: out}, shop: s, edda: &harness.Edda{API: api.URL, NATS: "nats://x"}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.stay(ctx) }()
	text := out.next(t)
	for _, want := range []string{"EDDA_URL=" + api.URL + " NATS_URL=nats://x", "describe order O1 ", "describe order O3 ", "# undone ship.failed", s.URL()} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "order O2") {
		t.Errorf("two instances of one end:\n%s", text)
	}
	select {
	case <-ended:
		t.Fatal("it did not stay")
	default:
	}
	cancel()
	if text := out.next(t); !strings.HasPrefix(text, "stopping") {
		t.Error(text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// said hands over what is printed.
type said struct{ lines chan string }

func (s *said) Write(p []byte) (int, error) {
	s.lines <- string(p)
	return len(p), nil
}

func (s *said) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-s.lines:
		return line
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was printed")
		return ""
	}
}
