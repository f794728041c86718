package msgout_test

import (
	"testing"

	"edda"
	"edda/effects/effecttest"
	"edda/hero"
	"edda/hero/msgout"
	"edda/hero/redisdb"
	"edda/internal/testkit"
	"edda/outbox/outboxtest"
)

func TestMsgoutIsADestination(t *testing.T) {
	outboxtest.Run(t, func(t *testing.T, test func(*testing.T, outboxtest.Fixture)) {
		b := newBench(t)
		faults := effecttest.NewFaults(t, b.server.Address())
		db, err := redisdb.Open(redisdb.Options{Addr: faults.Address()})
		testkit.Must(t, err)
		defer func() { testkit.Must(t, db.Close()) }()
		test(t, outboxtest.Fixture{
			Destination: msgout.New(db, b), Once: true, Seen: b.arrivals,
			Work: func(content string) edda.Work {
				return message(`{"context_id": 7, "caller_id": 12, "message": "` + content + `", "to": 13}`)
			},
			Refused: func() edda.Work { return message(`{"message": "nobody"}`) },
			Away: func(f func()) {
				faults.Down()
				f()
				faults.Up()
			},
			Silent: func(f func()) {
				faults.NoAnswers()
				f()
				faults.None()
			},
		})
	})
}

// arrivals is what lies in msg_out, the first that came first.
func (b *bench) arrivals() (out []outboxtest.Arrival) {
	b.t.Helper()
	for _, key := range b.queued() {
		caller, id, err := hero.ParseMessageKey(key)
		testkit.Must(b.t, err)
		m, err := b.db.Message(b.t.Context(), 7, caller, id)
		testkit.Must(b.t, err)
		out = append(out, outboxtest.Arrival{Text: m.Message})
	}
	return out
}
