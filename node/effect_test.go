package node

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda/manifests"
)

// TestProvidersAreThoseOfTheSchema: a manifest may name what the process can call, and nothing else.
func TestProvidersAreThoseOfTheSchema(t *testing.T) {
	want := slices.Sorted(slices.Values(manifests.Providers()))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(providers()))); diff != "" {
		t.Errorf("schema and table differ:\n%s", diff)
	}
	for word, p := range providers() {
		if p.kind.Spec == nil || p.kind.Spec.Name != word {
			t.Errorf("%s: its table of fields is %v", word, p.kind.Spec)
		}
	}
}
