package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestTheDocumentationLoadsFromElsewhere: it was blank without a way to unpkg.com.
func TestTheDocumentationLoadsFromElsewhere(t *testing.T) {
	f := newFakes()
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8700/docs", nil)
	s.Handler().ServeHTTP(w, r)
	page := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", w.Code, page)
	}
	for _, m := range regexp.MustCompile(`(?i)(?:src|href|action|data|poster|srcset)\s*=\s*["']?([^"'\s>]*)|url\(([^)]*)\)|@import\s+(\S+)`).FindAllStringSubmatch(page, -1) {
		if at := m[1] + m[2] + m[3]; !strings.HasPrefix(at, "#") && at != "openapi.json" && at != "openapi.yaml" {
			t.Errorf("it refers to %q", at)
		}
	}
	if strings.Contains(page, "<script") || regexp.MustCompile(`\son[a-z]+=`).MatchString(page) || strings.Contains(page, `style="`) {
		t.Error("it has a script, or a style that the policy refuses")
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(page)[1]
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if got := w.Header().Get("Content-Security-Policy"); got != want {
		t.Errorf("the policy is %s\nwant %s", got, want)
	}
	if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("headers %v", w.Header())
	}

	w = httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8700/openapi.json", nil))
	var api struct {
		Paths      map[string]map[string]struct{ Summary string }
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &api); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for path, methods := range api.Paths {
		for method, op := range methods {
			operations++
			if want := strings.ToUpper(method) + `</span> <code>` + path + `</code>`; !strings.Contains(page, want) || op.Summary == "" {
				t.Errorf("the page lacks %s %s, %q", method, path, op.Summary)
			}
		}
	}
	if operations < 25 || strings.Count(page, "<details ") != operations {
		t.Errorf("%d operations, and %d on the page", operations, strings.Count(page, "<details "))
	}
	ids := map[string]int{}
	for _, m := range regexp.MustCompile(`\sid="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]]++; ids[m[1]] > 1 {
			t.Errorf("%s is twice there", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if ids[m[1]] == 0 {
			t.Errorf("a link leads to %s, which is nowhere", m[1])
		}
	}
	for name := range api.Components.Schemas {
		if ids["schema-"+name] == 0 {
			t.Errorf("the object %s is not there", name)
		}
	}
	for _, text := range []string{"For an admin of all tenants (*).", "For a viewer of the tenant.", "<code>skip_tests</code>", "x-edda-why"} {
		if !strings.Contains(page, text) {
			t.Errorf("%q is not there", text)
		}
	}
}

// TestABrowserFindsNothingAtTheRoot: the first visit was a 404 in JSON.
func TestABrowserFindsNothingAtTheRoot(t *testing.T) {
	h := start(t, newFakes(), func(o *Options) { o.Build.Version = "v1<2" })
	code, page := call(t, h, "GET", "/", "", "accept: text/html,*/*;q=0.8")
	if code != 200 || !strings.Contains(page, "<h1>Edda <small>v1&lt;2</small>") {
		t.Fatalf("%d %s", code, page)
	}
	links := regexp.MustCompile(`(?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 6 || strings.Contains(page, "<script") {
		t.Errorf("links %v", links)
	}
	for _, link := range links {
		if code, body := call(t, h, "GET", link[1], ""); code != 200 {
			t.Errorf("%s: %d %s", link[1], code, body)
		}
	}
	code, text := call(t, h, "GET", "/", "", "accept: */*")
	var got struct {
		Name, Version string
		Links         []struct{ Path string }
	}
	if err := json.Unmarshal([]byte(text), &got); code != 200 || err != nil || got.Name != "edda" || len(got.Links) != len(links) {
		t.Errorf("%d %v %s", code, err, text)
	}
	if code, _ := call(t, h, "POST", "/", ""); code == 200 {
		t.Error("a POST is answered")
	}
}
