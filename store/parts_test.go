package store

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"edda"
)

// parted is a step that writes some parts of its state, so that it has as many.
func parted(k edda.Key, revision uint64, has int, parts ...edda.Part) edda.Transition {
	t := step(k, revision)
	t.Instance.Parts, t.Parts = has, parts
	return t
}

// A step writes the parts that it names, whatever the size of the others.
func TestAStepWritesOnlyThePartsThatItChanges(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir, Options{})
	large := json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)
	db.commit(t, Change{Transitions: []edda.Transition{parted(key("a"), 1, 3, edda.Part{N: 0, Data: large}, edda.Part{N: 1, Data: json.RawMessage(`1`)}, edda.Part{N: 300, Data: json.RawMessage(`2`)})}})
	c := Change{Transitions: []edda.Transition{parted(key("a"), 2, 2, edda.Part{N: 1, Data: json.RawMessage(`"new"`)}, edda.Part{N: 300})}}
	if size := c.Size(); size > 4<<10 {
		t.Errorf("a step of one part has %d bytes", size)
	}
	db.commit(t, c)
	want := []edda.Part{{N: 0, Data: large}, {N: 1, Data: json.RawMessage(`"new"`)}}
	same(t, "parts", db.cell(t, key("a")).Parts, want)
	db.check(t)
	db.stop()
	same(t, "parts of the file", open(t, dir, Options{}).cell(t, key("a")).Parts, want)
}

func TestPartsAreRemovedWithTheirInstance(t *testing.T) {
	clock := noon
	db := open(t, t.TempDir(), Options{Now: func() time.Time { return clock }})
	gone := finished(key("gone"), 1, edda.StatusDone)
	var parts []edda.Part
	for n := range uint64(200) {
		parts = append(parts, edda.Part{N: n, Data: json.RawMessage(`{}`)})
	}
	gone.Instance.Parts, gone.Parts = len(parts), parts
	db.commit(t, Change{Transitions: []edda.Transition{gone, parted(key("gone on"), 1, 1, edda.Part{N: 7, Data: json.RawMessage(`{}`)})}})
	clock = noon.Add(48 * time.Hour)
	db.sweep(t, KindInstances, before(noon.Add(time.Hour)))
	db.check(t)
	left := 0
	for row := range dump(t, db.DB) {
		if strings.HasPrefix(row, "part/") {
			left++
		}
	}
	same(t, "parts left", left, 1)
	same(t, "the other's", len(db.cell(t, key("gone on")).Parts), 1)
}

func TestCheckFindsWrongParts(t *testing.T) {
	db := open(t, t.TempDir(), Options{})
	db.commit(t, Change{Transitions: []edda.Transition{parted(key("a"), 1, 2, edda.Part{N: 1, Data: json.RawMessage(`1`)})}})
	db.commit(t, Change{Transitions: []edda.Transition{{Key: key("b"), Event: event("e9"), Fate: edda.FateDuplicate, Parts: []edda.Part{{N: 1, Data: json.RawMessage(`1`)}}}}})
	var said []string
	for _, err := range db.examine(t.Context(), nil, true).Findings {
		said = append(said, err.Error())
	}
	for _, want := range []string{"its state has 2 parts, and there are 1", "there are 1 parts of the state of"} {
		if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
}
