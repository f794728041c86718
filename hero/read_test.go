package hero

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// with is a hash with some fields changed; "-" takes a field away.
func with(h map[string]string, changes ...string) map[string]string {
	h = maps.Clone(h)
	for i := 0; i < len(changes); i += 2 {
		if h[changes[i]] = changes[i+1]; changes[i+1] == "-" {
			delete(h, changes[i])
		}
	}
	return h
}

func TestReadingIsLiberal(t *testing.T) {
	job, message, runner, context, flow, actor := aJob(), aMessage(), aRunner(), aContext(), aFlow(), anActor()
	readJob := func(change func(*Job), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := job
			change(&want)
			got, err := ReadJob(job.Key(), with(Fields(job), fields...))
			return want, got, err
		}
	}
	readMessage := func(change func(*Message), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := message
			change(&want)
			got, err := ReadMessage(message.Key(), with(Fields(message), fields...))
			return want, got, err
		}
	}
	readRunner := func(change func(*Runner), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := runner
			change(&want)
			got, err := ReadRunner(runner.Key(), with(Fields(runner), fields...))
			return want, got, err
		}
	}
	readContext := func(change func(*Context), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := context
			change(&want)
			got, err := ReadContext(context.Key(), with(Fields(context), fields...))
			return want, got, err
		}
	}
	readFlow := func(change func(*Flow), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := flow
			change(&want)
			got, err := ReadFlow(flow.Key(), with(Fields(flow), fields...))
			return want, got, err
		}
	}
	readActor := func(change func(*Actor), fields ...string) func() (any, any, error) {
		return func() (any, any, error) {
			want := actor
			change(&want)
			got, err := ReadActor(actor.Key(), with(Fields(actor), fields...))
			return want, got, err
		}
	}
	tests := map[string]func() (want, got any, err error){
		"a script that is a number": readJob(func(j *Job) { j.Script = "42" }, "script", "42"),
		"a script that is JSON":     readJob(func(j *Job) { j.Script = `["a"]` }, "script", `["a"]`),
		"a script in quotes":        readJob(func(j *Job) { j.Script = `"a"` }, "script", `"a"`),
		"a script with any bytes":   readJob(func(j *Job) { j.Script = "\xff\x00" }, "script", "\xff\x00"),
		"status in Pascal":          readJob(func(*Job) {}, "status", "WaitingForPrerequisites"),
		"status in camel":           readJob(func(*Job) {}, "status", "waitingForPrerequisites"),
		"status in quotes":          readJob(func(*Job) {}, "status", `"waiting_for_prerequisites"`),
		"status in capitals":        readJob(func(*Job) {}, "status", "WAITING_FOR_PREREQUISITES"),
		"no status":                 readJob(func(j *Job) { j.Status = JobDispatched }, "status", "-"),
		"script type in Pascal":     readJob(func(*Job) {}, "script_type", "Python"),
		"script type in capitals":   readJob(func(j *Job) { j.ScriptType = ScriptOSIS }, "script_type", "OSIS"),
		"another script type":       readJob(func(j *Job) { j.ScriptType = "rhai" }, "script_type", "Rhai"),
		"numbers in quotes":         readJob(func(*Job) {}, "timeout", `"60"`, "retries", ` 2 `, "id", `"2001"`),
		"a time in RFC 3339":        readJob(func(j *Job) { j.CreatedAt, j.UpdatedAt = 1767268800, 1767272400 }, "created_at", "2026-01-01T12:00:00Z", "updated_at", `"2026-01-01T12:00:00.9-01:00"`),
		"an empty number":           readJob(func(j *Job) { j.Timeout = 0 }, "timeout", ""),
		"no number":                 readJob(func(j *Job) { j.Timeout, j.Retries = 0, 0 }, "timeout", "-", "retries", "-"),
		"ids as CSV":                readJob(func(j *Job) { j.Dependends = []uint32{1, 2} }, "dependends", "1, 2,"),
		"ids as texts":              readJob(func(j *Job) { j.Dependends = []uint32{1, 2} }, "dependends", ` [ "1", 2 ] `),
		"a list in quotes":          readJob(func(j *Job) { j.Dependends = []uint32{1, 2} }, "dependends", `"[1,2]"`),
		"an empty list":             readJob(func(j *Job) { j.Dependends, j.Prerequisites = nil, nil }, "dependends", "", "prerequisites", "null"),
		"no list":                   readJob(func(j *Job) { j.Dependends, j.Prerequisites = nil, nil }, "dependends", "-", "prerequisites", "-"),
		"texts as CSV":              readJob(func(j *Job) { j.Prerequisites = []string{"a b", "c"} }, "prerequisites", "a b,c"),
		"texts that are numbers":    readJob(func(j *Job) { j.Prerequisites = []string{"1", "true"} }, "prerequisites", "[1,true]"),
		"texts with commas":         readJob(func(j *Job) { j.Prerequisites = []string{"a,b"} }, "prerequisites", `["a,b"]`),
		"an empty map":              readJob(func(j *Job) { j.EnvVars, j.Result = nil, nil }, "env_vars", "", "result", "[]"),
		"no map":                    readJob(func(j *Job) { j.EnvVars, j.Result = nil, nil }, "env_vars", "null", "result", "-"),
		"a map of anything": readJob(func(j *Job) {
			j.Result = map[string]string{"n": "1.50", "t": "true", "l": "[1,2]", "o": `{"a":"<"}`, "e": ""}
		}, "result", `{"n":1.50,"t":true,"l":[1, 2],"o":{"a": "<"},"e":null}`),
		"signatures that are no JSON": readJob(func(j *Job) { j.Signatures = []byte(`"ab cd"`) }, "signatures", "ab cd"),
		"other fields":                readJob(func(*Job) {}, "color", "red", "edda_step", "x"),
		"older message type":          readMessage(func(*Message) {}, "message_type", "Python"),
		"no words":                    readMessage(func(m *Message) { m.MessageFormat, m.Status = FormatText, MessageDispatched }, "message_format_type", "", "message_type", "-", "status", "-"),
		"message that is a number":    readMessage(func(m *Message) { m.Message = "007" }, "message", "007"),
		"one job alone": readMessage(func(m *Message) {
			m.Job = []Job{{ID: 1, CallerID: 2, Script: "42", ScriptType: "v", Status: JobStarted, Retries: 3}}
		}, "job", `{"id":"1","caller_id":2,"script":42,"script_type":"V","status":"Started","retries":"3","timeout":null}`),
		"one job in camelCase": readMessage(func(m *Message) {
			m.Job = []Job{{ID: 1, CallerID: 2, Script: "x", ScriptType: "v", Status: JobDispatched, CreatedAt: 1767268800}}
		}, "job", `{"id":1,"callerId":2,"script":"x","scriptType":"V","createdAt":"2026-01-01T12:00:00Z"}`),
		"no jobs":              readMessage(func(m *Message) { m.Job, m.Nodes, m.Logs = nil, nil, nil }, "job", "", "nodes", "-", "logs", "[]"),
		"logs that are texts":  readMessage(func(m *Message) { m.Logs = []Log{{Text: "sent"}, {Time: 5, Text: "x"}} }, "logs", `["sent",{"time":"5","text":"x"}]`),
		"nodes in later words": readMessage(func(m *Message) { m.Nodes = []FlowNode{{ID: 1, Depends: []uint32{2}, NodeStatus: NodePending}} }, "nodes", `[{"id":1,"depends":[2],"prerequisites":[],"supervisor_url":"","node_status":"Pending"}]`),
		"true as 1":            readRunner(func(*Runner) {}, "local", "1"),
		"True":                 readRunner(func(*Runner) {}, "local", "True"),
		"false as 0":           readRunner(func(r *Runner) { r.Local = false }, "local", "0"),
		"no truth":             readRunner(func(r *Runner) { r.Local = false }, "local", ""),
		"no secret":            readRunner(func(r *Runner) { r.Secret = "" }, "secret", "-"),
		"one admin":            readContext(func(c *Context) { c.Admins = []uint32{5} }, "admins", "5"),
		"created flow":         readFlow(func(f *Flow) { f.Status = FlowDispatched }, "status", "Created"),
		"one address":          readActor(func(a *Actor) { a.Address = []string{"5c3::1"} }, "address", "5c3::1"),
		"address in quotes":    readActor(func(a *Actor) { a.Address = []string{"5c3::1"} }, "address", `"5c3::1"`),
	}
	for name, read := range tests {
		t.Run(name, func(t *testing.T) {
			want, got, err := read()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBrokenHashesNameKeyAndField(t *testing.T) {
	job := func(fields ...string) func() error {
		return func() error { _, err := ReadJob("job:12:2001", with(Fields(aJob()), fields...)); return err }
	}
	message := func(fields ...string) func() error {
		return func() error {
			_, err := ReadMessage("message:12:101", with(Fields(aMessage()), fields...))
			return err
		}
	}
	flow := func(fields ...string) func() error {
		return func() error { _, err := ReadFlow("flow:33", with(Fields(aFlow()), fields...)); return err }
	}
	other := map[string]string{"name": "stats", "hits": "12"}
	tests := map[string]struct {
		read       func() error
		key, field string
	}{
		"another program's flow":    {func() error { _, err := ReadFlow("flow:33", other); return err }, "flow:33", "id"},
		"another program's context": {func() error { _, err := ReadContext("context:7", other); return err }, "context:7", "id"},
		"another program's actor":   {func() error { _, err := ReadActor("actor:7", other); return err }, "actor:7", "id"},
		"another program's runner":  {func() error { _, err := ReadRunner("runner:7", other); return err }, "runner:7", "id"},
		"another program's job":     {func() error { _, err := ReadJob("job:1:7", other); return err }, "job:1:7", "caller_id"},
		"another program's message": {func() error { _, err := ReadMessage("message:1:7", other); return err }, "message:1:7", "caller_id"},
		"nothing of the id 0":       {func() error { _, err := ReadActor("actor:0", other); return err }, "actor:0", "id"},
		"no hash":                   {func() error { _, err := ReadJob("job:1:7", nil); return err }, "job:1:7", "caller_id"},
		"no key":                    {func() error { _, err := ReadJob("job:12", Fields(aJob())); return err }, "job:12", ""},
		"another kind's key":        {func() error { _, err := ReadFlow("job:12", Fields(aFlow())); return err }, "job:12", ""},
		"another id":                {job("id", "2002"), "job:12:2001", "id"},
		"another caller":            {job("caller_id", "13"), "job:12:2001", "caller_id"},
		"an empty id":               {job("id", ""), "job:12:2001", "id"},
		"a time":                    {job("created_at", "2026-13-01T12:00:00Z"), "job:12:2001", "created_at"},
		"a time before 1970":        {job("created_at", "1969-01-01T12:00:00Z"), "job:12:2001", "created_at"},
		"a flow of nobody":          {flow("caller_id", "-"), "flow:33", "caller_id"},
		"a word for a number":       {job("timeout", "soon"), "job:12:2001", "timeout"},
		"a negative number":         {job("timeout", "-1"), "job:12:2001", "timeout"},
		"a number too large":        {job("timeout", "4294967296"), "job:12:2001", "timeout"},
		"too many retries":          {job("retries", "256"), "job:12:2001", "retries"},
		"an unknown status":         {job("status", "paused"), "job:12:2001", "status"},
		"a script type for a path":  {job("script_type", "../x"), "job:12:2001", "script_type"},
		"ids that are none":         {job("dependends", "[1,null]"), "job:12:2001", "dependends"},
		"half a list":               {job("dependends", "[1,"), "job:12:2001", "dependends"},
		"a list of lists":           {job("prerequisites", `[["a"]]`), "job:12:2001", "prerequisites"},
		"a map that is none":        {job("env_vars", "A=1"), "job:12:2001", "env_vars"},
		"a map that is a list":      {job("env_vars", "[1]"), "job:12:2001", "env_vars"},
		"an unknown message type":   {message("message_type", "spam"), "message:12:101", "message_type"},
		"an unknown format":         {message("message_format_type", "pdf"), "message:12:101", "message_format_type"},
		"an embedded job's number":  {message("job", `[{"id":1,"caller_id":2,"timeout":"soon"}]`), "message:12:101", "job[0].timeout"},
		"an embedded job's retries": {message("job", `[{"id":1,"caller_id":2},{"id":1,"caller_id":2,"retries":-1}]`), "message:12:101", "job[1].retries"},
		"an embedded job of none":   {message("job", `[{"script":"x"}]`), "message:12:101", "job[0].id"},
		"jobs that are texts":       {message("job", `["x"]`), "message:12:101", "job"},
		"jobs that are null":        {message("job", `[null]`), "message:12:101", "job"},
		"jobs that are no JSON":     {message("job", `x`), "message:12:101", "job"},
		"a node's status":           {message("nodes", `[{"id":1,"node_status":"lost"}]`), "message:12:101", "nodes[0].node_status"},
		"a truth that is none": {func() error {
			_, err := ReadRunner("runner:20", with(Fields(aRunner()), "local", "maybe"))
			return err
		}, "runner:20", "local"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var field *FieldError
			if err := tt.read(); !errors.As(err, &field) {
				t.Fatalf("error %v", err)
			}
			if field.Key != tt.key || field.Field != tt.field || !strings.Contains(field.Error(), tt.key) || !strings.Contains(field.Error(), tt.field) || field.Why == "" {
				t.Errorf("%#v: %v", field, field)
			}
		})
	}
}

func TestErrorsShowNoSecrets(t *testing.T) {
	const secret = "hunter2"
	for _, field := range []string{"env_vars", "result", "prerequisites", "dependends"} {
		for _, broken := range []string{`{"PASSWORD":"hunter2"`, `["hunter2",[1]]`, `hunter2{`} {
			_, err := ReadJob("job:12:2001", with(Fields(aJob()), field, broken))
			if err != nil && strings.Contains(err.Error(), secret) && field != "dependends" {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
	_, err := ReadMessage("message:12:101", with(Fields(aMessage()), "job", `[{"env_vars":"hunter2"`))
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Error(err)
	}
}

func TestLongValuesAreCutInErrors(t *testing.T) {
	_, err := ReadJob("job:12:2001", with(Fields(aJob()), "timeout", strings.Repeat("x", 1<<20)))
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("%d bytes of error", len(err.Error()))
	}
}

// Texts as they may lie in JSON: U+FFFD stands for what is no UTF-8.
func texts() *rapid.Generator[string] { return rapid.String() }

func ids() *rapid.Generator[uint32] { return rapid.Uint32() }

func pairs() *rapid.Generator[map[string]string] { return rapid.MapOfN(texts(), texts(), 0, 4) }

func nodes() *rapid.Generator[[]FlowNode] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) FlowNode {
		return FlowNode{
			ID: ids().Draw(t, "id"), Depends: rapid.SliceOf(ids()).Draw(t, "depends"), Prerequisites: rapid.SliceOf(texts()).Draw(t, "prerequisites"),
			SupervisorURL: texts().Draw(t, "url"), NodeStatus: rapid.SampledFrom([]NodeStatus{"", NodePending, NodeRunning, NodeCancelled}).Draw(t, "status"),
		}
	}), 0, 3)
}

// scriptTypes are as they are kept: "-v" is a way to write "v", and read as that.
func scriptTypes() *rapid.Generator[ScriptType] {
	return rapid.Map(rapid.StringMatching(`|osis|sal|v|-v|python|[a-z0-9_-]{1,64}`), func(s string) ScriptType {
		kept, _ := ParseScriptType(s) // the empty text is none, and kept as it is
		return kept
	})
}

func jobs() *rapid.Generator[Job] {
	return rapid.Custom(func(t *rapid.T) Job {
		return Job{
			ID: ids().Draw(t, "id"), CallerID: ids().Draw(t, "caller"), ContextID: ids().Draw(t, "context"), Script: texts().Draw(t, "script"),
			ScriptType: scriptTypes().Draw(t, "type"), Executor: texts().Draw(t, "executor"),
			Timeout: ids().Draw(t, "timeout"), Retries: rapid.Uint8().Draw(t, "retries"), EnvVars: pairs().Draw(t, "env"), Result: pairs().Draw(t, "result"),
			Prerequisites: rapid.SliceOf(texts()).Draw(t, "prerequisites"), Dependends: rapid.SliceOf(ids()).Draw(t, "dependends"),
			Signatures: rapid.SampledFrom([][]byte{nil, []byte(`["<a>"]`), []byte(`"30"`), []byte(`{"n":12345678901234567890}`)}).Draw(t, "signatures"),
			CreatedAt:  ids().Draw(t, "created"), UpdatedAt: ids().Draw(t, "updated"),
			Status: rapid.SampledFrom([]JobStatus{JobDispatched, JobWaiting, JobStarted, JobError, JobFinished}).Draw(t, "status"),
			FlowID: ids().Draw(t, "flow"), Attempt: ids().Draw(t, "attempt"), MessageKey: texts().Draw(t, "message"), OwnEnv: pairs().Draw(t, "own"),
		}
	})
}

func same(t *rapid.T, want, got any, err error) {
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatal(diff)
	}
}

func TestWrittenObjectsAreReadAgain(t *testing.T) {
	t.Run("actor", rapid.MakeCheck(func(t *rapid.T) {
		a := Actor{ID: ids().Draw(t, "id"), PubKey: texts().Draw(t, "key"), Address: rapid.SliceOf(texts()).Draw(t, "address"), CreatedAt: ids().Draw(t, "created")}
		got, err := ReadActor(a.Key(), Fields(a))
		same(t, a, got, err)
	}))
	t.Run("context", rapid.MakeCheck(func(t *rapid.T) {
		l := rapid.SliceOf(ids())
		c := Context{ID: ids().Draw(t, "id"), Admins: l.Draw(t, "admins"), Readers: l.Draw(t, "readers"), Executors: l.Draw(t, "executors"), UpdatedAt: ids().Draw(t, "updated")}
		got, err := ReadContext(c.Key(), Fields(c))
		same(t, c, got, err)
	}))
	t.Run("flow", rapid.MakeCheck(func(t *rapid.T) {
		f := Flow{
			ID: ids().Draw(t, "id"), CallerID: ids().Draw(t, "caller"), ContextID: ids().Draw(t, "context"), Jobs: rapid.SliceOf(ids()).Draw(t, "jobs"),
			EnvVars: pairs().Draw(t, "env"), Result: pairs().Draw(t, "result"), Nodes: nodes().Draw(t, "nodes"),
			Status: rapid.SampledFrom([]FlowStatus{FlowDispatched, FlowStarted, FlowError, FlowFinished}).Draw(t, "status"),
		}
		got, err := ReadFlow(f.Key(), Fields(f))
		same(t, f, got, err)
	}))
	t.Run("runner", rapid.MakeCheck(func(t *rapid.T) {
		r := Runner{ID: ids().Draw(t, "id"), PubKey: texts().Draw(t, "key"), Address: texts().Draw(t, "address"), Topic: texts().Draw(t, "topic"), Local: rapid.Bool().Draw(t, "local"), Secret: texts().Draw(t, "secret")}
		got, err := ReadRunner(r.Key(), Fields(r))
		same(t, r, got, err)
	}))
	t.Run("job", rapid.MakeCheck(func(t *rapid.T) {
		j := jobs().Draw(t, "job")
		got, err := ReadJob(j.Key(), Fields(j))
		same(t, j, got, err)
	}))
	t.Run("message", rapid.MakeCheck(func(t *rapid.T) {
		m := Message{
			ID: ids().Draw(t, "id"), CallerID: ids().Draw(t, "caller"), ContextID: ids().Draw(t, "context"), Message: texts().Draw(t, "message"),
			MessageType:   rapid.SampledFrom([]MessageType{MessageJob, MessageChat, MessageMail, MessageResult}).Draw(t, "type"),
			MessageFormat: rapid.SampledFrom([]MessageFormat{FormatHTML, FormatText, FormatMD}).Draw(t, "format"),
			Timeout:       ids().Draw(t, "timeout"), TimeoutAck: ids().Draw(t, "ack"), TimeoutResult: ids().Draw(t, "result"),
			Job: rapid.SliceOfN(jobs(), 0, 2).Draw(t, "jobs"), Nodes: nodes().Draw(t, "nodes"), FlowID: ids().Draw(t, "flow"),
			Logs: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Log {
				return Log{Time: ids().Draw(t, "time"), Level: texts().Draw(t, "level"), Source: texts().Draw(t, "source"), Text: texts().Draw(t, "text")}
			}), 0, 3).Draw(t, "logs"),
			TransportID: texts().Draw(t, "transport"), TransportStatus: texts().Draw(t, "transport status"), TargetContext: ids().Draw(t, "target"),
			Status: rapid.SampledFrom([]MessageStatus{MessageDispatched, MessageAcknowledged, MessageError, MessageProcessed}).Draw(t, "status"),
			Topic:  texts().Draw(t, "topic"), To: ids().Draw(t, "to"), ReplyTo: texts().Draw(t, "reply"), Attempt: ids().Draw(t, "attempt"), Origin: texts().Draw(t, "origin"), Via: texts().Draw(t, "via"),
		}
		got, err := ReadMessage(m.Key(), Fields(m))
		same(t, m, got, err)
	}))
}

// FuzzRead reads anything as any field of any object: nothing panics, and what
// was read is written and read again as the same.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "1", "42", `"1"`, "[1,2]", `["a"]`, "a,b", `{"a":1}`, `[{"id":1,"caller_id":2}]`, "null", "[null]", "true", "Started", "[", `{"`, "\xff", `"`, `"\ud800"`, `{"id":{}}`} {
		f.Add("status", s, "12")
		f.Add("job", s, s)
	}
	f.Fuzz(func(t *testing.T, field, value, every string) {
		again(t, "job:12:1", ReadJob, fuzzed(aJob(), field, value, every, "12", "1"))
		again(t, "message:12:1", ReadMessage, fuzzed(aMessage(), field, value, every, "12", "1"))
		again(t, "flow:1", ReadFlow, fuzzed(aFlow(), field, value, every, "12", "1"))
		again(t, "runner:1", ReadRunner, fuzzed(aRunner(), field, value, every, "12", "1"))
		again(t, "context:1", ReadContext, fuzzed(aContext(), field, value, every, "12", "1"))
		again(t, "actor:1", ReadActor, fuzzed(anActor(), field, value, every, "12", "1"))
		again(t, value, ReadJob, fuzzed(aJob(), field, value, every, "12", "1"))
	})
}

// fuzzed is the hash with one field of a value, and half of the others of another.
func fuzzed(o Object, field, value, every, caller, id string) map[string]string {
	h := Fields(o)
	for name := range h {
		if len(name)%2 == 0 {
			h[name] = every
		}
	}
	h["caller_id"], h["id"], h[field] = caller, id, value
	return h
}

func again[T Object](t *testing.T, key string, read func(string, map[string]string) (T, error), h map[string]string) {
	one, err := read(key, h)
	if err != nil {
		var field *FieldError
		if !errors.As(err, &field) || field.Error() == "" {
			t.Fatalf("%T: %v", err, err)
		}
		return
	}
	two, err := read(key, Fields(one))
	if err != nil {
		t.Fatalf("%s from %q: %v", key, h, err)
	}
	if diff := cmp.Diff(one, two, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s: %s", key, diff)
	}
}

func TestTwoNamesOfOneFieldThatDifferAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"id": 1, "scriptType": "v", "script_type": "python"}`: "scriptType says something else than script_type",
		`{"id": 1, "depends": [1], "dependends": [2]}`:          "depends says something else than dependends",
		`{"id": 1, "scriptType": "v", "script_type": "v"}`:      "",
	} {
		var j Job
		err := json.Unmarshal([]byte(text), &j)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
