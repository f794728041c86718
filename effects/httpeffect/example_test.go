package httpeffect

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"edda"
	"edda/effects"
	"edda/manifests"
)

// carrier answers the calls of the example.
func carrier() http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "POST /labels":
			conn, _, _ := w.(http.Hijacker).Hijack()
			_ = conn.Close() // it is printed, and nobody is told
		case "GET /labels/c1":
			fmt.Fprint(w, `{"id":"L1"}`)
		case "POST /members":
			w.Header().Set("Location", "/members/7")
			w.WriteHeader(http.StatusSeeOther)
		case "GET /members/7":
			fmt.Fprint(w, `{"member":7}`)
		case "PUT /scans/a/b.png":
			w.WriteHeader(http.StatusNoContent)
		case "POST /payouts":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"id":"P1"}`)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}
}

// example is what runs the embedded manifest against these servers.
func example(t *testing.T, plain, secure *shop) post {
	t.Helper()
	b, err := fs.ReadFile(manifests.Examples(), "effect-http.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("http://127.0.0.1:8799", plain.URL, "https://127.0.0.1:8799", secure.URL).Replace(string(b))
	f, problems := manifests.Parse("effect-http.yaml", []byte(text))
	var all []*effects.Effect
	for _, m := range f.Effects {
		e, more := effects.Compile(m, map[string]effects.ProviderKind{"http": Kind()})
		problems = append(problems, more...)
		all = append(all, e)
	}
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	cert, key := ours509(t)
	secrets := map[string]string{"EDDA_SECRET_CARRIER_TOKEN": "s3cret", "EDDA_SECRET_BANK_CA": secure.ca(), "EDDA_SECRET_BANK_CERT": cert, "EDDA_SECRET_BANK_KEY": key}
	return start(t, func(name string) (string, bool) { v, found := secrets[name]; return v, found }, all...)
}

func TestTheExampleMakesItsCalls(t *testing.T) {
	plain, secure := open(t), openTLS(t, &tls.Config{ClientAuth: tls.RequireAnyClientCert})
	plain.answer, secure.answer = carrier(), carrier()
	p := example(t, plain, secure)
	for i, tt := range []struct {
		effect, payload, result string
		at                      *shop
		body, kind              string // of the last request with one
		requests                []string
	}{
		{"print_label", `{"order":"O1","grams":900}`, `{"label":"L1"}`, plain, `{"grams":900,"order":"O1"}`, "application/json", []string{"POST /labels?size=a6&size=a5", "GET /labels/c1"}},
		{"join_list", `{"email":"a@b","lists":["news","offers"]}`, `{"member":7}`, plain, "email=a%40b&list=news&list=offers", "application/x-www-form-urlencoded", []string{"POST /members", "GET /members/7"}},
		{"store_scan", `{"name":"a/b.png","image":"AP8="}`, "null", plain, "\x00\xff", "image/png", []string{"PUT /scans/a%2Fb.png"}},
		{"pay_out", `{"account":"A","cents":2500}`, `{"payout":"P1"}`, secure, `{"account":"A","cents":2500,"reference":"c4"}`, "application/json", []string{"POST /payouts"}},
	} {
		log := tt.at.record()
		p.in[tt.effect] <- effects.Command{Tenant: "acme", ID: fmt.Sprint("c", i+1), Effect: tt.effect, IdempotencyKey: "key of " + tt.effect, Payload: json.RawMessage(tt.payload)}
		r := <-p.out
		if r.Outcome != edda.Succeeded || string(r.Payload) != tt.result || r.Attempts != 1 {
			t.Errorf("%s: result %s %s after %d calls", tt.effect, r.Outcome, r.Payload, r.Attempts)
		}
		var requests []string
		for _, e := range log() {
			requests = append(requests, e.request)
			if e.body != "" && (e.body != tt.body || e.kind != tt.kind) {
				t.Errorf("%s: body %q as %s", tt.effect, e.body, e.kind)
			}
			if e.key != "key of "+tt.effect {
				t.Errorf("%s: the key of %s is %q", tt.effect, e.request, e.key)
			}
		}
		if !slices.Equal(requests, tt.requests) {
			t.Errorf("%s: requests %q, want %q", tt.effect, requests, tt.requests)
		}
	}
}
