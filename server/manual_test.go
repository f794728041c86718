package server

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"edda/access"
)

var update = flag.Bool("update", false, "write docs/OPERATING.md anew")

// TestTheManualListsEveryRoute: the table of routes is that of the server's own rights and of its API.
func TestTheManualListsEveryRoute(t *testing.T) {
	f := newFakes()
	s, err := New(Options{Process: f, Store: f, DeadLetters: f, Inbox: f, Maintenance: f, Replays: f, Tenant: "default"})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, route := range Routes() {
		method, path, _ := strings.Cut(route, " ")
		meaning := notInTheAPI[route]
		if item := s.api.OpenAPI().Paths[path]; item != nil && meaning == "" {
			if op := map[string]func() string{
				"GET":  func() string { return item.Get.Summary },
				"POST": func() string { return item.Post.Summary },
			}[method]; op != nil {
				meaning = op()
			}
		}
		if meaning == "" {
			t.Errorf("%s is neither in the API nor explained here", route)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", strings.ReplaceAll(route, "{$}", ""), callerOf(rights()[route]), meaning)
	}
	const file, head = "../docs/OPERATING.md", "\n| route | token | meaning |\n|---|---|---|\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), head)
	listed, after, _ := strings.Cut(rest, "\n\n")
	if !found {
		t.Fatal("the manual has no table of routes")
	}
	if listed += "\n"; listed != table.String() && *update {
		if err := os.WriteFile(file, []byte(before+head+table.String()+"\n"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if listed != table.String() {
		t.Errorf("the table of routes is\n%s\nwant\n%s\nrun go test ./server -run Manual -update", listed, table.String())
	}
}

// notInTheAPI are the routes for people and probes, which the API's description leaves out.
var notInTheAPI = map[string]string{
	"/":                         "every other path: 404, as JSON",
	"GET /{$}":                  "Show the version, addresses and some commands",
	"GET /docs":                 "Show the API as a page",
	"GET /openapi.json":         "Describe the API for programs",
	"GET /openapi.yaml":         "The same as YAML",
	"GET /openapi-3.0.json":     "The same for programs that read OpenAPI 3.0",
	"GET /openapi-3.0.yaml":     "The same as YAML",
	"GET /schemas/{schema}":     "Show the JSON Schema of one object",
	"GET /health":               "Show storage and JetStream; 503 if one is down",
	"GET /live":                 "Tell whether the process makes progress",
	"GET /ready":                "Tell whether the process takes work; else 503",
	"GET /metrics":              "Show the metrics",
	"GET /admin/mock":           "List how the effects of `edda dev --mock` are answered",
	"POST /admin/mock/{effect}": "Say how an effect of `edda dev --mock` is answered",
	"OPTIONS /v1/events":        "Answer the validation request of CloudEvents webhooks",
}

// callerOf says whose token a route takes.
func callerOf(r right) string {
	switch {
	case r.open:
		return "none"
	case r.scope == ofNobody:
		return "any"
	}
	name := map[access.Role]string{access.Viewer: "`viewer`", access.Operator: "`operator`", access.Admin: "`admin`"}[r.role]
	switch {
	case r.widens:
		return name + "; of `*` with `process=true`"
	case r.scope == ofProcess:
		return name + " of `*`"
	}
	return name
}
