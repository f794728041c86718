package effects

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"weak"

	"edda"
	"edda/internal/jsonvalue"
)

// TestGoroutinesAreUsedAgain by commands that follow, as many as are held as a rule;
// those of a crowd that waited are not kept, and none outlives its worker.
func TestGoroutinesAreUsedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain) // four calls at once
		done := 0
		for _, crowd := range []int{1, 1, 3, 1, 4, 1, 50, 50, 1} {
			for range crowd {
				done++
				if !h.w.Offer(given(fmt.Sprint("c", done))) {
					t.Fatal("not taken")
				}
			}
			synctest.Wait()
			if got := len(d.results()); got != done {
				t.Fatalf("%d results of %d", got, done)
			}
			if kept := hands(); kept < 1 || kept > 8 || done == 2 && kept != 1 {
				t.Errorf("%d goroutines are kept after a crowd of %d", kept, crowd)
			}
		}
		h.stop()
		synctest.Wait()
		if left := hands(); left > 0 {
			t.Errorf("%d goroutines are left", left)
		}
	})
}

// TestAGoroutineThatWaitsKeepsNoCommand in memory.
func TestAGoroutineThatWaitsKeepsNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, d := combined(t, plain)
		kept := weak.Make(offered(t, h.w))
		synctest.Wait()
		if got := len(d.results()); got != 1 || hands() != 1 {
			t.Fatalf("%d results, %d goroutines", got, hands())
		}
		for range 3 { // what a pool has goes with the second
			runtime.GC()
		}
		if kept.Value() != nil {
			t.Error("the command is still there")
		}
		h.stop()
	})
}

func offered(t *testing.T, w *Worker) *gift {
	g := given("c1")
	if !w.Offer(g) {
		t.Fatal("not taken")
	}
	return g
}

// hands are the goroutines of lines that work on commands, or wait for one.
func hands() int {
	all := make([]byte, 4<<20)
	return strings.Count(string(all[:runtime.Stack(all, true)]), "effects.(*line).work(")
}

// TestReadableIsWhatASagaReads, whether it was read to see that or not.
func TestReadableIsWhatASagaReads(t *testing.T) {
	for _, wrap := range []func(any) any{
		func(v any) any { return []any{1, v, "x"} },
		func(v any) any { return map[string]any{"a": nil, "b": v} },
		func(v any) any { return []string{fmt.Sprint(v)} },
	} {
		var v any = 1.5
		for level := range jsonvalue.MaxDepth + 3 {
			encoded, err := json.Marshal(v) // what is too deep as well
			if err != nil {
				t.Fatal(err)
			}
			_, err = jsonvalue.Decode(encoded)
			if got := readable(outcome{kind: edda.Succeeded, payload: v}, encoded); got != (err == nil) {
				t.Errorf("%d levels: readable %v, and %v", level, got, err)
			}
			v = wrap(v)
		}
	}
}
