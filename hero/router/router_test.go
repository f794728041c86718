package router

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/hero/supervisor"
	"edda/internal/testkit"
)

func TestAJobGoesToItsSupervisorAndItsResultToMsgIn(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	s.secret = "s3cret"
	b.runner(hero.Runner{ID: 20, Address: s.URL, Secret: "s3cret"}, 1)
	registry := prometheus.NewPedanticRegistry()
	b.start(Options{Metrics: registry})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	got := b.end(m, hero.MessageProcessed)
	if got.TransportStatus != hero.TransportRead || got.TargetContext != 1 || got.Topic != hero.SupervisorTopic {
		t.Errorf("message %+v", got)
	}
	if j := b.job(1, 12, 2001); j.Status != hero.JobFinished || j.Result["output"] != "ran print(2001)" {
		t.Errorf("job %+v", j)
	}
	r := b.pop(1)
	if r.MessageType != hero.MessageResult || r.ReplyTo != m.Key() || r.Message != "ran print(2001)" || r.To != 12 || r.Job[0].Status != hero.JobFinished {
		t.Errorf("result %+v", r)
	}
	if s.ran("2001") != 1 {
		t.Errorf("%d runs", s.ran("2001"))
	}
	want := `
# HELP edda_hero_messages_total Messages that the router has ended, by type and fate.
# TYPE edda_hero_messages_total counter
edda_hero_messages_total{fate="processed",type="job"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "edda_hero_messages_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error([]promlint.Problem(problems), err)
	}
}

func TestAFailedJobIsProcessed(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	s.work = func(http.ResponseWriter, supervisor.Job) any { return map[string]string{"error": "exit 3"} }
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	b.end(m, hero.MessageProcessed)
	if j := b.job(1, 12, 2001); j.Status != hero.JobError || j.Result["error"] != "exit 3" {
		t.Errorf("job %+v", j)
	}
	if r := b.pop(1); r.Job[0].Result["error"] != "exit 3" || r.Message != `{"error":"exit 3"}` {
		t.Errorf("result %+v", r)
	}
}

func TestAFlowIsToldOnceItIsDurable(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	tries, told := 0, make(chan struct{})
	var once sync.Once
	flows := &reports{fail: func(r hero.Report) error {
		if r.Status == hero.NodeDispatched {
			once.Do(func() { close(told) })
		}
		if r.Status.Ended() {
			if tries++; tries < 4 {
				return errors.New("not now")
			}
		}
		return nil
	}}
	// The answer waits for the acknowledgement, which a faster answer may overtake.
	s.work = func(_ http.ResponseWriter, j supervisor.Job) any {
		select {
		case <-told:
		case <-t.Context().Done():
		}
		return map[string]string{"success": "ran " + j.Payload}
	}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{Flows: flows})
	m := b.send(hero.Message{FlowID: 33, Attempt: 2, Job: []hero.Job{job(2001)}, Nodes: []hero.FlowNode{{ID: 2001, SupervisorURL: s.URL}}})
	b.end(m, hero.MessageProcessed)
	ends := flows.ends()
	if len(ends) != 1 || ends[0].FlowID != 33 || ends[0].Node != 2001 || ends[0].Attempt != 2 || ends[0].Status != hero.NodeCompleted || ends[0].Result["output"] != "ran print(2001)" {
		t.Errorf("reports %+v", ends)
	}
	if _, err := b.db.Job(t.Context(), 1, 12, 2001); err == nil {
		t.Error("the router wrote the hash of a flow's job")
	}
	if flows.got[0].Status != hero.NodeDispatched {
		t.Errorf("the first report is %s", flows.got[0].Status)
	}
	b.pop(1)
}

func TestAFlowThatIsGoneDoesNotHoldTheMessage(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	flows := &reports{fail: func(hero.Report) error { return edda.Classify(edda.Permanent, "no such flow") }}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{Flows: flows})
	b.end(b.send(hero.Message{FlowID: 33, Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
}

func TestSupervisorsThatMisbehave(t *testing.T) {
	t.Parallel()
	first := func(s *boss, do func(w http.ResponseWriter)) {
		var once sync.Once
		s.before = func(w http.ResponseWriter, method string) (handled bool) {
			if method == "job.run" {
				once.Do(func() { do(w); handled = true })
			}
			return handled
		}
	}
	tests := []struct {
		name    string
		m       hero.Message
		prepare func(s *boss)
		status  hero.MessageStatus
		says    string
		runs    int
	}{
		{"refuses the secret", hero.Message{}, func(s *boss) { s.secret = "other" }, hero.MessageError, "wrong secret", 0},
		{"never answers", hero.Message{TimeoutResult: 1}, func(s *boss) {
			s.work = func(http.ResponseWriter, supervisor.Job) any { <-s.hang; return nil }
		}, hero.MessageError, "timeout_result: no result within 1s", 1},
		{"answers garbage once, never having had the job", hero.Message{}, func(s *boss) {
			first(s, func(w http.ResponseWriter) { fmt.Fprint(w, "<html>") })
		}, hero.MessageProcessed, "", 1},
		{"answers garbage, and has run it", hero.Message{}, func(s *boss) {
			s.work = func(w http.ResponseWriter, j supervisor.Job) any {
				s.mu.Lock()
				s.ends[string(j.ID)] = map[string]string{"success": "garbled"}
				s.mu.Unlock()
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":"another","result":{"success":"x"}}`)
				return nil
			}
		}, hero.MessageProcessed, "", 1},
		{"always answers garbage", hero.Message{TimeoutResult: 1}, func(s *boss) {
			s.before = func(w http.ResponseWriter, _ string) bool { fmt.Fprint(w, "[]"); return true }
		}, hero.MessageError, "timeout_result", 0},
		{"dies in the middle of the job, and comes back with it", hero.Message{}, func(s *boss) {
			s.work = func(w http.ResponseWriter, j supervisor.Job) any {
				s.mu.Lock()
				s.ends[string(j.ID)] = map[string]string{"success": "after all"}
				s.mu.Unlock()
				panic(http.ErrAbortHandler)
			}
		}, hero.MessageProcessed, "", 1},
		{"dies before it has the job", hero.Message{}, func(s *boss) {
			first(s, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
		}, hero.MessageProcessed, "", 1},
		{"dies each time before it has the job", hero.Message{TimeoutResult: 1}, func(s *boss) {
			s.before = func(w http.ResponseWriter, method string) bool {
				if method == "job.run" {
					panic(http.ErrAbortHandler)
				}
				return false
			}
		}, hero.MessageError, "timeout_result", 0},
		{"is overloaded for a moment", hero.Message{}, func(s *boss) {
			first(s, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) })
		}, hero.MessageProcessed, "", 1},
		{"answers an internal error once", hero.Message{}, func(s *boss) {
			first(s, func(w http.ResponseWriter) {
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"oops"}}`)
			})
		}, hero.MessageProcessed, "", 1},
		{"does not know job.run", hero.Message{}, func(s *boss) {
			s.before = func(w http.ResponseWriter, method string) bool {
				fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`)
				return true
			}
		}, hero.MessageError, "does not have the method", 0},
		{"is slow", hero.Message{}, func(s *boss) {
			s.work = func(http.ResponseWriter, supervisor.Job) any {
				time.Sleep(300 * time.Millisecond)
				return map[string]string{"success": "late"}
			}
		}, hero.MessageProcessed, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, s := newBed(t), newBoss(t)
			tt.prepare(s)
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			b.start(Options{})
			tt.m.Job = []hero.Job{job(2001)}
			got := b.end(b.send(tt.m), tt.status)
			if !strings.Contains(said(got), tt.says) {
				t.Errorf("logs %q, want %q", said(got), tt.says)
			}
			if s.ran("2001") != tt.runs {
				t.Errorf("%d runs, want %d", s.ran("2001"), tt.runs)
			}
			want := hero.JobFinished
			if tt.status == hero.MessageError {
				want = hero.JobError
			}
			if j := b.job(1, 12, 2001); j.Status != want {
				t.Errorf("the job is %s: %v", j.Status, j.Result)
			}
			b.pop(1) // exactly one result
		})
	}
}

func TestASupervisorThatCannotSayIsNotAskedToRunAgain(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	s.before = func(w http.ResponseWriter, method string) bool {
		if method == "job.status" {
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}`)
		}
		return method == "job.status"
	}
	s.work = func(http.ResponseWriter, supervisor.Job) any { panic(http.ErrAbortHandler) }
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	got := b.end(b.send(hero.Message{Job: []hero.Job{job(2001)}}), hero.MessageError)
	if !strings.Contains(said(got), "may have run it and cannot say so") || s.ran("2001") != 1 {
		t.Errorf("logs %q after %d runs", said(got), s.ran("2001"))
	}
}

func TestOneThatIsNotReachedIsPassedOver(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	gone := newBoss(t)
	gone.Server.Close()
	b.runner(hero.Runner{ID: 20, Address: gone.URL}, 1)
	b.runner(hero.Runner{ID: 21, Address: s.URL}, 1)
	r, _ := b.start(Options{})
	for i := range uint32(4) {
		m := b.send(hero.Message{ID: 101 + i, Job: []hero.Job{job(2001 + i)}})
		b.end(m, hero.MessageProcessed)
	}
	if !r.isUnreachable(1, 20) {
		t.Error("the runner that was not reached is not known dead")
	}
}

func TestRunnersTakeTurns(t *testing.T) {
	b := newBed(t)
	bosses := []*boss{newBoss(t), newBoss(t), newBoss(t)}
	for i, s := range bosses {
		b.runner(hero.Runner{ID: uint32(20 + i), Address: s.URL}, 1)
	}
	b.start(Options{})
	for i := range uint32(9) {
		b.end(b.send(hero.Message{ID: 101 + i, Job: []hero.Job{job(2001 + i)}}), hero.MessageProcessed)
	}
	for i, s := range bosses {
		if len(s.runs) != 3 {
			t.Errorf("runner %d ran %d of 9", 20+i, len(s.runs))
		}
	}
}

func TestNoSupervisorTakesItWithinItsTimeout(t *testing.T) {
	b := newBed(t)
	b.start(Options{})
	got := b.end(b.send(hero.Message{Timeout: 1, Job: []hero.Job{job(2001)}}), hero.MessageError)
	if !strings.Contains(said(got), "no runner of context 1 fits") {
		t.Errorf("logs %q", said(got))
	}
	b.pop(1)
}

func TestARunnerThatRegistersLaterGetsIt(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.start(Options{})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	testkit.Until(t, 20*time.Second, "it is taken", func() bool { n, _ := b.db.Depth(t.Context(), 1, hero.MsgOutCoordinator); return n == 1 })
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.end(m, hero.MessageProcessed)
}

func TestRightsToSend(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	may := map[hero.MessageType][]uint32{hero.MessageJob: {12, 13}, hero.MessageChat: {12, 13, 14}, hero.MessageMail: {12, 13, 14}, hero.MessageResult: {12, 13}}
	id := uint32(100)
	for kind, who := range may {
		for _, actor := range []uint32{12, 13, 14, 15} {
			id++
			m := hero.Message{ID: id, CallerID: actor, MessageType: kind, To: 12}
			if kind == hero.MessageJob {
				m.Job = []hero.Job{job(id)}
			}
			got := b.ended(b.send(m))
			want := hero.MessageProcessed
			if !slices.Contains(who, actor) {
				want = hero.MessageError
			}
			if got.Status != want || want == hero.MessageError && !strings.Contains(said(got), "permission denied") {
				t.Errorf("%s of actor %d is %s: %q", kind, actor, got.Status, said(got))
			}
		}
	}
	id++
	j := job(id)
	j.CallerID = 12
	if got := b.ended(b.send(hero.Message{ID: id, CallerID: 13, Job: []hero.Job{j}})); got.Status != hero.MessageError {
		t.Error("an executor sent a job in an admin's name")
	}
	if len(s.runs) != 2 {
		t.Errorf("ran %v", s.runs)
	}
}

func TestKeysThatLeadNowhereAreSetAside(t *testing.T) {
	b := newBed(t)
	c := b.raw(1)
	b.must(c.HSet(t.Context(), "message:12:7", "id", "7", "caller_id", "12", "context_id", "x").Err())
	b.must(c.Set(t.Context(), "message:12:8", "a string", 0).Err())
	b.must(c.LPush(t.Context(), hero.MsgOut, "rubbish", "message:12:9", "message:12:7", "message:12:8").Err())
	b.start(Options{})
	testkit.Until(t, 20*time.Second, "four are set aside", func() bool { n, _ := c.LLen(t.Context(), msgOutBroken).Result(); return n == 4 })
	b.idle(1)
	if v, _ := c.HGet(t.Context(), "message:12:7", "context_id").Result(); v != "x" {
		t.Error("a broken hash was overwritten")
	}
	if v, _ := c.Get(t.Context(), "message:12:8").Result(); v != "a string" {
		t.Error("a foreign key was overwritten")
	}
}

func TestTheSameKeyTwiceIsOneMessage(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	b.must(b.raw(1).LPush(t.Context(), hero.MsgOut, m.Key(), m.Key()).Err())
	b.start(Options{})
	b.end(m, hero.MessageProcessed)
	b.must(b.raw(1).LPush(t.Context(), hero.MsgOut, m.Key()).Err())
	b.idle(1)
	b.pop(1)
	if s.ran("2001") != 1 {
		t.Errorf("%d runs", s.ran("2001"))
	}
}

func TestSeveralJobsOfOneMessage(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	other := newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.must(b.db.PutJob(t.Context(), hero.Job{ID: 2003, CallerID: 12, ContextID: 1, Script: "stored", ScriptType: "python"}))
	b.start(Options{})
	m := b.send(hero.Message{Job: []hero.Job{job(2001), job(2002)},
		Nodes: []hero.FlowNode{{ID: 2001, SupervisorURL: other.URL}, {ID: 2003}}})
	b.end(m, hero.MessageProcessed)
	if s.ran("2001") != 0 || other.ran("2001") != 1 || s.ran("2002") != 1 || s.ran("2003") != 1 {
		t.Errorf("ran here %v, there %v", s.runs, other.runs)
	}
	if got := b.inbox(1); len(got) != 3 {
		t.Errorf("%d results", len(got))
	}
	if j := b.job(1, 12, 2003); j.Result["output"] != "ran stored" {
		t.Errorf("the job by name: %+v", j)
	}
}

func TestMessagesThatMakeNoSense(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{})
	for i, tt := range []struct {
		m    hero.Message
		says string
	}{
		{hero.Message{}, "carries no job"},
		{hero.Message{Nodes: []hero.FlowNode{{ID: 9}}}, "neither in the message nor in the context"},
		{hero.Message{Job: []hero.Job{job(1), job(1)}}, "twice"},
		{hero.Message{Job: []hero.Job{job(1)}, Timeout: 1, Nodes: []hero.FlowNode{{ID: 1, SupervisorURL: "gopher://x"}}}, "supervisor_url"},
		{hero.Message{Job: []hero.Job{job(2)}, Timeout: 1, Nodes: []hero.FlowNode{{ID: 2, SupervisorURL: "mycelium://::1"}}}, "not configured here"},
		{hero.Message{MessageType: hero.MessageChat, TargetContext: 9}, "which actor it is for"},
		{hero.Message{MessageType: hero.MessageChat, TargetContext: 9, To: 12}, "context 9 is not in this Redis"},
	} {
		tt.m.ID = uint32(100 + i)
		if got := b.ended(b.send(tt.m)); got.Status != hero.MessageError || !strings.Contains(said(got), tt.says) {
			t.Errorf("%d: %s, %q, want %q", i, got.Status, said(got), tt.says)
		}
	}
}

// Chat and mail of the documents name no actor, and go to this context's msg_in.
func TestChatWithoutAnAddresseeEndsInError(t *testing.T) {
	b := newBed(t)
	b.start(Options{})
	for i, kind := range []hero.MessageType{hero.MessageChat, hero.MessageMail} {
		m := b.end(b.send(hero.Message{ID: uint32(101 + i), MessageType: kind, Message: "hello"}), hero.MessageProcessed)
		if got := b.pop(1); got.Key() != m.Key() || got.Message != "hello" {
			t.Errorf("%s: %+v", kind, got)
		}
	}
}

// The first flow of a new context waited for the next look for contexts. This router makes
// no such look during the test.
func TestTheFirstMessageOfANewContextDoesNotWaitForALook(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	r, err := New(b.db, Options{Look: time.Hour})
	b.must(err)
	b.run(r)
	b.must(b.db.PutContext(t.Context(), hero.Context{ID: 5, Admins: []uint32{12}}))
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 5)
	b.end(b.send(hero.Message{ContextID: 5, Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
}

func TestManyMessagesBeyondTheBound(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{Concurrency: 2})
	var all []hero.Message
	for i := range uint32(40) {
		all = append(all, b.send(hero.Message{ID: 101 + i, Job: []hero.Job{job(2001 + i)}}))
	}
	for _, m := range all { // each with its own deadline, because a busy machine takes long for all
		if got := b.ended(m); got.Status != hero.MessageProcessed {
			t.Errorf("%s is %s; logs %v", m.Key(), got.Status, got.Logs)
		}
	}
	b.idle(1)
	if got := b.inbox(1); len(got) != 40 {
		t.Errorf("%d results", len(got))
	}
}

// A flow cancels an attempt, or gives it up by its own clock. The router then stops the job at
// its supervisor. It waits neither for a supervisor that still has the job, nor for one whose
// answer is older than the job's hash.
func TestAnAttemptThatItsFlowGaveUpIsWaitedForNoMore(t *testing.T) {
	ended := func(to hero.JobStatus, result string) func(*bed) {
		return func(b *bed) {
			_, _, err := b.db.MoveJob(t.Context(), 1, 12, 2001, to, map[string]string{"output": result, "error": result})
			b.must(err)
		}
	}
	for name, c := range map[string]struct {
		now  func(*bed)
		want hero.MessageStatus
		ends hero.NodeStatus
		says string
	}{
		"tried again": {func(b *bed) {
			_, err := b.db.DispatchJob(t.Context(), 1, 12, 2001, redisdb.Dispatch{FlowID: 33, Attempt: 2})
			b.must(err)
		}, hero.MessageError, hero.NodeFailed, "attempt 2 is under way"},
		"given up for good": {ended(hero.JobError, "timeout: no answer"), hero.MessageProcessed, hero.NodeFailed, "timeout: no answer"},
		"has its result":    {ended(hero.JobFinished, "by hand"), hero.MessageProcessed, hero.NodeCompleted, "by hand"},
		"cancelled": {func(b *bed) {
			b.must(b.db.StopJob(t.Context(), 1, 12, 2001, 33, 2)) // stops another attempt
			b.must(b.db.StopJob(t.Context(), 1, 12, 2001, 33, 1))
		}, hero.MessageError, hero.NodeFailed, "asked to end"},
	} {
		t.Run(name, func(t *testing.T) {
			b, s := newBed(t), newBoss(t)
			stopped := make(chan struct{})
			var once sync.Once
			end := func() { once.Do(func() { close(stopped) }) }
			t.Cleanup(end)
			s.work = func(http.ResponseWriter, supervisor.Job) any {
				<-stopped
				return map[string]string{"error": "stopped"}
			}
			s.before = func(_ http.ResponseWriter, method string) bool {
				if method == "job.stop" {
					end()
				}
				return false
			}
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			j := job(2001)
			j.CallerID, j.ContextID, j.FlowID, j.Attempt, j.Status = 12, 1, 33, 1, hero.JobDispatched
			b.must(b.db.PutJob(t.Context(), j))
			flows := &reports{}
			b.start(Options{Flows: flows})
			m := b.send(hero.Message{Job: []hero.Job{j}, FlowID: 33, Attempt: 1, TimeoutResult: 3600})
			testkit.Until(t, 20*time.Second, "the supervisor has it", func() bool { return s.ran("2001") == 1 })
			c.now(b)
			b.end(m, c.want)
			ends := flows.ends()
			if len(ends) != 1 || ends[0].Attempt != 1 || ends[0].Status != c.ends || !strings.Contains(fmt.Sprint(ends[0].Result), c.says) {
				t.Errorf("%+v", ends)
			}
			select {
			case <-stopped:
			default:
				t.Error("the supervisor was not asked to stop it")
			}
		})
	}
}

// A flow was cancelled while the supervisor was down, and its job ran when the supervisor
// was back.
func TestAJobThatWasCancelledOnItsWayRanAfterAll(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	b.runner(hero.Runner{ID: 20, Address: "http://127.0.0.1:1"}, 1)
	flows := &reports{}
	b.start(Options{Flows: flows})
	sent := func(id, now uint32) hero.Message {
		j := job(id)
		j.CallerID, j.ContextID, j.FlowID, j.Attempt, j.Status = 12, 1, 33, now, hero.JobDispatched
		b.must(b.db.PutJob(t.Context(), j))
		return b.send(hero.Message{ID: id, Job: []hero.Job{j}, FlowID: 33, Attempt: 1, Timeout: 60})
	}
	cancelled, told, retried, wanted := sent(2001, 1), sent(2002, 1), sent(2003, 2), sent(2004, 1)
	b.must(b.db.StopJob(t.Context(), 1, 12, 2001, 33, 1))
	_, _, err := b.db.MoveJob(t.Context(), 1, 12, 2002, hero.JobFinished, map[string]string{"output": "by hand"})
	b.must(err)
	for m, want := range map[*hero.Message]hero.MessageStatus{&cancelled: hero.MessageError, &told: hero.MessageProcessed, &retried: hero.MessageError} {
		if got := b.ended(*m); got.Status != want {
			t.Errorf("%s is %s, want %s: %v", m.Key(), got.Status, want, got.Logs)
		}
	}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.end(wanted, hero.MessageProcessed)
	if s.ran("2001")+s.ran("2002")+s.ran("2003") != 0 || s.ran("2004") != 1 {
		t.Errorf("runs %v", s.runs)
	}
	for _, r := range flows.ends() {
		if r.Node == 2002 && r.Result["output"] != "by hand" {
			t.Errorf("%+v", r)
		}
	}
}

func TestAFlowHearsThatItsJobBegan(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	goOn := make(chan struct{})
	var once sync.Once
	t.Cleanup(func() { once.Do(func() { close(goOn) }) })
	s.work = func(http.ResponseWriter, supervisor.Job) any {
		<-goOn
		return map[string]string{"success": "x"}
	}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	flows := &reports{}
	b.start(Options{Flows: flows})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}, FlowID: 33, Attempt: 3})
	began := func() (n int) {
		flows.mu.Lock()
		defer flows.mu.Unlock()
		for _, r := range flows.got {
			if r.Status == hero.NodeRunning && r.Node == 2001 && r.Attempt == 3 {
				n++
			}
		}
		return n
	}
	testkit.Until(t, 20*time.Second, "the flow hears that the job began", func() bool { return began() > 0 })
	once.Do(func() { close(goOn) })
	b.end(m, hero.MessageProcessed)
	if ends := flows.ends(); began() != 1 || len(ends) != 1 || ends[0].Status != hero.NodeCompleted {
		t.Errorf("%d beginnings, ends %+v", began(), ends)
	}
}
