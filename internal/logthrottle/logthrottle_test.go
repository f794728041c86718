package logthrottle

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestALoopDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.DebugLevel)
		w, down := New(zap.New(core), "look"), errors.New("down")
		w.Worked() // nothing was wrong
		for range 100 {
			w.Failed(down, zap.String("job", "j1"))
			time.Sleep(time.Second)
		}
		w.Note(nil)
		w.Worked()
		w.Note(down) // within the interval: no warning
		w.Worked()
		time.Sleep(Every)
		w.Note(down)
		w.Worked()
		var got []string
		for _, e := range seen.All() {
			got = append(got, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()["failures"]))
		}
		want := []string{"warn look <nil>", "warn look 30", "warn look 30", "warn look 30", "info look: works again 9", "warn look <nil>", "info look: works again 0"}
		if !slices.Equal(got, want) {
			t.Errorf("logged %q, want %q", got, want)
		}
		if f := seen.All()[0].ContextMap(); f["error"] != "down" || f["job"] != "j1" {
			t.Errorf("told %v", f)
		}
	})
}
