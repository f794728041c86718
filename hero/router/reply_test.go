package router

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero"
	"edda/hero/mycelium"
	"edda/hero/mycelium/standin"
	"edda/hero/supervisor"
	"edda/internal/testkit"
)

// foreign is a foreign supervisor at a node of Mycelium. The test sets its answers.
type foreign struct {
	mu     sync.Mutex     // guards the fields below
	calls  map[string]int // by method
	ended  bool
	work   func(mycelium.Message) // before job.run is answered
	cannot map[string]bool        // unknown methods
	answer func(m mycelium.Message, reply []byte) []byte
}

func (f *foreign) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

func (f *foreign) handle(_ context.Context, m mycelium.Message) []byte {
	var call struct {
		ID     json.RawMessage
		Method string
	}
	_ = json.Unmarshal(m.Payload, &call) // any other payload has no method
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[call.Method]++
	cannot, ended := f.cannot[call.Method], f.ended
	f.mu.Unlock()
	result := ""
	switch {
	case cannot:
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, call.ID)
	case call.Method == "job.run":
		if f.work != nil {
			f.work(m)
		}
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
		result = `{"success":"ran it"}`
	case call.Method == "job.status" && ended:
		result = `{"job_id":"2001","status":"finished"}`
	case call.Method == "job.status":
		result = `{"job_id":"2001","status":"started"}`
	case call.Method == "job.result":
		result = `{"success":"ran it"}`
	default:
		result = "true"
	}
	reply := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
	if f.answer != nil {
		return f.answer(m, reply)
	}
	return reply
}

// at serves the supervisor at a node, and registers it as a runner of context 1.
func (f *foreign) at(b *bed, n *network, name string) *standin.Node {
	b.t.Helper()
	_, _, node := n.hub(b, name, func(h *mycelium.Hub) { b.must(h.Serve(hero.SupervisorTopic, f.handle)) })
	b.runner(hero.Runner{ID: 20, PubKey: node.Key(), Secret: "s3cret"}, 1)
	return node
}

// The reply is lost, and the supervisor knows the end. The job does not run again, with and
// without a flow.
func TestALostReplyIsAskedForAndTheJobIsNotRunAgain(t *testing.T) {
	for name, flow := range map[string]uint32{"in a flow": 33, "outside of flows": 0} {
		t.Run(name, func(t *testing.T) {
			var lost atomic.Int32
			b := newBed(t)
			n := newNetwork(t, func(e standin.Envelope) standin.Fault {
				return standin.Fault{Drop: e.Reply && strings.Contains(string(e.Payload), "success") && lost.Add(1) == 1}
			})
			f, flows := &foreign{}, &reports{}
			f.at(b, n, "supervisor")
			mesh, api, _ := n.hub(b, "router", func(*mycelium.Hub) {})
			b.start(Options{Mesh: mesh, State: api.Status, Flows: flows})
			m := b.send(hero.Message{FlowID: flow, Attempt: 1, Job: []hero.Job{job(2001)}})
			b.end(m, hero.MessageProcessed)
			if got := b.pop(1); got.Job[0].Result["output"] != "ran it" {
				t.Errorf("result %+v", got)
			}
			if f.count("job.run") != 1 || f.count("job.result") != 1 || f.count("job.stop") != 0 {
				t.Errorf("calls %v", f.calls)
			}
			if ends := flows.ends(); flow != 0 && (len(ends) != 1 || ends[0].Status != hero.NodeCompleted) {
				t.Errorf("reports %+v", ends)
			}
		})
	}
}

// Some supervisors answer with a new message on a topic.
func TestAReplyOnATopicIsHeard(t *testing.T) {
	for _, topic := range []string{hero.SupervisorTopic, MessageTopic, ""} {
		t.Run("topic "+topic, func(t *testing.T) {
			b, n := newBed(t), newNetwork(t, nil)
			var api mycelium.API
			f := &foreign{cannot: map[string]bool{"job.status": true}}
			f.answer = func(m mycelium.Message, reply []byte) []byte {
				if _, err := api.Push(t.Context(), mycelium.Peer{PK: m.SrcPK}, topic, reply, 0); err != nil {
					t.Error(err)
				}
				return nil
			}
			var there *standin.Node
			_, api, there = n.hub(b, "supervisor", func(h *mycelium.Hub) { b.must(h.Serve(hero.SupervisorTopic, f.handle)) })
			b.runner(hero.Runner{ID: 20, PubKey: there.Key(), Secret: "s3cret"}, 1)
			node := n.bus.Node("router")
			ours := n.api(b, node)
			mesh := mycelium.NewHub(ours, mycelium.Options{Look: 20 * time.Millisecond, Listen: []string{hero.SupervisorTopic, MessageTopic}})
			b.run(mesh)
			b.start(Options{Mesh: mesh, State: ours.Status})
			b.end(b.send(hero.Message{Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
			if f.count("job.run") != 1 {
				t.Errorf("calls %v", f.calls)
			}
		})
	}
}

// The reply arrives while the coordinator restarts, or later. The supervisor cannot report
// the state of the job.
func TestAReplyThatWaitedOverARestartIsUsedWithoutAnotherCall(t *testing.T) {
	for _, tt := range []struct {
		name    string
		late    bool   // the reply comes after the restart
		unnoted string // the id that was not recorded
		asked   int
	}{
		{name: "it waited", asked: 0},
		{name: "it waited, and is known by its request alone", unnoted: "transport_id", asked: 0},
		{name: "it waited, and is known by its message alone", unnoted: calledAs + "2001", asked: 0},
		{name: "it comes later", late: true, asked: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, n := newBed(t), newNetwork(t, nil)
			took, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			f := &foreign{cannot: map[string]bool{"job.status": true}}
			f.work = func(mycelium.Message) { once.Do(func() { close(took) }); <-release }
			f.at(b, n, "supervisor")
			node := n.bus.Node("router")
			api := n.api(b, node)
			first := mycelium.NewHub(api, mycelium.Options{Look: 20 * time.Millisecond})
			stopHub := b.run(first)
			// On a slow machine the first router would ask for the state of the job, too.
			_, stopRouter := b.start(Options{Mesh: first, State: api.Status, Watch: time.Hour})
			m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
			<-took
			testkit.Until(t, 20*time.Second, "the message's id is noted", func() bool { return b.message(m).TransportID != "" })
			stopRouter()
			stopHub()
			if tt.unnoted != "" && b.raw(1).HDel(t.Context(), m.Key(), tt.unnoted).Val() != 1 {
				t.Fatalf("%s was not noted", tt.unnoted)
			}
			if !tt.late {
				close(release)
				testkit.Until(t, 20*time.Second, "the reply lies in the node", func() bool { return node.Unread() > 0 })
			}
			second := mycelium.NewHub(api, mycelium.Options{Look: 20 * time.Millisecond})
			b.run(second)
			if !tt.late { // a router that starts before the hub has read it asks after a while
				testkit.Until(t, 20*time.Second, "the hub has the reply", func() bool { return node.Unread() == 0 })
			}
			b.start(Options{Mesh: second, State: api.Status})
			if tt.late {
				testkit.Until(t, 20*time.Second, "the supervisor is asked", func() bool { return f.count("job.status") > 0 })
				close(release)
			}
			b.end(m, hero.MessageProcessed)
			if got := b.pop(1); got.Job[0].Result["output"] != "ran it" {
				t.Errorf("result %+v", got)
			}
			if f.count("job.run") != 1 || f.count("job.status") != tt.asked {
				t.Errorf("calls %v, want job.status %d times", f.calls, tt.asked)
			}
		})
	}
}

func TestWhatTheSupervisorSaidIsInTheMessageTheJobAndTheLog(t *testing.T) {
	for _, tt := range []struct{ name, run, status, want string }{
		{"it cannot be asked", `{"code":-32000,"message":"Runner osis-1 not found"}`, `{"code":-32601,"message":"Method not found"}`, "the supervisor refused: Runner osis-1 not found (-32000)"},
		{"it does not know the job", `{"code":-32603,"message":"no such queue: osis"}`, `{"code":-32000,"message":"Job 2001 not found"}`, "the supervisor refused: no such queue: osis (-32603)"},
		{"it may have run it", `{"code":-32000,"message":"broken pipe"}`, `{"code":-32601,"message":"Method not found"}`, "the supervisor said: broken pipe (-32000)"},
		{"it says the same each time", `{"code":-32000,"message":"disk full"}`, `{"code":-32603,"message":"job does not exist"}`, "the supervisor refused: disk full (-32000)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, s := newBed(t), newBoss(t)
			s.before = func(w http.ResponseWriter, method string) bool {
				text := tt.status
				if method == "job.run" {
					text = tt.run
				}
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":%s}`, text)
				return true
			}
			core, log := observer.New(zap.WarnLevel)
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			b.start(Options{Log: zap.New(core)})
			got := b.end(b.send(hero.Message{Timeout: 1, Job: []hero.Job{job(2001)}}), hero.MessageError)
			if !strings.Contains(said(got), tt.want) {
				t.Errorf("the message says %q, want %q", said(got), tt.want)
			}
			if j := b.job(1, 12, 2001); !strings.Contains(j.Result["error"], tt.want) {
				t.Errorf("the job says %v", j.Result)
			}
			logged := log.FilterMessage("router: a job did not get through").All()
			if len(logged) != 1 || !strings.Contains(fmt.Sprint(logged[0].ContextMap()["why"]), tt.want) {
				t.Errorf("the log says %v", logged)
			}
		})
	}
}

// A foreign supervisor reports a missing job with the code of any error.
func TestAJobThatIsNotFoundInOtherWordsIsSentAgain(t *testing.T) {
	for _, text := range []string{`{"code":-32000,"message":"Job 2001 not found"}`, `{"code":-32603,"message":"no such job"}`} {
		t.Run(text, func(t *testing.T) {
			b, s := newBed(t), newBoss(t)
			var first sync.Once
			s.before = func(w http.ResponseWriter, method string) (handled bool) {
				if method == "job.run" {
					first.Do(func() { panic(http.ErrAbortHandler) })
					return false
				}
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":%s}`, text)
				return true
			}
			b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
			b.start(Options{})
			b.end(b.send(hero.Message{Job: []hero.Job{job(2001)}}), hero.MessageProcessed)
			if s.ran("2001") != 1 {
				t.Errorf("%d runs", s.ran("2001"))
			}
		})
	}
}

// A supervisor on Mycelium had the job, and lost it in a restart.
func TestASupervisorThatLostTheJobIsSentItAgain(t *testing.T) {
	b, n := newBed(t), newNetwork(t, nil)
	var runs, asked atomic.Int32
	lost := make(chan struct{})
	answer := func(m mycelium.Message, result string) []byte {
		var call struct{ ID json.RawMessage }
		b.must(json.Unmarshal(m.Payload, &call))
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, result)
	}
	_, _, there := n.hub(b, "supervisor", func(h *mycelium.Hub) {
		b.must(h.Serve(hero.SupervisorTopic, func(ctx context.Context, m mycelium.Message) []byte {
			switch {
			case strings.Contains(string(m.Payload), `"job.run"`) && runs.Add(1) == 1:
				return nil // killed before it answers
			case strings.Contains(string(m.Payload), `"job.run"`):
				return answer(m, `"result":{"success":"ran it"}`)
			case asked.Add(1) == 1:
				defer close(lost)
				return answer(m, `"result":{"job_id":"2001","status":"started"}`)
			}
			return answer(m, `"error":{"code":-32001,"message":"Not found"}`)
		}))
	})
	b.runner(hero.Runner{ID: 20, PubKey: there.Key(), Secret: "s3cret"}, 1)
	mesh, api, _ := n.hub(b, "router", func(*mycelium.Hub) {})
	b.start(Options{Mesh: mesh, State: api.Status})
	m := b.send(hero.Message{Job: []hero.Job{job(2001)}})
	<-lost
	b.end(m, hero.MessageProcessed)
	if runs.Load() != 2 {
		t.Errorf("sent %d times", runs.Load())
	}
}

// A question costs a message each way, so the router asks for a long job less and less
// often.
func TestAJobThatRunsLongIsAskedAfterLessAndLessOften(t *testing.T) {
	b, s := newBed(t), newBoss(t)
	over := make(chan struct{})
	s.work = func(http.ResponseWriter, supervisor.Job) any {
		time.AfterFunc(3*time.Second, func() { close(over) })
		<-over
		return map[string]string{"success": "late"}
	}
	b.runner(hero.Runner{ID: 20, Address: s.URL}, 1)
	b.start(Options{}) // looks every 20 ms
	m := b.send(hero.Message{FlowID: 33, Attempt: 1, Job: []hero.Job{job(2001)}})
	b.end(m, hero.MessageProcessed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked < 2 || s.asked > 10 { // 20 ms, 40 ms, … 2.56 s: eight by then
		t.Errorf("asked %d times within three seconds", s.asked)
	}
}
