package engine_test

import (
	"testing"
	"testing/synctest"

	"edda"
	"edda/engine"
	"edda/engine/sourcetest"
)

func TestFakeSourcePassesTheSuite(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, before []edda.Event, test func(*testing.T, sourcetest.Fixture)) {
		synctest.Test(t, func(t *testing.T) {
			src, put := engine.NewFakeSource()
			for _, ev := range before {
				put(ev)
			}
			test(t, sourcetest.Fixture{Source: src, Store: put})
		})
	})
}
