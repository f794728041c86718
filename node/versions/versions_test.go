package versions

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/internal/testkit"
	"edda/saga"
	"edda/store"
)

// versionOf returns the programs of a folder with one version of a saga.
func versionOf(t *testing.T, n int) []*saga.Program {
	t.Helper()
	text := fmt.Sprintf("saga: order\nversion: %d\nkey: event.id\non: {Placed: {start: true}}\n", n)
	return testkit.Set(t, text).Programs()
}

// With very many instances a start that reads them all takes minutes.
func TestAStartReadsInstancesOnlyWhereAVersionHadSeveralTexts(t *testing.T) {
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	one, two := versionOf(t, 1), versionOf(t, 2)
	k := New(db, false, zap.NewNop())
	if err := k.Keep(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	hash := one[0].Hash()
	key := edda.Key{Tenant: "t", Saga: "order", Correlation: "K"}
	begin := func(hash string) {
		t.Helper()
		tr := edda.Transition{Key: key, Fate: edda.FateHandled, Event: edda.Event{ID: hash, Time: time.Now().UTC()},
			Instance: &edda.Instance{Key: key, Version: 1, Hash: hash, Status: edda.StatusRunning}}
		if err := db.Commit(t.Context(), store.Change{Transitions: []edda.Transition{tr}}); err != nil {
			t.Fatal(err)
		}
	}
	needs := func() map[Text]bool {
		t.Helper()
		kept, err := db.Manifests()
		if err != nil {
			t.Fatal(err)
		}
		needed, err := k.needed(nil, two, kept)
		if err != nil {
			t.Fatal(err)
		}
		return needed
	}
	begin("unread") // the text of version 1 is known without a look at it
	if got, want := needs(), (map[Text]bool{{"order", 1, hash}: true}); !maps.Equal(got, want) {
		t.Errorf("needed %v, want %v", got, want)
	}
	other := edda.Manifest{Saga: "order", Version: 1, Hash: "other", Text: "saga: order"}
	if err := db.Commit(t.Context(), store.Change{Manifests: []edda.Manifest{other}}); err != nil {
		t.Fatal(err)
	}
	begin("other")
	if got, want := needs(), (map[Text]bool{{"order", 1, "other"}: true}); !maps.Equal(got, want) {
		t.Errorf("needed %v, want %v", got, want)
	}
}

// TestALayoutMakesNoOtherTextOfAVersion: a manifest with other blanks and comments runs under its
// version, as the stored text, and any other change is refused.
func TestALayoutMakesNoOtherTextOfAVersion(t *testing.T) {
	db, _ := testkit.OpenStore(t, t.TempDir(), store.Options{})
	k := New(db, false, zap.NewNop())
	stored := testkit.Set(t, "saga: order\nversion: 1\nkey:   event.id\non:\n    Placed: {start: true}   # begins\n").Programs()
	if err := k.Keep(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		same bool
	}{
		"layout":  {"saga: order\nversion: 1\nkey: event.id\n\non:\n  Placed: {start: true} # begins\n", true},
		"comment": {"saga: order\nversion: 1\nkey: event.id\non:\n  Placed: {start: true} # ends\n", true},
		"key":     {"saga: order\nversion: 1\nkey: event.no\non:\n  Placed: {start: true} # begins\n", false},
	} {
		set, problems, err := k.Compose(nil, testkit.Set(t, c.text).Programs())
		if err != nil {
			t.Fatal(err)
		}
		if problems.Failed() == c.same {
			t.Errorf("%s: %v", name, problems)
		}
		if c.same && set.Newest("order").Hash() != stored[0].Hash() {
			t.Errorf("%s: the set has another text than the store", name)
		}
	}
}

// TestAStoredTextCompilesThoughLintHasLearntMore: a start must not fail for a check that the build
// which stored the text did not have.
func TestAStoredTextCompilesThoughLintHasLearntMore(t *testing.T) {
	text := "saga: order\nkey: event.id\non:\n  Placed: {start: true, do: [{if: event.never, timer: t, at: '=addTime(now, \"1 month\")'}]}\n  timer.t: {}\n"
	if _, err := testkit.Compile(text); err == nil {
		t.Fatal("a call that always fails compiles, so this test shows nothing")
	}
	if _, err := Recompile(edda.Manifest{Saga: "order", Version: 1, Text: text}); err != nil {
		t.Error(err)
	}
}
