package router

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/hero/mycelium/standin"
	"edda/hero/supervisor"
	"edda/internal/realservers"
)

// network is the stand-in of Mycelium, with a node for each side.
type network struct {
	t   *testing.T
	bus *standin.Bus
}

func newNetwork(t *testing.T, fault func(standin.Envelope) standin.Fault) *network {
	n := &network{t, standin.New(standin.Options{Fault: fault})}
	t.Cleanup(n.bus.Close)
	return n
}

// api returns the API of a node.
func (n *network) api(b *bed, node *standin.Node) mycelium.API {
	n.t.Helper()
	rpc, err := node.RPC()
	b.must(err)
	server := httptest.NewServer(rpc)
	n.t.Cleanup(server.Close)
	return mycelium.NewRPC(server.URL)
}

// hub runs a hub on the named node, after serve has set it up.
func (n *network) hub(b *bed, name string, serve func(h *mycelium.Hub)) (*mycelium.Hub, mycelium.API, *standin.Node) {
	n.t.Helper()
	node := n.bus.Node(name)
	api := n.api(b, node)
	h := mycelium.NewHub(api, mycelium.Options{Look: 20 * time.Millisecond})
	serve(h)
	b.run(h)
	return h, api, node
}

func TestASupervisorOverMycelium(t *testing.T) {
	b, n := newBed(t), newNetwork(t, nil)
	s, err := supervisor.New(b.db, supervisor.Options{Admins: []string{"s3cret"}, Runners: map[string]string{"python": "queue:python"}})
	b.must(err)
	_, _, there := n.hub(b, "supervisor", func(h *mycelium.Hub) { b.must(h.Serve(hero.SupervisorTopic, s.HandleMessage)) })
	mesh, api, _ := n.hub(b, "router", func(*mycelium.Hub) {})
	runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
	b.runner(hero.Runner{ID: 20, PubKey: there.Key(), Secret: "s3cret"}, 1)
	b.start(Options{Mesh: mesh, State: api.Status})
	for i, m := range []hero.Message{
		{Job: []hero.Job{job(2001)}}, // by the runner's key
		{Job: []hero.Job{job(2002)}, Nodes: []hero.FlowNode{{ID: 2002, SupervisorURL: "mycelium://" + there.Key()}}},
		{Job: []hero.Job{job(2003)}, Nodes: []hero.FlowNode{{ID: 2003, SupervisorURL: "mycelium://" + there.Key() + "?topic=supervisor.rpc"}}},
	} {
		m.ID = uint32(101 + i)
		got := b.end(b.send(m), hero.MessageProcessed)
		if got.TransportID == "" || got.Topic != hero.SupervisorTopic {
			t.Errorf("message %+v", got)
		}
	}
	if got := b.inbox(1); len(got) != 3 || got[0].Message != "done" || runs() != 3 {
		t.Errorf("%d results after %d runs", len(got), runs())
	}
}

func TestMessagesThatMyceliumLoses(t *testing.T) {
	t.Parallel()
	var aborts, drops atomic.Int32
	run := func(e standin.Envelope) bool { return strings.Contains(string(e.Payload), `"job.run"`) }
	tests := []struct {
		name   string
		fault  func(standin.Envelope) standin.Fault
		m      hero.Message
		status hero.MessageStatus
		says   string
		runs   int32
	}{
		{"aborted once", func(e standin.Envelope) standin.Fault { return standin.Fault{Abort: run(e) && aborts.Add(1) == 1} },
			hero.Message{}, hero.MessageProcessed, "", 1},
		{"always aborted", func(e standin.Envelope) standin.Fault { return standin.Fault{Abort: run(e)} },
			hero.Message{Timeout: 1}, hero.MessageError, "not delivered within 1s", 0},
		{"never read", func(e standin.Envelope) standin.Fault { return standin.Fault{Drop: run(e) && drops.Add(1) > 0} },
			hero.Message{TimeoutAck: 1}, hero.MessageError, "timeout_ack: nobody acknowledged it within 1s", 0},
		{"the answer is lost", func(e standin.Envelope) standin.Fault { return standin.Fault{Drop: e.Reply} },
			hero.Message{TimeoutResult: 1}, hero.MessageError, "timeout_result", 1},
		{"twice", func(e standin.Envelope) standin.Fault { return standin.Fault{Duplicate: true} },
			hero.Message{}, hero.MessageProcessed, "", 1},
		{"the answer to the push is cut", func(e standin.Envelope) standin.Fault { return standin.Fault{CutAnswer: run(e)} },
			hero.Message{}, hero.MessageProcessed, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, n := newBed(t), newNetwork(t, tt.fault)
			s, err := supervisor.New(b.db, supervisor.Options{Admins: []string{"a"}, Runners: map[string]string{"python": "queue:python"}})
			b.must(err)
			_, _, there := n.hub(b, "supervisor", func(h *mycelium.Hub) { b.must(h.Serve(hero.SupervisorTopic, s.HandleMessage)) })
			mesh, api, _ := n.hub(b, "router", func(*mycelium.Hub) {})
			runs := b.localRunner(1, func(key string) { b.writeEnd(1, key) })
			b.runner(hero.Runner{ID: 20, PubKey: there.Key(), Secret: "a"}, 1)
			b.start(Options{Mesh: mesh, State: api.Status})
			tt.m.Job = []hero.Job{job(2001)}
			got := b.end(b.send(tt.m), tt.status)
			if !strings.Contains(said(got), tt.says) || int32(runs()) != tt.runs {
				t.Errorf("logs %q after %d runs, want %q after %d", said(got), runs(), tt.says, tt.runs)
			}
			b.pop(1)
		})
	}
}

// world has two sides, each with a Redis and a router, and a network between them. Actor 12
// belongs to side a, and actor 50 to side b.
type world struct {
	a, b     *bed
	keyA     string
	keyB     string
	meshEvil *mycelium.Hub
}

func newWorld(t *testing.T) (*world, *reports) {
	a, n, flows := newBed(t), newNetwork(t, nil), &reports{}
	b := another(t, realservers.RedisOptions{})
	w := &world{a: a, b: b}
	side := func(bed *bed, name string, flows FlowResults) string {
		var r *Router
		var receiver *Receiver
		holder := &late{}
		mesh, api, node := n.hub(bed, name, func(h *mycelium.Hub) {
			bed.must(h.Serve(MessageTopic, func(ctx context.Context, m mycelium.Message) []byte { return receiver.HandleMessage(ctx, m) }))
			var err error
			r, err = New(bed.db, quick(Options{Mesh: holder, Flows: flows}))
			bed.must(err)
			receiver, err = r.Receiver()
			bed.must(err)
		})
		holder.Caller = mesh
		_ = api
		bed.run(r)
		return node.Key()
	}
	w.keyA, w.keyB = side(a, "a", flows), side(b, "b", nil)
	w.meshEvil, _, _ = n.hub(a, "evil", func(*mycelium.Hub) {})
	for _, bed := range []*bed{a, b} {
		bed.must(bed.db.PutActor(t.Context(), hero.Actor{ID: 12, PubKey: w.keyA, Address: []string{"mycelium://" + w.keyA}}))
		bed.must(bed.db.PutActor(t.Context(), hero.Actor{ID: 50, PubKey: w.keyB, Address: []string{"http://not.this", "mycelium://" + w.keyB}}))
	}
	b.must(b.db.PutContext(t.Context(), hero.Context{ID: 9, Admins: []uint32{50}, Executors: []uint32{12}}))
	return w, flows
}

// late is a Mesh that is set after its router was made.
type late struct{ supervisor.Caller }

func TestAJobForAContextOfAnotherRedis(t *testing.T) {
	w, flows := newWorld(t)
	runs := w.b.localRunner(9, func(key string) { w.b.writeEnd(9, key) })
	j := job(2001)
	j.ContextID = 9
	m := w.a.send(hero.Message{FlowID: 33, Attempt: 1, To: 50, Job: []hero.Job{j}})
	w.a.end(m, hero.MessageProcessed)
	if got := w.b.job(9, 12, 2001); got.Status != hero.JobFinished || runs() != 1 {
		t.Errorf("job %+v after %d runs", got, runs())
	}
	if ends := flows.ends(); len(ends) != 1 || ends[0].FlowID != 33 || ends[0].Result["output"] != "done" {
		t.Errorf("reports %+v", ends)
	}
	if got := w.a.pop(1); got.ReplyTo != m.Key() || got.MessageType != hero.MessageResult {
		t.Errorf("result %+v", got)
	}
	w.b.idle(9)
}

func TestAChatForAnActorOfAnotherRedis(t *testing.T) {
	w, _ := newWorld(t)
	w.a.end(w.a.send(hero.Message{MessageType: hero.MessageChat, Message: "hello", To: 50}), hero.MessageProcessed)
	if got := w.b.pop(9); got.Message != "hello" || got.CallerID != 12 || got.Via != "mycelium://"+w.keyA {
		t.Errorf("%+v", got)
	}
}

func TestAForgedSenderIsRefused(t *testing.T) {
	w, _ := newWorld(t)
	to := mycelium.Peer{PK: w.keyB}
	deliver := func(params string) (int, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		id := "x" + params[len(params)-min(20, len(params)):] + time.Now().String()
		quoted, err := json.Marshal(id)
		w.a.must(err)
		raw, err := w.meshEvil.Call(ctx, to, MessageTopic, []byte(`{"jsonrpc":"2.0","id":`+string(quoted)+`,"method":"message.deliver","params":`+params+`}`), id, mycelium.CallOptions{})
		w.a.must(err)
		var out struct{ Error *jsonrpc.Error }
		w.a.must(json.Unmarshal(raw, &out))
		if out.Error == nil {
			return 0, ""
		}
		return out.Error.Code, out.Error.Error()
	}
	forged := func(kind, more string) string {
		return `[{"origin":"1/message:12:7","message":{"id":7,"caller_id":12,"target_context":9,"message_type":"` + kind + `"` + more + `}}]`
	}
	for params, want := range map[string]int{
		forged("job", `,"job":[{"id":1,"caller_id":12,"context_id":9,"script":"x","script_type":"python"}]`): jsonrpc.PermissionDenied,
		forged("chat", ``): jsonrpc.PermissionDenied,
		forged("result", `,"reply_to":"message:50:1"`): jsonrpc.PermissionDenied,
		forged("dance", ``):                            jsonrpc.InvalidParams,
		forged("chat", `,"colour":5`):                  jsonrpc.InvalidParams,
		strings.Replace(forged("chat", ``), `"caller_id":12`, `"caller_id":77`, 1):                jsonrpc.PermissionDenied,
		strings.Replace(forged("chat", ``), `"target_context":9`, `"target_context":8`, 1):        jsonrpc.NotFound,
		strings.Replace(forged("chat", ``), `"origin":"1/message:12:7"`, `"origin":"nowhere"`, 1): jsonrpc.InvalidParams,
		`[{"origin":"1/message:12:7"}]`:                             jsonrpc.InvalidParams,
		strings.Replace(forged("chat", ``), `"id":7`, `"id":-7`, 1): jsonrpc.InvalidParams,
	} {
		if code, text := deliver(params); code != want {
			t.Errorf("%s: %d %s, want %d", params, code, text, want)
		}
	}
	if got := w.b.inbox(9); len(got) != 0 {
		t.Errorf("msg_in holds %+v", got)
	}
}

func TestTheSameMessageTwiceMakesOneJob(t *testing.T) {
	w, _ := newWorld(t)
	runs := w.b.localRunner(9, func(key string) { w.b.writeEnd(9, key) })
	r, err := New(w.b.db, quick(Options{}))
	w.b.must(err)
	receiver, err := r.Receiver()
	w.b.must(err)
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"message.deliver","params":[{"origin":"1/message:12:7","message":{"id":7,"caller_id":12,"target_context":9,"created_at":5,"message_type":"job","job":[{"id":1,"script":"x","script_type":"python"}]}}]}`)
	for range 3 {
		if got := string(receiver.HandleMessage(t.Context(), mycelium.Message{SrcPK: w.keyA, Payload: request})); !strings.Contains(got, `"result":true`) {
			t.Fatal(got)
		}
	}
	m := hero.Message{ID: 7, CallerID: 12, ContextID: 9}
	w.b.end(m, hero.MessageProcessed)
	w.b.idle(9)
	if runs() != 1 {
		t.Errorf("%d runs", runs())
	}
}
