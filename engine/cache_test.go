package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"edda"
)

// cachedCells returns the loop's cached cells, read by the loop's goroutine.
func (w *world) cachedCells() (cells map[edda.Key]edda.Cell, size int) {
	w.t.Helper()
	cells = map[edda.Key]edda.Cell{}
	if err := w.engine.ask(w.t.Context(), func(v *loop, done report) {
		for _, h := range []generation{v.cache.old, v.cache.young} {
			size += h.size
			for k := range h.cells {
				cells[k], _ = v.cache.get(k)
			}
		}
		done <- nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return cells, size
}

// wantCached compares all cached cells with the store.
func (w *world) wantCached() (n int) {
	w.t.Helper()
	cells, _ := w.cachedCells()
	for k, cell := range cells {
		got, err := json.Marshal(cell)
		if err != nil {
			w.t.Fatal(err)
		}
		if want, _ := json.Marshal(w.cell(k)); !bytes.Equal(got, want) {
			w.t.Fatalf("%s is cached as\n%s, and the store has\n%s", k, got, want)
		}
	}
	return len(cells)
}

// TestCacheEqualsTheStore under random inputs and failures.
func TestCacheEqualsTheStore(t *testing.T) {
	inWorld(t, func(w *world) {
		random, most := rand.New(rand.NewPCG(7, 11)), 0
		types := []string{"add", "add", "add", "both", "arm", "big", "panic", "done", "send"}
		for i := range 400 {
			k := fmt.Sprint("k", random.IntN(30))
			switch random.IntN(20) {
			case 0:
				w.gate.failNext(errDiskFull)
			case 1:
				if _, err := exchangeLog(t, w, k, fmt.Sprint("x", i)); err != nil {
					t.Fatal(err)
				}
			case 2:
				settle()
			}
			ev := event(fmt.Sprint("e", i), types[random.IntN(len(types))], k)
			switch ev.Type {
			case "arm":
				ev.Payload = []byte(`"1s"`)
			case "big":
				ev.Payload = []byte(`"100"`)
			}
			w.streams.publish("A", ev)
			if i%10 == 9 {
				time.Sleep(10 * time.Second) // longer than the pause after a failure
				settle()
				most = max(most, w.wantCached())
			}
		}
		if most < 5 {
			t.Errorf("at most %d cells were cached, want 5", most)
		}
	})
}

// TestRunningInstanceIsNotReadAgain expects the next event to open no snapshot.
func TestRunningInstanceIsNotReadAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		views := 0
		w.gate.watchViews(func() { views++ })
		w.streams.publish("A", event("e2", "add", "k"))
		settle()
		w.wantLog(key("k"), "e1", "e2")
		if views > 0 {
			t.Errorf("%d snapshots were opened", views)
		}
	})
}

// TestFailureClearsTheCache, because a failed commit may be durable all the same.
func TestFailureClearsTheCache(t *testing.T) {
	inWorld(t, func(w *world) {
		w.streams.publish("A", event("e1", "add", "k"))
		settle()
		w.gate.set(false, errDiskFull)
		w.streams.publish("A", event("e2", "add", "other"))
		settle()
		if cells, _ := w.cachedCells(); len(cells) > 0 {
			t.Errorf("cached: %v", cells)
		}
		w.gate.set(false, nil)
		time.Sleep(time.Minute)
		settle()
		w.wantLog(key("other"), "e2")
	})
}

// TestEndedAndHeldInstancesAreNotCached, because retention removes ended instances.
func TestEndedAndHeldInstancesAreNotCached(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, typ := range []string{"done", "panic"} {
			w.streams.publish("A", event("a"+typ, "add", typ))
			settle()
			w.streams.publish("A", event(typ, typ, typ))
			settle()
		}
		if w.cell(key("done")).Instance.Status != edda.StatusDone || w.cell(key("panic")).Instance.Held == "" {
			t.Fatal("one instance has not ended, or the other is not held")
		}
		if cells, _ := w.cachedCells(); len(cells) > 0 {
			t.Errorf("cached: %v", cells)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	k, most := newInstanceCache(), 0
	of := func(i int) (edda.Key, edda.Cell) {
		key := key(fmt.Sprint(i))
		state, _ := json.Marshal(strings.Repeat("x", 10_000))
		return key, edda.Cell{Key: key, Instance: &edda.Instance{Key: key, Status: edda.StatusRunning, State: state}}
	}
	for i := range 2000 {
		key, cell := of(i)
		k.put(key, cell)
		k.put(key, cell)
		size := 0
		for _, h := range []generation{k.young, k.old} {
			for _, c := range h.cells {
				size += c.instance.Size()
			}
		}
		if size > maxCached || size != k.young.size+k.old.size {
			t.Fatalf("%d bytes, counted as %d and %d", size, k.young.size, k.old.size)
		}
		most = max(most, size)
	}
	if _, ok := k.get(key("1999")); !ok || most < maxCached*9/10 {
		t.Errorf("at most %d bytes; the last instance is cached: %v", most, ok)
	}
	if _, ok := k.get(key("0")); ok {
		t.Error("the first instance is still cached")
	}
	large, cell := of(0)
	cell.Instance.State = make([]byte, maxCachedCell)
	k.put(large, cell)
	if _, ok := k.get(large); ok {
		t.Error("an instance that is too large is cached")
	}
}

// heldMemo is a memo of that many bytes.
type heldMemo int

func (m heldMemo) Size() int { return int(m) }

// TestInstanceWithPartsIsCachedOnlyWithItsMemo, because a cached cell has no parts.
func TestInstanceWithPartsIsCachedOnlyWithItsMemo(t *testing.T) {
	k := newInstanceCache()
	keep := func(id string, parts int, memo edda.Memo) bool {
		key := edda.Key{Saga: "flow", Correlation: id}
		k.put(key, edda.Cell{Key: key, Instance: &edda.Instance{Key: key, Status: edda.StatusRunning, Parts: parts, Memo: memo}})
		_, found := k.get(key)
		return found
	}
	if keep("a", 3, nil) || !keep("b", 3, heldMemo(100)) || !keep("c", 0, nil) || keep("d", 3, heldMemo(maxMemos)) {
		t.Error("the cache holds an instance without its parts, or lacks a whole one")
	}
	for i := range 100 {
		keep(fmt.Sprint(i), 3, heldMemo(maxMemos/10))
		if n := k.young.memos + k.old.memos; n > maxMemos {
			t.Fatalf("%d bytes of memos are cached", n)
		}
	}
	if _, found := k.get(edda.Key{Saga: "flow", Correlation: "0"}); found {
		t.Error("no instance was evicted")
	}
}
