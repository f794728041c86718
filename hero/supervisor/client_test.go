package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"edda"
	"edda/hero"
	"edda/hero/jsonrpc"
	"edda/hero/mycelium"
	"edda/internal/testkit"
)

// says makes a supervisor that answers every request with the text, in which %ID is the
// request's id.
func says(t *testing.T, status int, answer string) (*Client, *[]string) {
	t.Helper()
	var got []string
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			ID     json.RawMessage `json:"id"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		got = append(got, string(body.Params))
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(answer, "%ID", string(body.ID)))
	}))
	t.Cleanup(h.Close)
	return NewClient(HTTP(h.URL, "s3cret", h.Client()), "s3cret", "t"), &got
}

func TestWhatAnAnswerMeans(t *testing.T) {
	refusal := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%%ID,"error":{"code":%d,"message":"no"}}`, code)
	}
	tests := []struct {
		name   string
		status int
		answer string
		want   error
		class  error
	}{
		{"html", 200, "<html>hello</html>", ErrUnsure, edda.Temporary},
		{"empty", 200, "", ErrUnsure, edda.Temporary},
		{"another id", 200, `{"jsonrpc":"2.0","id":"other","result":{"success":"x"}}`, ErrUnsure, edda.Temporary},
		{"no result", 200, `{"jsonrpc":"2.0","id":%ID}`, ErrUnsure, edda.Temporary},
		{"shape", 200, `{"jsonrpc":"2.0","id":%ID,"result":"x"}`, ErrUnsure, edda.Temporary},
		{"both", 200, `{"jsonrpc":"2.0","id":%ID,"result":{"success":"x","error":"y"}}`, ErrUnsure, edda.Temporary},
		{"neither", 200, `{"jsonrpc":"2.0","id":%ID,"result":{}}`, ErrUnsure, edda.Temporary},
		{"null", 200, `{"jsonrpc":"2.0","id":%ID,"result":null}`, ErrUnsure, edda.Temporary},
		{"500", 500, "oops", ErrUnsure, edda.Temporary},
		{"302", 302, "", ErrRefused, edda.Permanent},
		{"503", 503, "", ErrUnsent, edda.Temporary},
		{"401", 401, "", ErrRefused, edda.Permanent},
		{"denied", 200, refusal(jsonrpc.PermissionDenied), ErrRefused, edda.Permanent},
		{"internal", 200, refusal(jsonrpc.InternalError), ErrUnsure, edda.Temporary},
		{"storage", 200, refusal(jsonrpc.StorageError), ErrUnsure, edda.Temporary},
		{"busy", 200, refusal(jsonrpc.Busy), ErrUnsent, edda.Temporary},
		{"no method", 200, refusal(jsonrpc.MethodNotFound), ErrNoMethod, edda.Permanent},
		{"unknown job", 200, refusal(jsonrpc.NotFound), ErrUnknownJob, edda.Permanent},
		{"params", 200, refusal(jsonrpc.InvalidParams), ErrRefused, edda.Permanent},
	}
	for _, tt := range tests {
		c, _ := says(t, tt.status, tt.answer)
		_, _, err := c.Run(t.Context(), c.NewID(), hero.Job{ID: 1}, nil)
		if !errors.Is(err, tt.want) || !errors.Is(err, tt.class) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%s: the secret is in %v", tt.name, err)
		}
	}
}

func TestASupervisorThatIsNotThereIsUnsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	address := l.Addr().String()
	l.Close()
	c := NewClient(HTTP("http://"+address, "", http.DefaultClient), "", "t")
	if _, _, err := c.Run(t.Context(), c.NewID(), hero.Job{}, nil); !errors.Is(err, ErrUnsent) {
		t.Errorf("%v", err)
	}
}

func TestASupervisorThatDiesInTheMiddleIsUnsure(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }))
	defer h.Close()
	c := NewClient(HTTP(h.URL, "", h.Client()), "", "t")
	if _, _, err := c.Run(t.Context(), c.NewID(), hero.Job{}, nil); !errors.Is(err, ErrUnsure) {
		t.Errorf("%v", err)
	}
}

// shaped makes a supervisor that accepts one shape of parameters.
func shaped(t *testing.T, flat bool) (*Client, *int) {
	t.Helper()
	calls := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		var body struct {
			ID     json.RawMessage
			Params json.RawMessage
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if (body.Params[0] == '{') != flat {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid params"}}`, body.ID)
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"success":"ok"}}`, body.ID)
	}))
	t.Cleanup(h.Close)
	return NewClient(HTTP(h.URL, "", h.Client()), "", "t"), &calls
}

func TestTheShapeOfParametersIsRemembered(t *testing.T) {
	for flat, want := range map[bool]int{false: 3, true: 4} {
		c, calls := shaped(t, flat)
		for range 3 {
			if status, _, err := c.Run(t.Context(), c.NewID(), hero.Job{}, nil); err != nil || status != hero.JobFinished {
				t.Errorf("flat %v: %s, %v", flat, status, err)
			}
		}
		if *calls != want {
			t.Errorf("flat %v: %d calls, want %d", flat, *calls, want)
		}
	}
}

// A choice is a call that a supervisor of choosy got.
type choice struct {
	Method string
	ID     json.RawMessage
	Params json.RawMessage
}

// list reports whether the parameters are a list.
func (c choice) list() bool { return c.Params[0] == '[' }

// choosy makes a supervisor that refuses the parameters of some calls, and delays others or
// closes their connections.
func choosy(t *testing.T, refuses func(choice) bool, holds func(choice)) *Client {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var c choice
		_ = json.NewDecoder(r.Body).Decode(&c)
		holds(c)
		switch {
		case refuses(c):
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid params"}}`, c.ID)
		case c.Method == "job.status":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"job_id":"1","status":"started"}}`, c.ID)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"success":"ok"}}`, c.ID)
		}
	}))
	t.Cleanup(h.Close)
	return NewClient(HTTP(h.URL, "", h.Client()), "", "t")
}

// TestAListIsTriedAgainWhileTheFirstJobRuns no more: job.run answers when the job ends,
// and where it stands is asked meanwhile.
func TestAListIsTriedAgainWhileTheFirstJobRuns(t *testing.T) {
	var lists atomic.Int32
	running, end := make(chan struct{}), make(chan struct{})
	c := choosy(t, func(c choice) bool {
		if c.list() {
			lists.Add(1)
		}
		return c.list()
	}, func(c choice) {
		if c.Method == "job.run" && !c.list() {
			close(running)
			<-end
		}
	})
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.Run(t.Context(), c.NewID(), hero.Job{ID: 1}, nil)
		ended <- err
	}()
	<-running
	for range 3 {
		if status, err := c.Status(t.Context(), hero.Job{ID: 1}); err != nil || status != hero.JobStarted {
			t.Errorf("%s, %v", status, err)
		}
	}
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := lists.Load(); n != 1 {
		t.Errorf("%d calls had a list, want 1", n)
	}
}

// TestOneRefusedJobTakesTheListFromTheOthers no more: a supervisor that wants lists refuses
// a job in both shapes, and meanwhile and later the other calls come through.
func TestOneRefusedJobTakesTheListFromTheOthers(t *testing.T) {
	for what, breaks := range map[string]bool{"it refuses that without a list, too": false, "the connection ends": true} {
		var flats atomic.Int32
		tried, goOn := make(chan struct{}), make(chan struct{})
		c := choosy(t, func(c choice) bool { return c.Method == "job.run" || !c.list() }, func(c choice) {
			if c.list() {
				return
			}
			flats.Add(1)
			if c.Method != "job.run" {
				return
			}
			close(tried)
			<-goOn
			if breaks {
				panic(http.ErrAbortHandler)
			}
		})
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.Run(t.Context(), c.NewID(), hero.Job{ID: 1}, nil)
			ended <- err
		}()
		<-tried
		asks := func(when string) {
			for range 3 {
				if status, err := c.Status(t.Context(), hero.Job{ID: 2}); err != nil || status != hero.JobStarted {
					t.Errorf("%s, %s: %s, %v", what, when, status, err)
				}
			}
		}
		asks("meanwhile")
		close(goOn)
		if err := <-ended; errors.Is(err, ErrUnsure) != breaks || errors.Is(err, ErrRefused) == breaks {
			t.Errorf("%s: %v", what, err)
		}
		asks("later")
		if n := flats.Load(); n > 2 {
			t.Errorf("%s: %d calls had no list, want one of each method at most", what, n)
		}
	}
}

// TestASupervisorThatDiesAfterItRefusedAListGetsNoListAgain no more: what it wants is not
// known while no call was answered.
func TestASupervisorThatDiesAfterItRefusedAListGetsNoListAgain(t *testing.T) {
	var died, fixed atomic.Bool
	c := choosy(t, func(c choice) bool { return !c.list() || !fixed.Load() }, func(c choice) {
		if !c.list() && died.CompareAndSwap(false, true) {
			panic(http.ErrAbortHandler)
		}
	})
	if _, err := c.Status(t.Context(), hero.Job{ID: 1}); !errors.Is(err, ErrUnsure) {
		t.Errorf("%v", err)
	}
	fixed.Store(true)
	for range 3 {
		if status, err := c.Status(t.Context(), hero.Job{ID: 1}); err != nil || status != hero.JobStarted {
			t.Errorf("%s, %v", status, err)
		}
	}
}

// TestARefusedJobCostsASecondCallWhereTheShapeIsKnown no more, and costs the calls after it
// none.
func TestARefusedJobCostsASecondCallWhereTheShapeIsKnown(t *testing.T) {
	for what, tt := range map[string]struct {
		list, dies     bool // what it wants; and whether it dies in the first call without a list
		first, refused int  // calls that the first of job.status takes, and a job that is refused
	}{
		"it wants lists":                  {list: true, first: 1, refused: 2},
		"it wants none":                   {first: 2, refused: 1},
		"it wants none, and dies at once": {dies: true, first: 3, refused: 1},
	} {
		var calls atomic.Int32
		var died atomic.Bool
		c := choosy(t, func(c choice) bool { return c.Method == "job.run" || c.list() != tt.list }, func(c choice) {
			calls.Add(1)
			if tt.dies && !c.list() && died.CompareAndSwap(false, true) {
				panic(http.ErrAbortHandler)
			}
		})
		status := func() {
			if _, err := c.Status(t.Context(), hero.Job{ID: 1}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		takes := func(step string, want int, call func()) {
			before := calls.Load()
			call()
			if got := int(calls.Load() - before); got != want {
				t.Errorf("%s: %s took %d calls, want %d", what, step, got, want)
			}
		}
		takes("the first job.status", tt.first, func() {
			if tt.dies {
				_, _ = c.Status(t.Context(), hero.Job{ID: 1}) // reveals nothing about the shape
			}
			status()
		})
		takes("the refused job", tt.refused, func() {
			if _, _, err := c.Run(t.Context(), c.NewID(), hero.Job{ID: 1}, nil); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", what, err)
			}
		})
		takes("the next job.status", 1, status)
	}
}

func TestAJobOnTheWire(t *testing.T) {
	c, got := says(t, 200, `{"jsonrpc":"2.0","id":%ID,"result":{"success":"{\"sum\":3,\"text\":\"x\"}"}}`)
	j := hero.Job{ID: 2001, CallerID: 12, ContextID: 7, Script: "print(1)", ScriptType: hero.ScriptPython, Timeout: 9,
		CreatedAt: 1756463372, UpdatedAt: 1756463372, Signatures: json.RawMessage(`[{"public_key":"a"}]`)}
	status, result, err := c.Run(t.Context(), c.NewID(), j, nil)
	if err != nil || status != hero.JobFinished || !reflect.DeepEqual(result, map[string]string{"sum": "3", "text": "x"}) {
		t.Errorf("%s %v %v", status, result, err)
	}
	want := `[{"secret":"s3cret","job":{"id":"2001","caller_id":"12","context_id":"7","payload":"print(1)","runner":"python","executor":"python","timeout":9,"env_vars":{},` +
		`"created_at":"2025-08-29T10:29:32Z","updated_at":"2025-08-29T10:29:32Z","signatures":[{"public_key":"a"}]}}]`
	if (*got)[0] != want {
		t.Errorf("sent %s\nwant %s", (*got)[0], want)
	}
	back, err := ToHero(FromHero(j))
	if err != nil || back.ID != j.ID || back.CreatedAt != j.CreatedAt || back.Script != j.Script || back.ScriptType != j.ScriptType || back.ContextID != 7 {
		t.Errorf("back %+v, %v", back, err)
	}
}

func TestStatesInManyWords(t *testing.T) {
	for word, want := range map[string]hero.JobStatus{"Finished": hero.JobFinished, "WaitingForPrerequisites": hero.JobWaiting,
		"waiting_for_prerequisites": hero.JobWaiting, "RUNNING": hero.JobStarted, "created": hero.JobDispatched, "stopped": hero.JobError} {
		if got, ok := (State{Status: word}).Job(); !ok || got != want {
			t.Errorf("%s is %s", word, got)
		}
	}
	if _, ok := (State{Status: "dancing"}).Job(); ok {
		t.Error("dancing is a state")
	}
}

// mesh answers calls as the test sets.
type mesh func(o mycelium.CallOptions) ([]byte, error)

func (m mesh) Resume(context.Context, mycelium.Call, bool) ([]byte, error) {
	return nil, mycelium.ErrNoReply
}

func (m mesh) Call(_ context.Context, _ mycelium.Peer, _ string, _ []byte, _ string, o mycelium.CallOptions) ([]byte, error) {
	return m(o)
}

func TestWhatMyceliumTellsMeans(t *testing.T) {
	for said, want := range map[error]error{mycelium.ErrAborted: ErrUnsent, mycelium.ErrUnsent: ErrUnsent, mycelium.ErrRefused: ErrUndeliverable, context.DeadlineExceeded: ErrUnsure} {
		c := NewClient(Mycelium(mesh(func(mycelium.CallOptions) ([]byte, error) { return nil, said }), mycelium.Peer{}, "t"), "", "t")
		if _, _, err := c.Run(t.Context(), c.NewID(), hero.Job{}, nil); !errors.Is(err, want) {
			t.Errorf("%v is %v", said, err)
		}
	}
	var seen []Progress
	c := NewClient(Mycelium(mesh(func(o mycelium.CallOptions) ([]byte, error) {
		o.Observe(mycelium.StateSending, "m1")
		o.Observe(mycelium.StateRead, "m1")
		return []byte(`{"jsonrpc":"2.0","id":"t.1","result":{"error":"bad"}}`), nil
	}), mycelium.Peer{}, "t"), "", "t")
	status, result, err := c.Run(t.Context(), c.NewID(), hero.Job{}, func(p Progress) { seen = append(seen, p) })
	if err != nil || status != hero.JobError || result["error"] != "bad" {
		t.Errorf("%s %v %v", status, result, err)
	}
	if want := []Progress{{"m1", hero.TransportSent, false}, {"m1", hero.TransportRead, true}}; !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %v", seen)
	}
}

func TestAStatusDoesNotGoBackWhereMyceliumForgetsTheMessage(t *testing.T) {
	var seen []Progress
	c := NewClient(Mycelium(mesh(func(o mycelium.CallOptions) ([]byte, error) {
		for _, s := range []mycelium.State{mycelium.StatePending, mycelium.StateReceived, mycelium.StateUnknown, "another", mycelium.StateRead} {
			o.Observe(s, "m1")
		}
		return nil, mycelium.ErrAborted
	}), mycelium.Peer{}, "t"), "", "t")
	_, _, _ = c.Run(t.Context(), c.NewID(), hero.Job{}, func(p Progress) { seen = append(seen, p) })
	want := []Progress{{"m1", hero.TransportQueued, false}, {"m1", hero.TransportDelivered, false}, {"m1", hero.TransportRead, true}}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("seen %v", seen)
	}
}
