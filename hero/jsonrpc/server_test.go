package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edda/internal/testkit"

	"os/exec"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

type flow struct {
	ID      uint32            `json:"id"`
	Context uint32            `json:"context_id"`
	Jobs    []uint32          `json:"jobs"`
	Env     map[string]string `json:"env_vars"`
	Retries uint8             `json:"retries"`
}

type flowParams struct {
	Context uint32 `json:"context_id"`
	Flow    flow   `json:"flow"`
}

type loadParams struct {
	Context uint32 `json:"context_id"`
	ID      uint32 `json:"id"`
}

type message struct {
	ID      uint32 `json:"id"`
	Message string `json:"message"`
}

type messageParams struct {
	Message message `json:"message"`
	Secret  string  `json:"secret,omitempty"`
}

type pushParams struct {
	Text string `json:"text"`
	Wait *int64 `json:"wait,omitempty"`
}

// testMethods are one of every kind; called counts the calls of flow.load.
func testMethods(called *atomic.Int32) []Method {
	return []Method{
		Define("flow.create", "Create a flow", MethodOptions{Wrapper: "flow", Errors: []int{DagError}}, func(_ context.Context, p flowParams) (flowParams, error) {
			return p, nil
		}),
		Define("flow.load", "Load a flow", MethodOptions{Errors: []int{NotFound}}, func(_ context.Context, p loadParams) (loadParams, error) {
			called.Add(1)
			if p.ID == 404 {
				return p, fmt.Errorf("look: %w", Errorf(NotFound, "there is no flow:%d", p.ID))
			}
			return p, nil
		}),
		Define("message.create", "", MethodOptions{Wrapper: "message"}, func(_ context.Context, p messageParams) (messageParams, error) { return p, nil }),
		Define("push", "", MethodOptions{Order: []string{"text", "wait"}}, func(_ context.Context, p pushParams) (pushParams, error) { return p, nil }),
		Define("none", "", MethodOptions{}, func(context.Context, struct{}) (*flow, error) { return nil, nil }),
		Define("panics", "", MethodOptions{}, func(context.Context, struct{}) (bool, error) { panic("secret") }),
		Define("breaks", "", MethodOptions{}, func(context.Context, struct{}) (bool, error) { return false, errors.New("the disk is full") }),
		Define("waits", "", MethodOptions{}, func(ctx context.Context, _ struct{}) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}),
		Define("nojson", "", MethodOptions{}, func(context.Context, struct{}) (any, error) { return make(chan int), nil }),
	}
}

func newServer(t testing.TB, o ServerOptions) (*Server, *atomic.Int32) {
	t.Helper()
	called := new(atomic.Int32)
	s, err := NewServer(Info{Title: "test", Version: "1"}, testMethods(called), o)
	testkit.Must(t, err)
	return s, called
}

// call answers one call with the id 1 of the method.
func call(t *testing.T, s *Server, method, params string) (result string, err *Error) {
	t.Helper()
	raw := s.Handle(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	var r struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *Error          `json:"error"`
	}
	if e := json.Unmarshal(raw, &r); e != nil {
		t.Fatalf("answer %s: %v", raw, e)
	}
	if string(r.ID) != "1" {
		t.Fatalf("id of %s", raw)
	}
	return string(r.Result), r.Error
}

func TestEveryShapeOfParameters(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	const wrapped = `{"context_id":2,"flow":{"id":7,"context_id":0,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}}`
	const flat = `{"context_id":2,"flow":{"id":7,"context_id":2,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}}`
	sent := `{"context_id":2,"flow":{"id":7,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}}`
	bare := `{"context_id":2,"id":7,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}`
	inside := `{"flow":{"context_id":2,"id":7,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}}`
	tests := []struct{ name, method, params, want string }{
		{"object", "flow.create", sent, wrapped},
		{"list of an object", "flow.create", "[" + sent + "]", wrapped},
		{"params in an object", "flow.create", `{"params":` + sent + `}`, wrapped},
		{"params in an object in a list", "flow.create", `[{"params":` + sent + `}]`, wrapped},
		{"a list in params", "flow.create", `{"params":[` + sent + `]}`, wrapped},
		{"no wrapper", "flow.create", bare, flat},
		{"no wrapper, in a list", "flow.create", "[" + bare + "]", flat},
		{"no wrapper, in params", "flow.create", `{"params":` + bare + `}`, flat},
		{"the context only within", "flow.create", inside, flat},
		{"unknown members", "flow.create", strings.Replace(sent, `"context_id"`, `"extra":[{}],"context_id"`, 1), wrapped},
		{"unknown members of the object", "flow.create", strings.Replace(sent, `"jobs"`, `"extra":[{}],"jobs"`, 1), wrapped},
		{"names in another case are unknown", "flow.create", strings.Replace(sent, `"context_id"`, `"CONTEXT_ID":9,"context_id"`, 1), wrapped},
		{"plain", "flow.load", `{"context_id":1,"id":4294967295}`, `{"context_id":1,"id":4294967295}`},
		{"a text of the wrapper's name", "message.create", `{"id":5,"message":"hi"}`, `{"message":{"id":5,"message":"hi"}}`},
		{"a wrapped text of the wrapper's name", "message.create", `{"message":{"id":5,"message":"hi"},"secret":"s"}`, `{"message":{"id":5,"message":"hi"},"secret":"s"}`},
		{"in order", "push", `["a",5]`, `{"text":"a","wait":5}`},
		{"in order, some", "push", `["a"]`, `{"text":"a"}`},
		{"in order, null", "push", `["a",null]`, `{"text":"a"}`},
		{"ordered by name", "push", `{"wait":5,"text":"a"}`, `{"text":"a","wait":5}`},
		{"by position", "flow.load", `[1,4294967295]`, `{"context_id":1,"id":4294967295}`},
		{"by position, in params", "flow.load", `{"params":[1,4294967295]}`, `{"context_id":1,"id":4294967295}`},
		{"by position, an object", "flow.create", `[2,{"id":7,"jobs":[1,2],"env_vars":{"A":"<b>"},"retries":3}]`, wrapped},
		{"camelCase", "flow.load", `{"contextId":1,"id":4294967295}`, `{"context_id":1,"id":4294967295}`},
		{"camelCase, the context only within", "flow.create", strings.Replace(inside, "context_id", "contextId", 1), strings.Replace(flat, `"id":7,"context_id":2`, `"id":7,"context_id":0`, 1)},
		{"camelCase beside the same", "flow.load", `{"contextId":1,"context_id":1,"id":4294967295}`, `{"context_id":1,"id":4294967295}`},
		{"none", "none", `null`, `null`},
		{"an empty list", "none", `[]`, `null`},
		{"an empty object", "none", `{}`, `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := call(t, s, tt.method, tt.params)
			if err != nil || got != tt.want {
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestParametersThatDoNotFitAreNamed(t *testing.T) {
	s, called := newServer(t, ServerOptions{})
	tests := []struct{ name, method, params, want string }{
		{"missing", "flow.load", `{"context_id":1}`, "id is missing"},
		{"null", "flow.load", `{"context_id":1,"id":null}`, "id is missing"},
		{"nothing", "flow.load", `{}`, "context_id is missing"},
		{"too big", "flow.load", `{"context_id":1,"id":4294967296}`, "id: want a whole number from 0 to 4294967295, got number 4294967296"},
		{"negative", "flow.load", `{"context_id":-1,"id":1}`, "context_id: want a whole number from 0 to 4294967295, got number -1"},
		{"fraction", "flow.load", `{"context_id":1,"id":1.5}`, "id: want a whole number from 0 to 4294967295, got number 1.5"},
		{"whole fraction", "flow.load", `{"context_id":1,"id":1.0}`, "id: want a whole number"},
		{"exponent", "flow.load", `{"context_id":1,"id":1e2}`, "id: want a whole number"},
		{"text", "flow.load", `{"context_id":1,"id":"7"}`, "id: want a whole number from 0 to 4294967295, got string"},
		{"within", "flow.create", `{"context_id":1,"flow":{"id":1,"retries":256}}`, "flow.retries: want a whole number from 0 to 255, got number 256"},
		{"in a list", "flow.create", `{"context_id":1,"flow":{"jobs":[1,-2]}}`, "flow.jobs: want a whole number from 0 to 4294967295, got number -2"},
		{"no list", "flow.create", `{"context_id":1,"flow":{"jobs":7}}`, "flow.jobs: want a list, got number"},
		{"no object", "flow.create", `{"context_id":1,"flow":7}`, "flow: want an object, got number"},
		{"values of a map", "flow.create", `{"context_id":1,"flow":{"env_vars":{"A":1}}}`, "want a string, got number"},
		{"long", "flow.load", `{"context_id":1,"id":` + strings.Repeat("9", 5000) + `}`, "…"},
		{"two of a list", "flow.load", `[{"context_id":1},{"id":2}]`, `want one object, {"context_id", "id"}`},
		{"by position, too few", "flow.load", `[1]`, `id is missing`},
		{"by position, too many", "flow.load", `[1,2,3]`, `want at most 2, context_id, id`},
		{"by position, a text", "flow.load", `[1,"7"]`, `id: want a whole number from 0 to 4294967295, got string`},
		{"camelCase that says something else", "flow.load", `{"contextId":1,"context_id":2,"id":3}`, `contextId says something else than context_id`},
		{"another case is no camelCase", "flow.load", `{"ContextId":1,"id":3}`, `context_id is missing`},
		{"wrapped too often", "flow.load", `[[[[[{"context_id":1,"id":2}]]]]]`, "wrapped too often"},
		{"too many in order", "push", `["a",1,2]`, "want at most 2, text, wait"},
		{"order, wrong", "push", `["a","b"]`, "wait: want a whole number from -9223372036854775808 to 9223372036854775807, got string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := call(t, s, tt.method, tt.params)
			if err == nil || err.Code != InvalidParams || err.Message != "Invalid params" {
				t.Fatalf("got %s, %v", got, err)
			}
			data := err.Data.(map[string]any)
			if why := data["why"].(string); !strings.Contains(why, tt.want) || len(why) > 300 {
				t.Errorf("detail %q\nwant   %q", why, tt.want)
			}
			if where, _, ok := strings.Cut(tt.want, ": want"); ok && data["field"] != where {
				t.Errorf("field %v", data["field"])
			}
		})
	}
	if called.Load() != 0 {
		t.Errorf("called %d times", called.Load())
	}
}

func TestEnvelope(t *testing.T) {
	s, _ := newServer(t, ServerOptions{MaxBatch: 3})
	const ok = `{"jsonrpc":"2.0","id":1,"result":null}`
	bad := func(code int, id, data string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"data":%q}}`, id, code, Words(code), data)
	}
	tests := []struct{ name, sent, want string }{
		{"one", `{"jsonrpc":"2.0","id":1,"method":"none"}`, ok},
		{"space", " \n\t" + `{"jsonrpc":"2.0","id":1,"method":"none"}` + "\r\n", ok},
		{"members of others", `{"jsonrpc":"2.0","id":1,"method":"none","trace":{"a":[1]}}`, ok},
		{"id text", `{"jsonrpc":"2.0","id":"a\u0041\"","method":"none"}`, `{"jsonrpc":"2.0","id":"a\u0041\"","result":null}`},
		{"id fraction", `{"jsonrpc":"2.0","id":1.5,"method":"none"}`, `{"jsonrpc":"2.0","id":1.5,"result":null}`},
		{"id big", `{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"none"}`, `{"jsonrpc":"2.0","id":123456789012345678901234567890,"result":null}`},
		{"id negative", `{"jsonrpc":"2.0","id":-1,"method":"none"}`, `{"jsonrpc":"2.0","id":-1,"result":null}`},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"none"}`, `{"jsonrpc":"2.0","id":null,"result":null}`},
		{"id true", `{"jsonrpc":"2.0","id":true,"method":"none"}`, bad(InvalidRequest, "null", "id: want a string, a number or null, got a boolean")},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"none"}`, bad(InvalidRequest, "null", "id: want a string, a number or null, got an object")},
		{"id list", `{"jsonrpc":"2.0","id":[1],"method":"none"}`, bad(InvalidRequest, "null", "id: want a string, a number or null, got a list")},
		{"notification", `{"jsonrpc":"2.0","method":"none"}`, ""},
		{"notification that fails", `{"jsonrpc":"2.0","method":"nowhere"}`, ""},
		{"no version", `{"id":1,"method":"none"}`, bad(InvalidRequest, "1", `jsonrpc: want "2.0"`)},
		{"other version", `{"jsonrpc":"1.0","id":1,"method":"none"}`, bad(InvalidRequest, "1", `jsonrpc: want "2.0"`)},
		{"version number", `{"jsonrpc":2.0,"id":1,"method":"none"}`, bad(InvalidRequest, "1", `jsonrpc: want "2.0"`)},
		{"no method", `{"jsonrpc":"2.0","id":1}`, bad(InvalidRequest, "1", "method: want a string, got nothing")},
		{"method number", `{"jsonrpc":"2.0","id":1,"method":5}`, bad(InvalidRequest, "1", "method: want a string, got a number")},
		{"method null", `{"jsonrpc":"2.0","id":1,"method":null}`, bad(InvalidRequest, "1", "method: want a string, got null")},
		{"method unknown", `{"jsonrpc":"2.0","id":1,"method":"none "}`, bad(MethodNotFound, "1", `there is no method "none ": rpc.discover lists them`)},
		{"method in another case", `{"jsonrpc":"2.0","id":1,"Method":"none"}`, bad(InvalidRequest, "1", "method: want a string, got nothing")},
		{"params text", `{"jsonrpc":"2.0","id":1,"method":"none","params":"x"}`, bad(InvalidRequest, "1", "params: want an object or a list, got a string")},
		{"params true", `{"jsonrpc":"2.0","id":1,"method":"none","params":true}`, bad(InvalidRequest, "1", "params: want an object or a list, got a boolean")},
		{"a number", `5`, bad(InvalidRequest, "null", "a request is an object, not a number")},
		{"a text", `"x"`, bad(InvalidRequest, "null", "a request is an object, not a string")},
		{"null", `null`, bad(InvalidRequest, "null", "a request is an object, not null")},
		{"empty batch", `[]`, bad(InvalidRequest, "null", "the batch is empty")},
		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"none"},{"jsonrpc":"2.0","method":"none"},5]`,
			"[" + ok + "," + bad(InvalidRequest, "null", "a request is an object, not a number") + "]"},
		{"batch of notifications", `[{"jsonrpc":"2.0","method":"none"},{"jsonrpc":"2.0","method":"none"}]`, ""},
		{"batch in a batch", `[[{"jsonrpc":"2.0","id":1,"method":"none"}]]`, "[" + bad(InvalidRequest, "null", "a request is an object, not a list") + "]"},
		{"big batch", `[1,2,3,4]`, bad(InvalidRequest, "null", "a batch of 4 calls: at most 3 are taken at once")},
		{"a name twice", `{"jsonrpc":"2.0","id":1,"method":"none","method":"panics"}`, bad(InvalidRequest, "null", `the name "method" is there twice in one object`)},
		{"a name twice, escaped", `{"jsonrpc":"2.0","id":1,"method":"none","meth\u006fd":"panics"}`, bad(InvalidRequest, "null", `the name "method" is there twice in one object`)},
		{"a name twice, deep", `{"jsonrpc":"2.0","id":1,"method":"none","params":[{"a":{"b":1,"b" :2}}]}`, bad(InvalidRequest, "null", `the name "b" is there twice in one object`)},
		{"a name twice, behind quotes", `{"jsonrpc":"2.0","id":1,"method":"none","params":{"a":"\\\"","b":"\"","c":1,"c":2}}`, bad(InvalidRequest, "null", `the name "c" is there twice in one object`)},
		{"brackets within a text", `{"jsonrpc":"2.0","id":1,"method":"none","params":{"x":"\"` + strings.Repeat("[", 200) + `"}}`, ok},
		{"a name again elsewhere", `{"jsonrpc":"2.0","id":1,"method":"none","params":[{"id":{"id":["id","id",{"id":"id"}]}}]}`, ok},
		{"fails", `{"jsonrpc":"2.0","id":1,"method":"breaks"}`, bad(InternalError, "1", "the disk is full")},
		{"its own error", `{"jsonrpc":"2.0","id":1,"method":"flow.load","params":{"context_id":1,"id":404}}`, bad(NotFound, "1", "there is no flow:404")},
		{"no JSON", `{"jsonrpc":"2.0","id":1,"method":"nojson"}`, bad(InternalError, "1", "json: unsupported type: chan int")},
		{"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"none\"}", bad(ParseError, "null", "what was sent is not UTF-8")},
		{"too deep", strings.Repeat("[", 129) + strings.Repeat("]", 129), bad(ParseError, "null", "nested deeper than 128")},
		{"far too deep", strings.Repeat(`{"a":`, 1_000_000), bad(ParseError, "null", "nested deeper than 128")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(s.Handle(t.Context(), []byte(tt.sent))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestTextThatIsNotJSON(t *testing.T) {
	s, called := newServer(t, ServerOptions{})
	for _, sent := range []string{
		"", " ", "{", "[", `{"jsonrpc":"2.0","id":1,"method":"flow.load"`, `{"a":1}{"a":1}`, `{'a':1}`, `[1,]`, `{"a":1,}`, "nul", "NaN", "\x00",
		`{"jsonrpc":"2.0","id":01,"method":"none"}`, "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"none"}`, `"\ud8"`, "{\"a\":\"\n\"}",
	} {
		got := string(s.Handle(t.Context(), []byte(sent)))
		if !strings.Contains(got, `"id":null,"error":{"code":-32700,"message":"Parse error"`) {
			t.Errorf("%q got %s", sent, got)
		}
	}
	if called.Load() != 0 {
		t.Errorf("called %d times", called.Load())
	}
}

func TestPanicEndsOnlyItsCall(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	s, _ := newServer(t, ServerOptions{Log: zap.New(core)})
	got := string(s.Handle(t.Context(), []byte(`[{"jsonrpc":"2.0","id":1,"method":"panics"},{"jsonrpc":"2.0","id":2,"method":"none"}]`)))
	want := `[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error","data":"the method broke down; the server's log says where"}},{"jsonrpc":"2.0","id":2,"result":null}]`
	if got != want {
		t.Errorf("got %s", got)
	}
	if logs.FilterMessage("a method panicked").Len() != 1 {
		t.Errorf("logged %v", logs.All())
	}
}

func TestBatchWhoseAnswerIsFullCallsNoMore(t *testing.T) {
	s, called := newServer(t, ServerOptions{MaxBody: 80})
	one := `{"jsonrpc":"2.0","id":1,"method":"flow.load","params":{"context_id":1,"id":1}}`
	got := string(s.Handle(t.Context(), []byte("["+one+","+one+","+one+"]")))
	if called.Load() != 2 || strings.Count(got, `"result"`) != 2 || strings.Count(got, `"code":-32009`) != 1 || strings.Count(got, `"id":1,`) != 3 {
		t.Errorf("called %d times: %s", called.Load(), got)
	}
}

func TestCallsOfABatchGoInOrder(t *testing.T) {
	var order []uint32
	m := Define("next", "", MethodOptions{}, func(_ context.Context, p loadParams) (bool, error) {
		order = append(order, p.ID) // no lock: the race detector would tell
		return true, nil
	})
	s, err := NewServer(Info{Title: "t", Version: "1"}, []Method{m}, ServerOptions{})
	testkit.Must(t, err)
	var calls []string
	for i := range 50 {
		calls = append(calls, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"next","params":{"context_id":1,"id":%d}}`, i, i))
	}
	s.Handle(t.Context(), []byte("["+strings.Join(calls, ",")+"]"))
	for i, id := range order {
		if uint32(i) != id {
			t.Fatalf("order %v", order)
		}
	}
	if len(order) != 50 {
		t.Errorf("%d calls", len(order))
	}
}

func TestCancelledCallSaysSo(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := string(s.Handle(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"waits"}`)))
	if !strings.Contains(got, `"code":-32603`) || !strings.Contains(got, "given up") {
		t.Errorf("got %s", got)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if got := string(s.Handle(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"waits"}`))); !strings.Contains(got, "too long") {
		t.Errorf("got %s", got)
	}
}

func TestObserverIsToldOfEveryCall(t *testing.T) {
	var seen []string
	s, _ := newServer(t, ServerOptions{Observe: func(method string, took time.Duration, err error) {
		seen = append(seen, fmt.Sprintf("%s %v", method, err != nil))
		if took < 0 {
			t.Error("took", took)
		}
	}})
	s.Handle(t.Context(), []byte(`[{"jsonrpc":"2.0","id":1,"method":"none"},{"jsonrpc":"2.0","method":"breaks"},{"jsonrpc":"2.0","id":1,"method":"a name out of the air"},5,{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}]`))
	s.Handle(t.Context(), []byte(`{`))
	if diff := cmp.Diff([]string{"none false", "breaks true", " true", " true", "rpc.discover false", " true"}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestServerRefusesMethodsThatCannotBeCalled(t *testing.T) {
	fine := Define("a", "", MethodOptions{}, func(context.Context, struct{}) (bool, error) { return true, nil })
	tests := []struct {
		name    string
		info    Info
		methods []Method
		options ServerOptions
		want    string
	}{
		{"twice", Info{Title: "t", Version: "1"}, []Method{fine, fine}, ServerOptions{}, "defined twice"},
		{"zero", Info{Title: "t", Version: "1"}, []Method{{}}, ServerOptions{}, "without a name"},
		{"reserved", Info{Title: "t", Version: "1"}, []Method{Define("rpc.x", "", MethodOptions{}, func(context.Context, struct{}) (bool, error) { return true, nil })}, ServerOptions{}, "the protocol's own"},
		{"no struct", Info{Title: "t", Version: "1"}, []Method{Define("x", "", MethodOptions{}, func(context.Context, []int) (bool, error) { return true, nil })}, ServerOptions{}, "not a struct"},
		{"wrapper", Info{Title: "t", Version: "1"}, []Method{Define("x", "", MethodOptions{Wrapper: "flow"}, func(context.Context, loadParams) (bool, error) { return true, nil })}, ServerOptions{}, `no field "flow"`},
		{"order", Info{Title: "t", Version: "1"}, []Method{Define("x", "", MethodOptions{Order: []string{"id", "ID"}}, func(context.Context, loadParams) (bool, error) { return true, nil })}, ServerOptions{}, `no field "ID"`},
		{"no title", Info{Version: "1"}, []Method{fine}, ServerOptions{}, "a title and a version"},
		{"no version", Info{Title: "t"}, []Method{fine}, ServerOptions{}, "a title and a version"},
		{"bounds", Info{Title: "t", Version: "1"}, []Method{fine}, ServerOptions{MaxBody: -1}, "not negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewServer(tt.info, tt.methods, tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// A client that knows only the specifications speaks to the server.
func TestClientWrittenFromTheSpecifications(t *testing.T) {
	s, _ := newServer(t, ServerOptions{})
	t.Cleanup(s.Close)
	ws := strings.Replace(listen(t, s.WebSocket()), "http", "ws", 1)
	out, err := exec.CommandContext(within(t), "python3", "testdata/client.py", listen(t, s), ws).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "checked" {
		t.Errorf("%v\n%s", err, out)
	}
}
