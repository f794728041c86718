package httpeffect

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
	"edda/internal/jsonvalue"
)

// post is a source and a publisher of channels.
type post struct {
	in  map[string]chan effects.Command // by effect
	out chan effects.Result
}

func (p post) Fetch(ctx context.Context, effect string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-p.in[effect]:
		return []effects.Delivery{&effecttest.FakeDelivery{C: c}}, nil
	}
}

func (p post) PublishResult(_ context.Context, r effects.Result) error {
	p.out <- r
	return nil
}

// work runs a worker with one effect until the test ends.
func work(t *testing.T, manifest string) post {
	t.Helper()
	e, problems := compile(t, manifest)
	if e == nil {
		t.Fatal(problems)
	}
	return start(t, func(string) (string, bool) { return "s3cret", true }, e)
}

// start runs a worker with a real store and this provider until the test ends.
func start(t *testing.T, secrets func(string) (string, bool), all ...*effects.Effect) post {
	t.Helper()
	p := post{map[string]chan effects.Command{}, make(chan effects.Result, 10)}
	for _, e := range all {
		p.in[e.Name()] = make(chan effects.Command)
	}
	effecttest.StartWorker(t, effects.Options{
		Source: p, Publisher: p, Providers: map[string]effects.Provider{"http": provider(t, dial.Options{AllowLoopback: true})},
		Secrets: effects.Secrets{Environ: secrets},
	}, all...)
	return p
}

func TestAnEffectOverHTTP(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		if s.count(r.Header.Get("Idempotency-Key")) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"id":"P1","amount":9007199254740993}`)
	}
	p := work(t, fmt.Sprintf(`
effect: charge
http:
  method: PUT
  url: "%s/customers/${payload.customer}/charges?by=${tenant}"
  headers: {Authorization: "Bearer ${secret.PAY}"}
  body: {amount: =payload.amount, key: =id}
ok: status == 200 and headers["content-type"] != ""
result: {id: =body.id, amount: =body.amount}
retry: {max: 4, backoff: 1ms..5ms}
`, s.URL))
	p.in["charge"] <- effects.Command{Tenant: "a&b", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{"customer":"a/x?y","amount":7}`)}
	r := <-p.out
	if r.Outcome != edda.Succeeded || string(r.Payload) != `{"amount":9007199254740993,"id":"P1"}` || r.Attempts != 3 {
		t.Errorf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
	if got := s.last.URL.String(); got != "/customers/a%2Fx%3Fy/charges?by=a%26b" {
		t.Errorf("url %s", got)
	}
	if got := s.last.Header.Get("Authorization"); got != "Bearer s3cret" || s.body != `{"amount":7,"key":"c1"}` {
		t.Errorf("authorization %q, body %s", got, s.body)
	}
}

// TestWhatNobodyKnowsIsTimedOut: the call was made, and its answer cannot be had.
func TestWhatNobodyKnowsIsTimedOut(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", maxAnswer+1))
		case "/private":
			w.Header().Set("Location", "http://10.0.0.1/")
			w.WriteHeader(http.StatusSeeOther)
		}
	}
	for _, path := range []string{"/large", "/private"} {
		p := work(t, "effect: charge\nhttp: {url: '"+s.URL+path+"', redirects: 1}\n")
		p.in["charge"] <- effects.Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{}`)}
		if r := <-p.out; r.Outcome != edda.TimedOut || r.Attempts != 1 {
			t.Errorf("%s: %s %s after %d calls", path, r.Outcome, r.Payload, r.Attempts)
		}
	}
}

// TestADoneCallIsNotCalledFailedForItsLastAnswer: a handler that did its work may still
// answer 500, and the proxy before it 408, 502, 503 or 504. Only the manifest knows better.
func TestADoneCallIsNotCalledFailedForItsLastAnswer(t *testing.T) {
	s := open(t)
	var before string // what the first call met
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		if s.total()%2 == 1 && before == "cut" {
			panic(http.ErrAbortHandler) // the connection dies, and the request was there
		} else if s.total()%2 == 1 && before != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		status, _ := strconv.Atoi(r.URL.Path[1:])
		w.WriteHeader(status)
	}
	for _, tt := range []struct {
		before string
		status int
		more   string
		want   edda.Outcome
		calls  int
	}{
		{"", 408, "", edda.TimedOut, 2}, {"", 500, "", edda.TimedOut, 2}, {"", 501, "", edda.TimedOut, 2}, {"", 502, "", edda.TimedOut, 2},
		{"", 503, "", edda.TimedOut, 2}, {"", 504, "", edda.TimedOut, 2}, {"", 599, "", edda.TimedOut, 2},
		{"", 429, "", edda.Failed, 2}, {"", 402, "", edda.Failed, 1}, {"", 401, "", edda.Failed, 1}, {"", 409, "", edda.Failed, 1},
		{"", 503, "fail: status == 503", edda.Failed, 1}, {"", 500, "fail: status >= 500", edda.Failed, 1}, {"", 503, "ok: status == 503", edda.Succeeded, 1},
		{"cut", 429, "", edda.TimedOut, 2}, {"cut", 503, "", edda.TimedOut, 2}, {"cut", 401, "", edda.TimedOut, 2}, {"cut", 403, "", edda.TimedOut, 2},
		{"cut", 407, "", edda.TimedOut, 2}, {"cut", 409, "", edda.TimedOut, 2}, {"cut", 422, "", edda.Failed, 2}, {"cut", 409, "fail: status == 409", edda.Failed, 2},
		{"503", 429, "", edda.TimedOut, 2}, {"503", 401, "", edda.TimedOut, 2}, {"503", 422, "", edda.Failed, 2}, {"503", 200, "", edda.Succeeded, 2},
	} {
		for _, delivery := range []string{"at_least_once", "at_most_once"} {
			if delivery == "at_most_once" && tt.before != "" {
				continue // nothing is called behind what is in doubt
			}
			s.calls, before = 0, tt.before
			p := work(t, fmt.Sprintf("effect: charge\nhttp: {url: '%s/%d'}\nretry: {max: 2, backoff: 1ms..5ms}\ndelivery: %s\n%s\n", s.URL, tt.status, delivery, tt.more))
			p.in["charge"] <- effects.Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{}`)}
			calls := tt.calls
			if delivery == "at_most_once" && tt.want == edda.TimedOut {
				calls = 1
			}
			if r := <-p.out; r.Outcome != tt.want || r.Attempts != calls {
				t.Errorf("%s %s %d %s: %s %s after %d calls, want %s after %d", delivery, tt.before, tt.status, tt.more, r.Outcome, r.Payload, r.Attempts, tt.want, calls)
			}
		}
	}
}

// TestOneLargeNumberMakesNoTextOfAnAnswer, and no unknown outcome of a call that was done.
func TestOneLargeNumberMakesNoTextOfAnAnswer(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s.body) }
	const manifest = "effect: charge\nhttp: {url: '%s', raw: =payload.answer}\nok: status == 200 and body.trace > 7\nresult: {id: =body.id, trace: =body.trace, shown: '<${body.trace}>'}\n"
	p := work(t, fmt.Sprintf(manifest, s.URL))
	for _, n := range []string{"18446744073709551615", "123456789012345678901234567890", "1e999", "9223372036854775808"} {
		for _, begin := range []string{"", "\ufeff"} {
			payload, _ := json.Marshal(map[string]string{"answer": begin + `{"id": 7, "other": -1e4000, "trace": ` + n + `}`})
			p.in["charge"] <- effects.Command{Tenant: "acme", ID: begin + n, Effect: "charge", Payload: payload}
			if r := <-p.out; r.Outcome != edda.Succeeded || string(r.Payload) != `{"id":7,"shown":"\u003c`+n+`\u003e","trace":`+n+`}` && string(r.Payload) != `{"id":7,"shown":"<`+n+`>","trace":`+n+`}` {
				t.Errorf("%s: %s %s", n, r.Outcome, r.Payload)
			}
		}
	}
	computes := work(t, "effect: charge\nhttp: {url: '"+s.URL+"', raw: =payload.answer}\nresult: {n: =body.trace + 1}\n")
	computes.in["charge"] <- effects.Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{"answer":"{\"trace\":18446744073709551615}"}`)}
	if r := <-computes.out; !strings.Contains(string(r.Payload), "+: the number does not fit 64 bits") {
		t.Errorf("%s %s", r.Outcome, r.Payload)
	}
}

// TestRetryAfterIsWaitedFor: no attempt is made before the time that was asked for.
func TestRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel() // it waits
	s := open(t)
	var first time.Time
	s.answer = func(w http.ResponseWriter, r *http.Request) {
		if s.total() == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	p := work(t, "effect: charge\nhttp: {url: '"+s.URL+"'}\nretry: {max: 2, backoff: 1ms..5ms}\n")
	p.in["charge"] <- effects.Command{Tenant: "acme", ID: "c1", Effect: "charge", Payload: json.RawMessage(`{}`)}
	if r := <-p.out; r.Outcome != edda.Succeeded || r.Attempts != 2 || time.Since(first) < time.Second {
		t.Errorf("%s after %d calls and %s", r.Outcome, r.Attempts, time.Since(first))
	}
}

// TestABodyIsTheSameOfACommandThatIsHandedOver: its payload goes as it is written, where
// nothing looks into it, and else as it is read.
func TestABodyIsTheSameOfACommandThatIsHandedOver(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"n":1}`) }
	const old = "version: 2\nupcast:\n  1: {set: {more: =payload.a}}\n"
	for i, more := range []string{
		"body: =payload}\n", "body: =  payload }\n", "body: =payload, headers: {Content-Type: text/plain}}\n", "raw: =payload}\n", "form: =payload}\n",
		"body: {all: =payload}}\n", "body: =payload, query: {a: =payload.a}}\n", "body: =payload}\nresult: =payload.a\n", "body: =payload}\nok: payload.a == 1\n",
		"body: =payload}\nlimit: {key: =payload.a, rate: 1000/s}\n", "body: =payload}\nschema: {required: [a]}\n", "body: =payload}\n" + old,
	} {
		p := work(t, "effect: charge\nhttp: {url: '"+s.URL+"', "+more)
		for _, payload := range []string{
			`{"a":1,"b":[true,null,{"<é\u0001":1.5e+300}],"c":12345678901234567}`, "{}", `{"b":1,"a":2}`, `{"a":1,"a":2}`, ` { "a" : 1.0 } `, `{"a":"\u0061\/"}`, "[1,2]", `"text"`, "null", "7", "",
			strings.Repeat(`{"a":`, jsonvalue.MaxDepth) + "1" + strings.Repeat("}", jsonvalue.MaxDepth), strings.Repeat(`{"a":`, jsonvalue.MaxDepth+1) + "1" + strings.Repeat("}", jsonvalue.MaxDepth+1),
		} {
			seen := func(id string, handed bool) string {
				s.body, s.last = "", nil
				p.in["charge"] <- effects.Command{Tenant: "acme", ID: id, Effect: "charge", Version: 1, Payload: json.RawMessage(payload), Offered: handed}
				r := <-p.out
				kind := ""
				if s.last != nil {
					kind = s.last.Header.Get("Content-Type") + " " + s.last.URL.RawQuery
				}
				var failure struct{ Code, Message string }
				_ = json.Unmarshal(r.Payload, &failure)
				if r.Outcome == edda.Succeeded {
					failure.Message = string(r.Payload)
				}
				return fmt.Sprint(r.Outcome, " ", failure, " ", kind, " ", s.body)
			}
			id := fmt.Sprint(i, len(payload), payload)
			if got, want := seen(id+"handed", true), seen(id+"read", false); got != want {
				t.Errorf("%s%.50s:\n got %s\nwant %s", more, payload, got, want)
			}
		}
	}
}
