package saga

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda/manifests"
)

// TestVerbsAreComplete fails where a word of the parser has no verb, or a verb lacks a part.
func TestVerbsAreComplete(t *testing.T) {
	t.Parallel()
	table := newVerbs()
	words := slices.DeleteFunc(manifests.Words(), func(w string) bool { return w == "unset" }) // read as set
	if diff := cmp.Diff(slices.Sorted(slices.Values(words)), sortedKeys(table)); diff != "" {
		t.Errorf("the parser's words and the verbs differ:\n%s", diff)
	}
	for word, v := range table {
		if (v.emit == nil) == (v.act == nil) {
			t.Errorf("%s: one of emit and act is needed", word)
		}
		if v.draw == nil {
			t.Errorf("%s: a graph needs draw", word)
		}
		if v.nests && v.compile == nil {
			t.Errorf("%s: the actions in it need compile", word)
		}
		if (v.step || v.each) && v.emit == nil {
			t.Errorf("%s: a seq waits for a step", word)
		}
	}
}
