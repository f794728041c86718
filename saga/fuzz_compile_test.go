package saga

import (
	"io/fs"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

// compileTime is far more than a manifest of the fuzzer's size takes, with its tests and its
// events.
const compileTime = 20 * time.Second

// FuzzCompile passes any text through everything that handles manifests. It parses, compiles,
// lints and draws it, runs its tests, and applies an event to it.
func FuzzCompile(f *testing.F) {
	if err := fs.WalkDir(manifests.Examples(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			source, err := fs.ReadFile(manifests.Examples(), path)
			f.Add(source, "OrderPlaced", []byte(`{"order_id":"O1","id":"O1","items":[{"qty":1}],"total":3}`))
			return err
		}
		return err
	}); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(propertySaga), "Go", []byte(`{"id":"K","items":[1,2]}`))
	f.Add([]byte("saga: x\nkey: event.id\non: {E: {start: true, set: {a: =event.b}, do: [{each: =event.b, do: [{effect: e}]}]}}"), "E", []byte(`{"id":1,"b":[1,[2]]}`))
	f.Fuzz(func(t *testing.T, source []byte, event string, payload []byte) {
		began := time.Now()
		file, problems := manifests.Parse("fuzz.yaml", source)
		Lint([]*manifests.File{file})
		for _, m := range file.Sagas {
			NewGraph(m)
			p, more := Compile(m, Options{})
			if p == nil || problems.Failed() || more.Failed() {
				continue
			}
			RunTests(m, Options{})
			applyAny(t, p, edda.Event{Kind: edda.KindEvent, ID: "1", Type: event, Tenant: "t", Time: testStart, Payload: payload})
		}
		if took := time.Since(began); took > compileTime {
			t.Fatalf("took %s", took)
		}
	})
}

func applyAny(t *testing.T, p *Program, ev edda.Event) {
	t.Helper()
	set, err := NewSet(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range set.Route(ev) {
		cell, trs := set.Apply(edda.Cell{Key: target.Key}, target, ev)
		for _, tr := range trs {
			if tr.Fate == "" {
				t.Errorf("%s has no fate", ev.Type)
			}
			if tr.Key.Tenant != ev.Tenant {
				t.Errorf("an event of %q changes %s", ev.Tenant, tr.Key)
			}
		}
		set.Wake(cell, testStart, testStart.Add(1000*time.Hour))
	}
}
