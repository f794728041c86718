package httpeffect

import (
	"encoding/json"
	"errors"
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
)

func TestSuite(t *testing.T) {
	s := open(t)
	effecttest.Run(t, effecttest.Fixture{
		Provider:    provider(t, dial.Options{AllowLoopback: true}),
		Accepted:    map[string]any{"url": s.URL},
		Hangs:       map[string]any{"url": s.URL + "/hang"},
		Unreachable: map[string]any{"url": "http://" + nobody(t)},
		Impossible:  map[string]any{"url": "ftp://pay"},
		Seen:        s.count,
	})
}

// TestNetHTTPDoesWhatTheDirectClientDoes runs what tells the two apart, if anything does,
// with Options.Standard.
func TestNetHTTPDoesWhatTheDirectClientDoes(t *testing.T) {
	standard = true
	defer func() { standard = false }()
	s, p := open(t), provider(t, dial.Options{AllowLoopback: true})
	if _, err := call(t, p, map[string]any{"url": s.URL}); err != nil || len(p.transports.kept) != 1 {
		t.Fatalf("net/http did not make the call: %v", err)
	}
	for name, test := range map[string]func(*testing.T){
		"the suite": TestSuite, "requests": TestRequest, "methods": TestEveryMethod, "bodies": TestBodies, "answers": TestResponse, "answers of any length": TestAnswersOfAnyLength,
		"packed answers": TestPackedAnswersAreUnpacked, "too long an answer": TestAnswerThatIsTooLongMayHaveBeenDone, "unpacked too long": TestAnswersAreBoundedAfterUnpacking,
		"headers too long": TestHeadersAreBounded, "no HTTP": TestAnAnswerThatIsNoHTTPShowsNothingOfIt, "faults": TestFaults, "faults between calls": TestFaultsOnAKeptConnection,
		"truncated answers": TestATruncatedAnswerIsNoSuccess, "nothing twice": TestNothingIsSentTwice, "redirects": TestRedirects, "private addresses": TestPrivateAddressesAreRefused,
		"kept connections": TestConnectionsAreReused, "dot segments": TestADotSegmentOfAPayloadReachesNoOtherPath,
	} {
		t.Run(name, test)
	}
}

func TestRequest(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	_, err := p.Call(t.Context(), effects.Call{Effect: "charge", ID: "c1", Key: "k1", Trace: trace, Config: map[string]any{
		"method": "put", "url": s.URL + "/a?x=1", "headers": map[string]any{"Authorization": "Bearer s", "X-Many": []any{"a", 2}, "X-None": nil},
		"query": map[string]any{"q": "a b&c", "n": 9007199254740993, "list": []any{1, true}, "none": nil},
		"body":  map[string]any{"amount": 9007199254740993, "html": "<b>"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := s.last
	if r.Method != "PUT" || r.URL.Path != "/a" || r.URL.Query().Encode() != "list=1&list=true&n=9007199254740993&q=a+b%26c&x=1" {
		t.Errorf("%s %s", r.Method, r.URL)
	}
	for name, want := range map[string]string{"Authorization": "Bearer s", "Idempotency-Key": "k1", "Traceparent": trace, "Content-Type": "application/json", "User-Agent": "edda", "X-None": ""} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := r.Header.Values("X-Many"); len(got) != 2 {
		t.Errorf("X-Many %q", got)
	}
	if s.body != `{"amount":9007199254740993,"html":"<b>"}` {
		t.Errorf("body %s", s.body)
	}
}

func TestBodyOfAnotherType(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for kind, want := range map[string]string{"text/plain": "a=1", "application/json": `"a=1"`, "": `"a=1"`} {
		config := map[string]any{"url": s.URL, "body": "a=1"}
		if kind != "" {
			config["headers"] = map[string]any{"content-type": kind}
		}
		if _, err := p.Call(t.Context(), effects.Call{Config: config}); err != nil || s.body != want {
			t.Errorf("%q: body %s %v, want %s", kind, s.body, err, want)
		}
	}
}

func TestResponse(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	tests := []struct {
		status                  int
		body, retryAfter        string
		want                    any
		retry, refused, unknown bool
		after                   time.Duration
	}{
		{200, `{"n":9007199254740993,"f":2.0}`, "", map[string]any{"n": 9007199254740993, "f": 2}, false, false, false, 0},
		{200, "", "", nil, false, false, false, 0},
		{200, "plain \xff", "", "plain \uFFFD", false, false, false, 0},
		{200, `{"n":99999999999999999999}`, "", map[string]any{"n": json.Number("99999999999999999999")}, false, false, false, 0},
		{200, "\ufeff{\"n\":1}", "", map[string]any{"n": 1}, false, false, false, 0},
		{200, "\ufeffplain", "", "\ufeffplain", false, false, false, 0},
		{302, "", "", nil, false, false, false, 0},
		{402, `"no"`, "", "no", false, false, false, 0},
		{408, "", "", nil, true, false, true, 0},
		{429, "", "7", nil, true, true, false, 7 * time.Second},
		{500, "", "", nil, true, false, true, 0},
		{502, "", "", nil, true, false, true, 0},
		{503, "", "-3", nil, true, false, true, 0},
		{504, "", "nonsense", nil, true, false, true, 0},
		{500, strings.Repeat("x", maxAnswer+1), "", nil, true, false, true, 0},
	}
	for _, tt := range tests {
		s.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.Header().Set("X-Shop", "open")
			if tt.retryAfter != "" {
				w.Header().Set("Retry-After", tt.retryAfter)
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		}
		r, err := p.Call(t.Context(), effects.Call{Config: map[string]any{"url": s.URL}})
		if err != nil || r.Status != tt.status || text(r.Body) != text(tt.want) {
			t.Errorf("%d: %d %.80v %v, want %v", tt.status, r.Status, r.Body, err, tt.want)
		}
		if r.Retry != tt.retry || r.Refused != tt.refused || r.Unknown != tt.unknown || r.After != tt.after || r.Headers["x-shop"] != "open" {
			t.Errorf("%d: %+v", tt.status, r)
		}
	}
}

// TestPackedAnswersAreUnpacked: nothing shows that they were.
func TestPackedAnswersAreUnpacked(t *testing.T) {
	plain, secure := open(t), openTLS(t, nil)
	for _, s := range []*shop{plain, secure} {
		s.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") == "gzip" {
				speak(w, "gzip with a length")
			}
		}
		config := map[string]any{"url": s.URL}
		if s == secure {
			config["tls"] = map[string]any{"ca": s.ca()}
		}
		r, err := call(t, provider(t, dial.Options{AllowLoopback: true}), config)
		_, shows := r.Headers["content-encoding"]
		if err != nil || text(r.Body) != text(map[string]any{"id": "P1", "paid": true}) || shows {
			t.Errorf("%s: %v %v, %v", s.URL, r.Body, r.Headers, err)
		}
	}
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return fmt.Sprintf("%T %s", v, b)
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const at, before, after = "Thu, 01 Jan 2026 00:01:30 GMT", "Thu, 01 Jan 2026 00:01:00 GMT", "Thu, 01 Jan 2026 00:02:00 GMT"
	for _, tt := range []struct {
		date    string
		headers []string
		want    time.Duration
	}{
		{"", nil, 0}, {"", []string{""}, 0}, {"", []string{"soon"}, 0}, {"", []string{"-3"}, 0}, {"", []string{"1e3"}, 0}, {"", []string{"NaN"}, 0},
		{"", []string{"3"}, 3 * time.Second},
		{"", []string{"2.1"}, 3 * time.Second},
		{"", []string{"1", "5", "2"}, 5 * time.Second},
		{"", []string{"99999999999"}, maxRetryAfter * time.Second},
		{"", []string{strings.Repeat("9", 400)}, maxRetryAfter * time.Second},
		{"", []string{at}, 90 * time.Second},
		{"", []string{"Wed, 31 Dec 2025 00:00:00 GMT"}, 0},
		{"", []string{"Fri, 01 Jan 2100 00:00:00 GMT"}, maxRetryAfter * time.Second},
		{before, []string{at}, 30 * time.Second}, // their clock is a minute ahead of ours
		{after, []string{at}, 0},
		{before, []string{"7"}, 7 * time.Second},
		{"nonsense", []string{at}, 90 * time.Second},
	} {
		h := http.Header{"Retry-After": tt.headers}
		if tt.date != "" {
			h.Set("Date", tt.date)
		}
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%.40q at %q is %s, want %s", tt.headers, tt.date, got, tt.want)
		}
	}
}

func TestAnswerThatIsTooLongMayHaveBeenDone(t *testing.T) {
	s := open(t)
	s.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", maxAnswer+1)) }
	_, err := provider(t, dial.Options{AllowLoopback: true}).Call(t.Context(), effects.Call{Config: map[string]any{"url": s.URL}})
	if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) {
		t.Errorf("error %v", err)
	}
}

// TestAnswersOfAnyLength are read whole, whether they say their length or not, and their
// connection is used again.
func TestAnswersOfAnyLength(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, n := range []int{0, 1, unsaidAnswer - 1, unsaidAnswer, unsaidAnswer + 1, believedAnswer, believedAnswer + 1, maxAnswer} {
		for _, told := range []bool{true, false} {
			s.answer = func(w http.ResponseWriter, _ *http.Request) {
				if told {
					w.Header().Set("Content-Length", strconv.Itoa(n))
				} else {
					w.(http.Flusher).Flush()
				}
				fmt.Fprint(w, strings.Repeat("x", n))
			}
			r, err := call(t, p, map[string]any{"url": s.URL})
			if text, _ := r.Body.(string); err != nil || len(text) != n {
				t.Errorf("%d bytes, told %v: %d, %v", n, told, len(text), err)
			}
		}
	}
	if len(s.conns) != 1 {
		t.Errorf("%d connections", len(s.conns))
	}
}

// TestABareAnswerHasNoHeaders, as nobody looks at them.
func TestABareAnswerHasNoHeaders(t *testing.T) {
	s := open(t)
	p := provider(t, dial.Options{AllowLoopback: true})
	for _, bare := range []bool{false, true} {
		r, err := p.Call(t.Context(), effects.Call{ID: "c1", Key: "c1", Bare: bare, Config: map[string]any{"url": s.URL}})
		if err != nil || (r.Headers["date"] == "") != bare {
			t.Errorf("bare %v: %v, %v", bare, r.Headers, err)
		}
	}
}
