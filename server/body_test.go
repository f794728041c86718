package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"edda"
)

// TestANameThatIsThereTwiceTookTheLast, on every route that takes a body: what a proxy before
// us had looked at was not what was done.
func TestANameThatIsThereTwiceTookTheLast(t *testing.T) {
	f := newFakes(order("O1"))
	f.dead = []edda.DeadLetter{{ID: "D1", Reason: edda.DeadPoison, Event: edda.Event{Tenant: "default", Type: "Paid"}}}
	h := start(t, f)
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	bodies := 0
	for path, item := range s.api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			bodies++
			_, path := concrete(method + " " + path)
			for _, twice := range []string{`{"twin":1,"twin":2}`, `{"a":{"twin":1,"b":[{"twin":3}],"twin":2}}`, `[{"twin":1,"tw\u0069n":2}]`} {
				code, said := call(t, h, method, path, twice)
				if code != 400 && code != 422 || !strings.Contains(said, `twin\" is there twice`) {
					t.Errorf("%s %s %s: %d %s", method, path, twice, code, said)
				}
			}
			schema := op.RequestBody.Content["application/json"].Schema
			if schema.Ref != "" {
				schema = s.api.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
			}
			for name := range schema.Properties {
				other := strings.ToUpper(name)
				code, said := call(t, h, method, path, fmt.Sprintf(`{%q:"x"}`, other))
				if code != 422 || !strings.Contains(said, other) {
					t.Errorf("%s %s with %s: %d %s", method, path, other, code, said)
				}
			}
		}
	}
	if bodies < 6 || len(f.sent) != 0 {
		t.Errorf("%d routes take bodies; sent %v", bodies, f.sent)
	}
	for _, fine := range []string{`{"twin":1,"Twin":2}`, `[{"twin":1},{"twin":2}]`, `{"twin":"twin","a":["twin","twin"]}`, `{"twin":{"twin":{"twin":1}}}`} {
		body := fmt.Sprintf(`{"aggregate_type":"Order","aggregate_id":"O1","event_type":"x","payload":%s}`, fine)
		if code, said := call(t, h, "POST", "/v1/events", body); code != 200 {
			t.Errorf("%s: %d %s", fine, code, said)
		}
	}
}

// TestRepeatedNamesAreFound among few names and many, and nowhere else.
func TestRepeatedNamesAreFound(t *testing.T) {
	for n := range 5 * fewNames {
		var b strings.Builder
		b.WriteString(`{"deep":[{`)
		for i := range n {
			fmt.Fprintf(&b, `"n%d" : {"n0":"\"n0\":","x\\":["n1",{}]},`, i)
		}
		once := b.String() + `"last":1}]}`
		if name := repeatedName([]byte(once)); name != nil || !json.Valid([]byte(once)) {
			t.Errorf("with %d names %s is found", n, name)
		}
		for i := range n {
			twice := b.String() + fmt.Sprintf(`"n%d":1}]}`, i)
			if name := repeatedName([]byte(twice)); string(name) != fmt.Sprintf(`"n%d"`, i) {
				t.Errorf("of %d names n%d is there twice, and %s is found", n, i, name)
			}
		}
	}
	for _, twice := range []string{"{\"a\xff\":1,\"a\xfe\":2}", `{"é":1,"\u00e9":2}`, "{\"\":1,\n\"\"\t:2}"} {
		if repeatedName([]byte(twice)) == nil {
			t.Errorf("%q: nothing is found", twice)
		}
	}
}

// BenchmarkRepeatedName is what the look for names costs an event over HTTP.
func BenchmarkRepeatedName(b *testing.B) {
	body := []byte(`{"event_id":"e1","aggregate_type":"Order","aggregate_id":"O1","event_type":"OrderPlaced","payload":{"order_id":"O1","amount":120,"currency":"EUR","lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}}`)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if repeatedName(body) != nil {
			b.Fatal()
		}
	}
}

// BenchmarkPostEvent is a whole request, of which nothing is stored.
func BenchmarkPostEvent(b *testing.B) {
	f := newFakes(order("O1"))
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Tenant: "default", Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	const body = `{"event_id":"e1","aggregate_type":"Order","aggregate_id":"O1","event_type":"OrderPlaced","payload":{"order_id":"O1","amount":120,"currency":"EUR","lines":[{"sku":"a","n":1},{"sku":"b","n":2}]}}`
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "http://127.0.0.1/v1/events", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
		f.sent = f.sent[:0]
	}
}
