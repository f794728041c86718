// Package effecttest is the suite that every provider of effects passes.
package effecttest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/effects"
)

// Fixture is a provider under test and the calls that the suite makes. A call is the evaluated map
// of a manifest.
type Fixture struct {
	Provider effects.Provider
	// Accepted is a call that the server accepts.
	Accepted map[string]any
	// Hangs is a call that the server takes and never answers.
	Hangs map[string]any
	// Unreachable is a call that no server can take.
	Unreachable map[string]any
	// Impossible is a call that no attempt can make.
	Impossible map[string]any
	// Seen counts the calls that the server saw with an idempotency key. For a provider that is
	// Once it counts the effects, including one under way.
	Seen func(key string) int
	// Once says that the provider makes a key have its effect once, and answers all its calls
	// alike.
	Once bool
}

// patience bounds waits that should end at once.
const patience = 10 * time.Second

// aftermath is how long over watches each key for calls after the return.
const aftermath = 50 * time.Millisecond

// atOnce is the number of concurrent calls.
const atOnce = 16

// Run tests what effects.Provider promises.
func Run(t *testing.T, s Fixture) {
	t.Run("an accepted call is answered and shows its key", s.accepted)
	t.Run("calls may be made at once", s.parallel)
	t.Run("a call ends with its context and may have been done", s.hangs)
	if s.Once {
		t.Run("a call that was cut off can be made again", s.again)
	}
	t.Run("a call that has ended before it began is not sent", s.cancelled)
	t.Run("what reaches nobody was not sent and may be tried again", s.unreachable)
	t.Run("what cannot be called is permanent", s.impossible)
	t.Run("a call that is over sends nothing more", s.over)
}

// call makes a call as the worker does. The provider may not keep the config: after the return the
// map holds that of another command.
func (s Fixture) call(ctx context.Context, t *testing.T, key string, config map[string]any) (effects.Response, error) {
	lent := copyOf(config).(map[string]any)
	r, err := s.Provider.Call(ctx, effects.Call{Effect: "test", ID: "id-" + key, Key: key, Tenant: "acme", Config: lent})
	if !reflect.DeepEqual(lent, config) {
		t.Errorf("the provider changed its config to %v", lent)
	}
	answer := copyOf(r.Body)
	clear(lent)
	maps.Copy(lent, s.Accepted) // a provider that reads it now makes another call
	lent["poisoned"] = "poisoned"
	if !reflect.DeepEqual(r.Body, answer) {
		t.Error("the answer lies in the memory of the config")
	}
	return r, err
}

// copyOf copies a config deeply.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = copyOf(member)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = copyOf(v[i])
		}
		return out
	case json.RawMessage:
		return slices.Clone(v)
	}
	return v
}

// over counts the calls after all have returned. A goroutine that outlives its call reads the
// changed config, and so makes another call.
func (s Fixture) over(t *testing.T) {
	parallel := atOnce
	if s.Once {
		parallel = 1
	}
	for key, want := range map[string]int{"accepted": 1, "parallel": parallel, "hangs": 1, "cancelled": 0, "unreachable": 0, "impossible": 0} {
		n := s.Seen(key)
		for until := time.Now().Add(aftermath); n == want && time.Now().Before(until); n = s.Seen(key) {
			time.Sleep(time.Millisecond)
		}
		if n != want {
			t.Errorf("the other side saw %q %d times, want %d", key, n, want)
		}
	}
}

func (s Fixture) accepted(t *testing.T) {
	r, err := s.call(t.Context(), t, "accepted", s.Accepted)
	if err != nil || r.Retry || r.Refused || r.Unknown {
		t.Fatalf("answer %+v %v", r, err)
	}
	if n := s.Seen("accepted"); n != 1 {
		t.Errorf("the other side saw the key %d times", n)
	}
}

func (s Fixture) parallel(t *testing.T) {
	var all sync.WaitGroup
	answers := make([]effects.Response, atOnce)
	for i := range answers {
		all.Go(func() {
			r, err := s.call(t.Context(), t, "parallel", s.Accepted)
			if answers[i] = r; err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want := len(answers)
	if s.Once {
		want = 1
		for _, r := range answers {
			if !reflect.DeepEqual(r, answers[0]) {
				t.Errorf("one key is answered %+v and %+v", answers[0], r)
			}
		}
	}
	if n := s.Seen("parallel"); n != want {
		t.Errorf("the other side saw %d calls of %d, want %d", n, len(answers), want)
	}
}

func (s Fixture) hangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, t, "hangs", s.Hangs)
		ended <- err
	}()
	deadline := time.Now().Add(patience)
	for s.Seen("hangs") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the other side never saw the call")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil || errors.Is(err, effects.ErrNotSent) && !s.Once {
			t.Errorf("a call that was taken gave %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the call outlived its context")
	}
}

// again follows hangs: the call had no effect, or the provider finds it.
func (s Fixture) again(t *testing.T) {
	for range 2 {
		if r, err := s.call(t.Context(), t, "hangs", s.Accepted); err != nil || r.Retry || r.Unknown {
			t.Errorf("answer %+v %v", r, err)
		}
	}
	if n := s.Seen("hangs"); n != 1 {
		t.Errorf("the other side saw %d effects of one key", n)
	}
}

func (s Fixture) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.call(ctx, t, "cancelled", s.Accepted); err == nil {
		t.Error("no error")
	}
	if n := s.Seen("cancelled"); n != 0 {
		t.Errorf("the other side saw %d calls", n)
	}
}

func (s Fixture) unreachable(t *testing.T) {
	_, err := s.call(t.Context(), t, "unreachable", s.Unreachable)
	if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) {
		t.Errorf("error %v, want one that is ErrNotSent and not edda.Permanent", err)
	}
}

func (s Fixture) impossible(t *testing.T) {
	_, err := s.call(t.Context(), t, "impossible", s.Impossible)
	if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) {
		t.Errorf("error %v, want one that is ErrNotSent and edda.Permanent", err)
	}
}
