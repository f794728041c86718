//go:build !race

package systemtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

// model holds the history of every key against a sequential model: the pure core,
// which is given the inputs one after the other in the order that was committed,
// must decide what was decided, under the same ids, and end where the store ends.
// The history names one order for each key, so there is none to search for.
//
// Sagas tells which manifests a key's instance met.
func (b *books) model(t testing.TB, sagas func(edda.Key) *saga.Set) {
	t.Helper()
	for _, k := range b.keys {
		m := &model{set: sagas(k), cell: edda.Cell{Key: k}}
		if err := m.replay(inputs(b.records[k])); err != nil {
			b.wrong(t, "not linearizable", "%s: %v", k, err)
			continue
		}
		if in := b.instances[k]; in == nil && b.operated && lotNamed(k.Correlation).gone {
			continue
		}
		if err := sameInstance(m.cell.Instance, b.instances[k]); err != nil {
			b.wrong(t, "not linearizable", "%s: %v", k, err)
		}
		if len(m.cell.Parked)+len(m.cell.Held) > 0 {
			b.wrong(t, "left behind", "%s: %d parked and %d held", k, len(m.cell.Parked), len(m.cell.Held))
		}
	}
}

// inputs are the records without the marks of replays, which are no inputs.
func inputs(records []store.Record) []store.Record {
	return slices.DeleteFunc(slices.Clone(records), func(r store.Record) bool {
		return r.Event.Kind == edda.KindOperator && r.Event.Type == edda.VerbReplay
	})
}

func sagaSet(t testing.TB, text string) *saga.Set {
	t.Helper()
	file, problems := manifests.Parse("sagas.yaml", []byte(text))
	var programs []*saga.Program
	for _, m := range file.Sagas {
		p, more := saga.Compile(m, saga.Options{})
		programs, problems = append(programs, p), append(problems, more...)
	}
	if problems.Failed() {
		t.Fatal(problems)
	}
	set, err := saga.NewSet(programs...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// model is one key.
type model struct {
	set  *saga.Set
	cell edda.Cell
}

func (m *model) replay(records []store.Record) error {
	for len(records) > 0 {
		decided, err := m.step(records[0])
		if err != nil {
			return err
		}
		decided = slices.DeleteFunc(decided, func(t edda.Transition) bool { return t.Fate == "" || t.Fate == edda.FateIgnored })
		if len(decided) == 0 || len(decided) > len(records) {
			return fmt.Errorf("%s %s: %d transitions are recorded from here on, the model makes %d", records[0].Event.Kind, records[0].Event.ID, len(records), len(decided))
		}
		for i := range decided {
			if err := sameRecord(&decided[i], &records[i]); err != nil {
				return err
			}
		}
		records = records[len(decided):]
	}
	return nil
}

// step gives one input to the cell.
func (m *model) step(r store.Record) (decided []edda.Transition, err error) {
	ev, due := r.Event, r.Event.Time
	parked := slices.IndexFunc(m.cell.Parked, func(e edda.Entry) bool { return placeOf(e.Event) == placeOf(ev) })
	if parked >= 0 { // nobody came for it
		due = m.cell.Parked[parked].Expires
	}
	if ev.Kind == edda.KindTimer || parked >= 0 {
		m.cell, decided = m.set.Wake(m.cell, due, due)
		return decided, nil
	}
	for _, target := range m.set.Route(ev) {
		if target.Key == m.cell.Key && target.Dead == nil {
			m.cell, decided = m.set.Apply(m.cell, target, ev)
			return decided, nil
		}
	}
	return nil, fmt.Errorf("%s %s is recorded here and goes elsewhere", ev.Kind, ev.ID)
}

func sameRecord(t *edda.Transition, r *store.Record) error {
	var work []string
	for _, w := range t.Work {
		work = append(work, w.ID)
	}
	mine, theirs := encoded(told(t.Key, t.Outputs)), encoded(told(r.Key, r.Outputs))
	switch {
	case t.Event.ID != r.Event.ID || t.Fate != r.Fate:
		return fmt.Errorf("%s %s is recorded as %s, the model takes %s as %s", r.Event.Kind, r.Event.ID, r.Fate, t.Event.ID, t.Fate)
	case !slices.Equal(work, r.Work):
		return fmt.Errorf("%s %s emitted %v, the model %v", r.Event.Kind, r.Event.ID, r.Work, work)
	case !bytes.Equal(mine, theirs):
		return fmt.Errorf("%s %s did %s, the model %s", r.Event.Kind, r.Event.ID, theirs, mine)
	}
	return nil
}

// told are the outputs without what an end says where the instance was built again
// with another version: the record says what the version of that time counted, and
// the instance what the newest counts.
func told(k edda.Key, outputs []edda.Output) []edda.Output {
	if k.Saga != replayed {
		return outputs
	}
	outputs = slices.Clone(outputs)
	for i := range outputs {
		if outputs[i].Word == "end" {
			outputs[i].With = nil
		}
	}
	return outputs
}

// sameInstance compares all but when it wakes next: a row that comes too early
// only looks.
func sameInstance(mine, theirs *edda.Instance) error {
	if mine == nil || theirs == nil {
		if mine == theirs {
			return nil
		}
		return fmt.Errorf("stored is %v, the model has %v", theirs, mine)
	}
	a, b := *mine, *theirs
	a.Armed, b.Armed = time.Time{}, time.Time{}
	if x, y := encoded(a), encoded(b); !bytes.Equal(x, y) {
		return fmt.Errorf("stored is %s, the model has %s", y, x)
	}
	return nil
}
