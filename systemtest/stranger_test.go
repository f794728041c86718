//go:build !race

package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The stranger is a program of the Hero systems that others could have written: it knows
// the public documents alone, and imports the standard library alone.

// strangerWaits bounds each of its calls.
const strangerWaits = 2 * time.Minute

// strangerTopic is supervisor.rpc in base64, as Mycelium's API has it.
const strangerTopic = "c3VwZXJ2aXNvci5ycGM="

// A strangerRedis speaks RESP to one database.
type strangerRedis struct {
	conn net.Conn
	in   *bufio.Reader
}

func strangerDials(addr string, database int) (*strangerRedis, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	r := &strangerRedis{conn, bufio.NewReader(conn)}
	if _, err = r.do("SELECT", strconv.Itoa(database)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return r, nil
}

func (r *strangerRedis) close() { _ = r.conn.Close() }

// do is a command; its answer is a string, an int, a list, or nil.
func (r *strangerRedis) do(words ...string) (any, error) {
	if err := r.conn.SetDeadline(time.Now().Add(strangerWaits)); err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := r.conn.Write(out); err != nil {
		return nil, err
	}
	return r.read()
}

func (r *strangerRedis) read() (any, error) {
	line, err := r.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	kind, rest := line[0], line[1:]
	if kind == '+' {
		return rest, nil
	}
	if kind == '-' {
		return nil, errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 0 || kind == ':' {
		if kind == ':' {
			return n, err
		}
		return nil, err
	}
	if kind == '$' {
		text := make([]byte, n+2)
		_, err = io.ReadFull(r.in, text)
		return string(text[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = r.read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// hash is HGETALL.
func (r *strangerRedis) hash(key string) (map[string]string, error) {
	got, err := r.do("HGETALL", key)
	if err != nil {
		return nil, err
	}
	flat, out := got.([]any), map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		out[flat[i].(string)] = flat[i+1].(string)
	}
	return out, nil
}

// pop is BLPOP or BRPOP of one list; it is empty where nothing came within the seconds.
func (r *strangerRedis) pop(command, list string, seconds int) (string, error) {
	got, err := r.do(command, list, strconv.Itoa(seconds))
	if err != nil || got == nil {
		return "", err
	}
	return got.([]any)[1].(string), nil
}

// A strangerError is the error of a JSON-RPC answer.
type strangerError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *strangerError) Error() string { return fmt.Sprintf("%d %s %s", e.Code, e.Message, e.Data) }

// A strangerCall is a JSON-RPC request.
type strangerCall struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// A strangerAnswer is a JSON-RPC answer.
type strangerAnswer struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *strangerError  `json:"error,omitempty"`
}

var strangerHTTP = &http.Client{Timeout: strangerWaits}

// strangerPosts returns the status and the body of a request.
func strangerPosts(method, url, kind string, body []byte) (int, []byte, error) {
	req, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", kind)
	resp, err := strangerHTTP.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// strangerAsks calls a method over HTTP; a refusal is a *strangerError.
func strangerAsks(url, method string, params, into any) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": "stranger-1", "method": method, "params": params})
	if err != nil {
		return err
	}
	status, text, err := strangerPosts(http.MethodPost, url, "application/json", body)
	if err != nil {
		return err
	}
	var a strangerAnswer
	if err := json.Unmarshal(text, &a); err != nil || status != http.StatusOK || a.Version != "2.0" || string(a.ID) != `"stranger-1"` {
		return fmt.Errorf("%s: no JSON-RPC answer with status 200: %d %s %w", method, status, text, err)
	}
	if a.Error != nil {
		return a.Error
	}
	return json.Unmarshal(a.Result, into)
}

// strangerMessage is Mycelium's InboundMessage.
type strangerMessage struct {
	ID      string `json:"id"`
	SrcIP   string `json:"srcIp"`
	SrcPK   string `json:"srcPk"`
	DstPK   string `json:"dstPk"`
	Topic   string `json:"topic"`
	Payload string `json:"payload"`
}

// A strangerJob is a job as supervisors are sent it: every field is required, ids are
// strings and times are RFC 3339.
type strangerJob struct {
	ID        *string            `json:"id"`
	Caller    *string            `json:"caller_id"`
	Context   *string            `json:"context_id"`
	Payload   *string            `json:"payload"`
	Runner    *string            `json:"runner"`
	Executor  *string            `json:"executor"`
	Timeout   *uint64            `json:"timeout"`
	Env       *map[string]string `json:"env_vars"`
	CreatedAt *time.Time         `json:"created_at"`
	UpdatedAt *time.Time         `json:"updated_at"`
}

func (j *strangerJob) whole() bool {
	return j != nil && j.ID != nil && j.Caller != nil && j.Context != nil && j.Payload != nil && j.Runner != nil && j.Executor != nil &&
		j.Timeout != nil && j.Env != nil && j.CreatedAt != nil && j.UpdatedAt != nil
}

// The ways in which a strangerSupervisor gives the end of a job back over Mycelium.
const (
	byReply    = iota // pushMessageReply
	byPush            // a message of its own on supervisor.rpc
	bySilence         // not at all: job.status and job.result say it
	byStealing        // a reply that another node sends first, and then its own
)

// A strangerSupervisor runs the jobs that it is sent as Python, and answers job.run,
// job.status and job.result.
type strangerSupervisor struct {
	python, secret string
	bare           bool           // takes parameters that are no list
	ways           map[string]int // by job
	flaky          string         // the job whose first run fails

	mu    sync.Mutex
	runs  map[string]int
	ends  map[string]map[string]string
	asked map[string]int // by method, and by method and job
	lists int            // calls whose parameters were a list
	wrong []string       // what the documents do not say
}

func (s *strangerSupervisor) complain(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *strangerSupervisor) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[what]
}

func (s *strangerSupervisor) complaints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.wrong)
}

type strangerParams struct {
	Secret string       `json:"secret"`
	Job    *strangerJob `json:"job"`
	JobID  string       `json:"job_id"`
}

// answer makes a call and returns its answer and the job that it was about.
func (s *strangerSupervisor) answer(text []byte) (strangerAnswer, string) {
	var call strangerCall
	if err := json.Unmarshal(text, &call); err != nil || call.Version != "2.0" || len(call.ID) == 0 {
		s.complain("no JSON-RPC request: %s", text)
	}
	a := strangerAnswer{Version: "2.0", ID: call.ID}
	refuse := func(code int, why string) (strangerAnswer, string) {
		a.Error = &strangerError{Code: code, Message: why}
		return a, ""
	}
	params, list := call.Params, []json.RawMessage(nil)
	if json.Unmarshal(call.Params, &list) == nil && len(list) == 1 {
		s.mu.Lock()
		s.lists++
		s.mu.Unlock()
		if params = list[0]; s.bare {
			return refuse(-32602, "invalid params")
		}
	}
	var p strangerParams
	if err := json.Unmarshal(params, &p); err != nil {
		s.complain("%s: %v: %s", call.Method, err, params)
		return refuse(-32602, "invalid params")
	}
	if p.Secret != s.secret {
		s.complain("%s: secret %q", call.Method, p.Secret)
		return refuse(-32003, "permission denied")
	}
	id := p.JobID
	if call.Method == "job.run" {
		if !p.Job.whole() {
			s.complain("job.run: a field is missing: %s", params)
			return refuse(-32602, "invalid params")
		}
		id = *p.Job.ID
	}
	s.mu.Lock()
	s.asked[call.Method]++
	s.asked[call.Method+" "+id]++
	end := s.ends[id]
	s.mu.Unlock()
	var result any
	switch {
	case call.Method == "job.run":
		result = s.run(p.Job)
	case end == nil:
		return refuse(-32001, "no such job")
	case call.Method == "job.status":
		status := "finished"
		if _, failed := end["error"]; failed {
			status = "error"
		}
		now := time.Now().UTC().Format(time.RFC3339)
		result = map[string]any{"job_id": id, "status": status, "created_at": now, "started_at": now, "completed_at": now}
	case call.Method == "job.result":
		result = end
	default:
		return refuse(-32601, "method not found")
	}
	a.Result, _ = json.Marshal(result) // strings and maps of them
	return a, id
}

func (s *strangerSupervisor) run(j *strangerJob) map[string]string {
	s.mu.Lock()
	s.runs[*j.ID]++
	first := s.runs[*j.ID] == 1
	delete(s.ends, *j.ID) // that of an earlier attempt, which job.status must not tell while this one runs
	s.mu.Unlock()
	end := strangerExecutes(s.python, *j.Payload, *j.Env)
	if first && *j.ID == s.flaky {
		end = map[string]string{"error": "the disk was full"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[*j.ID] = end
	return end
}

// strangerExecutes runs a script with its own variables only.
func strangerExecutes(python, script string, env map[string]string) map[string]string {
	cmd := exec.Command(python, "-")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/local/bin"}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.Output()
	if err != nil {
		return map[string]string{"error": err.Error()}
	}
	return map[string]string{"success": string(out)}
}

// ServeHTTP answers calls over HTTP.
func (s *strangerSupervisor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		s.complain("%s with %q: %v", r.Method, r.Header.Get("Content-Type"), err)
	}
	a, _ := s.answer(text)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // who asked may have gone
}

// listen pops the calls of a Mycelium node and answers them, until ctx ends. thief is the
// API of a node that answers first what is byStealing.
func (s *strangerSupervisor) listen(ctx context.Context, api, thief string) {
	var answers sync.WaitGroup
	defer answers.Wait()
	quiet := time.NewTicker(20 * time.Millisecond)
	defer quiet.Stop()
	for ctx.Err() == nil {
		var m *strangerMessage
		if err := strangerAsks(api, "popMessage", []any{false, 0, strangerTopic}, &m); err != nil {
			s.complain("popMessage: %v", err)
			return
		}
		if m == nil {
			select {
			case <-ctx.Done():
			case <-quiet.C:
			}
			continue
		}
		answers.Go(func() {
			if err := s.answerMessage(api, thief, m); err != nil {
				s.complain("the answer to message %s: %v", m.ID, err)
			}
		})
	}
}

func (s *strangerSupervisor) answerMessage(api, thief string, m *strangerMessage) error {
	text, err := base64.StdEncoding.DecodeString(m.Payload)
	if err != nil || m.Topic != strangerTopic {
		return fmt.Errorf("topic %q: %w", m.Topic, err)
	}
	a, job := s.answer(text)
	way := byReply
	if job != "" && bytes.Contains(text, []byte(`"job.run"`)) {
		way = s.ways[job]
	}
	payload, err := json.Marshal(a)
	if err != nil {
		return err
	}
	out := map[string]any{"dst": map[string]any{"pk": m.SrcPK}, "payload": base64.StdEncoding.EncodeToString(payload)}
	var said json.RawMessage
	switch way {
	case bySilence:
		return nil
	case byPush:
		out["topic"] = strangerTopic
		return strangerAsks(api, "pushMessage", []any{out}, &said)
	case byStealing:
		lie, _ := json.Marshal(strangerAnswer{Version: "2.0", ID: a.ID, Result: json.RawMessage(`{"success":"stolen"}`)})
		stolen := map[string]any{"dst": out["dst"], "topic": strangerTopic, "payload": base64.StdEncoding.EncodeToString(lie)}
		if err := strangerAsks(thief, "pushMessage", []any{stolen}, &said); err != nil {
			return err
		}
	}
	var taken bool
	if err := strangerAsks(api, "pushMessageReply", []any{m.ID, out}, &taken); err != nil || !taken {
		return fmt.Errorf("pushMessageReply: %v %w", taken, err)
	}
	return nil
}

// strangerRunner takes one job from the list of a local runner and runs it.
func strangerRunner(r *strangerRedis, python, list string) error {
	key, err := r.pop("BRPOP", list, 60)
	if err != nil || key == "" {
		return fmt.Errorf("%s: %q %w", list, key, err)
	}
	job, err := r.hash(key)
	if err != nil {
		return err
	}
	if want := "job:" + job["caller_id"] + ":" + job["id"]; key != want || job["script"] == "" || job["status"] == "" {
		return fmt.Errorf("%s leads to %v", key, job)
	}
	if _, err = r.do("HSET", key, "status", "started"); err != nil {
		return err
	}
	result, _ := json.Marshal(map[string]string{"output": strangerExecutes(python, job["script"], nil)["success"]})
	_, err = r.do("HSET", key, "result", string(result), "status", "finished")
	return err
}

// strangerQueues writes a job into its context's database and queues it, as whoever
// materialises a job does.
func strangerQueues(r *strangerRedis, caller, context, id int, script string, after []uint32) error {
	needs, err := json.Marshal(after)
	if err != nil {
		return err
	}
	key, now := fmt.Sprintf("job:%d:%d", caller, id), strconv.FormatInt(time.Now().Unix(), 10)
	_, err = r.do("HSET", key, "id", strconv.Itoa(id), "caller_id", strconv.Itoa(caller), "context_id", strconv.Itoa(context), "script", script, "script_type", "python",
		"timeout", "60", "retries", "0", "env_vars", "{}", "result", "{}", "prerequisites", "[]", "dependends", string(needs), "created_at", now, "updated_at", now, "status", "dispatched")
	if err == nil {
		_, err = r.do("LPUSH", "queue:python", key)
	}
	return err
}

// strangerServes waits a second for a job of a local queue. One that depends on others
// that have not finished becomes waiting_for_prerequisites, as its status is called then,
// and is somebody else's to bring again; every other is run.
func strangerServes(r *strangerRedis, python, list string) error {
	key, err := r.pop("BRPOP", list, 1)
	if err != nil || key == "" {
		return err
	}
	job, err := r.hash(key)
	if err != nil {
		return err
	}
	var needs []int
	if text := job["dependends"]; text != "" {
		if err := json.Unmarshal([]byte(text), &needs); err != nil {
			return fmt.Errorf("%s depends on %q: %w", key, text, err)
		}
	}
	for _, id := range needs {
		other, err := r.hash(fmt.Sprintf("job:%s:%d", job["caller_id"], id))
		if err != nil {
			return err
		}
		if other["status"] != "finished" {
			_, err := r.do("HSET", key, "status", "waiting_for_prerequisites")
			return err
		}
	}
	if _, err := r.do("HSET", key, "status", "started"); err != nil {
		return err
	}
	end := strangerExecutes(python, job["script"], nil)
	status, result := "finished", map[string]string{"output": end["success"]}
	if why, failed := end["error"]; failed {
		status, result = "error", map[string]string{"error": why}
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = r.do("HSET", key, "result", string(text), "status", status)
	return err
}

// strangerCreates writes a job of the dispatcher's protocol.
func strangerCreates(r *strangerRedis, id, worker, script string, timeout int, more ...string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	_, err := r.do(append([]string{"HSET", "hero:job:" + id, "id", id, "caller_id", "stranger", "worker_id", worker, "context_id", "1",
		"script", script, "timeout", strconv.Itoa(timeout), "retries", "0", "concurrent", "false", "created_at", now, "updated_at", now,
		"status", "dispatched"}, more...)...)
	return err
}

// strangerSubmits is LPUSH on the worker's queue.
func strangerSubmits(r *strangerRedis, id, worker string) error {
	_, err := r.do("LPUSH", "hero:work_queue:"+worker, id)
	return err
}

// strangerWorker is the protocol's loop, for as many jobs as said.
func strangerWorker(r *strangerRedis, python, worker string, jobs int) error {
	for range jobs {
		id, err := r.pop("BLPOP", "hero:work_queue:"+worker, 100)
		if err != nil || id == "" {
			return fmt.Errorf("no job came: %w", err)
		}
		key := "hero:job:" + id
		job, err := r.hash(key)
		if err != nil {
			return err
		}
		for _, field := range []string{"id", "caller_id", "worker_id", "context_id", "script", "timeout", "retries", "concurrent", "created_at", "updated_at", "status"} {
			if _, there := job[field]; !there {
				return fmt.Errorf("%s has no %s: %v", key, field, job)
			}
		}
		if _, err := time.Parse(time.RFC3339, job["created_at"]); err != nil || job["id"] != id || job["status"] != "dispatched" {
			return fmt.Errorf("%s: %v %w", key, job, err)
		}
		if _, err := r.do("HSET", key, "status", "started"); err != nil {
			return err
		}
		env := map[string]string{}
		if text := job["env_vars"]; text != "" {
			if err := json.Unmarshal([]byte(text), &env); err != nil {
				return err
			}
		}
		end := strangerExecutes(python, job["script"], env)
		status, field, value := "finished", "output", strings.TrimSpace(end["success"])
		if why, failed := end["error"]; failed {
			status, field, value = "error", "error", why
		}
		if _, err := r.do("HSET", key, "status", status, field, value); err != nil {
			return err
		}
		if there, err := r.do("EXISTS", "hero:reply:"+id); err != nil {
			return err
		} else if there == 1 { // reply_queue_exists: it never does while a client blocks
			if _, err := r.do("LPUSH", "hero:reply:"+id, value); err != nil {
				return err
			}
		}
	}
	return nil
}
