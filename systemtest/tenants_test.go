//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"edda/access"
	"edda/server"
	"edda/stream/kv"
)

// Two tenants share a process. Each of their things has the tenant's mark in it:
// keys, payloads, ids of events, reasons. The mark of one must be in nothing that
// the other is answered, whatever is asked.

const sharedSaga = `saga: order
version: 1
key: event.k
on:
  Begin:
    start: true
    set: {secret: =event.secret}
    do: [{ask: go_on, due: 24h, with: {choices: ["on", "off"]}}]
  go_on.on: {do: [{done: true}]}
  go_on.off: {do: [{fail: "off"}]}
  signal.enough: {do: [{done: true}]}
  Break: {set: {secret: "=event.nothing.at.all + 1"}}
  Early: {park: 1h}
`

// marks by tenant. The name of one begins as another's does.
var marks = map[string]string{"acme": "ALPHAMARK", "beta": "BRAVOMARK", "acme2": "CHARLIEMARK"}

// shared is the process, and who may call it.
type shared struct {
	*child
	t      *testing.T
	tokens map[string]string
}

// newShared starts the binary with a token for each role of each tenant, and
// gives each tenant something of every kind.
func newShared(t *testing.T) *shared {
	t.Helper()
	embedded, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(embedded.Close)
	s := &shared{t: t, tokens: map[string]string{}}
	var book []byte
	for _, tenant := range []string{"acme", "beta", "acme2", "*"} {
		for _, role := range access.Roles() {
			name, token := strings.ReplaceAll(tenant, "*", "all")+"-"+string(role), access.NewToken()
			s.tokens[name] = token
			if book, err = access.Add(book, access.Entry{Name: name, Role: role, Tenants: []string{tenant}, Hash: access.Hash(token)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, addr := t.TempDir(), freeAddr(t)
	s.child = launch(t, "run", "--role", "saga", "--nats-url", embedded.URL(), "--addr", addr, "--data", t.TempDir(),
		"--tokens", write(t, dir, "tokens.yaml", string(book)), write(t, dir, "order.yaml", sharedSaga))
	s.addr, s.nats = addr, embedded.URL()
	s.says(`"msg":"started"`)
	for tenant := range marks {
		s.fill(tenant)
	}
	return s
}

// of names what a tenant has.
func of(tenant, what string) string { return marks[tenant] + "-" + what }

func (s *shared) fill(tenant string) {
	s.t.Helper()
	conn, _ := client(s.t, s.nats)
	send := func(id, kind, key, text string) {
		if text == "" {
			text = fmt.Sprintf(`{"event_id":%q,"event_type":%q,"payload":{"k":%q,"secret":%q}}`, of(tenant, id), kind, of(tenant, key), of(tenant, "secret"))
		}
		if err := conn.Publish("tenant."+tenant+".aggregate.Order."+of(tenant, key), []byte(text)); err != nil {
			s.t.Fatal(err)
		}
	}
	send("e1", "Begin", "asked", "")
	send("e2", "Begin", "cancelled", "")
	send("e3", "Begin", "held", "")
	send("e4", "Break", "held", "")
	send("e5", "Begin", "held", "")
	send("e6", "Early", "parked", "")
	send("", "", "lost", of(tenant, "{ is no JSON"))
	send("", "", "contradicts", fmt.Sprintf(`{"event_id":%q,"tenant_id":"somebody","event_type":"Begin"}`, of(tenant, "e7")))
	if err := conn.Flush(); err != nil {
		s.t.Fatal(err)
	}
	admin := "-admin"
	has := func(path, what string, n int) {
		until(s.t, tenant+" has "+path, func() bool {
			_, body := s.ask(tenant+admin, "GET", path, "", tenantIs(tenant))
			return strings.Count(body, what) >= n
		})
	}
	has("/v1/instances", `"order"`, 3)
	has("/v1/held", of(tenant, "held"), 1)
	has("/v1/parked", of(tenant, "parked"), 1)
	has("/v1/deadletters", `"reason"`, 3)
	for path, body := range map[string]string{"/v1/instances/order/" + of(tenant, "cancelled") + "/cancel": "", "/admin/replay": `{"saga":"order","dry_run":true}`} {
		if code, said := s.ask(tenant+admin, "POST", path, body, tenantIs(tenant), "x-edda-why: "+of(tenant, "reason")); code != 200 {
			s.t.Fatalf("%s: %d %s", path, code, said)
		}
	}
	has("/admin/replay", `"done"`, 1)
	has("/v1/audit", of(tenant, "reason"), 1)
}

func tenantIs(name string) string { return "x-tenant-id: " + name }

// ask makes a request; headers are "name: value", and said twice they are sent twice.
func (s *shared) ask(who, method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+s.tokens[who])
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, values := range resp.Header {
		text = append(text, name+strings.Join(values, "")...)
	}
	return resp.StatusCode, string(text)
}

// traces are a mark as it would show, also within base64.
func traces(mark string) [][]byte {
	out := [][]byte{[]byte(mark), []byte(fmt.Sprintf("%x", mark))}
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", shift) + mark))
		out = append(out, []byte(text[min(shift, 1)*4:(shift+len(mark))/3*4]))
	}
	return out
}

func traceOf(tenant string, in string) string {
	for _, trace := range traces(marks[tenant]) {
		if bytes.Contains([]byte(in), trace) {
			return string(trace)
		}
	}
	return ""
}

// What a call is about.
const (
	ofTheTenant  = "tenant"
	ofTheProcess = "process"
	ofNobody     = "nobody"
	ofEveryone   = "everyone" // no token
)

// door is one route, as a tenant asks it for what is another's.
type door struct {
	needs access.Role
	about string
	path  string // {key}, {held} and {dead} are the other's
	body  string
	// guess is what it answers where the caller may call it, names its own tenant
	// and guesses what is the other's; 200 shows nothing of the other.
	guess int
	shows bool // to its owner, something with the mark
}

const guessed = "/v1/instances/order/{key}"

// doors has every route of the server; a new one has to say here what it lets
// another tenant see.
var doors = map[string]door{
	"GET /live": {about: ofEveryone, path: "/live"}, "GET /ready": {about: ofEveryone, path: "/ready"},
	"GET /health": {about: ofEveryone, path: "/health"}, "GET /metrics": {about: ofEveryone, path: "/metrics"},

	"/":                 {access.Viewer, ofNobody, "/nothing/{key}", "", 404, false},
	"GET /{$}":          {access.Viewer, ofNobody, "/", "", 200, false},
	"GET /docs":         {access.Viewer, ofNobody, "/docs", "", 200, false},
	"GET /openapi.json": {access.Viewer, ofNobody, "/openapi.json", "", 200, false}, "GET /openapi.yaml": {access.Viewer, ofNobody, "/openapi.yaml", "", 200, false},
	"GET /openapi-3.0.json": {access.Viewer, ofNobody, "/openapi-3.0.json", "", 200, false}, "GET /openapi-3.0.yaml": {access.Viewer, ofNobody, "/openapi-3.0.yaml", "", 200, false},
	"GET /schemas/{schema}": {access.Viewer, ofNobody, "/schemas/Info.json", "", 200, false},

	"GET /info":           {access.Viewer, ofTheProcess, "/info", "", 0, false},
	"POST /admin/drain":   {access.Admin, ofTheProcess, "/admin/drain", "", 0, false},
	"POST /admin/reload":  {access.Admin, ofTheProcess, "/admin/reload", "", 0, false},
	"POST /admin/gc":      {access.Admin, ofTheProcess, "/admin/gc?trust_clock=true", "", 0, false},
	"POST /admin/backup":  {access.Admin, ofTheProcess, "/admin/backup", "", 0, false},
	"POST /admin/doctor":  {access.Admin, ofTheProcess, "/admin/doctor", "", 0, false},
	"POST /admin/compact": {access.Admin, ofTheProcess, "/admin/compact", "", 0, false},

	"GET /cluster":                {access.Viewer, ofTheProcess, "/cluster", "", 0, false},
	"POST /cluster/move":          {access.Admin, ofTheProcess, "/cluster/move", "", 0, false},
	"POST /cluster/forget/{node}": {access.Admin, ofTheProcess, "/cluster/forget/n9", "", 0, false},
	"POST /cluster/finalize":      {access.Admin, ofTheProcess, "/cluster/finalize", "", 0, false},
	"GET /cluster/manifests":      {access.Admin, ofTheProcess, "/cluster/manifests", "", 0, false},
	"POST /cluster/manifests":     {access.Admin, ofTheProcess, "/cluster/manifests", `{"files":[{"name":"a.yaml","content":"eA=="}]}`, 0, false},

	"GET /admin/mock":           {access.Viewer, ofTheProcess, "/admin/mock", "", 0, false},
	"POST /admin/mock/{effect}": {access.Admin, ofTheProcess, "/admin/mock/ship", `{"answer":"ok"}`, 0, false},

	"POST /admin/replay": {access.Admin, ofTheTenant, "/admin/replay", `{"saga":"order","key":"{key}"}`, 200, false},
	"GET /admin/replay":  {access.Viewer, ofTheTenant, "/admin/replay?id={replay}", "", 404, true},
	"POST /v1/backup":    {access.Admin, ofTheTenant, "/v1/backup", "", 200, true},

	"GET /v1/instances":                 {access.Viewer, ofTheTenant, "/v1/instances?after={cursor}", "", 200, false},
	"GET " + instanceOf:                 {access.Viewer, ofTheTenant, guessed, "", 404, true},
	"GET " + instanceOf + "/history":    {access.Viewer, ofTheTenant, guessed + "/history", "", 404, true},
	"GET /v1/deadletters":               {access.Viewer, ofTheTenant, "/v1/deadletters?after={place}", "", 200, false},
	"GET /v1/deadletters/{id}":          {access.Viewer, ofTheTenant, "/v1/deadletters/{dead}", "", 404, true},
	"GET /v1/held":                      {access.Viewer, ofTheTenant, "/v1/held", "", 200, true},
	"GET /v1/parked":                    {access.Viewer, ofTheTenant, "/v1/parked", "", 200, true},
	"GET /v1/audit":                     {access.Viewer, ofTheTenant, "/v1/audit", "", 200, true},
	"POST /v1/deadletters/redrive":      {access.Operator, ofTheTenant, "/v1/deadletters/redrive?after={portion}", "", 200, false},
	"POST /v1/deadletters/drop":         {access.Operator, ofTheTenant, "/v1/deadletters/drop?after={portion}", "", 200, false},
	"POST /v1/deadletters/skip":         {access.Operator, ofTheTenant, "/v1/deadletters/skip?after={portion}", "", 200, false},
	"POST /v1/deadletters/{id}/redrive": {access.Operator, ofTheTenant, "/v1/deadletters/{dead}/redrive", `{"data":{"k":"{key}"}}`, 404, false},
	"POST /v1/deadletters/{id}/drop":    {access.Operator, ofTheTenant, "/v1/deadletters/{dead}/drop", "", 404, false},
	"POST /v1/deadletters/{id}/skip":    {access.Operator, ofTheTenant, "/v1/deadletters/{dead}/skip", "", 404, false},
	"POST /v1/events": {access.Operator, ofTheTenant, "/v1/events",
		`{"event_id":"{mark}-e1","aggregate_type":"Order","aggregate_id":"{key}","event_type":"Break","payload":{"k":"{held}","tenant_id":"{tenant}"}}`, 200, false},
	"OPTIONS /v1/events":                    {access.Operator, ofTheTenant, "/v1/events", "", 200, false},
	"POST " + instanceOf + "/signal/{name}": {access.Operator, ofTheTenant, guessed + "/signal/enough", "{}", 404, false},
	"POST " + instanceOf + "/answer/{ask}":  {access.Operator, ofTheTenant, guessed + "/answer/go_on", `{"choice":"on"}`, 404, false},
	"POST " + instanceOf + "/cancel":        {access.Operator, ofTheTenant, guessed + "/cancel", "", 404, false},
	"POST " + instanceOf + "/terminate":     {access.Operator, ofTheTenant, guessed + "/terminate", "", 404, false},
	"POST " + instanceOf + "/retry/{step}":  {access.Operator, ofTheTenant, guessed + "/retry/go_on", "", 404, false},
	"POST " + instanceOf + "/skip/{step}":   {access.Operator, ofTheTenant, guessed + "/skip/go_on", "", 404, false},
}

const instanceOf = "/v1/instances/{saga}/{key}"

func TestEveryRouteIsInTheTableOfTwoTenants(t *testing.T) {
	for _, route := range server.Routes() {
		if _, ok := doors[route]; !ok {
			t.Errorf("%s is not in the table: say what it answers whoever asks it for what is another tenant's", route)
		}
	}
	for route := range doors {
		if !slices.Contains(server.Routes(), route) {
			t.Errorf("the table speaks of %s, which is not there", route)
		}
	}
}

// state is all that a tenant can read of itself.
func (s *shared) state(tenant string) string {
	s.t.Helper()
	var all strings.Builder
	for _, path := range []string{"/v1/instances?limit=1000", "/v1/deadletters", "/v1/held", "/v1/parked", "/v1/audit", "/admin/replay",
		"/v1/instances/order/" + of(tenant, "asked"), "/v1/instances/order/" + of(tenant, "held"), "/v1/instances/order/" + of(tenant, "asked") + "/history"} {
		code, body := s.ask(tenant+"-admin", "GET", path, "", tenantIs(tenant))
		if code != 200 {
			s.t.Fatalf("%s: %d %s", path, code, body)
		}
		body, _, _ = strings.Cut(body, "\n") // the answer's headers have the time
		fmt.Fprintf(&all, "%s\n%s\n", path, body)
	}
	return all.String()
}

// breaks has an instance held: who was an attacker before has skipped the letters
// that held its own.
func (s *shared) breaks(tenant string) {
	s.t.Helper()
	conn, _ := client(s.t, s.nats)
	text := fmt.Sprintf(`{"event_id":%q,"event_type":"Break","payload":{"k":%q}}`, of(tenant, "e8"), of(tenant, "held"))
	if err := conn.Publish("tenant."+tenant+".aggregate.Order."+of(tenant, "held"), []byte(text)); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, tenant+" is held", func() bool {
		_, body := s.ask(tenant+"-admin", "GET", "/v1/instances/order/"+of(tenant, "held"), "", tenantIs(tenant))
		return strings.Contains(body, of(tenant, "e8")) && strings.Contains(body, `"held":"`)
	})
}

// guesses fills in what is the victim's, which the attacker has come to know.
func (s *shared) guesses(victim string) *strings.Replacer {
	s.t.Helper()
	admin := victim + "-admin"
	var letters server.DeadLetterList
	var replays server.ReplayList
	var page server.InstanceList
	for path, into := range map[string]any{"/v1/deadletters?reason=poison": &letters, "/admin/replay": &replays, "/v1/instances?limit=1": &page} {
		_, body := s.ask(admin, "GET", path, "", tenantIs(victim))
		if err := json.NewDecoder(strings.NewReader(body)).Decode(into); err != nil {
			s.t.Fatal(err)
		}
	}
	if len(letters.DeadLetters) == 0 || len(replays.Replays) == 0 || page.Next == "" {
		s.t.Fatalf("%s has %d letters, %d replays, cursor %q", victim, len(letters.DeadLetters), len(replays.Replays), page.Next)
	}
	place := base64.RawURLEncoding.EncodeToString(make([]byte, 12)) // before all of them
	portion := base64.RawURLEncoding.EncodeToString([]byte(`{"until":"2999-01-01T00:00:00Z"}`))
	return strings.NewReplacer("{portion}", portion, "{key}", of(victim, "asked"), "{held}", of(victim, "held"), "{dead}", letters.DeadLetters[0].ID,
		"{replay}", replays.Replays[len(replays.Replays)-1].ID, "{cursor}", page.Next, "{place}", place+"AAE", "{mark}", marks[victim], "{tenant}", victim)
}

func TestTwoTenantsAtEveryEntry(t *testing.T) {
	s := newShared(t)
	for _, victim := range []string{"acme", "beta"} {
		s.breaks(victim)
		known, before := s.guesses(victim), s.state(victim)
		if traceOf(victim, before) == "" {
			t.Fatal("the victim has nothing that would show")
		}
		for _, attacker := range []string{"acme", "beta", "acme2"} {
			if attacker == victim {
				continue
			}
			for route, e := range doors {
				s.attack(route, e, known, attacker, victim)
			}
		}
		s.forge(victim)
		if after := s.state(victim); after != before {
			t.Errorf("what is %s's has changed:\n%s\nwas\n%s", victim, after, before)
		}
		for route, e := range doors { // what the attackers did not see is there to be seen
			if method, path := e.request(route, known); e.shows {
				if code, body := s.ask(victim+"-"+string(e.needs), method, path, "", tenantIs(victim)); code != 200 || traceOf(victim, body) == "" {
					t.Errorf("%s shows its owner nothing: %d %.300s", route, code, body)
				}
			}
		}
	}
	if code := s.terminate(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.err)
	}
}

func (e door) request(route string, known *strings.Replacer) (method, path string) {
	method, _, ok := strings.Cut(route, " ")
	if !ok {
		method = "GET"
	}
	return method, known.Replace(e.path)
}

// saidBefore takes out what attackers say of their victims: a route may say it
// back, and their own audit, letters and backup have it.
var saidBefore = func() *strings.Replacer {
	var words []string
	for tenant := range marks {
		for _, what := range []string{"asked", "held", "e1"} {
			words = append(words, of(tenant, what), "")
		}
	}
	return strings.NewReplacer(words...)
}()

// attack makes one route's call as each role of one tenant, for what is another's.
func (s *shared) attack(route string, e door, known *strings.Replacer, attacker, victim string) {
	s.t.Helper()
	method, path := e.request(route, known)
	body := known.Replace(e.body)
	try := func(who string, want int, headers ...string) {
		s.t.Helper()
		// A fixed id, so that one tenant's message cannot pass for another's.
		headers = append(headers, "x-edda-why: test", "idempotency-key: "+of(victim, "e1"))
		code, answer := s.ask(who, method, path, body, headers...)
		if code != want {
			s.t.Errorf("%s as %q with %q: %d, want %d: %.300s", route, who, headers, code, want, answer)
		}
		trace := traceOf(victim, answer)
		if trace != "" { // what the attackers themselves have said of it is no news
			trace = traceOf(victim, saidBefore.Replace(answer))
		}
		if trace != "" {
			at := strings.Index(answer, trace)
			s.t.Errorf("%s as %q with %q shows %s: %.500s", route, who, headers, trace, answer[max(0, at-200):])
		}
	}
	if e.about == ofEveryone {
		try("", 200, tenantIs(victim))
		if _, answer := s.ask("", method, path, ""); strings.Contains(answer, attacker) || strings.Contains(answer, victim) {
			s.t.Errorf("%s names a tenant to everyone: %s", route, answer)
		}
		return
	}
	try("", 401, tenantIs(victim))
	s.tokens["forged"] = "edda_forged"
	try("forged", 401, tenantIs(victim))
	for _, role := range access.Roles() {
		who := attacker + "-" + string(role)
		switch {
		case e.about == ofNobody:
			try(who, e.guess, tenantIs(victim))
		case e.about == ofTheProcess || !role.Includes(e.needs):
			try(who, 403, tenantIs(victim))
			try(who, 403, tenantIs(attacker))
			try(who, 403)
		default:
			try(who, 403, tenantIs(victim))
			try(who, 403, tenantIs(strings.ToUpper(victim)))
			try(who, 403, tenantIs("*"))
			try(who, 400, tenantIs(attacker), tenantIs(victim))
			try(who, 422)
			try(who, e.guess, tenantIs(attacker))
		}
	}
	// A role too low for the act, of the tenant itself.
	for _, role := range access.Roles() {
		if e.about == ofTheTenant && !role.Includes(e.needs) {
			if code, answer := s.ask(victim+"-"+string(role), method, path, body, tenantIs(victim), "x-edda-why: test"); code != 403 {
				s.t.Errorf("%s as %s of its own tenant: %d %.200s", route, role, code, answer)
			}
		}
		if who := "all-" + string(role); e.about == ofTheProcess && !role.Includes(e.needs) {
			if code, answer := s.ask(who, method, path, body); code != 403 {
				s.t.Errorf("%s as %s: %d %.200s", route, who, code, answer)
			}
		}
	}
}

// forge publishes on another tenant's subjects what speaks of the victim in body,
// header, id and metadata: the subject has the say.
func (s *shared) forge(victim string) {
	s.t.Helper()
	conn, _ := client(s.t, s.nats)
	for i, text := range []string{
		`{"event_id":"forged-{n}","tenant_id":"{tenant}","event_type":"Break","payload":{"k":"{key}"}}`,
		`{"event_id":"forged-{n}","event_type":"Break","payload":{"k":"{key}","tenant_id":"{tenant}"},"metadata":{"tenant_id":"{tenant}"}}`,
		`{"specversion":"1.0","id":"forged-{n}","source":"s","type":"Break","tenantid":"{tenant}","data":{"k":"{key}"}}`,
		`{"signal_id":"forged-{n}","tenant_id":"{tenant}","name":"enough"}`,
		`{"signal_id":"forged-{n}","name":"enough"}`,
	} {
		kind := "aggregate.Order."
		if strings.Contains(text, "signal_id") {
			kind = "workflow.order."
		}
		msg := nats.NewMsg("tenant.other." + kind + of(victim, "asked"))
		msg.Data = []byte(strings.NewReplacer("{n}", fmt.Sprint(victim, i), "{tenant}", victim, "{key}", of(victim, "asked")).Replace(text))
		msg.Header.Set("x-tenant-id", victim)
		msg.Header.Set("ce-tenantid", victim)
		if err := conn.PublishMsg(msg); err != nil {
			s.t.Fatal(err)
		}
	}
	// Behind them, so that they were applied.
	if err := conn.Publish("tenant.other.aggregate.Order.last"+victim, []byte(`{"event_id":"last`+victim+`","event_type":"Begin","payload":{"k":"last`+victim+`"}}`)); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "the forgeries were applied", func() bool {
		_, body := s.ask("all-viewer", "GET", "/v1/instances", "", tenantIs("other"))
		return strings.Contains(body, "last"+victim)
	})
	until(s.t, "the forged signal is nobody's", func() bool {
		_, body := s.ask("all-viewer", "GET", "/v1/deadletters?reason=no-instance", "", tenantIs("other"))
		return strings.Contains(body, "forged-"+victim+"4")
	})
}
