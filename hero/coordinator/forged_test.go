package coordinator

import (
	"testing"

	"edda/hero/jsonrpc"
)

func TestAMessageCannotClaimToComeFromElsewhere(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("message.create", dict2{"context_id": 7, "message": dict2{"id": 5, "caller_id": admin, "message_type": "chat", "origin": "8/job:12:2001", "via": "mycelium://x"}}, nil)
	m, err := w.db.Message(t.Context(), 7, admin, 5)
	if err != nil || m.Origin != "" || m.Via != "" {
		t.Fatalf("origin %q, via %q, %v", m.Origin, m.Via, err)
	}
}

func TestAMessageForAContextWhereTheCallerHasNoRight(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	w.call("context.create", dict2{"context": dict2{"id": 8, "admins": []int{other}}}, nil)
	w.call("context.create", dict2{"context": dict2{"id": 9, "admins": []int{other}, "readers": []int{admin}}}, nil)
	to := func(id, context int, kind string) dict2 {
		return dict2{"context_id": 7, "message": dict2{"id": id, "caller_id": admin, "message_type": kind, "target_context": context,
			"job": []dict2{{"id": id, "script": "x", "script_type": "python"}}}}
	}
	w.refused(jsonrpc.PermissionDenied, "message.create", to(1, 8, "chat"))
	w.refused(jsonrpc.PermissionDenied, "message.create", to(2, 9, "job"))
	w.call("message.create", to(3, 9, "chat"), nil)
	w.call("message.create", to(4, 7, "job"), nil)
}
