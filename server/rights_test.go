package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/access"
	"edda/store"
)

// tokens are one of each kind, and the book that knows them.
var tokens = map[string]access.Entry{
	"viewer":       {Role: access.Viewer, Tenants: []string{"acme"}},
	"operator":     {Role: access.Operator, Tenants: []string{"acme"}},
	"admin":        {Role: access.Admin, Tenants: []string{"acme"}},
	"patterned":    {Role: access.Operator, Tenants: []string{"ac*"}},
	"other":        {Role: access.Admin, Tenants: []string{"beta"}},
	"viewer-all":   {Role: access.Viewer, Tenants: []string{"*"}},
	"operator-all": {Role: access.Operator, Tenants: []string{"*"}},
	"admin-all":    {Role: access.Admin, Tenants: []string{"*"}},
}

// keeper writes a book in which each token is its own name.
func keeper(t testing.TB) *access.Tokens {
	t.Helper()
	var text []byte
	for name, e := range tokens {
		e.Name, e.Hash = name, access.Hash(name)
		var err error
		if text, err = access.Add(text, e); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// guarded is a server of several tenants that wants tokens.
func guarded(t *testing.T, f *fakes) *httptest.Server {
	t.Helper()
	return start(t, f, func(o *Options) { o.Tokens, o.Tenant = keeper(t), "" })
}

func bearer(name string) string { return "Authorization: Bearer " + name }

// routesOf lists what a server answers, as "METHOD /path".
func routesOf(t *testing.T) []string {
	t.Helper()
	f := newFakes()
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Mocks: f, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	return s.routes.list
}

func TestEveryRouteHasARight(t *testing.T) {
	declared, list := rights(), routesOf(t)
	if len(list) < 20 {
		t.Fatalf("only %d routes: %q", len(list), list)
	}
	for _, route := range list {
		if _, ok := declared[route]; !ok {
			t.Errorf("%s has no right: say in rights() what it takes", route)
		}
	}
	for route := range declared {
		if !slices.Contains(list, route) {
			t.Errorf("rights() speaks of %s, which is not there", route)
		}
	}
}

func TestARouteWithoutARightIsRefusedToEveryone(t *testing.T) {
	f := newFakes()
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Tokens: keeper(t)})
	if err != nil {
		t.Fatal(err)
	}
	s.routes.HandleFunc("POST /v1/forgotten", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	for name := range tokens {
		if code, body := call(t, h, "POST", "/v1/forgotten", "", bearer(name), "x-tenant-id: acme", "x-edda-why: test"); code != 403 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, _ := call(t, h, "POST", "/v1/forgotten", ""); code != 401 {
		t.Errorf("without a token: %d", code)
	}
}

// Only these need no token, word for word as the documentation says.
func TestOnlyTheProbesAreOpen(t *testing.T) {
	open := []string{"GET /health", "GET /live", "GET /metrics", "GET /ready"}
	for route, need := range rights() {
		if need.open != slices.Contains(open, route) {
			t.Errorf("%s: open %t", route, need.open)
		}
	}
	h := guarded(t, newFakes())
	for _, route := range open {
		method, path, _ := strings.Cut(route, " ")
		if code, _ := call(t, h, method, path, ""); code != 200 {
			t.Errorf("%s: %d", route, code)
		}
	}
}

// concrete is a request for a route: acme's order O1 and its neighbours.
func concrete(route string) (method, path string) {
	method, path, ok := strings.Cut(route, " ")
	if !ok {
		method, path = "GET", "/nothing"
	}
	return method, strings.NewReplacer("{saga}", "order", "{key}", "O1", "{id}", "D1", "{name}", "go",
		"{ask}", "ok", "{step}", "ship", "{schema}", "Info.json", "{effect}", "ship", "/{$}", "/").Replace(path)
}

// bodyOf is what a route takes.
func bodyOf(route string) string {
	switch {
	case strings.Contains(route, "/answer/"):
		return `{"choice":"yes"}`
	case strings.HasSuffix(route, "/v1/events"):
		return `{"event_id":"e1","aggregate_type":"Order","aggregate_id":"O1","event_type":"OrderPlaced"}`
	}
	if strings.HasSuffix(route, "/admin/replay") {
		return `{"saga":"order"}`
	}
	if strings.HasSuffix(route, "/admin/mock/{effect}") {
		return `{"answer":"ok"}`
	}
	if route == "POST /cluster/manifests" {
		return `{"files":[{"name":"a.yaml","content":"eA=="}]}`
	}
	return ""
}

func ofAcme() *fakes {
	f := newFakes(edda.Key{Tenant: "acme", Saga: "order", Correlation: "O1"})
	f.dead = []edda.DeadLetter{{ID: "D1", Reason: edda.DeadPoison, Event: edda.Event{Tenant: "acme", Type: "secret of acme"}}}
	return f
}

func TestEveryRouteWantsATokenThatIsKnown(t *testing.T) {
	f := ofAcme()
	h := guarded(t, f)
	for _, route := range routesOf(t) {
		if rights()[route].open {
			continue
		}
		method, path := concrete(route)
		for _, header := range []string{"X-None: 1", bearer(""), bearer("unknown"), bearer("admin-al"), bearer("admin-all2"),
			"Authorization: admin-all", "Authorization: Basic admin-all", "Authorization: Bearer", "Authorization: Bearer admin-all, Bearer viewer",
			bearer(access.Hash("admin-all")), "X-Edda-By: admin-all", "Cookie: token=admin-all"} {
			code, body := call(t, h, method, path, bodyOf(route), header, "x-tenant-id: acme")
			if code != 401 || strings.Contains(body, "acme") {
				t.Errorf("%s with %q: %d %s", route, header, code, body)
			}
		}
	}
	if f.drain.Draining || len(f.sent) != 0 {
		t.Errorf("something was done: %v %v", f.drain, f.sent)
	}
}

// Time ends a token without a reload; what it could do before it cannot do now,
// and nothing happens.
func TestAnExpiredTokenIsRefused(t *testing.T) {
	f := ofAcme()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	var text []byte
	for name, until := range map[string]time.Time{"over": time.Now().Add(-time.Second), "good": time.Now().Add(time.Hour)} {
		var err error
		if text, err = access.Add(text, access.Entry{Name: name, Role: access.Admin, Tenants: []string{"*"}, Hash: access.Hash(name), Expires: until}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	book, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, f, func(o *Options) { o.Tokens, o.Tenant = book, "" })
	for _, route := range routesOf(t) {
		if rights()[route].open {
			continue
		}
		method, path := concrete(route)
		f.sent, f.drain = nil, Drain{}
		code, body := call(t, h, method, path, bodyOf(route), bearer("over"), "x-tenant-id: acme", "x-edda-why: test")
		if code != 401 || !strings.Contains(body, "over expired at 20") || strings.Contains(body, "O1") || len(f.sent) != 0 || f.drain.Draining {
			t.Errorf("%s: %d %s", route, code, body)
		}
		if code, body := call(t, h, method, path, bodyOf(route), bearer("good"), "x-tenant-id: acme", "x-edda-why: test"); code == 401 || code == 403 {
			t.Errorf("%s before its time: %d %s", route, code, body)
		}
	}
}

func TestA401SaysHowToShowAToken(t *testing.T) {
	h := guarded(t, newFakes())
	for header, want := range map[string]string{"": `Bearer realm="edda"`, "Bearer x": `Bearer realm="edda", error="invalid_token"`} {
		req, _ := http.NewRequest("GET", h.URL+"/info", nil)
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		resp, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != 401 || got != want {
			t.Errorf("%q: %d %q", header, resp.StatusCode, got)
		}
	}
}

func TestEveryRouteIsHeldToItsRole(t *testing.T) {
	f := ofAcme()
	h := guarded(t, f)
	for _, route := range routesOf(t) {
		need := rights()[route]
		if need.open {
			continue
		}
		method, path := concrete(route)
		for name, e := range tokens {
			if name == "other" {
				continue
			}
			want := e.Role.Includes(need.role) && (need.scope != ofProcess || e.Tenants[0] == "*")
			f.sent, f.drain = nil, Drain{}
			code, body := call(t, h, method, path, bodyOf(route), bearer(name), "x-tenant-id: acme", "x-edda-why: test")
			refused := code == 409 && strings.HasSuffix(route, "/{id}/skip") // the letter holds nothing back
			if got := code != 403; got != want || want && code != 200 && !refused && path != "/nothing" {
				t.Errorf("%s as %s: %d %.200s", route, name, code, body)
			}
			if !want && (len(f.sent) != 0 || f.drain.Draining) {
				t.Errorf("%s as %s: something was done", route, name)
			}
		}
	}
}

// The same words, whether or not there is what was asked for: a refusal tells
// nothing of another tenant.
func TestNoRouteTellsOfAnotherTenant(t *testing.T) {
	there := ofAcme()
	something, nothing := guarded(t, there), guarded(t, newFakes())
	for _, route := range routesOf(t) {
		need := rights()[route]
		if need.open || need.scope != ofTenant {
			continue
		}
		method, path := concrete(route)
		for _, tenant := range []string{"acme", "beta"} {
			code, body := call(t, something, method, path, bodyOf(route), bearer("other"), "x-tenant-id: "+tenant, "idempotency-key: m1", "x-edda-why: test")
			codeOfNothing, bodyOfNothing := call(t, nothing, method, path, bodyOf(route), bearer("other"), "x-tenant-id: "+tenant, "idempotency-key: m1", "x-edda-why: test")
			if code != codeOfNothing || body != bodyOfNothing {
				t.Errorf("%s for %s differs:\n%d %s\n%d %s", route, tenant, code, body, codeOfNothing, bodyOfNothing)
			}
			if tenant == "acme" && code != 403 || strings.Contains(body, "secret of acme") || strings.Contains(body, `"key":"O1"`) {
				t.Errorf("%s for %s: %d %s", route, tenant, code, body)
			}
		}
	}
	for _, ev := range there.sent {
		if ev.Tenant != "beta" {
			t.Errorf("sent %+v", ev)
		}
	}
}

func TestATenantIsNamedOnceAndInTheHeaderAlone(t *testing.T) {
	f := ofAcme()
	h := guarded(t, f)
	for _, route := range routesOf(t) {
		need := rights()[route]
		if need.open || need.scope != ofTenant {
			continue
		}
		method, path := concrete(route)
		for name, want := range map[string]int{"admin": 422, "admin-all": 422} {
			if code, body := call(t, h, method, path, bodyOf(route), bearer(name)); code != want {
				t.Errorf("%s as %s without a tenant: %d %.200s", route, name, code, body)
			}
		}
		for _, tries := range []string{"?tenant=acme", "?tenant_id=acme", "?x-tenant-id=acme"} {
			if code, body := call(t, h, method, path+tries, bodyOf(route), bearer("other"), "x-tenant-id: beta"); code == 200 && strings.Contains(body, "acme") {
				t.Errorf("%s%s: %d %.200s", route, tries, code, body)
			}
		}
		req, _ := http.NewRequest(method, h.URL+path, strings.NewReader(bodyOf(route)))
		req.Header = http.Header{"Authorization": {"Bearer other"}, "X-Tenant-Id": {"beta", "acme"}, "Content-Type": {"application/json"}}
		resp, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("%s with two tenants: %d", route, resp.StatusCode)
		}
	}
	for _, ev := range f.sent {
		if ev.Tenant == "acme" {
			t.Errorf("sent %+v", ev)
		}
	}
}

// What the API's description says of tenants: one header, and no other way to
// name one, unless the caller may act for all of them. So whatever a route does,
// the guard has seen its tenant. And nobody says in a body who they are.
func TestTheDescriptionKnowsOneWayToNameATenant(t *testing.T) {
	code, text := call(t, start(t, newFakes()), "GET", "/openapi.json", "")
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name, In string }
			RequestBody json.RawMessage
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || code != 200 {
		t.Fatal(code, err)
	}
	seen := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			need, ok := rights()[strings.ToUpper(method)+" "+path]
			if !ok {
				t.Errorf("%s %s has no right", method, path)
			}
			named := false
			for _, p := range op.Parameters {
				header := p.In == "header" && p.Name == "x-tenant-id"
				if named = named || header; !header && strings.Contains(p.Name, "tenant") && need.scope != ofProcess {
					t.Errorf("%s %s takes a tenant in the %s %s, which nobody checks", method, path, p.In, p.Name)
				}
			}
			if named != (need.scope == ofTenant) && need.scope != ofProcess {
				t.Errorf("%s %s: has the header x-tenant-id: %t, its right is of a tenant: %t", method, path, named, need.scope == ofTenant)
			}
			for name, schema := range doc.Components.Schemas {
				if !strings.Contains(string(op.RequestBody), "/"+name+`"`) {
					continue
				}
				for property := range schema.Properties {
					if strings.Contains(property, "tenant") && need.scope != ofProcess {
						t.Errorf("%s %s takes a tenant in its body, which nobody checks", method, path)
					}
					if property == "by" {
						t.Errorf("%s %s takes in its body who acts: that is for the token to say, in x-edda-by", method, path)
					}
				}
			}
			seen++
		}
	}
	if seen < 12 {
		t.Fatalf("only %d operations", seen)
	}
}

func TestARefusalSaysWhatToDoOnTheCommandLineToo(t *testing.T) {
	h := guarded(t, ofAcme())
	for _, tt := range []struct {
		method, path, header, want string
	}{
		{"GET", "/v1/instances", "x-tenant-id: acme", "authorization: Bearer TOKEN (--token-file FILE or EDDA_TOKEN_FILE)"},
		{"GET", "/v1/instances", bearer("admin-all"), "x-tenant-id (--tenant or EDDA_TENANT)"},
		{"POST", "/admin/drain", bearer("operator-all"), "operator-all is an operator, and this takes the role admin"},
		{"POST", "/admin/drain", bearer("viewer-all"), "viewer-all is a viewer, and this takes the role admin"},
	} {
		if code, body := call(t, h, tt.method, tt.path, "", tt.header); code < 400 || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s with %s: %d %s, want %s", tt.method, tt.path, tt.header, code, body, tt.want)
		}
	}
	without := start(t, newFakes(), func(o *Options) { o.Tenant = "" })
	if code, body := call(t, without, "GET", "/v1/instances", ""); code != 422 || !strings.Contains(body, "(--tenant or EDDA_TENANT)") {
		t.Errorf("without tokens: %d %s", code, body)
	}
}

func TestTheAuditOfTheProcessIsForCallersOfAllTenants(t *testing.T) {
	f := ofAcme()
	h := guarded(t, f)
	for name, e := range tokens {
		for _, query := range []string{"process=true", "process", "process=1", "limit=5&process=T", "%70rocess=true", "process=false&process=true", "process=true;", "process=true&process=false"} {
			f.audits = store.AuditQuery{Tenant: "nobody asked"}
			code, body := call(t, h, "GET", "/v1/audit?"+query, "", bearer(name), "x-tenant-id: acme")
			if e.Tenants[0] != "*" && f.audits.Tenant == "" || code == 200 && e.Tenants[0] != "*" && f.audits.Tenant != "acme" {
				t.Errorf("%s as %s read the audit of %+v: %d %s", query, name, f.audits, code, body)
			}
		}
		want := map[bool]int{true: 200, false: 403}[e.Tenants[0] == "*"]
		if code, body := call(t, h, "GET", "/v1/audit?process=true", "", bearer(name)); code != want || want == 200 && f.audits.Tenant != "" {
			t.Errorf("%s: %d %s, asked for %+v", name, code, body, f.audits)
		}
	}
	// The handler refuses by what it read itself, whatever the check of rights made of the query.
	for tenant, want := range map[string]bool{"acme": true, "*": false} {
		c, ok := keeper(t).Book().Bearer(map[string]string{"acme": "admin", "*": "admin-all"}[tenant])
		if err := everywhere(context.WithValue(t.Context(), callerKey{}, c)); !ok || (err != nil) != want {
			t.Errorf("a caller of %s: %v", tenant, err)
		}
	}
	open := start(t, f)
	if code, body := call(t, open, "GET", "/v1/audit?process=true", "", "x-tenant-id: acme"); code != 200 || f.audits.Tenant != "" {
		t.Errorf("without tokens: %d %s, asked for %+v", code, body, f.audits)
	}
	for _, tokens := range []*access.Tokens{nil, keeper(t)} {
		h := start(t, f, func(o *Options) { o.Tokens, o.Tenant = tokens, "" })
		if code, body := call(t, h, "GET", "/v1/audit", "", bearer("admin-all")); code != 422 || !strings.Contains(body, "(--process)") {
			t.Errorf("without a tenant: %d %s", code, body)
		}
	}
}

func TestTheAuditHasTheTokensName(t *testing.T) {
	for note, want := range map[string]string{"": "operator", "ann": "operator (ann)", "admin-all": "operator (admin-all)",
		strings.Repeat("x", 150): "operator (" + strings.Repeat("x", maxNote) + ")"} {
		f := ofAcme()
		headers := []string{bearer("operator"), "x-tenant-id: acme", "x-edda-why: test"}
		if note != "" {
			headers = append(headers, "x-edda-by: "+note)
		}
		if code, body := call(t, guarded(t, f), "POST", "/v1/instances/order/O1/cancel", "", headers...); code != 200 || f.sent[0].By != want {
			t.Errorf("%q: %d %s %+v", note, code, body, f.sent)
		}
	}
}

func TestWithoutTenancyOnlyCallersOfAllTenantsMayCall(t *testing.T) {
	f := newFakes(edda.Key{Saga: "order", Correlation: "O1"})
	h := start(t, f, func(o *Options) { o.Tokens, o.Tenant, o.NoTenancy = keeper(t), "", true })
	for name, e := range tokens {
		want := 403
		if e.Tenants[0] == "*" {
			want = 200
		}
		if code, body := call(t, h, "GET", "/v1/instances/order/O1", "", bearer(name)); code != want {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func TestOtherMachinesNeedTokensAndTLS(t *testing.T) {
	f := newFakes()
	o := Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f}
	for name, tt := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"loopback":                {func(o *Options) { o.Addr = "127.0.0.1:0" }, ""},
		"loopback with tokens":    {func(o *Options) { o.Addr, o.Tokens = "127.0.0.1:0", keeper(t) }, ""},
		"nothing":                 {func(o *Options) { o.Addr = ":0" }, "--tokens"},
		"TLS alone":               {func(o *Options) { o.Addr, o.Certificates = ":0", &Certificates{} }, "--tokens"},
		"a proxy alone":           {func(o *Options) { o.Addr, o.TLSEnds = ":0", true }, "--tokens"},
		"tokens in the clear":     {func(o *Options) { o.Addr, o.Tokens = ":0", keeper(t) }, "tls.cert"},
		"tokens and TLS":          {func(o *Options) { o.Addr, o.Tokens, o.Certificates = ":0", keeper(t), &Certificates{} }, ""},
		"tokens behind something": {func(o *Options) { o.Addr, o.Tokens, o.TLSEnds = ":0", keeper(t), true }, ""},
	} {
		o := o
		tt.change(&o)
		_, err := New(o)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithTokensTheServerMayHaveAnyName(t *testing.T) {
	h := guarded(t, ofAcme())
	if code, body := call(t, h, "GET", "/v1/instances", "", bearer("viewer"), "x-tenant-id: acme", "Host: edda.prod.svc"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := call(t, h, "GET", "/v1/instances", "", "x-tenant-id: acme", "Host: edda.prod.svc"); code != 401 {
		t.Errorf("without a token: %d", code)
	}
}

func TestAnAdminsCallIsLogged(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	h := start(t, newFakes(), func(o *Options) { o.Tokens, o.Log = keeper(t), zap.New(core) })
	call(t, h, "POST", "/admin/reload", "", bearer("operator-all")) // refused: nothing happened
	call(t, h, "POST", "/admin/reload", "", bearer("admin-all"))
	entries := logs.FilterMessage("an admin's call").All()
	if len(entries) != 1 || entries[0].ContextMap()["by"] != "admin-all" || entries[0].ContextMap()["route"] != "POST /admin/reload" {
		t.Errorf("%+v", logs.All())
	}
}
