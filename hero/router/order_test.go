package router

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/supervisor"
	"edda/internal/testkit"
)

// ordered makes the supervisor record the order of its jobs.
func ordered(s *boss) func() []string {
	var mu sync.Mutex
	var got []string
	s.work = func(_ http.ResponseWriter, j supervisor.Job) any {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(j.ID))
		if j.Payload == "fail" {
			return map[string]string{"error": "exit 3"}
		}
		return map[string]string{"success": "ran"}
	}
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

// The jobs of one message run in the order of their edges, with every kind of runner and in
// every notation of edges.
func TestAJobOfAMessageRunsBeforeTheJobThatItDependsOn(t *testing.T) {
	t.Parallel()
	with := func(id uint32, after ...uint32) hero.Job { j := job(id); j.Dependends = after; return j }
	for name, m := range map[string]hero.Message{
		"dependends": {Job: []hero.Job{with(3, 1, 2), with(2, 1), with(1)}},
		"nodes":      {Job: []hero.Job{job(3), job(2), job(1)}, Nodes: []hero.FlowNode{{ID: 3, Depends: []uint32{1, 2}}, {ID: 2, Depends: []uint32{1}}, {ID: 1}}},
	} {
		for _, where := range []string{"queue", "supervisor", "another context"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				m := m // the subtests run at once
				b, s := newBed(t), newBoss(t)
				order, in := ordered(s), uint32(1)
				if where == "another context" {
					in = 2
					m.Job = slices.Clone(m.Job)
					for i := range m.Job {
						m.Job[i].ContextID = 2
					}
				}
				if where == "supervisor" {
					b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
				} else {
					b.runner(hero.Runner{ID: 20, Local: true}, in)
					var mu sync.Mutex
					var got []string
					b.localRunner(in, func(key string) {
						mu.Lock()
						_, id, err := hero.ParseJobKey(key)
						b.must(err)
						got = append(got, fmt.Sprint(id))
						mu.Unlock()
						b.writeEnd(in, key)
					})
					order = func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
				}
				b.start(Options{})
				b.end(b.send(m), hero.MessageProcessed)
				if got := order(); fmt.Sprint(got) != "[1 2 3]" {
					t.Errorf("ran %v", got)
				}
				if n, err := b.raw(in).ZCard(t.Context(), "edda:waiting").Result(); err != nil || n != 0 {
					t.Errorf("%d jobs wait still, %v", n, err)
				}
			})
		}
	}
}

// A job waits for a dependency that a later message brings. A prerequisite is met by name.
// A job that depends on a failed job fails.
func TestAMessageWithAJobWhoseDependencyNeverRanIsRun(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	order := ordered(s)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	second, third := job(2), job(3)
	second.Dependends, second.Prerequisites, third.Dependends = []uint32{1}, []string{"paid"}, []uint32{9}
	m2, m3 := b.send(hero.Message{ID: 102, Job: []hero.Job{second}}), b.send(hero.Message{ID: 103, Job: []hero.Job{third}})
	testkit.Until(t, 20*time.Second, "both wait", func() bool { return b.raw(1).ZCard(t.Context(), "edda:waiting").Val() == 2 })
	b.end(b.send(hero.Message{ID: 101, Job: []hero.Job{job(1)}}), hero.MessageProcessed)
	bad := job(9)
	bad.Script = "fail"
	b.end(b.send(hero.Message{ID: 109, Job: []hero.Job{bad}}), hero.MessageProcessed)
	b.end(m3, hero.MessageProcessed)
	if j := b.job(1, 12, 3); j.Status != hero.JobError || j.Result["error"] != "dependency 9 failed: exit 3" {
		t.Errorf("job 3 is %s %v", j.Status, j.Result)
	}
	if got := order(); fmt.Sprint(got) != "[1 9]" {
		t.Errorf("ran %v", got)
	}
	_, err := b.db.MeetJob(t.Context(), 1, 12, 2, "paid")
	b.must(err)
	b.end(m2, hero.MessageProcessed)
	if got := order(); fmt.Sprint(got) != "[1 9 2]" {
		t.Errorf("ran %v", got)
	}
}

// Jobs of a message that wait for each other are refused.
func TestJobsOfAMessageThatWaitForEachOtherAreWaitedForForEver(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.start(Options{})
	one, two := job(1), job(2)
	one.Dependends, two.Dependends = []uint32{2}, []uint32{1}
	if m := b.ended(b.send(hero.Message{Job: []hero.Job{one, two, job(3)}})); m.Status != hero.MessageError || !strings.Contains(said(m), "depend on each other") {
		t.Errorf("%s %s", m.Status, said(m))
	}
}

// A job id in a second message is the same job. With another script it is refused. With the
// same script it is answered and not sent again, even while it runs.
func TestASecondMessageSendsAJobIDAgainWithAnotherScript(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	begun, finish := make(chan struct{}), make(chan struct{})
	s.work = func(_ http.ResponseWriter, j supervisor.Job) any {
		close(begun) // panics at a second run
		<-finish
		return map[string]string{"success": "ran " + j.Payload}
	}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	other := job(7001)
	other.Script = `print("OTHER")`
	first := b.send(hero.Message{ID: 101, Job: []hero.Job{job(7001)}})
	<-begun
	while := b.send(hero.Message{ID: 102, Job: []hero.Job{job(7001)}})
	if m := b.ended(b.send(hero.Message{ID: 103, Job: []hero.Job{other}})); m.Status != hero.MessageError || said(m) != "job 7001: job:12:7001 exists and is another job: choose a new id" {
		t.Errorf("%s: %s", m.Status, said(m))
	}
	close(finish)
	b.end(first, hero.MessageProcessed)
	b.end(while, hero.MessageProcessed)
	b.end(b.send(hero.Message{ID: 104, Job: []hero.Job{job(7001)}}), hero.MessageProcessed)
	if m := b.ended(b.send(hero.Message{ID: 105, Job: []hero.Job{other}})); m.Status != hero.MessageError {
		t.Errorf("%s: %s", m.Status, said(m))
	}
	if n := s.ran("7001"); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	if j := b.job(1, 12, 7001); j.Status != hero.JobFinished || j.Script != job(7001).Script {
		t.Errorf("%+v", j)
	}
	told := 0
	for _, m := range b.inbox(1) {
		if m.MessageType == hero.MessageResult && m.Job[0].Status == hero.JobFinished {
			told++
		}
	}
	if told != 3 {
		t.Errorf("%d results", told)
	}
}

// A job may wait queue_timeout for another job, and again in a queue. It was given up when
// both waits together took longer than one may.
func TestAMessageIsGivenUpWhileItsJobMayStillWait(t *testing.T) {
	after := hero.Job{ID: 2, Dependends: []uint32{1}, QueueTimeout: 100, Timeout: 10}
	if got, want := resultWithin(hero.Message{}, after), 2*100*time.Second+10*time.Second+grace; got != want {
		t.Errorf("a job that waits for another: %s, want %s", got, want)
	}
	if got, want := resultWithin(hero.Message{}, hero.Job{ID: 1, QueueTimeout: 100, Timeout: 10}), 100*time.Second+10*time.Second+grace; got != want {
		t.Errorf("one that does not: %s, want %s", got, want)
	}
	// The nodes may have the edges, and all jobs of a message are watched together.
	b := newBed(t)
	r, err := New(b.db, Options{})
	b.must(err)
	first, second := job(1), job(2)
	first.QueueTimeout, second.QueueTimeout = 1000, 1000
	m := hero.Message{ID: 101, CallerID: 12, Job: []hero.Job{first, second}, Nodes: []hero.FlowNode{{ID: 1}, {ID: 2, Depends: []uint32{1}}}}
	l, err := r.at(1)
	b.must(err)
	b.must(l.expect(t.Context(), m, first))
	until, err := b.raw(1).ZScore(t.Context(), awaiting, m.Key()).Result()
	b.must(err)
	if left := until - float64(time.Now().Unix()); left < 1900 {
		t.Errorf("it is given up in %v s, and its jobs may wait 2000", left)
	}
}
