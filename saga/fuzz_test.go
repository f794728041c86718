package saga

import (
	"io/fs"
	"testing"
	"time"

	"edda"
	"edda/manifests"
)

// FuzzApply uses any bytes as the payload of every kind of input. Each must get a fate without a
// panic, and the saga can be terminated after it.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{"", "null", `{"id":"K","items":[1,2]}`, `{"id":"K","items":"x","by":1}`, `[[[`, `{"id":1e400}`, "\x00", `{"id":"K","by":9223372036854775807}`} {
		f.Add(seed, "Go", 0)
		f.Add(seed, "Bad", 1)
		f.Add(seed, "Round", 2)
	}
	set := setOf(f, propertySaga)
	f.Fuzz(func(t *testing.T, payload, name string, pick int) {
		cell := edda.Cell{Key: edda.Key{Tenant: "t", Saga: "shop", Correlation: "K"}}
		cell = fuzzGive(t, set, cell, edda.Event{Kind: edda.KindEvent, ID: "1", Type: "Go", Payload: []byte(`{"id":"K","items":[1]}`)})
		kinds := []edda.Kind{edda.KindEvent, edda.KindResult, edda.KindAnswer, edda.KindSignal, edda.KindOperator, edda.KindStart}
		ev := edda.Event{Kind: kinds[uint(pick)%uint(len(kinds))], ID: "2", Type: name, Step: name, CommandID: commandOf(cell.Instance, "a"), Payload: []byte(payload)}
		cell = fuzzGive(t, set, cell, ev)
		if ev.Kind = edda.KindEvent; ev.ID == "2" {
			ev.ID = "3"
			cell = fuzzGive(t, set, cell, ev)
		}
		cell, _ = set.Wake(cell, testStart, testStart.Add(defaultDue))
		cell = fuzzGive(t, set, cell, edda.Event{Kind: edda.KindOperator, ID: "4", Type: edda.VerbTerminate})
		if !cell.Instance.Status.Finished() {
			t.Errorf("after terminate it is %s", cell.Instance.Status)
		}
	})
}

func fuzzGive(t *testing.T, set *Set, cell edda.Cell, ev edda.Event) edda.Cell {
	t.Helper()
	ev.Tenant, ev.Time = "t", testStart
	if ev.Kind != edda.KindEvent {
		ev.Key = cell.Key
	}
	for _, target := range set.Route(ev) {
		if target.Key != cell.Key {
			continue
		}
		next, trs := set.Apply(cell, target, ev)
		if len(trs) == 0 || trs[0].Fate == "" {
			t.Errorf("%s %s has no fate", ev.Kind, ev.Type)
		}
		cell = next
	}
	return cell
}

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
