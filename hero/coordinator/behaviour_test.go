package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

func TestAStartedFlowAndItsJobsDoNotChange(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.job(11, 10)
	w.flow(1, 10, 11)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	change := func(method string, params dict2) {
		t.Helper()
		before := w.dump()
		if d := w.refused(jsonrpc.AlreadyExists, method, params); d.Key == "" || !strings.Contains(d.Why, "started") && !strings.Contains(d.Why, "finished") || d.Do == "" {
			t.Errorf("%s is refused with %+v", method, d)
		}
		if w.dump() != before {
			t.Errorf("%s changed Redis", method)
		}
	}
	changes := func() {
		t.Helper()
		change("flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": admin, "jobs": []int{10}}})
		change("job.create", dict2{"context_id": 7, "job": dict2{"id": 10, "caller_id": admin, "script": "other", "script_type": "python"}})
		change("job.delete", dict2{"context_id": 7, "caller_id": admin, "id": 11})
		change("message.create", dict2{"context_id": 7, "message": dict2{"id": 1, "caller_id": admin, "message_type": "job", "job": []dict2{{"id": 10, "script": "other", "script_type": "python"}}}})
	}
	changes()
	change("flow.delete", dict2{"context_id": 7, "id": 1})
	w.flow(1, 10, 11) // the same flow again changes nothing
	w.job(10)
	w.flows.finish(t, 1, nil)
	changes()
	w.call("flow.delete", dict2{"context_id": 7, "id": 1}, nil)
	w.call("job.delete", dict2{"context_id": 7, "caller_id": admin, "id": 11}, nil)
	if d := w.refused(jsonrpc.AlreadyExists, "flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": admin, "jobs": []int{10}}}); !strings.Contains(d.Do, "never used") {
		t.Errorf("the id of a flow that ran is taken again: %+v", d)
	}
}

func TestAFlowInErrorIsMendedAndStartedAgain(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	var yes bool
	w.call("flow.cancel", dict2{"context_id": 7, "id": 1}, &yes)
	var f hero.Flow
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &f)
	if !yes || f.Status != hero.FlowError {
		t.Errorf("cancelled %v: %s", yes, f.Status)
	}
	w.call("flow.cancel", dict2{"context_id": 7, "id": 1}, &yes)
	if yes {
		t.Error("a flow that has ended is cancelled")
	}
	w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 10, "caller_id": admin, "script": "mended", "script_type": "python"}}, nil)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, &yes)
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &f)
	if !yes || f.Status != hero.FlowStarted {
		t.Errorf("started again %v: %s", yes, f.Status)
	}
}

func TestAFlowThatBeganAMomentAgoIsShownStarted(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.flows.quiet = true // Redis is updated later
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	var f hero.Flow
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &f)
	if f.Status != hero.FlowStarted {
		t.Errorf("it is shown as %s", f.Status)
	}
	w.flows.finish(t, 1, nil) // and its result is not in Redis yet
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &f)
	if f.Status != hero.FlowStarted {
		t.Errorf("a flow without its result is shown as %s", f.Status)
	}
	var all []hero.Flow
	w.call("flow.list", dict2{"context_id": 7}, &all)
	if len(all) != 1 || all[0].Status != hero.FlowStarted {
		t.Errorf("listed as %+v", all)
	}
}

func TestAFlowThatIsEndingIsNotWrittenOver(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.flows.quiet = true // Redis gets its end later
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	w.call("flow.cancel", dict2{"context_id": 7, "id": 1}, nil)
	if d := w.refused(jsonrpc.AlreadyExists, "flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": admin, "jobs": []int{10, 11}}}); !strings.Contains(d.Why, "is ending") {
		t.Errorf("refused with %+v", d)
	}
}

// A call that names no caller is its object's creator's.
func TestACreatorWithoutRightsReadsNothing(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.flow(1, 10)
	w.call("context.create", dict2{"context": dict2{"id": 7, "admins": []int{other}}, "caller_id": other}, nil)
	for _, method := range []string{"flow.load", "flow.dag", "flow.start", "flow.cancel", "flow.delete"} {
		if d := w.refused(jsonrpc.PermissionDenied, method, dict2{"context_id": 7, "id": 1}); !strings.Contains(d.Why, "actor 1") {
			t.Errorf("%s: %+v", method, d)
		}
	}
	w.call("flow.load", dict2{"context_id": 7, "id": 1, "caller_id": other}, nil)
}

func TestACallHasADeadline(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	if left := w.flows.left; left <= 0 || left > callTimeout {
		t.Errorf("a flow had %s to start", left)
	}
}

func TestFieldsThatTheServerSetsAreDropped(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	var m hero.Message
	w.call("message.create", dict2{"context_id": 7, "message": dict2{
		"id": 1, "caller_id": admin, "message_type": "chat", "message": "hi", "transport_id": "0102", "transport_status": "read", "attempt": 3,
		"status": "processed", "created_at": 5, "logs": []dict2{{"time": 1, "level": "info", "source": "me", "text": "x"}},
	}}, &m)
	if m.TransportID != "" || m.TransportStatus != "" || m.Attempt != 0 || m.Status != hero.MessageDispatched || m.CreatedAt == 5 || len(m.Logs) != 0 {
		t.Errorf("sent %+v", m)
	}
}

// A job's dependencies can be given in three ways. A node without dependencies leaves its
// job's in place.
func TestNodesGoBeforeTheJobs(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.job(11, 10)
	w.job(12, 10)
	nodes := []dict2{
		{"id": 11, "supervisor_url": "http://127.0.0.1:9"},
		{"id": 12, "depends": []int{11}, "prerequisites": []string{"paid"}},
	}
	for i, params := range []dict2{
		{"context_id": 7, "flow": dict2{"id": 1, "caller_id": admin, "jobs": []int{10, 11, 12}, "nodes": nodes}},
		{"context_id": 7, "flow": dict2{"id": 2, "caller_id": admin, "jobs": []int{10, 11, 12}}, "nodes": nodes},
		{"context_id": 7, "flow": dict2{"id": 3, "caller_id": admin}, "nodes": append([]dict2{{"id": 10}}, nodes...)},
		{"context_id": 7, "id": 4, "caller_id": admin, "jobs": []int{10, 11, 12}, "nodes": nodes},
	} {
		w.call("flow.create", params, nil)
		var g flow.Graph
		w.call("flow.dag", dict2{"context_id": 7, "id": i + 1}, &g)
		if got := fmt.Sprint(g.Edges, g.Nodes["11"].SupervisorURL, g.Nodes["12"].Prerequisites); got != "[[10 11] [11 12]]http://127.0.0.1:9[paid]" {
			t.Errorf("way %d: %s", i+1, got)
		}
	}
	var loaded json.RawMessage
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &loaded)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	w.call("flow.create", dict2{"context_id": 7, "flow": loaded}, nil) // the loaded flow changes nothing
}

func TestAnEmptyListOfDependenciesIsNone(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.job(11, 10)
	w.call("flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": admin, "jobs": []int{10, 11}, "nodes": []dict2{{"id": 11, "depends": []int{}}}}}, nil)
	var g flow.Graph
	w.call("flow.dag", dict2{"context_id": 7, "id": 1}, &g)
	if len(g.Edges) != 0 || !slices.Equal(g.Roots, []uint32{10, 11}) {
		t.Errorf("graph %+v", g)
	}
}

func TestAPrerequisiteIsMet(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": 10, "caller_id": admin, "script": "x", "script_type": "v", "prerequisites": []string{"paid", "packed"}}}, nil)
	w.flow(1, 10)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	if d := w.refused(jsonrpc.InvalidParams, "flow.prerequisite_met", dict2{"context_id": 7, "id": 1, "name": "payed"}); !strings.Contains(d.Why, "packed, paid") {
		t.Errorf("a name that nothing waits for: %+v", d)
	}
	for _, c := range []struct{ name, want string }{{"paid", "[]"}, {"paid", "[]"}, {"packed", "[10]"}} {
		var ready json.RawMessage
		w.call("flow.prerequisite_met", dict2{"context_id": 7, "id": 1, "name": c.name}, &ready)
		if string(ready) != c.want {
			t.Errorf("%s made %s ready, want %s", c.name, ready, c.want)
		}
	}
}

func TestAnUpdateOfAJobIsHeardByItsFlowOnce(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	w.call("flow.start", dict2{"context_id": 7, "id": 1}, nil)
	update := func(status string, result dict2) hero.Job {
		t.Helper()
		var j hero.Job
		w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 10, "status": status, "result": result, "actor_id": executor}, &j)
		return j
	}
	if j := update("started", nil); j.Status != hero.JobStarted {
		t.Errorf("job %+v", j)
	}
	w.flows.fail = edda.Classify(edda.Temporary, "the stream is away")
	if d := w.refused(jsonrpc.StorageError, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 10, "status": "finished", "result": dict2{"sum": "3"}}); !strings.Contains(d.Why+d.Do, "the stream is away") || !strings.Contains(d.Do, "again") {
		t.Errorf("a flow that cannot hear: %+v", d)
	}
	w.flows.fail = nil
	j := update("finished", dict2{"sum": "4"}) // the recorded result stays
	update("finished", nil)
	if j.Result["sum"] != "3" || len(w.flows.reports) != 2 || w.flows.reports[1].Result["sum"] != "3" || w.flows.reports[1].Attempt != 1 {
		t.Errorf("job %+v, reports %+v", j, w.flows.reports)
	}
	if d := w.refused(jsonrpc.InvalidParams, "job.update", dict2{"context_id": 7, "caller_id": admin, "id": 10, "status": "started"}); d.Field != "status" || !strings.Contains(d.Why, "finished") {
		t.Errorf("a step back: %+v", d)
	}
	var f hero.Flow
	w.call("flow.load", dict2{"context_id": 7, "id": 1}, &f)
	if f.Status != hero.FlowFinished || f.Result["10.sum"] != "3" {
		t.Errorf("flow %+v", f)
	}
}

func TestAMessageIsSentOnce(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	send := dict2{"context_id": 7, "message": dict2{
		"id": 5, "caller_id": admin, "message_type": "job", "message": "run", "to": other, "timeout_result": 60,
		"job": []dict2{{"id": 10, "script": "print(1)", "script_type": "python", "env_vars": dict2{"A": "b"}, "signatures": []dict2{{"key": "k", "signature": "s"}}}},
	}}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if err := w.http1.Call(context.Background(), "message.create", send, nil); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	c, err := w.db.Client(7)
	testkit.Must(t, err)
	if keys := c.LRange(t.Context(), hero.MsgOut, 0, -1).Val(); !slices.Equal(keys, []string{"message:1:5"}) {
		t.Errorf("msg_out holds %v", keys)
	}
	var m hero.Message
	w.call("message.load", dict2{"context_id": 7, "caller_id": admin, "id": 5}, &m)
	if m.Status != hero.MessageDispatched || m.To != other || len(m.Job) != 1 || m.Job[0].CallerID != admin || m.Job[0].ContextID != 7 || m.Job[0].Executor != "python" || string(m.Job[0].Signatures) != `[{"key":"k","signature":"s"}]` {
		t.Errorf("sent %+v", m)
	}
	changed := dict2{"context_id": 7, "message": dict2{"id": 5, "caller_id": admin, "message_type": "chat", "message": "other"}}
	if d := w.refused(jsonrpc.AlreadyExists, "message.create", changed); d.Key != "message:1:5" || !strings.Contains(d.Do, "another id") {
		t.Errorf("a message that was sent is changed: %+v", d)
	}
	w.call("message.delete", dict2{"context_id": 7, "caller_id": admin, "id": 5}, nil)
	for _, again := range []dict2{send, changed} {
		w.refused(jsonrpc.AlreadyExists, "message.create", again)
	}
	if n := c.LLen(t.Context(), hero.MsgOut).Val(); n != 1 {
		t.Errorf("msg_out holds %d keys", n)
	}
}

func TestARunnersSecretIsKeptAndNeverShown(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	const secret = "quite-a-secret"
	given := dict2{"context_id": 7, "runner": dict2{"id": 20, "address": "http://127.0.0.1:1", "secret": secret}}
	var answers []json.RawMessage
	for _, c := range []struct {
		method string
		params dict2
	}{
		{"runner.create", given}, {"runner.load", dict2{"context_id": 7, "id": 20}}, {"runner.list", dict2{"context_id": 7}},
		{"runner.create", dict2{"context_id": 7, "runner": dict2{"id": 20, "address": "http://127.0.0.1:2"}}},
	} {
		var answer json.RawMessage
		w.call(c.method, c.params, &answer)
		answers = append(answers, answer)
	}
	if strings.Contains(fmt.Sprintf("%s", answers), secret) {
		t.Errorf("the secret is shown: %s", answers)
	}
	r, err := w.db.Runner(t.Context(), 7, 20)
	if err != nil || r.Secret != secret || r.Address != "http://127.0.0.1:2" {
		t.Errorf("kept %+v, %v", r, err)
	}
}

func TestListsComeInPages(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	for id := uint32(1); id <= 5; id++ {
		w.job(id)
	}
	w.call("job.update", dict2{"context_id": 7, "caller_id": admin, "id": 2, "status": "started"}, nil)
	for _, c := range []struct {
		params dict2
		want   string
	}{
		{dict2{}, "[1 2 3 4 5]"}, {dict2{"limit": 2}, "[1 2]"}, {dict2{"limit": 2, "offset": 3}, "[4 5]"}, {dict2{"offset": 9}, "[]"}, {dict2{"status": "Started"}, "[2]"}, {dict2{"status": "error"}, "[]"},
	} {
		c.params["context_id"] = 7
		var raw json.RawMessage
		w.call("job.list", c.params, &raw)
		var jobs []hero.Job
		if err := json.Unmarshal(raw, &jobs); err != nil || string(raw) == "null" {
			t.Fatalf("%s: %v", raw, err)
		}
		ids := []uint32{}
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
		if fmt.Sprint(ids) != c.want {
			t.Errorf("%v: %v, want %s", c.params, ids, c.want)
		}
	}
	for method, params := range map[string]dict2{"actor.list": {}, "context.list": {"actor_id": reader}, "flow.list": {"context_id": 7}, "runner.list": {"context_id": 7}, "message.list": {"context_id": 7}} {
		var raw json.RawMessage
		w.call(method, params, &raw)
		if !strings.HasPrefix(string(raw), "[") {
			t.Errorf("%s answers %s", method, raw)
		}
	}
	var contexts []hero.Context
	w.call("context.list", dict2{"actor_id": stranger}, &contexts)
	if len(contexts) != 0 {
		t.Errorf("a stranger sees %v", contexts)
	}
}

func TestAnObjectInUseIsNotDeleted(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("context.create", dict2{"context": dict2{"id": 8, "admins": []int{stranger}}}, nil)
	if d := w.refused(jsonrpc.AlreadyExists, "actor.delete", dict2{"id": stranger}); !strings.Contains(d.Why, "context:8") {
		t.Errorf("the only admin of a context: %+v", d)
	}
	w.call("context.delete", dict2{"id": 8}, nil)
	w.call("actor.delete", dict2{"id": stranger}, nil)
	w.refused(jsonrpc.NotFound, "actor.load", dict2{"id": stranger})
	w.refused(jsonrpc.NotFound, "context.load", dict2{"id": 8})
}

// TestWhatFlowsAnswer checks the code for each class of error.
func TestWhatFlowsAnswer(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{edda.Classify(edda.Temporary, "the stream is away"), jsonrpc.StorageError, "the stream is away"},
		{edda.Classify(edda.Permanent, "the flow is finished"), jsonrpc.InvalidParams, "the flow is finished"},
		{fmt.Errorf("start: %w", context.DeadlineExceeded), jsonrpc.StorageError, "no answer within 20s"},
		{errors.New("dial tcp 10.1.2.3: hunter2"), jsonrpc.InternalError, "the coordinator failed"},
	} {
		w.flows.fail = c.err
		if d := w.refused(c.code, "flow.start", dict2{"context_id": 7, "id": 1}); !strings.Contains(d.Why, c.says) {
			t.Errorf("%v: %+v", c.err, d)
		}
	}
}

// A call locks its context, so what it has read does not change before it writes.
func TestCallsThatWriteInOneContextWaitForEachOther(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.job(10)
	w.flow(1, 10)
	unlock, err := w.locks.lock(t.Context(), 7)
	testkit.Must(t, err)
	before := w.dump()
	writing := append(writes()[1:], storageCall{"flow.start", dict2{"context_id": 7, "id": 1}}, storageCall{"flow.delete", dict2{"context_id": 7, "id": 1}},
		storageCall{"job.delete", dict2{"context_id": 7, "caller_id": 1, "id": 10}}, storageCall{"context.delete", dict2{"id": 7}})
	writing = slices.DeleteFunc(writing, func(c storageCall) bool { return c.method == "job.update" }) // atomic without the lock
	var calls sync.WaitGroup
	for _, c := range writing {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			raw, _ := json.Marshal(dict2{"jsonrpc": "2.0", "id": 1, "method": c.method, "params": c.params})
			if answer := string(w.rpc.Handle(ctx, raw)); !strings.Contains(answer, "no answer within") {
				t.Errorf("%s did not wait: %s", c.method, answer)
			}
		})
	}
	w.call("context.create", dict2{"context": dict2{"id": 8, "admins": []int{admin}}}, nil) // another context does not wait
	w.call("context.delete", dict2{"id": 8}, nil)
	calls.Wait()
	if w.dump() != before {
		t.Error("a call that did not get the lock changed Redis")
	}
	unlock()
	w.job(11)
}

// A job's priority is kept in any spelling. An unknown one is refused by name.
func TestAPriorityOfAJobIsDropped(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	create := func(id int, priority any) (j hero.Job) {
		w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": admin, "script": "x", "script_type": "python", "priority": priority}}, &j)
		return j
	}
	for id, priority := range map[int]string{101: "high", 102: "High", 103: "normal", 104: ""} {
		want := hero.PriorityHigh
		if id > 102 {
			want = hero.PriorityNormal
		}
		if j := create(id, priority); j.Priority != want {
			t.Errorf("%q is %q", priority, j.Priority)
		}
		if j, err := w.db.Job(t.Context(), 7, admin, uint32(id)); err != nil || j.Priority != want {
			t.Errorf("%q is kept as %q, %v", priority, j.Priority, err)
		}
	}
	for _, priority := range []any{"urgent", 5} {
		d := w.refused(jsonrpc.InvalidParams, "job.create", dict2{"context_id": 7, "job": dict2{"id": 105, "caller_id": admin, "script": "x", "script_type": "python", "priority": priority}})
		if d.Field != "job.priority" {
			t.Errorf("%v: %+v", priority, d)
		}
	}
}

// The documents write mycelium://<ip> without the brackets of a URL.
func TestAnAddressOfMyceliumIsASupervisorsURL(t *testing.T) {
	for url, good := range map[string]bool{
		"mycelium://5f3:41a0::1": true, "mycelium://5f3:41a0::1?topic=supervisor.rpc": true, "mycelium://5f3:41a0::1/?topic=x": true,
		"mycelium://[5f3:41a0::1]?topic=x": true, "mycelium://abcd": true, "mycelium://": false, "mycelium://?topic=x": false, "http://5f3::1": false,
	} {
		if err := CheckURL("supervisor_url", url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}
