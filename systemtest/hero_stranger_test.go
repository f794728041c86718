//go:build !race

package systemtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"edda/internal/realservers"
)

// The stranger imports nothing of ours and nothing of others.
func TestTheStrangerIsOfTheStandardLibraryAlone(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "stranger_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		first, _, _ := strings.Cut(path, "/")
		if err != nil || first == "edda" || strings.Contains(first, ".") {
			t.Errorf("the stranger imports %s", path)
		}
	}
}

// The contexts of the stranger.
const (
	inStrange     = 5 // its supervisor is behind a runner's key
	inBare        = 6 // its supervisor takes no lists
	inOurs        = 7 // our runner and our supervisor
	inLetters     = 8 // an actor's messages, for our runner
	strangeSecret = "of the stranger"
)

// TestAStrangerFromTheDocumentsPlaysEveryPart has the stranger be client, supervisor, runner
// and worker beside the binary.
func TestAStrangerFromTheDocumentsPlaysEveryPart(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	nodes := h.mesh(5) // the coordinator's, our supervisor's, the stranger's supervisors', and its caller's
	h.coordinator("--mycelium-port", nodes[0].port())
	supervisor := freeAddr(t)
	h.runner([]string{"EDDA_HERO_SUPERVISOR_SECRET=" + heroSecret, "EDDA_HERO_SUPERVISOR_ADDR=" + supervisor}, "--mycelium-port", nodes[1].port())
	s := &strange{h: h, t: t, api: "http://" + h.api, supervisor: "http://" + supervisor, nodes: nodes}
	s.begins()
	for _, part := range []struct {
		name string
		test func(*strange)
	}{
		{"a client of the coordinator", (*strange).client},
		{"a client that makes mistakes", (*strange).mistakes},
		{"a supervisor over Mycelium and HTTP", (*strange).supervises},
		{"a supervisor that takes no lists", (*strange).supervisesBarely},
		{"an actor with messages in Redis", (*strange).acts},
		{"a client of the supervisor, and its runner", (*strange).asksTheSupervisor},
		{"a caller over Mycelium's REST", (*strange).asksOverREST},
		{"a client of the dispatcher", (*strange).dispatches},
		{"a worker of the dispatcher", (*strange).works},
	} {
		t.Run(part.name, func(t *testing.T) {
			t.Parallel()
			mine := *s
			mine.t = t
			part.test(&mine)
		})
	}
}

// strange is what the stranger's parts need.
type strange struct {
	h               *heroWorld
	t               *testing.T
	api, supervisor string
	nodes           []meshNode
}

func (s *strange) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// asks calls the coordinator and returns an object.
func (s *strange) asks(method string, params any) (out object) {
	s.t.Helper()
	s.asksFor(method, params, &out)
	return out
}

func (s *strange) asksFor(method string, params, into any) {
	s.t.Helper()
	if err := strangerAsks(s.api, method, params, into); err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
}

// is wants the field of an object; both are compared as JSON.
func (s *strange) is(what string, got, want any) {
	s.t.Helper()
	g, err := json.Marshal(got)
	s.must(err)
	w, err := json.Marshal(want)
	s.must(err)
	if string(g) != string(w) {
		s.t.Errorf("%s is %s, want %s", what, g, w)
	}
}

func (s *strange) redis(database int) *strangerRedis {
	s.t.Helper()
	r, err := strangerDials(s.h.redis.Address(), database)
	s.must(err)
	s.t.Cleanup(r.close)
	return r
}

func (s *strange) hash(r *strangerRedis, key string) map[string]string {
	s.t.Helper()
	got, err := r.hash(key)
	s.must(err)
	return got
}

func (s *strange) do(r *strangerRedis, words ...string) any {
	s.t.Helper()
	got, err := r.do(words...)
	s.must(err)
	return got
}

// begins makes the actor and the contexts.
func (s *strange) begins() {
	a := s.asks("actor.create", object{"actor": object{"id": 12, "pubkey": s.nodes[4].key, "address": []string{s.nodes[4].ip}}})
	s.is("the actor", []any{a["id"], a["pubkey"], a["address"]}, []any{12, s.nodes[4].key, []string{s.nodes[4].ip}})
	if made, ok := a["created_at"].(float64); !ok || made < 1_700_000_000 {
		s.t.Errorf("created_at: %v", a)
	}
	for _, id := range []int{inStrange, inBare, inOurs, inLetters} {
		c := s.asks("context.create", object{"context": object{"id": id, "admins": []int{12}, "readers": []int{13}, "executors": []int{14}}})
		s.is("the context", []any{c["id"], c["admins"], c["readers"], c["executors"]}, []any{id, []int{12}, []int{13}, []int{14}})
	}
	for _, id := range []int{inOurs, inLetters} {
		runner := s.asks("runner.create", object{"context_id": id, "runner": object{"id": ourRunner, "pubkey": "", "address": "", "topic": "", "local": true}})
		s.is("the runner", []any{runner["id"], runner["local"]}, []any{ourRunner, true})
	}
}

func (s *strange) job(in, id int, more object) object {
	s.t.Helper()
	job := object{"id": id, "caller_id": 12, "context_id": in, "script": "print(" + strconv.Itoa(id) + ")", "script_type": "python", "timeout": 60, "retries": 0,
		"env_vars": object{}, "prerequisites": []string{}, "dependends": []int{}}
	for k, v := range more {
		job[k] = v
	}
	return s.asks("job.create", object{"context_id": in, "job": job})
}

// client tries each shape of the parameters, reads back what it made, in Redis too, and
// plays the executor of a flow.
func (s *strange) client() {
	in := inOurs
	job := object{"context_id": in, "id": 101, "caller_id": 12, "script": "42", "script_type": "v", "prerequisites": []string{"file"}}
	wrapped := object{"context_id": in, "job": object{"id": 101, "caller_id": 12, "script": "42", "script_type": "v", "prerequisites": []string{"file"}}}
	for _, params := range []any{wrapped, job, []any{wrapped}, object{"params": wrapped}, object{"params": []any{wrapped}}, object{"params": object{"params": wrapped}}} {
		got := s.asks("job.create", params)
		s.is("the job", []any{got["id"], got["script"], got["script_type"], got["context_id"], got["prerequisites"]}, []any{101, "42", "v", in, []string{"file"}})
	}
	s.job(in, 102, object{"script_type": "v", "dependends": []int{101}, "env_vars": object{"A": "1"}, "retries": 3})
	s.job(in, 103, object{"script_type": "v", "dependends": []int{101}})
	f := s.asks("flow.create", object{"context_id": in, "flow": object{"id": 33, "caller_id": 12, "jobs": []int{101, 102, 103}, "env_vars": object{"F": "2"}}})
	s.is("the flow", []any{f["id"], f["caller_id"], f["context_id"], f["jobs"], f["status"], f["result"]}, []any{33, 12, in, []int{101, 102, 103}, "dispatched", object{}})
	g := s.asks("flow.dag", object{"context_id": in, "id": 33})
	s.is("the graph", []any{g["flow_id"], g["caller_id"], g["context_id"], g["edges"], g["roots"], g["leaves"], g["levels"], g["failed_job"]},
		[]any{33, 12, in, [][]int{{101, 102}, {101, 103}}, []int{101}, []int{102, 103}, [][]int{{101}, {102, 103}}, nil})
	node := g["nodes"].(object)["102"].(object)
	s.is("the node", []any{node["id"], node["depends"], node["prerequisites"], node["script_type"]}, []any{102, []int{101}, []string{}, "v"})
	var yes bool
	for _, want := range []bool{true, false} { // now, and already
		s.asksFor("flow.start", object{"context_id": in, "id": 33}, &yes)
		s.is("flow.start", yes, want)
	}
	r, actors := s.redis(in), s.redis(0)
	if got := s.hash(actors, "actor:12"); got["id"] != "12" || got["pubkey"] != s.nodes[4].key || got["address"] != `["`+s.nodes[4].ip+`"]` {
		s.t.Errorf("actor:12 in database 0: %v", got)
	}
	s.is("the actors in the context", s.do(r, "EXISTS", "actor:12"), 0)
	if got := s.hash(r, "context:7"); got["admins"] != "[12]" || got["readers"] != "[13]" || got["executors"] != "[14]" {
		s.t.Errorf("context:7: %v", got)
	}
	if got := s.hash(r, "job:12:101"); got["script"] != "42" || got["prerequisites"] != `["file"]` {
		s.t.Errorf("job:12:101: %v", got)
	}
	s.becomes(r, 101, "waiting_for_prerequisites")
	var ready []int
	s.asksFor("flow.prerequisite_met", object{"context_id": in, "id": 33, "name": "file"}, &ready)
	s.is("the nodes that became ready", ready, []int{101})
	s.becomes(r, 101, "dispatched")
	s.asks("job.update", object{"context_id": in, "caller_id": 12, "id": 101, "status": "finished", "result": object{"n": "2"}})
	for _, id := range []int{102, 103} {
		s.becomes(r, id, "dispatched")
		s.asks("job.update", object{"context_id": in, "caller_id": 12, "id": id, "status": "started", "result": object{}})
		s.asks("job.update", object{"context_id": in, "caller_id": 12, "id": id, "status": "finished", "result": object{"n": strconv.Itoa(id)}})
	}
	f = s.flowEnds(in, 33)
	s.is("the flow's end", []any{f["status"], f["result"]}, []any{"finished", object{"101.n": "2", "102.n": "102", "103.n": "103"}})
	got := s.hash(r, "flow:33")
	s.is("flow:33", []string{got["id"], got["caller_id"], got["context_id"], got["jobs"], got["env_vars"], got["status"]}, []string{"33", "12", "7", "[101,102,103]", `{"F":"2"}`, "finished"})
	var result map[string]string
	s.must(json.Unmarshal([]byte(got["result"]), &result))
	s.is("the result in Redis", result, f["result"])
	got = s.hash(r, "job:12:102")
	s.is("job:12:102", []string{got["status"], got["result"], got["dependends"], got["env_vars"], got["retries"], got["script_type"]}, []string{"finished", `{"n":"102"}`, "[101]", `{"A":"1","F":"2"}`, "3", "v"})
	// A flow that waits is cancelled.
	s.job(in, 111, object{"prerequisites": []string{"never"}})
	s.asks("flow.create", object{"context_id": in, "flow": object{"id": 34, "caller_id": 12, "jobs": []int{111}}})
	s.asksFor("flow.start", object{"context_id": in, "id": 34}, &yes)
	s.asksFor("flow.cancel", object{"context_id": in, "id": 34}, &yes)
	s.is("flow.cancel", yes, true)
	s.is("a cancelled flow", s.flowEnds(in, 34)["status"], "error")
	s.becomes(r, 111, "error")
}

// becomes waits for the status of a job's hash, into which its flow's state is written.
func (s *strange) becomes(r *strangerRedis, id int, status string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("job %d is %s", id, status), func() bool { return s.hash(r, fmt.Sprintf("job:12:%d", id))["status"] == status })
}

// flowEnds waits for a flow's end, as its client sees it.
func (s *strange) flowEnds(in, id int) (f object) {
	s.t.Helper()
	untilIn(s.t, heroEnds, fmt.Sprintf("flow %d ends", id), func() bool {
		f = s.asks("flow.load", object{"context_id": in, "id": id})
		return f["status"] == "finished" || f["status"] == "error"
	})
	return f
}

// mistakes are refused with the documented codes and statuses.
func (s *strange) mistakes() {
	in := inOurs
	s.job(in, 901, object{"dependends": []int{902}})
	s.job(in, 902, object{"dependends": []int{901}})
	s.asks("flow.create", object{"context_id": in, "flow": object{"id": 91, "caller_id": 12, "jobs": []int{901, 902}}})
	s.asks("flow.create", object{"context_id": in, "flow": object{"id": 92, "caller_id": 12, "jobs": []int{999}}})
	for name, c := range map[string]struct {
		method string
		params any
		code   int
	}{
		"a flow that is not there":      {"flow.load", object{"context_id": in, "id": 4711}, -32001},
		"an actor that is not there":    {"actor.load", object{"id": 4711}, -32001},
		"a context that is not there":   {"flow.start", object{"context_id": 9, "id": 33}, -32001},
		"a cycle":                       {"flow.start", object{"context_id": in, "id": 91}, -32020},
		"a job that is not there":       {"flow.start", object{"context_id": in, "id": 92}, -32020},
		"context 0":                     {"context.create", object{"context": object{"id": 0, "admins": []int{12}}}, -32602},
		"a database that Redis has not": {"context.create", object{"context": object{"id": 16, "admins": []int{12}, "readers": []int{}, "executors": []int{}}}, -32010},
		"256 retries":                   {"job.create", object{"context_id": in, "job": object{"id": 903, "caller_id": 12, "script": "x", "script_type": "python", "retries": 256}}, -32602},
		"a reader's job":                {"job.create", object{"context_id": in, "job": object{"id": 903, "caller_id": 13, "script": "x", "script_type": "python"}}, -32003},
		"a reader's step":               {"job.update", object{"context_id": in, "actor_id": 13, "caller_id": 12, "id": 901, "status": "started", "result": object{}}, -32003},
		"a method that is not there":    {"flow.dance", object{}, -32601},
	} {
		var got json.RawMessage
		var e *strangerError
		if err := strangerAsks(s.api, c.method, c.params, &got); !errors.As(err, &e) || e.Code != c.code || c.code != -32601 && len(e.Data) == 0 {
			s.t.Errorf("%s: %v %s, want %d with data", name, err, got, c.code)
		}
	}
	for _, c := range []struct {
		method, kind string
		want         int
	}{{http.MethodGet, "application/json", 405}, {http.MethodPost, "text/plain", 415}} {
		if status, _, err := strangerPosts(c.method, s.api, c.kind, []byte(`{}`)); err != nil || status != c.want {
			s.t.Errorf("%s %s: %d %v, want %d", c.method, c.kind, status, err, c.want)
		}
	}
	status, text, err := strangerPosts(http.MethodPost, s.api+"/any/path", "application/json", []byte(`[{"jsonrpc":"2.0","id":1,"method":"actor.load","params":{"id":12}},{"jsonrpc":"2.0","id":2,"method":"rpc.discover"}]`))
	var batch []strangerAnswer
	if err != nil || status != 200 || json.Unmarshal(text, &batch) != nil || len(batch) != 2 || batch[0].Error != nil || !strings.Contains(string(batch[1].Result), `"openrpc"`) {
		s.t.Errorf("a batch on any path: %d %s %v", status, text, err)
	}
}

// listens starts a supervisor of the stranger on a node until the test ends.
func (s *strange) listens(v *strangerSupervisor, node, thief meshNode) *strangerSupervisor {
	v.python, v.secret = s.h.python, strangeSecret
	v.runs, v.ends, v.asked = map[string]int{}, map[string]map[string]string{}, map[string]int{}
	ctx, stop := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	if node.rpc != "" {
		listening.Go(func() { v.listen(ctx, node.rpc, thief.rpc) })
	}
	s.t.Cleanup(func() {
		stop()
		listening.Wait()
		for _, w := range v.complaints() {
			s.t.Error(w)
		}
	})
	return v
}

// supervises runs a flow whose ends come back in every way: as replies, as messages, by
// being asked for, against another node's lie, over HTTP, and at the second attempt.
func (s *strange) supervises() {
	in := inStrange
	mesh := s.listens(&strangerSupervisor{ways: map[string]int{"2002": byPush, "2003": bySilence, "2004": byStealing}, flaky: "2005"}, s.nodes[2], s.nodes[3])
	web := s.listens(&strangerSupervisor{}, meshNode{}, meshNode{})
	server := httptest.NewServer(web)
	s.t.Cleanup(server.Close)
	for id, runner := range map[int]object{21: {"pubkey": s.nodes[2].key, "address": s.nodes[2].ip}, 22: {"pubkey": "", "address": server.URL}} {
		runner["id"], runner["topic"], runner["local"], runner["secret"] = id, "", false, strangeSecret
		for _, got := range []object{s.asks("runner.create", object{"context_id": in, "runner": runner}), s.asks("runner.load", object{"context_id": in, "id": id})} {
			if text := fmt.Sprint(got); strings.Contains(text, strangeSecret) {
				s.t.Errorf("the secret is shown: %s", text)
			}
		}
	}
	url := "mycelium://" + s.nodes[2].key
	says := func(expression string) object {
		return object{"script": "import os; print(" + expression + ")", "env_vars": object{"OWN": "mine"}}
	}
	nodes := []object{}
	for id := 2001; id <= 2006; id++ {
		job, to := says(`os.environ["FLOW"] + os.environ["OWN"]`), url
		after := []int{}
		switch id {
		case 2001:
			job["script"] = `print('{"n": 2}')`
		case 2005:
			job["retries"] = 1
		case 2006:
			to = server.URL
		}
		if id > 2001 {
			after = []int{2001}
		}
		s.job(in, id, job)
		nodes = append(nodes, object{"id": id, "depends": after, "prerequisites": []string{}, "supervisor_url": to})
	}
	s.asks("flow.create", object{"context_id": in, "flow": object{"id": 33, "caller_id": 12, "jobs": []int{2001, 2002, 2003, 2004, 2005, 2006},
		"env_vars": object{"FLOW": "flow ", "OWN": "the flow's"}}, "nodes": nodes})
	var started bool
	s.asksFor("flow.start", object{"context_id": in, "id": 33}, &started)
	f := s.flowEnds(in, 33)
	s.is("the flow's status", f["status"], "finished")
	result := f["result"].(object)
	s.is("2001.n", result["2001.n"], "2")
	for id := 2002; id <= 2006; id++ {
		key := fmt.Sprintf("%d.output", id)
		if text, _ := result[key].(string); strings.TrimSpace(text) != "flow mine" {
			s.t.Errorf("%s is %q", key, text)
		}
	}
	for call, want := range map[string]int{"job.run 2001": 1, "job.run 2002": 1, "job.run 2003": 1, "job.run 2004": 1, "job.run 2005": 2, "job.run 2006": 0} {
		if got := mesh.count(call); got != want {
			s.t.Errorf("%s: %d times over Mycelium, want %d", call, got, want)
		}
	}
	if web.count("job.run 2006") != 1 || web.count("job.run") != 1 {
		s.t.Errorf("over HTTP: %d of %d", web.count("job.run 2006"), web.count("job.run"))
	}
	if mesh.count("job.status 2003") == 0 || mesh.count("job.result 2003") == 0 {
		s.t.Error("a job whose reply was lost was not asked after")
	}
	g := s.asks("flow.dag", object{"context_id": in, "id": 33})
	s.is("completed", g["completed"], []int{2001, 2002, 2003, 2004, 2005, 2006})
	r := s.redis(in)
	for id := 2001; id <= 2006; id++ {
		s.becomes(r, id, "finished")
	}
	until(s.t, "the flow's messages are processed", func() bool {
		jobs := 0
		for _, key := range s.do(r, "KEYS", "message:12:*").([]any) {
			if m := s.hash(r, key.(string)); m["message_type"] == "job" && m["status"] == "processed" && m["flow_id"] == "33" {
				jobs++
			}
		}
		return jobs == 7 // a message for each attempt
	})
	for _, list := range []string{"msg_out", "msg_out_coordinator"} {
		until(s.t, list+" is empty", func() bool { return s.do(r, "LLEN", list) == 0 })
	}
}

// supervisesBarely refuses a list of parameters once, and is sent none again.
func (s *strange) supervisesBarely() {
	in := inBare
	v := s.listens(&strangerSupervisor{bare: true}, s.nodes[3], meshNode{})
	s.asks("runner.create", object{"context_id": in, "runner": object{"id": 23, "pubkey": s.nodes[3].key, "address": s.nodes[3].ip, "topic": "", "local": false, "secret": strangeSecret}})
	jobs := []int{}
	for id := 1; id <= 4; id++ {
		after := []int{}
		if id > 1 {
			after = []int{id - 1}
		}
		s.job(in, id, object{"dependends": after})
		jobs = append(jobs, id)
	}
	s.asks("flow.create", object{"context_id": in, "flow": object{"id": 1, "caller_id": 12, "jobs": jobs}})
	var started bool
	s.asksFor("flow.start", object{"context_id": in, "id": 1}, &started)
	s.is("the flow", s.flowEnds(in, 1)["status"], "finished")
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lists != 1 || v.asked["job.run"] != 4 {
		s.t.Errorf("%d calls had a list, and %d jobs were run; want 1 and 4", v.lists, v.asked["job.run"])
	}
}

// acts pushes messages with jobs on msg_out, by hand and by message.create, and pops their
// results from msg_in.
func (s *strange) acts() {
	r := s.redis(inLetters)
	s.do(r, "HSET", "message:12:301", "id", "301", "caller_id", "12", "context_id", "8", "message", "", "message_type", "job", "message_format_type", "text",
		"timeout", "60", "timeout_ack", "60", "timeout_result", "100", "logs", "[]", "created_at", "0", "updated_at", "0", "status", "dispatched",
		"job", `[{"id":301,"caller_id":12,"context_id":8,"script":"print(40+2)","script_type":"python","timeout":50,"retries":0,"env_vars":{},"result":{},"prerequisites":[],"dependends":[],"created_at":0,"updated_at":0,"status":"dispatched"}]`)
	s.do(r, "LPUSH", "msg_out", "message:12:301")
	m := s.asks("message.create", object{"context_id": inLetters, "message": object{"id": 302, "caller_id": 12, "context_id": inLetters, "message": "", "message_type": "job", "message_format_type": "md",
		"timeout": 60, "timeout_ack": 60, "timeout_result": 100, "job": []object{{"id": 302, "caller_id": 12, "context_id": inLetters, "script": "import sys; sys.exit(3)", "script_type": "python", "timeout": 50}}}})
	s.is("the message", []any{m["id"], m["status"]}, []any{302, "dispatched"})
	want := map[string]string{"message:12:301": "finished", "message:12:302": "error"}
	for range 2 {
		key, err := r.pop("BRPOP", "msg_in", 100)
		s.must(err)
		got := s.hash(r, key)
		var jobs []struct {
			Status string
			Result map[string]string
		}
		s.must(json.Unmarshal([]byte(got["job"]), &jobs))
		if len(jobs) != 1 || jobs[0].Status != want[got["reply_to"]] {
			s.t.Errorf("%s: %v", key, got)
			continue
		}
		if said := jobs[0].Result; jobs[0].Status == "finished" && strings.TrimSpace(said["output"]) != "42" || jobs[0].Status == "error" && said["error"] == "" {
			s.t.Errorf("the result of %s: %v", got["reply_to"], said)
		}
		sent := got["reply_to"]
		delete(want, sent)
		until(s.t, sent+" is processed", func() bool { return s.hash(r, sent)["status"] == "processed" })
	}
}

// theirs is a job as supervisors take it.
func (s *strange) theirs(id, runner, script string) object {
	return object{"id": id, "caller_id": "12", "context_id": strconv.Itoa(inOurs), "payload": script, "runner": runner, "executor": "python", "timeout": 60,
		"env_vars": object{"WHO": "stranger"}, "created_at": "2025-08-29T10:29:32Z", "updated_at": "2025-08-29T10:29:32Z"}
}

// asksTheSupervisor has jobs run by our supervisor, over HTTP, on our runner and on one of
// its own that it registers.
func (s *strange) asksTheSupervisor() {
	const hello = `import os; print("hello", os.environ["WHO"])`
	call := func(method string, more object) (out any) {
		s.t.Helper()
		params := object{"secret": heroSecret}
		for k, v := range more {
			params[k] = v
		}
		if err := strangerAsks(s.supervisor, method, []any{params}, &out); err != nil {
			s.t.Fatalf("%s: %v", method, err)
		}
		return out
	}
	s.is("jobs.create", call("jobs.create", object{"job": s.theirs("401", "python", hello)}), "401")
	s.is("a job that was made", call("job.status", object{"job_id": "401"}).(object)["status"], "dispatched")
	s.is("job.start", call("job.start", object{"job_id": "401"}), true)
	var status object
	until(s.t, "job 401 has ended", func() bool {
		status = call("job.status", object{"job_id": "401"}).(object)
		return status["status"] == "finished"
	})
	if status["job_id"] != "401" || status["created_at"] == nil || status["completed_at"] == nil {
		s.t.Errorf("job.status: %v", status)
	}
	s.is("job.result", call("job.result", object{"job_id": "401"}), object{"success": "hello stranger\n"})
	s.is("job.run", call("job.run", object{"job": s.theirs("402", "python", hello)}), object{"success": "hello stranger\n"})
	if failed := call("job.run", object{"job": s.theirs("403", "python", `import sys; sys.exit("oh no")`)}).(object); !strings.Contains(fmt.Sprint(failed["error"]), "oh no") {
		s.t.Errorf("a job that failed is a call that succeeded: %v", failed)
	}
	if lines := fmt.Sprint(call("job.logs", object{"job_id": "401"})); !strings.Contains(lines, "hello stranger") {
		s.t.Errorf("job.logs: %s", lines)
	}
	s.is("register_runner", call("register_runner", object{"name": "odd", "queue": "odd_jobs"}), nil)
	if names := fmt.Sprint(call("list_runners", nil)); !strings.Contains(names, "odd") {
		s.t.Errorf("list_runners: %s", names)
	}
	r, ran := s.redis(inOurs), make(chan error, 1)
	go func() { ran <- strangerRunner(r, s.h.python, "odd_jobs") }()
	s.is("job.run on its own runner", call("job.run", object{"job": s.theirs("404", "odd", "print(6*7)")}), object{"success": "42\n"})
	s.must(<-ran)
	made := call("auth.create_key", object{"admin_key": heroSecret, "name": "stranger", "scope": "user"}).(object)
	key := made["key"]
	seen := call("auth.verify", object{"key": key}).(object)
	s.is("auth.verify", []any{seen["valid"], seen["name"], seen["scope"]}, []any{true, "stranger", "user"})
	var got json.RawMessage
	var e *strangerError
	if err := strangerAsks(s.supervisor, "register_runner", []any{object{"secret": key, "name": "x", "queue": "x"}}, &got); !errors.As(err, &e) || e.Code != -32003 {
		s.t.Errorf("a user registers a runner: %v %s", err, got)
	}
	if err := strangerAsks(s.supervisor, "job.run", object{"secret": "wrong", "job": s.theirs("405", "python", hello)}, &got); err == nil {
		s.t.Errorf("a wrong secret: %s", got)
	}
	s.is("job.delete", call("job.delete", object{"job_id": "401"}), true)
	if err := strangerAsks(s.supervisor, "job.status", []any{object{"secret": heroSecret, "job_id": "401"}}, &got); !errors.As(err, &e) || e.Code != -32001 {
		s.t.Errorf("a job that was deleted: %v %s", err, got)
	}
}

// asksOverREST has a job run by our supervisor over Mycelium's other API.
func (s *strange) asksOverREST() {
	call, err := json.Marshal(object{"jsonrpc": "2.0", "id": "over-rest", "method": "job.run", "params": []any{object{"secret": heroSecret, "job": s.theirs("501", "python", `print("far")`)}}})
	s.must(err)
	body, err := json.Marshal(object{"dst": object{"pk": s.nodes[1].key}, "topic": strangerTopic, "payload": base64.StdEncoding.EncodeToString(call)})
	s.must(err)
	status, text, err := strangerPosts(http.MethodPost, s.nodes[4].rest+"/api/v1/messages?reply_timeout=100", "application/json", body)
	s.must(err)
	var m strangerMessage
	if err := json.Unmarshal(text, &m); err != nil || status != 200 || m.SrcPK != s.nodes[1].key || m.Topic != "" {
		s.t.Fatalf("%d %s %v", status, text, err)
	}
	payload, err := base64.StdEncoding.DecodeString(m.Payload)
	s.must(err)
	var a strangerAnswer
	s.must(json.Unmarshal(payload, &a))
	if string(a.ID) != `"over-rest"` || a.Error != nil || string(a.Result) != `{"success":"far\n"}` {
		s.t.Errorf("%s", payload)
	}
	status, text, err = strangerPosts(http.MethodGet, s.nodes[4].rest+"/api/v1/messages/status/"+m.ID, "application/json", nil)
	if err != nil || status != 200 || !strings.Contains(string(text), `"state"`) {
		s.t.Errorf("the status of the message: %d %s %v", status, text, err)
	}
}

// dispatches is a client of our worker.
func (s *strange) dispatches() {
	w := launch(s.t, "hero", "worker", "--worker", "ours", "--redis-addr", s.h.redis.Address(), "--interpreter", s.h.python+" -", "--log-dir", s.t.TempDir(), "--dir", s.t.TempDir())
	w.says("the worker takes jobs")
	r := s.redis(0)
	id := func(n int) string { return fmt.Sprintf("1b4e28ba-2fa1-41d2-883f-0016d3cca4%02d", n) }
	submit := func(n int, script string, timeout int, more ...string) {
		s.t.Helper()
		s.must(strangerCreates(r, id(n), "ours", script, timeout, more...))
		s.must(strangerSubmits(r, id(n), "ours"))
	}
	ends := func(n int, status, field, want string) {
		s.t.Helper()
		reply, err := r.pop("BLPOP", "hero:reply:"+id(n), 100)
		s.must(err)
		got := s.hash(r, "hero:job:"+id(n))
		if reply != want || got["status"] != status || got[field] != want {
			s.t.Errorf("job %d: reply %q, hash %v, want %s %q", n, reply, got, status, want)
		}
	}
	submit(1, `import os; print("hello", os.environ["WHO"])`, 60, "env_vars", `{"WHO":"you"}`)
	ends(1, "finished", "output", "hello you")
	submit(2, "import time; time.sleep(600)", 1)
	ends(2, "error", "error", "timeout")
	// A request to stop before the start; the one of another job stays.
	s.do(r, "LPUSH", "hero:stop_queue:ours", id(3))
	submit(3, "print(3)", 60)
	ends(3, "error", "error", "stopped")
	submit(4, "import time; time.sleep(600)", 700)
	until(s.t, "job 4 is started", func() bool { return s.hash(r, "hero:job:"+id(4))["status"] == "started" })
	s.do(r, "LPUSH", "hero:stop_queue:ours", id(4))
	ends(4, "error", "error", "stopped_by_request")
	// A job waits for those that it depends on, also where it was queued before them.
	s.must(strangerCreates(r, id(5), "ours", "print(5)", 60))
	submit(6, "print(6)", 60, "dependencies", `["`+id(5)+`"]`, "prerequisites", "[]")
	submit(7, "print(7)", 60)
	ends(7, "finished", "output", "7")
	if got := s.hash(r, "hero:job:"+id(6)); got["status"] != "dispatched" {
		s.t.Errorf("job 6 did not wait: %v", got)
	}
	s.must(strangerSubmits(r, id(5), "ours"))
	ends(5, "finished", "output", "5")
	ends(6, "finished", "output", "6")
	if code := w.terminate(); code != 0 {
		s.t.Errorf("the worker's exit code is %d", code)
	}
}

// works is the protocol's loop for our client.
func (s *strange) works() {
	r, done := s.redis(0), make(chan error, 1)
	go func() { done <- strangerWorker(r, s.h.python, "theirs", 2) }()
	for script, want := range map[string]struct {
		said string
		code int
	}{`import os; print("hello", os.environ["WHO"])`: {"hello edda", 0}, "import sys; sys.exit(3)": {"exit status 3", 1}} {
		c := launch(s.t, "hero", "job", "run", "--redis-addr", s.h.redis.Address(), "--worker", "theirs", "--timeout", "60s", "--script", script, "--env", "WHO=edda", "--log-dir", s.t.TempDir())
		if code := c.code(); code != want.code || !strings.Contains(c.out.String()+c.err.String(), want.said) {
			s.t.Errorf("%s: exit code %d: %s%s", script, code, c.out, c.err)
		}
	}
	s.must(<-done)
}
