package msgout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda"
	"edda/effects/effecttest"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/msgout"
	"edda/hero/redisdb"
	"edda/hero/redisdb/redisdbtest"
	"edda/internal/realservers"
	"edda/internal/testkit"
	"edda/outbox"
	"edda/outbox/outboxtest"
)

// bench is a Redis with a context, a flow and its jobs.
type bench struct {
	t       *testing.T
	server  *realservers.Server
	db      *redisdb.DB
	dest    *msgout.Destination
	reports []hero.Report
	refuse  error // the flow's answer to reports
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, db := redisdbtest.New(t, realservers.RedisOptions{})
	b := &bench{t: t, server: s, db: db}
	b.dest = msgout.New(db, b)
	testkit.Must(t, db.PutContext(t.Context(), hero.Context{ID: 7, Admins: []uint32{12}}))
	testkit.Must(t, db.PutFlow(t.Context(), hero.Flow{ID: 33, CallerID: 12, ContextID: 7, Jobs: []uint32{1, 2}, EnvVars: map[string]string{"A": "flow", "B": "flow"}, Status: hero.FlowDispatched}))
	for id := uint32(1); id <= 2; id++ {
		testkit.Must(t, db.PutJob(t.Context(), hero.Job{ID: id, CallerID: 12, ContextID: 7, Script: "print(1)", ScriptType: hero.ScriptPython, Timeout: 60, EnvVars: map[string]string{"B": "job"}, Status: hero.JobDispatched}))
	}
	return b
}

func (b *bench) Report(_ context.Context, r hero.Report) error {
	b.reports = append(b.reports, r)
	return b.refuse
}

// deliver delivers acts as one piece of work, twice, as the relay may.
func (b *bench) deliver(acts ...flow.Act) {
	b.t.Helper()
	for range 2 {
		testkit.Must(b.t, b.once(acts...))
	}
}

func (b *bench) once(acts ...flow.Act) error {
	payload, err := json.Marshal(flow.Batch{FlowID: 33, CallerID: 12, ContextID: 7, Acts: acts, Jobs: []string{"job:12:1", "job:12:2"}})
	testkit.Must(b.t, err)
	return b.dest.Deliver(b.t.Context(), []edda.Work{{ID: "w", Kind: edda.WorkMessage, From: edda.Key{Tenant: "hero", Saga: flow.Saga, Correlation: "7-33"}, Payload: payload}})[0]
}

func (b *bench) job(id uint32) hero.Job {
	b.t.Helper()
	j, err := b.db.Job(b.t.Context(), 7, 12, id)
	testkit.Must(b.t, err)
	return j
}

// sent reads the only message in msg_out.
func (b *bench) sent() hero.Message {
	b.t.Helper()
	keys := b.queued()
	if len(keys) != 1 {
		b.t.Fatalf("msg_out holds %v", keys)
	}
	caller, id, err := hero.ParseMessageKey(keys[0])
	testkit.Must(b.t, err)
	m, err := b.db.Message(b.t.Context(), 7, caller, id)
	testkit.Must(b.t, err)
	return m
}

func (b *bench) queued() []string {
	b.t.Helper()
	keys, err := b.db.Left(b.t.Context(), 7, hero.MsgOut)
	testkit.Must(b.t, err)
	return keys
}

func dispatch(node, attempt uint32) flow.Act {
	return flow.Act{Kind: flow.ActDispatch, Node: node, Caller: 12, Attempt: attempt, Timeout: 60, SupervisorURL: "http://127.0.0.1:1"}
}

func show(node, attempt uint32, s hero.NodeStatus, result map[string]string) flow.Act {
	return flow.Act{Kind: flow.ActNode, Node: node, Caller: 12, Attempt: attempt, Status: s, Result: result}
}

func TestADispatchSendsItsJobOnce(t *testing.T) {
	b := newBench(t)
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowStarted}, dispatch(1, 1), show(2, 0, hero.NodePending, nil))
	m := b.sent()
	if m.MessageType != hero.MessageJob || m.FlowID != 33 || m.Attempt != 1 || m.TimeoutResult != 86400+60+8 || m.Status != hero.MessageDispatched {
		t.Fatalf("%+v", m)
	}
	if diff := cmp.Diff(map[string]string{"A": "flow", "B": "job"}, m.Job[0].EnvVars); diff != "" || m.Job[0].Script != "print(1)" {
		t.Fatalf("job %+v\n%s", m.Job[0], diff)
	}
	if n := m.Nodes[0]; n.ID != 1 || n.SupervisorURL != "http://127.0.0.1:1" {
		t.Fatalf("%+v", n)
	}
	if j := b.job(2); j.Status != hero.JobWaiting {
		t.Fatalf("the second job is %s", j.Status)
	}
	f, err := b.db.Flow(t.Context(), 7, 33)
	if testkit.Must(t, err); f.Status != hero.FlowStarted {
		t.Fatalf("the flow is %s", f.Status)
	}
}

// A relay that lost the answer delivers the first step again after later ones were done.
func TestAnOldStepThatComesAgainChangesNothing(t *testing.T) {
	b := newBench(t)
	start := []flow.Act{{Kind: flow.ActFlow, Flow: hero.FlowStarted}, dispatch(1, 1), show(2, 0, hero.NodePending, nil)}
	b.deliver(start...)
	b.deliver(show(1, 1, hero.NodeRunning, nil))
	b.deliver(start...)
	if j := b.job(1); j.Status != hero.JobStarted {
		t.Fatalf("a running job is %s again", j.Status)
	}
	b.deliver(show(1, 1, hero.NodeCompleted, map[string]string{"output": "1"}), dispatch(2, 1))
	b.deliver(start...)
	b.deliver(show(1, 1, hero.NodeRunning, nil))
	if one, two := b.job(1), b.job(2); one.Status != hero.JobFinished || one.Result["output"] != "1" || two.Status != hero.JobDispatched {
		t.Fatalf("%s %v, %s", one.Status, one.Result, two.Status)
	}
	if keys := b.queued(); len(keys) != 2 {
		t.Fatalf("msg_out holds %v", keys)
	}
}

func TestTheNextAttemptIsANewMessage(t *testing.T) {
	b := newBench(t)
	b.deliver(dispatch(1, 1))
	if _, _, err := b.db.MoveJob(t.Context(), 7, 12, 1, hero.JobError, map[string]string{"error": "exit 1"}); err != nil {
		t.Fatal(err)
	}
	b.deliver(dispatch(1, 2))
	j := b.job(1)
	if j.Status != hero.JobDispatched || j.Attempt != 2 || len(j.Result) != 0 || j.EnvVars["A"] != "flow" || !cmp.Equal(j.OwnEnv, map[string]string{"B": "job"}) {
		t.Fatalf("%+v", j)
	}
	if keys := b.queued(); len(keys) != 2 || keys[0] == keys[1] {
		t.Fatalf("msg_out holds %v", keys)
	}
}

func TestAJobThatHasItsResultIsNotSent(t *testing.T) {
	b := newBench(t)
	if _, _, err := b.db.MoveJob(t.Context(), 7, 12, 1, hero.JobFinished, map[string]string{"output": "before"}); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, b.once(dispatch(1, 1)))
	if keys := b.queued(); len(keys) != 0 {
		t.Fatalf("msg_out holds %v", keys)
	}
	if len(b.reports) != 1 || b.reports[0].Status != hero.NodeCompleted || b.reports[0].Result["output"] != "before" || b.reports[0].Attempt != 1 {
		t.Fatalf("%+v", b.reports)
	}
}

func TestAJobThatIsGoneFailsItsNode(t *testing.T) {
	b := newBench(t)
	testkit.Must(t, b.db.DeleteJob(t.Context(), 7, 12, 1))
	testkit.Must(t, b.once(dispatch(1, 1), show(1, 1, hero.NodeFailed, nil), dispatch(2, 1)))
	if len(b.reports) != 1 || b.reports[0].Status != hero.NodeFailed || b.reports[0].Node != 1 {
		t.Fatalf("%+v", b.reports)
	}
	if keys := b.queued(); len(keys) != 1 {
		t.Fatalf("the other job was not sent: %v", keys)
	}
	b.refuse = edda.Classify(edda.Temporary, "later")
	if err := b.once(dispatch(1, 2)); !errors.Is(err, edda.Temporary) {
		t.Fatalf("a flow that cannot be told now: %v", err)
	}
	b.refuse = edda.Classify(edda.Permanent, "no such flow")
	testkit.Must(t, b.once(dispatch(1, 2)))
}

func TestAFlowsResultIsGathered(t *testing.T) {
	b := newBench(t)
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowStarted}, dispatch(1, 1), dispatch(2, 1))
	b.deliver(show(1, 1, hero.NodeCompleted, map[string]string{"output": "1", "rows": "7"}))
	b.deliver(show(2, 1, hero.NodeFailed, map[string]string{"error": "exit 2"}), flow.Act{Kind: flow.ActFlow, Flow: hero.FlowError, Reason: "job 2 failed: exit 2"})
	f, err := b.db.Flow(t.Context(), 7, 33)
	testkit.Must(t, err)
	want := map[string]string{"1.output": "1", "1.rows": "7", "2.error": "exit 2", "error": "job 2 failed: exit 2"}
	if diff := cmp.Diff(want, f.Result); diff != "" || f.Status != hero.FlowError {
		t.Fatalf("%s\n%s", f.Status, diff)
	}
}

func TestARunnersOwnResultStays(t *testing.T) {
	b := newBench(t)
	b.deliver(dispatch(1, 1))
	if _, _, err := b.db.MoveJob(t.Context(), 7, 12, 1, hero.JobFinished, map[string]string{"output": "whole"}); err != nil {
		t.Fatal(err)
	}
	b.deliver(show(1, 1, hero.NodeCompleted, map[string]string{"output": "cut"}))
	if j := b.job(1); j.Result["output"] != "whole" {
		t.Fatalf("%v", j.Result)
	}
}

func TestAStopIsAskedOfTheJob(t *testing.T) {
	b := newBench(t)
	b.deliver(dispatch(1, 1))
	b.deliver(flow.Act{Kind: flow.ActStop, Node: 1, Caller: 12, Attempt: 1})
	c, err := b.db.Client(7)
	testkit.Must(t, err)
	if got := c.HGet(t.Context(), "job:12:1", "stop").Val(); got != "1" {
		t.Fatalf("stop is %q", got)
	}
	if j := b.job(1); j.Status != hero.JobDispatched {
		t.Fatalf("%+v", j)
	}
}

func TestWhileRedisIsDownWorkWaits(t *testing.T) {
	b := newBench(t)
	testkit.Must(t, b.server.Kill())
	if err := b.once(dispatch(1, 1)); !errors.Is(err, edda.Temporary) {
		t.Fatalf("%v", err)
	}
}

func message(fields string) edda.Work {
	return edda.Work{ID: "m1", Kind: edda.WorkMessage, Name: "hello", From: edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"}, Payload: json.RawMessage(fields)}
}

func TestASagasMessageIsSentOnce(t *testing.T) {
	b := newBench(t)
	w := message(`{"context_id": 7, "caller_id": 12, "message_type": "chat", "message": "hello", "to": 13, "timeout": 5}`)
	for range 2 {
		testkit.Must(t, b.dest.Deliver(t.Context(), []edda.Work{w})[0])
	}
	m := b.sent()
	if m.Message != "hello" || m.MessageFormat != hero.FormatText || m.To != 13 || m.Timeout != 5 || m.CallerID != 12 {
		t.Fatalf("%+v", m)
	}
}

func TestAMalformedMessageIsRejected(t *testing.T) {
	b := newBench(t)
	for name, fields := range map[string]string{
		"no object":    `7`,
		"no context":   `{"caller_id": 12, "message": "x"}`,
		"no caller":    `{"context_id": 7, "message": "x"}`,
		"strange type": `{"context_id": 7, "caller_id": 12, "message_type": "fax"}`,
		"strange form": `{"context_id": 7, "caller_id": 12, "message_format_type": "pdf"}`,
		"no job":       `{"context_id": 7, "caller_id": 12, "message_type": "job"}`,
		"a typo":       `{"context_id": 7, "caller_id": 12, "mesage": "x"}`,
		"a job's":      `{"context_id": 7, "caller_id": 12, "job": [{"id": 1, "caller_id": 12, "scirpt": "x", "script_type": "v"}]}`,
		"a node's":     `{"context_id": 7, "caller_id": 12, "message_type": "job", "nodes": [{"id": 1, "after": [2]}]}`,
		"beyond u32":   `{"context_id": 4294967296, "caller_id": 12}`,
	} {
		t.Run(name, func(t *testing.T) {
			no := (*outbox.Rejection)(nil)
			if err := b.dest.Deliver(t.Context(), []edda.Work{message(fields)})[0]; !errors.As(err, &no) || no.Message == "" {
				t.Fatalf("%v", err)
			}
		})
	}
	if keys := b.queued(); len(keys) != 0 {
		t.Fatalf("msg_out holds %v", keys)
	}
}

func TestTheLaneTakesMessages(t *testing.T) {
	if l := msgout.New(nil, nil).Route(); !slices.Equal(l.Kinds, []edda.WorkKind{edda.WorkMessage}) || l.Name != "redis" || fmt.Sprint(l.Destination) == "" {
		t.Fatalf("%+v", l)
	}
}

func TestAFlowThatIsFinishedStaysSo(t *testing.T) {
	b := newBench(t)
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowStarted})
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowFinished})
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowStarted})
	f, err := b.db.Flow(t.Context(), 7, 33)
	if testkit.Must(t, err); f.Status != hero.FlowFinished {
		t.Fatalf("the flow is %s", f.Status)
	}
	if err := b.db.MoveFlow(t.Context(), 7, 33, hero.FlowError, nil); !errors.Is(err, redisdb.ErrIllegal) {
		t.Fatalf("%v", err)
	}
	if err := b.db.MoveFlow(t.Context(), 7, 34, hero.FlowError, nil); !errors.Is(err, redisdb.ErrNotFound) {
		t.Fatalf("%v", err)
	}
}

func TestAFlowsResultHasABound(t *testing.T) {
	b := newBench(t)
	large := strings.Repeat("x", 3<<20)
	for id := uint32(1); id <= 2; id++ {
		if _, _, err := b.db.MoveJob(t.Context(), 7, 12, id, hero.JobFinished, map[string]string{"output": large}); err != nil {
			t.Fatal(err)
		}
	}
	b.deliver(flow.Act{Kind: flow.ActFlow, Flow: hero.FlowStarted}, flow.Act{Kind: flow.ActFlow, Flow: hero.FlowFinished})
	f, err := b.db.Flow(t.Context(), 7, 33)
	testkit.Must(t, err)
	if len(f.Result["1.output"]) != len(large) || f.Result["2.output"] != "" || f.Result["note"] != "more than 4194304 bytes: the jobs from 2 on keep theirs" {
		t.Fatalf("%d %d %q", len(f.Result["1.output"]), len(f.Result["2.output"]), f.Result["note"])
	}
}

// Each flow counts its attempts, so an attempt of another flow in a job's hash does not count.
func TestAFailedJobRunsInAnotherFlow(t *testing.T) {
	b := newBench(t)
	b.deliver(dispatch(1, 1))
	c, err := b.db.Client(7)
	testkit.Must(t, err)
	testkit.Must(t, c.HSet(t.Context(), "job:12:1", "queued", 1, "content", "digest", "stop", 1).Err())
	if _, _, err := b.db.MoveJob(t.Context(), 7, 12, 1, hero.JobError, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.db.DispatchJob(t.Context(), 7, 12, 1, redisdb.Dispatch{FlowID: 34, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if left := c.HMGet(t.Context(), "job:12:1", "queued", "content", "stop").Val(); left[0] != nil || left[1] != nil || left[2] != nil {
		t.Fatalf("the earlier flow left %v", left)
	}
	b.deliver(flow.Act{Kind: flow.ActStop, Node: 1, Caller: 12, Attempt: 1}, show(1, 1, hero.NodeCancelled, nil))
	if j := b.job(1); j.Status != hero.JobDispatched || c.HExists(t.Context(), "job:12:1", "stop").Val() {
		t.Fatalf("the end of flow 33 ended the job of flow 34: %+v", j)
	}
}

func TestANewAttemptForgetsTheMarksOfTheLastOne(t *testing.T) {
	b := newBench(t)
	b.deliver(dispatch(1, 1))
	c, err := b.db.Client(7)
	testkit.Must(t, err)
	testkit.Must(t, c.HSet(t.Context(), "job:12:1", "queued", 1, "content", "digest", "stop", 1).Err())
	if _, _, err := b.db.MoveJob(t.Context(), 7, 12, 1, hero.JobError, nil); err != nil {
		t.Fatal(err)
	}
	b.deliver(dispatch(1, 2))
	left := c.HMGet(t.Context(), "job:12:1", "queued", "content", "stop").Val()
	if left[0] != "1" || left[1] != nil || left[2] != nil {
		t.Fatalf("after the second dispatch the hash has %v", left)
	}
}

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

// arrivals returns the messages in msg_out, oldest first.
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
