package router

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/internal/testkit"
)

// runs is a fake coordinator that runs flows.
type runs struct {
	mu      sync.Mutex // guards the fields below
	began   bool       // the flow was started before
	starts  int
	carried []hero.Message
	end     map[string]string
	refuse  error
	busy    int // calls that fail first
}

func (f *runs) FlowBegan(context.Context, uint32, uint32) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began, nil
}

func (f *runs) FlowRun(context.Context, uint32, uint32) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.starts), nil
}

func (f *runs) RunFlow(_ context.Context, m hero.Message, carries bool, run string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy > 0 {
		f.busy--
		return edda.Classify(edda.Temporary, "Redis is down")
	}
	if f.refuse != nil {
		return f.refuse
	}
	if run != fmt.Sprint(f.starts) {
		return nil
	}
	if carries {
		f.carried = append(f.carried, m)
	}
	f.starts++
	return nil
}

func (f *runs) FlowEnd(context.Context, uint32, uint32) (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end, nil
}

func (f *runs) ends(result map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end = result
}

// flowMessages are the kinds of messages that have a flow run.
func flowMessages() map[string]hero.Message {
	after := job(2)
	after.Dependends = []uint32{1}
	return map[string]hero.Message{
		"by its id":            {FlowID: 33},
		"carried":              {FlowID: 33, Job: []hero.Job{after, job(1)}},
		"carried, with nodes":  {FlowID: 33, Job: []hero.Job{job(2), job(1)}, Nodes: []hero.FlowNode{{ID: 2, Depends: []uint32{1}}, {ID: 1}}},
		"carried, nodes alone": {FlowID: 33, Nodes: []hero.FlowNode{{ID: 2, Depends: []uint32{1}}, {ID: 1}}},
	}
}

// Such a message was refused with "the message carries no job", or its jobs ran at once, out
// of order.
func TestAMessageWithAWholeFlowIsRefusedOrLosesItsOrder(t *testing.T) {
	t.Parallel()
	for name, m := range flowMessages() {
		for _, busy := range []int{0, 2} {
			t.Run(fmt.Sprint(name, " after ", busy), func(t *testing.T) {
				b, s, f := newBed(t), newBoss(t), &runs{busy: busy}
				b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
				b.start(Options{Flows: &reports{}, Runs: f})
				m := b.send(m)
				testkit.Until(t, 20*time.Second, "acknowledged", func() bool { return b.message(m).Status == hero.MessageAcknowledged })
				f.ends(map[string]string{"1.output": "one", "2.output": "two"})
				b.end(m, hero.MessageProcessed)
				got := b.pop(1)
				if got.MessageType != hero.MessageResult || got.ReplyTo != m.Key() || got.FlowID != 33 || got.Message != `{"1.output":"one","2.output":"two"}` || len(got.Job) != 0 {
					t.Errorf("the result is %+v", got)
				}
				if f.starts != 1 || (len(f.carried) == 1) != strings.HasPrefix(name, "carried") || s.ran("1") != 0 {
					t.Errorf("started %d times, carried %v, job 1 ran %d times beside it", f.starts, f.carried, s.ran("1"))
				}
			})
		}
	}
}

func TestARouterKilledAtEachStepOfAFlow(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"permitted", "flow noted", "flow started", "before done", "flow replied"} {
		for name, m := range flowMessages() {
			t.Run(step+" "+name, func(t *testing.T) {
				b, f := newBed(t), &runs{}
				m := b.send(m)
				if step == "flow replied" {
					f.ends(map[string]string{"1.output": "one"})
				}
				b.doomed(step, Options{Flows: &reports{}, Runs: f})
				f.ends(map[string]string{"1.output": "one"})
				b.start(Options{Flows: &reports{}, Runs: f})
				b.end(m, hero.MessageProcessed)
				if got := b.pop(1); got.ReplyTo != m.Key() || f.starts != 1 {
					t.Errorf("started %d times, the result is %+v", f.starts, got)
				}
				testkit.Until(t, 20*time.Second, "no message is watched any more", func() bool {
					n, err := b.raw(1).ZCard(t.Context(), awaiting).Result()
					return err == nil && n == 0
				})
			})
		}
	}
}

func TestAFlowMessageThatCannotBeSaysWhy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		m    hero.Message
		o    Options
		want string
	}{
		"refused":              {hero.Message{FlowID: 33}, Options{Runs: &runs{refuse: edda.Classify(edda.Permanent, "Not found: flow:33 does not exist")}}, "flow:33 does not exist"},
		"elsewhere":            {hero.Message{FlowID: 33, TargetContext: 2}, Options{Runs: &runs{}}, "send the message in context 2"},
		"no coordinator":       {hero.Message{FlowID: 33}, Options{}, "flows are not run here"},
		"never ended":          {hero.Message{FlowID: 33, TimeoutResult: 1}, Options{Runs: &runs{}}, "has not ended in time, and goes on"},
		"neither job nor flow": {hero.Message{}, Options{Runs: &runs{}}, "carries no job: fill job or nodes, or name a flow to run with flow_id"},
		"by who may only read": {hero.Message{FlowID: 33, CallerID: 14}, Options{Runs: &runs{}}, "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.start(test.o)
			m := b.end(b.send(test.m), hero.MessageError)
			if !strings.Contains(said(m), test.want) {
				t.Errorf("it said %q, want %q", said(m), test.want)
			}
		})
	}
}

// A foreign coordinator may dispatch the jobs of its flow by its own messages.
func TestAJobOfAFlowThatOthersRunIsOnlyAJob(t *testing.T) {
	b, s, f, flows := newBed(t), newBoss(t), &runs{began: true}, &reports{}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{Flows: flows, Runs: f})
	m := b.send(hero.Message{FlowID: 33, Job: []hero.Job{job(1)}})
	b.end(m, hero.MessageProcessed)
	if f.starts != 0 || s.ran("1") != 1 || len(flows.ends()) != 1 {
		t.Errorf("started %d times, job 1 ran %d times, reported %v", f.starts, s.ran("1"), flows.ends())
	}
}

// Only the flow reports its end; a result message that answers the first message does not.
func TestAForeignResultDoesNotEndTheMessageOfAFlow(t *testing.T) {
	b, f := newBed(t), &runs{}
	b.start(Options{Flows: &reports{}, Runs: f})
	m := b.send(hero.Message{FlowID: 33, Job: []hero.Job{job(1)}})
	testkit.Until(t, 20*time.Second, "acknowledged", func() bool { return b.message(m).Status == hero.MessageAcknowledged })
	lie := job(1)
	lie.CallerID, lie.Status, lie.Result = 12, hero.JobFinished, map[string]string{"output": "a lie"}
	b.end(b.send(hero.Message{ID: 102, CallerID: 13, MessageType: hero.MessageResult, ReplyTo: m.Key(), Job: []hero.Job{lie}}), hero.MessageProcessed)
	if got := b.message(m); got.Status.Ended() {
		t.Errorf("%s is %s", m.Key(), got.Status)
	}
}
