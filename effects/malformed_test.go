package effects

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"edda"
)

func TestWorkerMalformed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t, charge)
		bad := Command{Tenant: "acme", ID: "bad", Effect: "charge", Malformed: "not JSON", Raw: []byte("{"), Subject: "tenant.acme.effect.charge.bad"}
		h.send(bad)
		r := h.one(t)
		wantResult(t, r, edda.Failed, "malformed", 0)
		if r.CommandID != "bad" || r.Tenant != "acme" || r.Effect != "charge" {
			t.Errorf("result %+v", r)
		}
		dead, err := h.db.DeadLetters("", 10)
		if err != nil || len(dead) != 1 || dead[0].Reason != edda.DeadMalformed || dead[0].Subject != bad.Subject || string(dead[0].Raw) != "{" {
			t.Errorf("dead letters %+v %v", dead, err)
		}
		h.send(cmd("good"))
		time.Sleep(time.Second)
		good := bad
		good.ID = "good"
		h.send(good) // the id of a command that was done: its result stays
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.got(); len(got) != 2 || got[1].Outcome != edda.Succeeded {
			t.Errorf("results %+v", got)
		}
	})
}

// TestAShardDoesNotAnswerAMalformedCommand: the shard that owns a command of that id may be calling, and the saga would
// undo what the call does.
func TestAShardDoesNotAnswerAMalformedCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var shards [2]*house
		for i := range shards {
			shards[i] = &house{wire: newWire(), bank: newBank(), dir: t.TempDir(), tune: func(o *Options) { o.Shard = edda.Shard{Index: i, Of: 2} }}
			shards[i].db = openStore(t, shards[i].dir)
			shards[i].restart(t, nil, charge)
		}
		owner, other := shards[0], shards[1]
		owner.bank.answers(func(context.Context, int, Call) (Response, error) {
			time.Sleep(5 * time.Second)
			return ok200(), nil
		})
		owner.send(cmd("c1"))
		time.Sleep(time.Second)
		other.send(Command{Tenant: "acme", ID: "c1", Effect: "charge", Malformed: "not JSON", Raw: []byte("{"), Subject: "tenant.acme.effect.charge.c1"})
		time.Sleep(10 * time.Second)
		wantResult(t, owner.one(t), edda.Succeeded, "", 1)
		if got := other.got(); len(got) > 0 {
			t.Errorf("the other shard answers %+v", got)
		}
		dead, err := other.db.DeadLetters("", 10)
		if err != nil || len(dead) != 1 || dead[0].Reason != edda.DeadMalformed || dead[0].Event.CommandID != "c1" {
			t.Errorf("dead letters %+v %v", dead, err)
		}
	})
}
