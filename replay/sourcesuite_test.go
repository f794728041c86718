package replay

import (
	"testing"
	"testing/synctest"

	"edda"
	"edda/engine/sourcetest"
)

func TestTheLogIsASource(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T, before []edda.Event, test func(*testing.T, sourcetest.Fixture)) {
		synctest.Test(t, func(t *testing.T) {
			l := newLog()
			put := func(ev edda.Event) edda.Checkpoint {
				ev = l.publish(ev)
				return edda.Checkpoint{Stream: ev.Stream, Seq: ev.Seq}
			}
			for _, ev := range before {
				put(ev)
			}
			test(t, sourcetest.Fixture{Source: l, Store: put})
		})
	})
}
