package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
)

const exampleFlow = "../docs/hero/words.yaml"

// heroCLI runs one command of edda hero with a file on standard input.
func heroCLI(t *testing.T, url, stdin string, args ...string) (code int, out, said string) {
	t.Helper()
	o, e := newScreen(), newScreen()
	term := &terminal{in: strings.NewReader(stdin), out: o, err: e, env: []string{"COORDINATOR_URL=" + url}}
	code = term.run(t.Context(), append([]string{"hero"}, args...))
	return code, o.String(), e.String()
}

// peopled is a coordinator with an actor, a context and a local runner.
func peopled(t *testing.T) string {
	t.Helper()
	_, url := heroDev(t, t.TempDir())
	for _, call := range [][]string{
		{"actor.create", `{"actor": {"id": 12, "pubkey": "", "address": []}}`},
		{"context.create", `{"context": {"id": 7, "admins": [12], "readers": [], "executors": []}}`},
		{"runner.create", `{"context_id": 7, "caller_id": 12, "runner": {"id": 1, "pubkey": "", "address": "", "topic": "", "local": true}}`},
	} {
		if code, _, said := heroCLI(t, url, "", append([]string{"call"}, call...)...); code != 0 {
			t.Fatalf("%s: %s", call[0], said)
		}
	}
	return url
}

func TestAFlowOfNJobsTookNPlusFourRawCalls(t *testing.T) {
	url := peopled(t)
	code, out, said := heroCLI(t, url, "", "flow", "create", exampleFlow, "--start")
	m := regexp.MustCompile(`edda hero flow show 7 (\d+) --watch`).FindStringSubmatch(out)
	if code != 0 || m == nil || !strings.Contains(out, "sum  after first, second") {
		t.Fatalf("exit %d\n%s%s", code, out, said)
	}
	code, out, said = heroCLI(t, url, "", "flow", "show", "7", m[1], "--watch")
	if want := "flow " + m[1] + " (words) of context 7: finished, 3 of 3 jobs completed\n  0   ✔ first  ✔ second\n  1   ✔ sum ←first,second\n"; code != 0 || !strings.HasSuffix(out, want) {
		t.Fatalf("exit %d\n%s%s\nwant\n%s", code, out, said, want)
	}
	code, out, _ = heroCLI(t, url, "", "flow", "list", "7")
	if !regexp.MustCompile(m[1] + ` +words +finished +3 +\d+s ago`).MatchString(out) {
		t.Errorf("exit %d: the list is\n%s", code, out)
	}
	var flows []hero.Flow
	_, out, _ = heroCLI(t, url, "", "flow", "list", "7", "-o", "json", "--status", "finished")
	if err := json.Unmarshal([]byte(out), &flows); err != nil || len(flows) != 1 || len(flows[0].Result) != 3 {
		t.Errorf("%v: %s", err, out)
	}
	if code, out, _ = heroCLI(t, url, "", "flow", "list", "7", "-o", "ids", "--status", "error"); code != 0 || out != "" {
		t.Errorf("exit %d: flows in error: %q", code, out)
	}
	o := newScreen()
	(&terminal{out: o, err: newScreen(), env: []string{"COORDINATOR_URL=" + url}}).run(t.Context(), []string{"__complete", "hero", "flow", "show", "7", m[1][:2]})
	if want := m[1] + "\twords finished\n:4\n"; o.String() != want {
		t.Errorf("completed is %q, want %q", o, want)
	}
	if code, out, said = heroCLI(t, url, "", "flow", "delete", "7", m[1], "--jobs"); code != 0 || !strings.Contains(out, "deleted, with 3 jobs") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	if _, out, _ = heroCLI(t, url, "", "call", "job.list", `{"context_id": 7}`); strings.TrimSpace(out) != "[]" {
		t.Errorf("jobs are left: %s", out)
	}
}

func TestAWrongFlowFileIsRefusedWholeBeforeAnythingIsSent(t *testing.T) {
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer s.Close()
	node := func(rest string) string {
		return "context: 7\nactor: 12\nnodes:\n- {name: a, type: python, script: x" + rest + "}\n"
	}
	many := ""
	for i := range 900 {
		many += fmt.Sprintf("- {name: n%d, type: v, script: x, prerequisites: [%s]}\n", i, strings.Repeat("p", 250))
	}
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"an unknown field":        {"contxt: 7\n" + node(""), []string{"1:1: error: a flow has no field contxt: did you mean context?"}},
		"a node's":                {node(", timout: 3"), []string{"4:38: error: a node has no field timout: did you mean timeout?"}},
		"one that nobody knows":   {node(", priority: 3"), []string{"a node has no field priority: it has depends, env,"}},
		"a name twice":            {node("") + "- {name: a, type: python, script: x}\n", []string{"5:3: error: the name a is that of the node in line 4"}},
		"an unknown name":         {node(", depends: [b]"), []string{"4:48: error: node a depends on b, which is no node of this flow"}},
		"a misspelled one":        {node("") + "- {name: fetch, type: v, script: x, depends: [fetsh]}\n", []string{"did you mean fetch?"}},
		"itself":                  {node(", depends: a"), []string{"the nodes wait for each other: a → a"}},
		"a way round":             {node(", depends: b") + "- {name: b, type: v, script: x, depends: c}\n- {name: c, type: v, script: x, depends: a}\n", []string{"4:47: error: the nodes wait for each other: a → b → c → a"}},
		"a node as condition":     {node(", prerequisites: [b]") + "- {name: b, type: v, script: x}\n", []string{"put it into depends"}},
		"no script":               {"context: 7\nactor: 12\nnodes:\n- {name: a, type: python}\n", []string{"4:3: error: node a: script is missing"}},
		"no type":                 {"context: 7\nactor: 12\nnodes:\n- {name: a, script: x}\n", []string{"node a needs a type"}},
		"no name":                 {"context: 7\nactor: 12\nnodes:\n- {type: v, script: x}\n", []string{"4:3: error: a node needs a name"}},
		"no file":                 {"context: 7\nactor: 12\nnodes:\n- {name: a, type: v, file: nowhere.v}\n", []string{"4:28: error: file: open nowhere.v"}},
		"both":                    {node(", file: x.py"), []string{"a node has a script or a file, not both"}},
		"too many retries":        {node(", retries: 256"), []string{"4:47: error: retries: want a whole number from 0 to 255"}},
		"half a second":           {node(", timeout: 500ms"), []string{"timeout: want whole seconds, such as 30, 30s, 5m or 2h"}},
		"none":                    {node(", timeout: 0"), []string{"timeout: want whole seconds"}},
		"a list as variable":      {node(", env: {A: [1]}"), []string{"env: A: want a text"}},
		"a bad variable":          {node(`, env: {"A=B": x}`), []string{"node a: env_vars has a variable whose name"}},
		"a supervisor nowhere":    {node(", supervisor_url: nowhere"), []string{"node a: supervisor_url is no URL of a supervisor"}},
		"two names of one field":  {node(", depends: [], dependends: []"), []string{"a node says depends and dependends, which are the same"}},
		"an id twice":             {node(", id: 5") + "- {name: b, type: v, script: x, id: 5}\n", []string{"node b has the id 5, as node a has"}},
		"too large a graph":       {"context: 7\nactor: 12\nnodes:\n" + many, []string{"4:3: error: the graph is larger than"}},
		"no nodes":                {"context: 7\nactor: 12\n", []string{"1:1: error: a flow needs nodes"}},
		"an empty list":           {"context: 7\nactor: 12\nnodes: []\n", []string{"nodes: want a list of jobs"}},
		"nothing":                 {"# nothing\n", []string{"1:1: error: the file is empty"}},
		"no YAML":                 {"context: 7\n nodes: [\n", []string{"2:1: error: this is no YAML"}},
		"two flows":               {node("") + "---\n" + node(""), []string{"a second document"}},
		"a list":                  {"- 1\n", []string{"a flow: want fields and values"}},
		"all of it at once":       {"contxt: 7\n" + node(", timout: 3") + "- {name: b, type: v, script: x, depends: [c]}\n", []string{"no field contxt", "no field timout", "depends on c", "3 errors"}},
		"an alias that goes back": {"context: 7\nactor: 12\nnodes: &n\n- *n\n", []string{"a node: want fields and values"}},
	} {
		code, out, said := heroCLI(t, s.URL, test.file, "flow", "create", "-", "--start")
		for _, want := range test.want {
			if code != exitFailed || out != "" || !strings.Contains(said, want) {
				t.Errorf("%s: exit %d\n%s%s\nwant %s", name, code, out, said, want)
			}
		}
	}
	for name, file := range map[string]string{
		"names no context": "actor: 12\nnodes: [{name: a, type: v, script: x}]\n",
		"names no actor":   "context: 7\nnodes: [{name: a, type: v, script: x}]\n",
	} {
		if code, _, said := heroCLI(t, s.URL, file, "flow", "create", "-"); code != exitUsage || !strings.Contains(said, name) {
			t.Errorf("%s: exit %d: %s", name, code, said)
		}
	}
	for _, file := range []string{node(""), "{\n\t\"context\": 7, \"caller_id\": 12,\n\t\"jobs\": [{\"name\": \"a\", \"script_type\": \"python\", \"payload\": \"a\\tb\"}]\n}"} {
		code, out, said := heroCLI(t, s.URL, file, "flow", "create", "-", "--dry-run")
		if code != 0 || !strings.Contains(out, "  0   · a\nnothing was sent") {
			t.Errorf("a dry run: exit %d\n%s%s", code, out, said)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

// cut is what becomes of a call on its way.
type cut int

const (
	whole  cut = iota
	before     // it does not arrive
	after      // it arrives, and its answer is lost
)

// cutWire passes calls on to a coordinator, but for those that are cut. It asks cuts about one call
// at a time.
func cutWire(t *testing.T, url string, cuts func(method string, params []byte) cut) string {
	t.Helper()
	var asking sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		var req struct {
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(text, &req); err != nil {
			t.Error(err)
		}
		asking.Lock()
		how := cuts(req.Method, req.Params)
		asking.Unlock()
		if how == before {
			panic(http.ErrAbortHandler)
		}
		answer, err := http.Post(url, "application/json", bytes.NewReader(text))
		if err != nil || how == after {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = answer.Body.Close() }()
		w.Header().Set("Content-Type", "application/json")
		if _, err := io.Copy(w, answer.Body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// leftIn are the flows and jobs of context 7.
func leftIn(t *testing.T, url string) (flows []hero.Flow, jobs []hero.Job) {
	t.Helper()
	client := jsonrpc.NewClient(url, jsonrpc.ClientOptions{})
	for method, to := range map[string]any{"flow.list": &flows, "job.list": &jobs} {
		if err := client.Call(t.Context(), method, map[string]any{"context_id": 7}, to); err != nil {
			t.Fatal(err)
		}
	}
	return flows, jobs
}

func TestAFlowThatFailsHalfWayLeavesNothingBehind(t *testing.T) {
	url := peopled(t)
	file := func(rest string) string {
		return "context: 7\nactor: 12\nnodes:\n- {name: a, type: python, script: x}\n- {name: b, type: python, script: x, depends: a" + rest + "}\n"
	}
	count := func(of string, n int, how cut) func(string, []byte) cut {
		seen := 0
		return func(method string, _ []byte) cut {
			if method == of {
				if seen++; seen == n {
					return how
				}
			}
			return whole
		}
	}
	for name, test := range map[string]struct {
		file string
		cuts func(string, []byte) cut
		said []string
	}{
		"the flow does not arrive":   {file(""), count("flow.create", 1, before), []string{"no coordinator answers", "deleted again"}},
		"the flow's answer is lost":  {file(""), count("flow.create", 1, after), []string{"no coordinator answers", "deleted again"}},
		"a job does not arrive":      {file(""), count("job.create", 2, before), []string{"node b could not be created", "deleted again"}},
		"a job's answer is lost":     {file(""), count("job.create", 2, after), []string{"node b could not be created", "deleted again"}},
		"the look for it fails":      {file(""), count("job.load", 2, after), []string{"no coordinator answers", "deleted again"}},
		"a job is refused":           {strings.Replace(file(""), "{name: b, type: python", "{name: b, type: cobol", 1), count("", 0, whole), []string{"node b could not be created", "deleted again", "is not known here"}},
		"nobody may":                 {strings.Replace(file(""), "actor: 12", "actor: 13", 1), count("", 0, whole), []string{"actor 13 may not change this context"}},
		"nothing arrives, from then": {file(""), func(method string, _ []byte) cut { return whole }, nil},
	} {
		code, out, said := heroCLI(t, cutWire(t, url, test.cuts), test.file, "flow", "create", "-")
		if test.said == nil {
			if code != 0 {
				t.Errorf("without a cut: exit %d\n%s%s", code, out, said)
			}
			flows, _ := leftIn(t, url)
			for _, f := range flows {
				heroCLI(t, url, "", "flow", "delete", "7", fmt.Sprint(f.ID), "--jobs")
			}
			continue
		}
		for _, want := range test.said {
			if code != exitFailed || out != "" || !strings.Contains(said, want) {
				t.Errorf("%s: exit %d\n%s%s\nwant %s", name, code, out, said, want)
			}
		}
		if flows, jobs := leftIn(t, url); len(flows) != 0 || len(jobs) != 0 {
			t.Errorf("%s: left are %v, %v", name, flows, jobs)
		}
	}
	gone := false
	_, _, said := heroCLI(t, cutWire(t, url, func(method string, _ []byte) cut {
		if gone = gone || method == "job.create"; gone {
			return before
		}
		return whole
	}), file(""), "flow", "create", "-")
	flows, _ := leftIn(t, url)
	m := regexp.MustCompile(`cannot be deleted now; delete it with: edda hero (flow delete 7 \d+ --jobs)`).FindStringSubmatch(said)
	if len(flows) != 1 || m == nil {
		t.Fatalf("left are %v, and it said\n%s", flows, said)
	}
	if code, _, said := heroCLI(t, url, "", strings.Fields(m[1])...); code != 0 {
		t.Errorf("%s: %s", m[1], said)
	}
	if flows, jobs := leftIn(t, url); len(flows) != 0 || len(jobs) != 0 {
		t.Errorf("left are %v, %v", flows, jobs)
	}
}

func TestAFlowFileNeverWritesOverWhatIsThere(t *testing.T) {
	url := peopled(t)
	heroCLI(t, url, "", "call", "job.create", `{"context_id": 7, "job": {"id": 5, "caller_id": 12, "script": "mine", "script_type": "python"}}`)
	heroCLI(t, url, "", "call", "flow.create", `{"context_id": 7, "flow": {"id": 6, "caller_id": 12, "jobs": [5]}}`)
	for name, test := range map[string]struct{ file, said string }{
		"a job's id":  {"context: 7\nactor: 12\nnodes:\n- {name: a, id: 5, type: python, script: x}\n", "job:12:5 is there already, and is left as it is"},
		"a flow's id": {"context: 7\nactor: 12\nid: 6\nnodes:\n- {name: a, type: python, script: x}\n", "flow:6 is there already, and is left as it is"},
	} {
		code, _, said := heroCLI(t, url, test.file, "flow", "create", "-")
		if code != exitFailed || !strings.Contains(said, test.said) {
			t.Errorf("%s: exit %d: %s", name, code, said)
		}
		if flows, jobs := leftIn(t, url); len(flows) != 1 || len(jobs) != 1 || flows[0].ID != 6 || flows[0].Jobs[0] != 5 || jobs[0].Script != "mine" {
			t.Errorf("%s: there are now %v, %v", name, flows, jobs)
		}
	}
	// An id that was chosen and is taken is chosen anew.
	taken := 0
	s := cutWire(t, url, func(method string, params []byte) cut {
		if method != "job.load" || taken > 0 {
			return whole
		}
		taken++
		var p struct{ ID uint32 }
		_ = json.Unmarshal(params, &p)
		heroCLI(t, url, "", "call", "job.create", fmt.Sprintf(`{"context_id": 7, "job": {"id": %d, "caller_id": 12, "script": "another", "script_type": "python"}}`, p.ID))
		return whole
	})
	code, out, said := heroCLI(t, s, "context: 7\nactor: 12\nnodes:\n- {name: a, type: python, script: x}\n", "flow", "create", "-", "-o", "ids")
	flows, jobs := leftIn(t, url)
	if code != 0 || len(flows) != 2 || len(jobs) != 3 || fmt.Sprint(flows[1].ID) != strings.TrimSpace(out) {
		t.Errorf("exit %d: %s%s: %v, %v", code, out, said, flows, jobs)
	}
}

func TestAFlowFileWithAScriptBesideIt(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.py": "print(1)", "flow.json": `{"context": 7, "actor": 12, "nodes": [{"name": "a", "type": "python", "file": "a.py", "timeout": "1d", "queue_timeout": 90}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "flow.json"))
	if err != nil {
		t.Fatal(err)
	}
	f, problems := readFlowFile("flow.json", dir, text)
	if problems.Failed() || len(f.Nodes) != 1 || f.Nodes[0].Job.Script != "print(1)" || f.Nodes[0].Job.Timeout != 86400 || f.Nodes[0].Job.QueueTimeout != 90 {
		t.Errorf("%v: %+v", problems, f)
	}
}
