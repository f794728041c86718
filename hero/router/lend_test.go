package router

import (
	"fmt"
	"testing"

	"edda/hero"
)

// A job with a supervisor_url was sent without a secret, and refused for good, if the runner
// with that secret had just been created.
func TestARunnerThatWasJustCreatedDoesNotLendItsSecret(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	s.secret = "of the new one"
	r, err := New(b.db, Options{}) // with the default intervals: it caches runners for seconds
	b.must(err)
	b.run(r)
	for i := range uint32(20) {
		url := fmt.Sprintf("%s/%d", s.URL, i)
		b.runner(hero.Runner{ID: 20 + i, Address: url, Secret: s.secret}, 1)
		m := b.send(hero.Message{ID: 101 + i, Job: []hero.Job{job(2001 + i)}, Nodes: []hero.FlowNode{{ID: 2001 + i, SupervisorURL: url}}})
		b.end(m, hero.MessageProcessed)
		b.pop(1)
	}
}
