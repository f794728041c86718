package harness

import (
	"strings"
	"testing"
	"time"
)

func TestEndsAreCounted(t *testing.T) {
	for what, facts := range map[string][]string{
		"one ended twice":     {"a", "b", "a"},
		"one was never begun": {"a", "b", "c"},
	} {
		l := listening(t)
		for _, key := range facts {
			l.client.ends.hear(key, time.Now(), nil)
		}
		if err := l.Await(t.Context(), 2, nil); err == nil {
			t.Errorf("%s: not noticed", what)
		}
	}
	l := listening(t)
	l.Idle = time.Millisecond
	l.client.ends.hear("a", time.Now(), nil)
	if err := l.Await(t.Context(), 2, nil); err == nil || !strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("one that never ends: %v", err)
	}
}

// listening is a phase that has begun a and b.
func listening(t *testing.T) *Ends {
	l := (&Client{}).Listen(2)
	for _, key := range []string{"a", "b"} {
		if err := l.Begin(t.Context(), key, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}
