package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/testkit"
)

func TestALocalRunnerThatWritesOnlyTheHash(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true, PubKey: strings.Repeat("ab", 32)}, 1)
	runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	b.start(Options{})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	b.end(m, hero.MessageProcessed)
	if r := b.pop(1); r.Message != "done" || r.ReplyTo != m.Key() {
		t.Errorf("result %+v", r)
	}
	if runs() != 1 {
		t.Errorf("%d runs", runs())
	}
}

func TestAResultMessageSettlesTheMessageThatItAnswers(t *testing.T) {
	t.Parallel()
	for _, answers := range []string{"the message", "the job"} {
		t.Run(answers, func(t *testing.T) {
			b, flows := newBed(t), &reports{}
			b.runner(hero.Runner{ID: 20, Local: true}, 1)
			b.localRunner(1, func(string) {}) // reports no end
			b.start(Options{Flows: flows})
			m := b.send(hero.Message{FlowID: 33, Attempt: 1, Job: []hero.Job{job(2001)}})
			testkit.Until(t, 20*time.Second, "acknowledged", func() bool { return b.message(m).Status == hero.MessageAcknowledged })
			ended := job(2001)
			ended.CallerID, ended.Status, ended.Result = 12, hero.JobError, map[string]string{"error": "exit 1"}
			reply := hero.Message{ID: 900, MessageType: hero.MessageResult, Job: []hero.Job{ended}, ReplyTo: m.Key()}
			if answers == "the job" {
				reply.ReplyTo = "job:12:2001"
			}
			first := b.send(reply)
			reply.ID = 901
			second := b.send(reply) // the same again
			b.end(m, hero.MessageProcessed)
			b.end(first, hero.MessageProcessed)
			b.end(second, hero.MessageProcessed)
			if ends := flows.ends(); len(ends) != 1 || ends[0].Status != hero.NodeFailed || ends[0].Result["error"] != "exit 1" {
				t.Errorf("reports %+v", ends)
			}
			b.pop(1)
		})
	}
}

func TestALocalJobThatNoRunnerTakesIsGivenUp(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.start(Options{})
	got := b.end(b.send(hero.Message{TimeoutResult: 1, Job: []hero.Job{job(2001)}}), hero.MessageError)
	if !strings.Contains(said(got), "timeout_result") {
		t.Errorf("logs %q", said(got))
	}
	if j := b.job(1, 12, 2001); j.Status != hero.JobError {
		t.Errorf("the job is %s", j.Status)
	}
	b.pop(1)
}

// An attempt in a local queue ends for its message when its flow has given it up. The end of
// a stopped job comes from the runner that has it.
func TestALocalAttemptThatItsFlowGaveUpIsWaitedForNoMore(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	flows := &reports{}
	b.start(Options{Flows: flows})
	sent := func(id uint32) hero.Message {
		j := job(id)
		j.CallerID, j.ContextID, j.FlowID, j.Attempt, j.Status = 12, 1, 33, 1, hero.JobDispatched
		b.must(b.db.PutJob(t.Context(), j))
		return b.send(hero.Message{ID: id, Job: []hero.Job{j}, FlowID: 33, Attempt: 1, TimeoutResult: 3600})
	}
	again, over, stopped := sent(2001), sent(2002), sent(2003)
	testkit.Until(t, 20*time.Second, "all are queued", func() bool { return b.raw(1).LLen(t.Context(), job(2001).ScriptType.Queue()).Val() == 3 })
	b.must(b.db.StopJob(t.Context(), 1, 12, 2003, 33, 1))
	_, err := b.db.DispatchJob(t.Context(), 1, 12, 2001, redisdb.Dispatch{FlowID: 33, Attempt: 2})
	b.must(err)
	_, _, err = b.db.MoveJob(t.Context(), 1, 12, 2002, hero.JobError, map[string]string{"error": "timeout: no answer"})
	b.must(err)
	if got := b.ended(again); got.Status != hero.MessageError || !strings.Contains(said(got), "attempt 2 is under way") {
		t.Errorf("tried again: %s, logs %q", got.Status, said(got))
	}
	if got := b.ended(over); got.Status != hero.MessageProcessed {
		t.Errorf("given up: %s, logs %q", got.Status, said(got))
	}
	if got := b.message(stopped); got.Status.Ended() {
		t.Errorf("the stop was told by nobody: %s, logs %q", got.Status, said(got))
	}
	if ends := flows.ends(); len(ends) != 2 {
		t.Errorf("%+v", ends)
	}
}

func TestAnotherJobOfTheSameIDIsRefused(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	b.start(Options{})
	b.end(b.send(hero.Message{Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
	other := job(2001)
	other.Script = "something else"
	got := b.end(b.send(hero.Message{ID: 102, Job: []hero.Job{other}}), hero.MessageError)
	if !strings.Contains(said(got), "is another job") {
		t.Errorf("logs %q", said(got))
	}
	same := b.send(hero.Message{ID: 103, Job: []hero.Job{job(2001)}})
	b.end(same, hero.MessageProcessed)
	results := b.inbox(1)
	if len(results) != 3 || results[2].Message != "done" {
		t.Errorf("results %+v", results)
	}
}

// arrive writes a job message into a context's msg_in.
func (b *bed) arrive(context uint32, list string, m hero.Message) hero.Message {
	b.t.Helper()
	m.ContextID, m.MessageType = context, hero.MessageJob
	b.must(b.db.PutMessage(b.t.Context(), context, m))
	b.must(b.raw(context).LPush(b.t.Context(), list, m.Key()).Err())
	return m
}

func TestAJobThatArrivesRunsAndItsResultGoesBack(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"msg_in", "msg_in:1"} {
		t.Run(list, func(t *testing.T) {
			b := newBed(t)
			runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
			b.start(Options{})
			chat := hero.Message{ID: 7, CallerID: 14, ContextID: 1, MessageType: hero.MessageChat, Message: "leave me"}
			b.must(b.db.PutMessage(t.Context(), 1, chat))
			b.must(b.raw(1).LPush(t.Context(), "msg_in", chat.Key()).Err())
			m := b.arrive(1, list, hero.Message{ID: 101, CallerID: 13, Job: []hero.Job{job(2001)}})
			b.must(b.raw(1).LPush(t.Context(), list, m.Key()).Err()) // twice
			b.end(m, hero.MessageProcessed)
			testkit.Until(t, 20*time.Second, "the second key is taken, too", func() bool {
				return errors.Is(b.raw(1).LPos(t.Context(), list, m.Key(), redis.LPosArgs{}).Err(), redis.Nil)
			})
			if j := b.job(1, 13, 2001); j.Status != hero.JobFinished || runs() != 1 {
				t.Errorf("job %+v after %d runs", j, runs())
			}
			got := b.inbox(1)
			if len(got) != 2 || got[0].Message != "leave me" || got[1].ReplyTo != m.Key() {
				t.Errorf("msg_in %+v", got)
			}
		})
	}
}

func TestAJobBehindAThousandUnreadResults(t *testing.T) {
	b := newBed(t)
	b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	for i := range uint32(3 * window) {
		r := hero.Message{ID: 5000 + i, CallerID: 12, ContextID: 1, MessageType: hero.MessageResult}
		b.must(b.db.PutMessage(t.Context(), 1, r))
		b.must(b.raw(1).LPush(t.Context(), "msg_in", r.Key()).Err())
	}
	b.start(Options{})
	b.end(b.arrive(1, "msg_in", hero.Message{ID: 101, CallerID: 13, Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
	if n, _ := b.raw(1).LLen(t.Context(), "msg_in").Result(); n != 3*window+1 {
		t.Errorf("%d keys are left in msg_in", n)
	}
}

func TestAMessageWithoutRightsIsRefused(t *testing.T) {
	b := newBed(t)
	b.start(Options{})
	for _, actor := range []uint32{14, 15} {
		m := b.arrive(1, "msg_in", hero.Message{ID: actor, CallerID: actor, Job: []hero.Job{job(2001)}})
		if got := b.end(m, hero.MessageError); !strings.Contains(said(got), "permission denied") {
			t.Errorf("logs %q", said(got))
		}
	}
	if n, _ := b.db.Depth(t.Context(), 1, "queue:python"); n != 0 {
		t.Error("a job was queued")
	}
	if got := b.inbox(1); len(got) != 2 || got[0].Job[0].Status != hero.JobError {
		t.Errorf("results %+v", got)
	}
}

func TestAJobForAnotherContextOfThisRedis(t *testing.T) {
	b, flows := newBed(t), &reports{}
	runs := b.localRunner(2, func(key string) { b.writeEnd(2, key) })
	b.start(Options{Flows: flows})
	j := job(2001)
	j.ContextID = 2
	m := b.send(hero.Message{FlowID: 33, Attempt: 3, Job: []hero.Job{j}})
	b.end(m, hero.MessageProcessed)
	if got := b.job(2, 12, 2001); got.Status != hero.JobFinished || got.FlowID != 0 || runs() != 1 {
		t.Errorf("job %+v after %d runs", got, runs())
	}
	if ends := flows.ends(); len(ends) != 1 || ends[0].ContextID != 1 || ends[0].FlowID != 33 || ends[0].Attempt != 3 || ends[0].Result["output"] != "done" {
		t.Errorf("reports %+v", ends)
	}
	if got := b.pop(1); got.ReplyTo != m.Key() || got.MessageType != hero.MessageResult {
		t.Errorf("result %+v", got)
	}
	b.idle(2)
	if got := b.inbox(2); len(got) != 0 {
		t.Errorf("msg_in of the other context holds %+v", got)
	}
}

func TestAJobForAnotherContextWhereTheCallerHasNoRight(t *testing.T) {
	b, flows := newBed(t), &reports{}
	b.must(b.db.PutContext(t.Context(), hero.Context{ID: 3, Admins: []uint32{99}}))
	b.start(Options{Flows: flows})
	j := job(2001)
	j.ContextID = 3
	b.end(b.send(hero.Message{FlowID: 33, Job: []hero.Job{j}}), hero.MessageError)
	if ends := flows.ends(); len(ends) != 1 || ends[0].Status != hero.NodeFailed || !strings.Contains(ends[0].Result["error"], "permission denied") {
		t.Errorf("reports %+v", ends)
	}
}

func TestChatAndMailEndInMsgIn(t *testing.T) {
	b := newBed(t)
	b.start(Options{})
	for i, tt := range []struct{ m, want hero.Message }{
		{hero.Message{MessageType: hero.MessageChat, To: 13}, hero.Message{ContextID: 1}},
		{hero.Message{MessageType: hero.MessageMail, To: 13, TargetContext: 2}, hero.Message{ContextID: 2}},
		{hero.Message{MessageType: hero.MessageChat, TargetContext: 1}, hero.Message{ContextID: 1}},
	} {
		tt.m.ID, tt.m.Message = uint32(100+i), fmt.Sprint("text ", i)
		b.end(b.send(tt.m), hero.MessageProcessed)
		if got := b.pop(tt.want.ContextID); got.Message != tt.m.Message || got.MessageType != tt.m.MessageType {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestAnIDThatIsTakenOverThereGetsAnother(t *testing.T) {
	b := newBed(t)
	b.must(b.db.PutMessage(t.Context(), 2, hero.Message{ID: 101, CallerID: 12, ContextID: 2, MessageType: hero.MessageMail, Message: "theirs"}))
	b.start(Options{})
	b.end(b.send(hero.Message{MessageType: hero.MessageChat, To: 13, TargetContext: 2, Message: "ours"}), hero.MessageProcessed)
	if got := b.pop(2); got.Message != "ours" || got.ID == 101 || got.Origin != "1/message:12:101" {
		t.Errorf("%+v", got)
	}
	if m, err := b.db.Message(t.Context(), 2, 12, 101); err != nil || m.Message != "theirs" {
		t.Errorf("theirs is %+v, %v", m, err)
	}
}

func TestAResultThatAnswersNothingIsJustDelivered(t *testing.T) {
	b, flows := newBed(t), &reports{}
	b.start(Options{Flows: flows})
	j := job(2001)
	j.Status, j.Result = hero.JobFinished, map[string]string{"output": "x"}
	b.end(b.send(hero.Message{MessageType: hero.MessageResult, FlowID: 33, Job: []hero.Job{j}, Message: "x"}), hero.MessageProcessed)
	b.pop(1)
	if ends := flows.ends(); len(ends) != 1 || ends[0].Node != 2001 {
		t.Errorf("reports %+v", ends)
	}
}

func TestRunnersThatAreHeardAreCounted(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.runner(hero.Runner{ID: 21, Local: true}, 1)
	registry := prometheus.NewPedanticRegistry()
	b.start(Options{Metrics: registry})
	heard := func(want string) {
		t.Helper()
		testkit.Until(t, 20*time.Second, want+" runners are counted", func() bool {
			return testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP edda_hero_runners_alive Registered runners with a heartbeat.
# TYPE edda_hero_runners_alive gauge
edda_hero_runners_alive{context="1"} `+want+`
edda_hero_runners_alive{context="2"} 0
`), "edda_hero_runners_alive") == nil
		})
	}
	heard("0")
	b.must(b.raw(1).Set(t.Context(), hero.RunnerAliveKey(21), "x", time.Minute).Err())
	heard("1")
}

// The job may run for longer than it may wait in a local queue.
func TestALocalJobThatIsNotBegunWithinItsQueueTimeoutIsGivenUp(t *testing.T) {
	b := newBed(t)
	b.runner(hero.Runner{ID: 20, Local: true}, 1)
	b.start(Options{})
	brief, patient := job(2001), job(2002)
	brief.QueueTimeout, brief.Timeout = 1, 3600
	waits := b.send(hero.Message{ID: 102, Job: []hero.Job{patient}})
	got := b.end(b.send(hero.Message{ID: 101, Job: []hero.Job{brief}}), hero.MessageError)
	if !strings.Contains(said(got), "queue_timeout: not begun within 1s") {
		t.Errorf("logs %q", said(got))
	}
	if j := b.job(1, 12, 2001); j.Status != hero.JobError || j.Result["error"] != "queue_timeout: not begun within 1s" {
		t.Errorf("the job is %s: %v", j.Status, j.Result)
	}
	if m := b.message(waits); m.Status.Ended() {
		t.Errorf("the other message is %s: %q", m.Status, said(m))
	}
}

// The first contexts have their own labels. A later one gets a label that was released.
func TestManyContextsShareALabel(t *testing.T) {
	m, err := newMetrics(nil)
	testkit.Must(t, err)
	var all []*contextGauges
	for i := range uint32(maxNamedContexts + 5) {
		g := m.of(i)
		g.waiting(9)
		g.waiting(2)
		g.living(1)
		all = append(all, g)
	}
	series := func(want int, others float64) {
		t.Helper()
		if n := testutil.CollectAndCount(m.depth); n != want {
			t.Errorf("%d series, want %d", n, want)
		}
		if got := testutil.ToFloat64(m.depth.WithLabelValues(otherContexts)); got != others {
			t.Errorf("%v wait in the others, want %v", got, others)
		}
		if n := testutil.CollectAndCount(m.alive); n != want {
			t.Errorf("%d series of runners, want %d", n, want)
		}
	}
	series(maxNamedContexts+1, 10)
	all[3].release()
	all[maxNamedContexts].release()
	series(maxNamedContexts, 8)
	g := m.of(7000)
	g.waiting(4)
	g.living(1)
	series(maxNamedContexts+1, 8)
	if got := testutil.ToFloat64(m.depth.WithLabelValues("7000")); got != 4 {
		t.Errorf("%v wait in context 7000", got)
	}
}
