package demo

import (
	"os"
	"path/filepath"
	"testing"

	"edda/internal/shop"
	"edda/manifests"
	"edda/saga"
)

// TestManifests runs the tests of the demo's own sagas.
func TestManifests(t *testing.T) {
	dir := t.TempDir()
	if err := writeManifests(dir, "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(names) != 3 {
		t.Fatalf("manifests: %v, %v", names, err)
	}
	ran := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, problems := manifests.Parse(name, text)
		if problems.Failed() {
			t.Fatalf("%s: %v", name, problems)
		}
		for _, m := range f.Sagas {
			results, problems := saga.RunTests(m, saga.Options{})
			if problems.Failed() {
				t.Fatalf("%s: %v", name, problems)
			}
			for _, r := range results {
				ran++
				if !r.Passed {
					t.Errorf("%s: %s", r.Name, r.Diff)
				}
			}
		}
	}
	if ran == 0 {
		t.Fatal("no test ran")
	}
}

// TestDisagreement shows that the comparison notices every way in which books
// and sagas can differ.
func TestDisagreement(t *testing.T) {
	s, err := shop.Listen(shop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Options: Options{Orders: 1}, shop: s}
	for name, all := range map[string][]ended{
		"an order is missing":      {},
		"done, but never shipped":  {{Saga: "order", Key: "O1", Status: "done", Generation: 1}},
		"failed, but not closed":   {{Saga: "order", Key: "O1", Status: "failed", Generation: 1}},
		"still running":            {{Saga: "order", Key: "O1", Status: "running", Generation: 1}},
		"it ran twice":             {{Saga: "trip", Key: "T1", Status: "undone", Generation: 2}},
		"a trip without its hotel": {{Saga: "trip", Key: "T1", Status: "done", Generation: 1}},
	} {
		if err := r.compare(all); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	if err := r.compare([]ended{{Saga: "trip", Key: "T1", Status: "failed", Generation: 1}}); err != nil {
		t.Errorf("a trip that did nothing: %v", err)
	}
}
