package coordinator

import (
	"encoding/json"
	"slices"
	"testing"

	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// documented lists the methods of the documents. Edda adds the lists and deletes.
func documented() []string {
	return []string{
		"actor.create", "actor.load", "actor.list", "actor.delete", "context.create", "context.load", "context.list", "context.delete",
		"runner.create", "runner.load", "runner.list", "runner.delete", "job.create", "job.load", "job.list", "job.update", "job.prerequisite_met", "job.delete",
		"flow.create", "flow.load", "flow.list", "flow.delete", "flow.dag", "flow.start", "flow.cancel", "flow.prerequisite_met",
		"message.create", "message.load", "message.list", "message.delete",
	}
}

// TestEveryMethodIsInTheDocument reads rpc.discover as a client does.
func TestEveryMethodIsInTheDocument(t *testing.T) {
	w := newWorld(t, Options{})
	var d struct {
		OpenRPC string
		Methods []struct {
			Name, Summary string
			Params        []struct {
				Name   string
				Schema struct {
					Type       string
					Properties map[string]struct {
						Type       string
						Maximum    json.Number
						Properties map[string]any
					}
					Required []string
				}
			}
			Result struct {
				Schema struct {
					Type       string
					Properties map[string]any
				}
			}
			Errors []struct{ Code int }
		}
	}
	w.call("rpc.discover", nil, &d)
	var found []string
	for _, m := range d.Methods {
		found = append(found, m.Name)
		if m.Summary == "" || len(m.Params) != 1 || m.Params[0].Name != "params" || m.Params[0].Schema.Type != "object" || m.Result.Schema.Type == "" {
			t.Errorf("%s is described as %+v", m.Name, m)
			continue
		}
		if m.Result.Schema.Type == "object" && len(m.Result.Schema.Properties) == 0 {
			t.Errorf("%s: its result has no fields", m.Name)
		}
		for _, code := range []int{jsonrpc.InvalidParams, jsonrpc.PermissionDenied, jsonrpc.StorageError} {
			if !slices.ContainsFunc(m.Errors, func(e struct{ Code int }) bool { return e.Code == code }) {
				t.Errorf("%s: error %d is not described", m.Name, code)
			}
		}
		p := m.Params[0].Schema.Properties
		if p["actor_id"].Maximum != "4294967295" {
			t.Errorf("%s: actor_id is %+v", m.Name, p["actor_id"])
		}
		if s := m.Params[0].Schema; m.Name == "job.create" && (!slices.Equal(s.Required, []string{"context_id"}) || p["job"].Properties["script_type"] == nil) {
			t.Errorf("job.create takes %+v", s)
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(documented())); !slices.Equal(found, want) {
		t.Errorf("described are %v, want %v", found, want)
	}
}

// Generators of clients look for both.
func TestTheDocumentHasNeitherServersNorComponents(t *testing.T) {
	w := newWorld(t, Options{HTTPAddr: "127.0.0.1:0", WSAddr: "127.0.0.1:0"})
	testkit.Must(t, w.Listen())
	t.Cleanup(func() {
		_ = w.Coordinator.http.Close()
		_ = w.Coordinator.ws.Close()
	})
	var d struct {
		Servers    []struct{ Name, URL string }
		Components struct {
			Schemas map[string]struct {
				Type       string
				Properties map[string]any
			}
			Errors map[string]struct {
				Code    int
				Message string
			}
		}
	}
	w.call("rpc.discover", nil, &d)
	if len(d.Servers) != 2 || d.Servers[0].URL != "http://"+w.HTTPAddr() || d.Servers[1].URL != "ws://"+w.WSAddr() {
		t.Errorf("servers are %v", d.Servers)
	}
	for name, field := range map[string]string{"Actor": "pubkey", "Context": "admins", "Runner": "topic", "Job": "script_type", "Flow": "jobs", "Message": "message_type"} {
		if s := d.Components.Schemas[name]; s.Type != "object" || s.Properties[field] == nil {
			t.Errorf("%s is %+v", name, s)
		}
	}
	if d.Components.Errors["DAGError"].Code != jsonrpc.DagError || d.Components.Errors["NotFound"].Code != jsonrpc.NotFound {
		t.Errorf("errors are %v", d.Components.Errors)
	}
}

// TestTheSessionOfTheDocsRuns runs the shell session of docs/HERO.md unchanged.
func TestTheSessionOfTheDocsRuns(t *testing.T) {
	page, err := os.ReadFile("../../docs/HERO.md")
	testkit.Must(t, err)
	_, rest, found := strings.Cut(string(page), "### A session with curl")
	_, rest, opened := strings.Cut(rest, "```sh session\n")
	script, _, closed := strings.Cut(rest, "```")
	if !found || !opened || !closed {
		t.Fatal("docs/HERO.md has no session")
	}
	w := newWorld(t, Options{})
	c := running(t, w, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-eu", "-c", script)
	shell.Env = append(os.Environ(), "COORDINATOR_URL=http://"+c.HTTPAddr())
	out, err := shell.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != strings.Count(script, "\ncall ") || strings.Contains(string(out), `"error":{`) {
		t.Fatalf("%v\n%s", err, out)
	}
	last := lines[len(lines)-1]
	for _, want := range []string{`"status":"finished"`, `"result":{"2001.sum":"40","2002.sum":"42"}`} {
		if !strings.Contains(last, want) {
			t.Errorf("the session ends with %s, want %s", last, want)
		}
	}
}
