package saga

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"edda/manifests"
)

// TestUpdateMendsOnlyWhatDiffers spoils lists of the examples and of the corpus in turn. A
// bogus entry is removed again without a trace, and a missing one comes back so that the tests pass.
func TestUpdateMendsOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	lists := 0
	for name, source := range goldenSources(t) {
		f := parsedManifest(t, name, source)
		for i, m := range f.Sagas {
			for j, test := range m.Tests {
				for k, step := range test.Steps {
					note := func(e manifests.Expect) bool { return e.Word == "guarded" || e.Word == "held" } // need not be named
					if !step.HasExpect || slices.ContainsFunc(step.Expect, note) {
						continue
					}
					if lists++; lists%4 != 0 { // all of them take a quarter of a minute
						continue
					}
					var kept []manifests.ExpectEntry
					for n := range step.Expect {
						kept = append(kept, manifests.ExpectEntry{Old: n})
					}
					bogus := manifests.ExpectEntry{Old: -1, Text: "{revoke: nothing_of_that_name}"}
					spoilt := withExpect(t, f, step, slices.Insert(slices.Clone(kept), len(kept)/2, bogus))
					if bytes.Equal(spoilt, source) {
						t.Fatalf("%s: %s: step %d is as before", name, test.Name, k+1)
					}
					if got := updatedSource(t, name, spoilt, i, j, k); !bytes.Equal(got, source) {
						t.Errorf("%s: %s: step %d: an extra entry left a trace:\n%s", name, test.Name, k+1, lineOf(got, source))
					}
					if len(kept) == 0 {
						continue
					}
					half := len(kept) / 2
					runManifest(t, name, updatedSource(t, name, withExpect(t, f, step, slices.Delete(kept, half, half+1)), i, j, k))
				}
			}
		}
	}
	if lists < 200 {
		t.Errorf("only %d lists", lists)
	}
}

func parsedManifest(t *testing.T, name string, source []byte) *manifests.File {
	t.Helper()
	f, ps := manifests.Parse(name, source)
	if ps.Failed() {
		t.Fatalf("%s: %v\n%s", name, ps[0].Error(), source)
	}
	return f
}

func withExpect(t *testing.T, f *manifests.File, step *manifests.TestStep, entries []manifests.ExpectEntry) []byte {
	t.Helper()
	out, err := f.RewriteExpects([]manifests.ExpectChange{{Step: step, Entries: entries}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// updatedSource updates a source in which one step of a test differs from what the saga does.
func updatedSource(t *testing.T, name string, source []byte, saga, test, step int) []byte {
	t.Helper()
	f := parsedManifest(t, name, source)
	changes := UpdatedExpects(f.Sagas[saga], Options{})
	if len(changes) != 1 || changes[0].Step != f.Sagas[saga].Tests[test].Steps[step] {
		t.Fatalf("%s: %d steps differ, want step %d of %s", name, len(changes), step+1, f.Sagas[saga].Tests[test].Name)
	}
	return withExpect(t, f, changes[0].Step, changes[0].Entries)
}

// lineOf is the first line in which two texts differ.
func lineOf(got, want []byte) string {
	_, w, g := firstDifference(string(want), string(got))
	return "- " + w + "\n+ " + g
}

// TestUpdateKeepsCommentsAndLayout rewrites lists of every form.
func TestUpdateKeepsCommentsAndLayout(t *testing.T) {
	t.Parallel()
	const head = `saga: a
key: event.id
deadline: 1h
on:
  Started:
    start: true
    do: [{event: Asked, with: {n: 1, text: "a: b"}}, {effect: charge}, {timer: t, after: 30m}]
tests:
  - name: one
    steps:
`
	for _, tt := range []struct{ name, before, after string }{
		{"a field", "      - {event: Started, data: {id: K}, expect: [{event: Asked, with: {text: x, n: 1}}, {effect: charge}, {timer: t}]} # c\n",
			"      - {event: Started, data: {id: K}, expect: [{event: Asked, with: {text: \"a: b\", n: 1}}, {effect: charge}, {timer: t}]} # c\n"},
		{"an empty list", "      - {event: Started, data: {id: K}, expect: []}\n",
			"      - {event: Started, data: {id: K}, expect: [{event: Asked, with: {n: 1, text: \"a: b\"}}, {effect: charge}, {timer: t, for: 30m}]}\n"},
		{"lines in brackets", "      - event: Started\n        data: {id: K}\n        expect: [\n          {event: Asked},  # asked\n          {revoke: x},     # gone\n          # before\n          {timer: t}  # timer\n        ]\n",
			"      - event: Started\n        data: {id: K}\n        expect: [\n          {event: Asked},  # asked\n          {effect: charge},\n          # gone\n          # before\n          {timer: t}  # timer\n        ]\n"},
		{"a block", "      - event: Started\n        data: {id: K}\n        expect: # what\n          # first\n          - {event: Asked} # asked\n          - revoke: x\n          # last\n          - timer: t\n            for: 1h\n      - {advance: 1m}\n",
			"      - event: Started\n        data: {id: K}\n        expect: # what\n          # first\n          - {event: Asked} # asked\n          - {effect: charge}\n          # last\n          - {timer: t, for: 30m}\n      - {advance: 1m}\n"},
		{"a block that ends up empty", "      - {event: Started, data: {id: K}}\n      - advance: 1m\n        expect:\n          - {revoke: x}\n          - {revoke: y}\n      - {advance: 1m}\n",
			"      - {event: Started, data: {id: K}}\n      - advance: 1m\n        expect: []\n      - {advance: 1m}\n"},
		{"the end of a file", "      - event: Started\n        data: {id: K}\n        expect:\n          - {event: Asked}\n          - {effect: charge}",
			"      - event: Started\n        data: {id: K}\n        expect:\n          - {event: Asked}\n          - {effect: charge}\n          - {timer: t, for: 30m}"},
	} {
		f := parsedManifest(t, "a.yaml", []byte(head+tt.before))
		got, err := f.RewriteExpects(UpdatedExpects(f.Sagas[0], Options{}))
		if err != nil || string(got) != head+tt.after {
			t.Errorf("%s: %v\n%s", tt.name, err, got)
		}
		runManifest(t, "a.yaml", got)
	}
	for name, steps := range map[string]string{
		"an alias":           "      - {event: Started, data: {id: K}, expect: &e [{effect: charge}]}\n      - {advance: 1m, expect: *e}\n",
		"an entry's alias":   "      - {event: Started, data: {id: K}, expect: [&e {effect: charge}]}\n      - {advance: 1m, expect: [*e]}\n",
		"a comment inside":   "      - event: Started\n        data: {id: K}\n        expect:\n          - event: Asked\n            # why\n            with: {n: 2}\n          - {effect: charge}\n          - {timer: t}\n",
		"nothing written":    "      - event: Started\n        data: {id: K}\n        expect:\n",
		"an entry in a text": "      - event: Started\n        data: {id: K}\n        expect:\n          - event: Asked\n            with:\n              text: |\n                x\n          - {effect: charge}\n          - {timer: t}\n",
	} {
		f := parsedManifest(t, "a.yaml", []byte(head+steps))
		if got, err := f.RewriteExpects(UpdatedExpects(f.Sagas[0], Options{})); err == nil || !strings.Contains(err.Error(), "by hand") {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}
