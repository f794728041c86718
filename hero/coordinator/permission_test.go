package coordinator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"edda/hero/jsonrpc"
	"edda/internal/testkit"
)

// The rows of the table of rights in docs/HERO.md.
const (
	admins    = "admins"
	executors = "executors, admins"
	readers   = "readers, executors, admins"
	anybody   = "anybody"
	itself    = "the actor itself"
	creator   = "admins, in their own name"
	shown     = "anybody, who sees what it may read"
)

// permission is one row: a method, the roles that may call it, and a call about objects that
// prepare made, whose ids begin at id.
type permission struct {
	method  string
	who     string
	prepare func(w *world, id uint32)
	params  func(id, caller uint32) dict2
}

func permissions() []permission {
	in := func(id, _ uint32) dict2 { return dict2{"context_id": 7, "id": id} }
	of := func(id, _ uint32) dict2 { return dict2{"context_id": 7, "caller_id": admin, "id": id} }
	list := func(uint32, uint32) dict2 { return dict2{"context_id": 7} }
	none := func(*world, uint32) {}
	aJob := func(w *world, id uint32) { w.job(id) }
	aRunner := func(w *world, id uint32) {
		w.call("runner.create", dict2{"context_id": 7, "runner": dict2{"id": id, "local": true}}, nil)
	}
	aFlow := func(w *world, id uint32) { w.job(id); w.flow(id, id) }
	started := func(w *world, id uint32) {
		w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": admin, "script": "x", "script_type": "v", "prerequisites": []string{"paid"}}}, nil)
		w.flow(id, id)
		w.call("flow.start", dict2{"context_id": 7, "id": id}, nil)
	}
	aMessage := func(w *world, id uint32) {
		w.call("message.create", dict2{"context_id": 7, "message": dict2{"id": id, "caller_id": admin, "message_type": "chat", "message": "hi"}}, nil)
	}
	aContext := func(w *world, id uint32) {
		w.call("context.create", dict2{"context": dict2{"id": contextOf(id), "admins": []int{admin, other}, "readers": []int{reader}, "executors": []int{executor}}}, nil)
	}
	return []permission{
		{"actor.create", itself, none, func(id, _ uint32) dict2 { return dict2{"actor": dict2{"id": stranger, "pubkey": "ab"}} }},
		{"actor.load", anybody, none, func(uint32, uint32) dict2 { return dict2{"id": admin} }},
		{"actor.list", anybody, none, func(uint32, uint32) dict2 { return dict2{} }},
		{"actor.delete", itself, none, func(uint32, uint32) dict2 { return dict2{"id": stranger} }},
		{"context.create", admins, aContext, func(id, _ uint32) dict2 {
			return dict2{"context": dict2{"id": contextOf(id), "admins": []int{admin, other}, "readers": []int{reader}, "executors": []int{executor}}}
		}},
		{"context.load", readers, none, func(uint32, uint32) dict2 { return dict2{"id": 7} }},
		{"context.list", shown, none, func(uint32, uint32) dict2 { return dict2{} }},
		{"context.delete", admins, aContext, func(id, _ uint32) dict2 { return dict2{"id": contextOf(id)} }},
		{"runner.create", admins, none, func(id, _ uint32) dict2 { return dict2{"context_id": 7, "runner": dict2{"id": id, "local": true}} }},
		{"runner.load", readers, aRunner, in},
		{"runner.list", readers, none, list},
		{"runner.delete", admins, aRunner, in},
		{"job.create", creator, none, func(id, caller uint32) dict2 {
			return dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": caller, "script": "x", "script_type": "v"}}
		}},
		{"job.load", readers, aJob, of},
		{"job.list", readers, none, list},
		{"job.update", executors, aJob, func(id, _ uint32) dict2 {
			return dict2{"context_id": 7, "caller_id": admin, "id": id, "status": "started"}
		}},
		{"job.prerequisite_met", executors, func(w *world, id uint32) {
			w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": admin, "script": "x", "script_type": "v", "prerequisites": []string{"paid"}}}, nil)
		}, func(id, _ uint32) dict2 {
			return dict2{"context_id": 7, "caller_id": admin, "id": id, "name": "paid"}
		}},
		{"job.delete", admins, aJob, of},
		{"flow.create", creator, none, func(id, caller uint32) dict2 {
			return dict2{"context_id": 7, "flow": dict2{"id": id, "caller_id": caller, "jobs": []int{1}}}
		}},
		{"flow.load", readers, aFlow, in},
		{"flow.list", readers, none, list},
		{"flow.dag", readers, aFlow, in},
		{"flow.start", admins, aFlow, in},
		{"flow.cancel", admins, started, in},
		{"flow.prerequisite_met", executors, started, func(id, _ uint32) dict2 { return dict2{"context_id": 7, "id": id, "name": "paid"} }},
		{"flow.delete", admins, aFlow, in},
		{"message.create", creator, none, func(id, caller uint32) dict2 {
			return dict2{"context_id": 7, "message": dict2{"id": id, "caller_id": caller, "message_type": "mail", "message": "hi"}}
		}},
		{"message.load", readers, aMessage, of},
		{"message.list", readers, none, list},
		{"message.delete", admins, aMessage, of},
	}
}

// contextOf returns the context of a row, one of the 15 in Redis.
func contextOf(id uint32) uint32 { return 8 + id%7 }

type caller func(ctx context.Context, actor uint32, method string, params dict2) error

// tokenOf returns an actor's token.
func tokenOf(actor uint32) string { return fmt.Sprintf("token-of-the-actor-%d", actor) }

// withTokens makes a coordinator with tokens over the same Redis and flows. It has every
// second token as a hash.
func (w *world) withTokens() caller {
	given, hashes := map[string]uint32{}, map[[sha256.Size]byte]uint32{}
	for actor := uint32(admin); actor <= stranger; actor++ {
		if actor%2 == 0 {
			given[tokenOf(actor)] = actor
		} else {
			hashes[sha256.Sum256([]byte(tokenOf(actor)))] = actor
		}
	}
	c, err := New(w.db, w.flows, Options{Tokens: given, Hashes: hashes})
	testkit.Must(w.t, err)
	url := serveHTTP(w.t, c)
	return func(ctx context.Context, actor uint32, method string, params dict2) error {
		return jsonrpc.NewClient(url, jsonrpc.ClientOptions{Token: tokenOf(actor)}).Call(ctx, method, params, nil)
	}
}

// TestTheTableOfRightsIsWritten compares the table in docs/HERO.md with the code.
func TestTheTableOfRightsIsWritten(t *testing.T) {
	page, err := os.ReadFile("../../docs/HERO.md")
	testkit.Must(t, err)
	var listed []string
	for _, p := range permissions() {
		listed = append(listed, p.method)
		if row := fmt.Sprintf("| `%s` | %s |", p.method, p.who); !strings.Contains(string(page), row) {
			t.Errorf("docs/HERO.md has no row %s", row)
		}
	}
	w := newWorld(t, Options{})
	for _, name := range names(w.methods()) {
		if !slices.Contains(listed, name) {
			t.Errorf("%s is not in the table of rights", name)
		}
	}
}

func TestOnlyItsCreatorChangesAFlow(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.flow(1, 10)
	before := w.dump()
	d := w.refused(jsonrpc.AlreadyExists, "flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": other, "jobs": []int{11}}})
	if d.Key != "flow:1" || !strings.Contains(d.Why, "actor 1") || d.Do == "" {
		t.Errorf("told as %+v", d)
	}
	w.refused(jsonrpc.AlreadyExists, "flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": other, "jobs": []int{10}}})
	if w.dump() != before {
		t.Error("the flow of another actor was changed")
	}
}

func TestACallerMayNotActAsAnother(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	call := w.withTokens()
	before := w.dump()
	for _, c := range []struct {
		method string
		params dict2
	}{
		{"job.create", dict2{"context_id": 7, "job": dict2{"id": 1, "caller_id": other, "script": "x", "script_type": "v"}}},
		{"flow.create", dict2{"context_id": 7, "flow": dict2{"id": 1, "caller_id": other, "jobs": []int{1}}}},
		{"message.create", dict2{"context_id": 7, "message": dict2{"id": 1, "caller_id": other, "message_type": "chat"}}},
		{"message.create", dict2{"context_id": 7, "message": dict2{"id": 1, "message_type": "job", "job": []dict2{{"id": 1, "caller_id": other, "script_type": "v"}}}}},
		{"actor.create", dict2{"actor": dict2{"id": 99}}},
		{"flow.list", dict2{"context_id": 7, "actor_id": other}},
		{"actor.delete", dict2{"id": other, "caller_id": other}},
	} {
		var e *jsonrpc.Error
		if err := call(t.Context(), admin, c.method, c.params); !errors.As(err, &e) || e.Code != jsonrpc.PermissionDenied {
			t.Errorf("%s %v: %v", c.method, c.params, err)
		}
	}
	if w.dump() != before {
		t.Error("Redis was changed")
	}
}

func TestWithoutATokenNothingIsDone(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, Options{}).settle()
	c, err := New(w.db, w.flows, Options{Tokens: map[string]uint32{tokenOf(admin): admin}, Metrics: reg})
	testkit.Must(t, err)
	url := serveHTTP(t, c)
	for _, token := range []string{"", "token-of-the-actor-2", tokenOf(admin) + "x"} {
		err := jsonrpc.NewClient(url, jsonrpc.ClientOptions{Token: token}).Call(t.Context(), "actor.list", nil, nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != jsonrpc.PermissionDenied || detailOf(t, e).Do == "" || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if n := counted1(t, reg, "edda_hero_denied_total", "unknown"); n != 3 { // refused before the method was read
		t.Errorf("denied calls counted: %v", n)
	}
	if _, err := New(w.db, w.flows, Options{Tokens: map[string]uint32{"short": 1}}); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a short token: %v", err)
	}
}

func TestTheFirstContextIsMadeByAnActorThatExists(t *testing.T) {
	w := newWorld(t, Options{})
	made := dict2{"context": dict2{"id": 7, "admins": []int{1}}}
	if d := w.refused(jsonrpc.NotFound, "context.create", made); d.Key != "actor:1" || !strings.Contains(d.Do, "actor.create") {
		t.Errorf("by an actor that does not exist: %+v", d)
	}
	w.call("actor.create", dict2{"id": 1, "pubkey": "ab"}, nil)
	w.call("actor.create", dict2{"id": 2, "pubkey": "cd"}, nil)
	d := w.refused(jsonrpc.PermissionDenied, "context.create", dict2{"context": dict2{"id": 7, "admins": []int{1}}, "caller_id": 2})
	if !strings.Contains(d.Why, "actor 2 is not among the admins") {
		t.Errorf("by one that is no admin: %+v", d)
	}
	w.call("context.create", made, nil)
	w.refused(jsonrpc.PermissionDenied, "context.create", dict2{"context": dict2{"id": 7, "admins": []int{2}}})
	w.call("context.create", dict2{"context": dict2{"id": 7, "admins": []int{2}}, "caller_id": 1}, nil) // handed over
	w.refused(jsonrpc.PermissionDenied, "context.create", made)
}
