//go:build !race

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"edda/hero/jsonrpc"
)

// TestNothingThatIsHugeIsTaken makes each text of the largest calls too long, one at a time.
func TestNothingThatIsHugeIsTaken(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	before := w.dump()
	texts := func(names ...string) []string { return names }
	for _, c := range []struct {
		method, wrapper string
		params          dict2
		texts           []string
	}{
		{"actor.create", "actor", dict2{"id": 9}, texts("pubkey")},
		{"runner.create", "runner", dict2{"id": 9, "local": true}, texts("pubkey", "address", "topic", "secret")},
		{"job.create", "job", dict2{"id": 9, "caller_id": 1, "script_type": "v"}, texts("script", "executor", "script_type", "signatures")},
		{"message.create", "message", dict2{"id": 9, "caller_id": 1, "message_type": "chat"}, texts("message", "topic", "reply_to", "message_type", "message_format_type")},
	} {
		for _, name := range c.texts {
			o := maps.Clone(c.params)
			o[name] = strings.Repeat("x", 1<<20+1)
			d := w.refused(jsonrpc.InvalidParams, c.method, dict2{"context_id": 7, c.wrapper: o})
			if len(d.Why) > 500 {
				t.Errorf("%s %s: the error is %d bytes long", c.method, name, len(d.Why))
			}
		}
	}
	if w.dump() != before {
		t.Error("something huge changed Redis")
	}
}

// TestRightsOfEachRole checks the whole table: every method and actor, with a parameter and
// with a token. A refused call changes nothing.
func TestRightsOfEachRole(t *testing.T) {
	for _, mode := range []string{"actor_id", "token"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t, Options{}).settle()
			call := w.asSaid
			if mode == "token" {
				call = w.withTokens()
			}
			id := uint32(100)
			for _, p := range permissions() {
				for _, actor := range []uint32{stranger, reader, executor, other, admin} {
					id++
					p.prepare(w, id)
					w.permitted(p, id, actor, call)
				}
			}
		})
	}
}

func (w *world) permitted(p permission, id, actor uint32, call caller) {
	w.t.Helper()
	before := w.dump()
	err := call(w.t.Context(), actor, p.method, p.params(id, actor))
	if p.may(actor) {
		if err != nil {
			w.t.Errorf("%s by actor %d, which may: %v", p.method, actor, err)
		}
		return
	}
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != jsonrpc.PermissionDenied {
		w.t.Errorf("%s by actor %d, which may not: %v", p.method, actor, err)
		return
	}
	if d := detailOf(w.t, e); d.Do == "" || !strings.Contains(d.Why, fmt.Sprint("actor ", actor)) {
		w.t.Errorf("%s by actor %d is denied with %+v", p.method, actor, d)
	}
	if w.dump() != before {
		w.t.Errorf("%s by actor %d was denied and changed Redis", p.method, actor)
	}
}

// may reports whether the actor has one of the roles.
func (p permission) may(actor uint32) bool {
	if p.who == anybody || p.who == shown || actor == admin || actor == other {
		return p.who != itself
	}
	switch actor {
	case executor:
		return p.who == executors || p.who == readers
	case reader:
		return p.who == readers
	}
	return p.who == itself
}

func (w *world) asSaid(ctx context.Context, actor uint32, method string, params dict2) error {
	params = maps.Clone(params)
	params["actor_id"] = actor
	return w.http1.Call(ctx, method, params, nil)
}
