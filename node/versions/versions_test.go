package versions

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// versionOf is what a folder with one version of one saga holds.
func versionOf(t *testing.T, n int) []*saga.Program {
	t.Helper()
	text := fmt.Sprintf("saga: order\nversion: %d\nkey: event.id\non: {Placed: {start: true}}\n", n)
	file, problems := manifests.Parse("order.yaml", []byte(text))
	if problems.Failed() {
		t.Fatal(problems)
	}
	program, problems := saga.Compile(file.Sagas[0], saga.Options{})
	if problems.Failed() {
		t.Fatal(problems)
	}
	return []*saga.Program{program}
}

// stored is an empty store that commits until the test ends.
func stored(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(t.TempDir(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- db.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// With very many instances a start that reads them all takes minutes.
func TestAStartReadsInstancesOnlyWhereAVersionHadSeveralTexts(t *testing.T) {
	db := stored(t)
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
