package coordinator

import (
	"strings"
	"testing"

	"edda/hero"
	"edda/internal/testkit"
)

// A list shows an unreadable hash with its ids and the reason, and hides no other object.
func TestOneUnreadableHashBlocksNoList(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	c, err := w.db.Client(7)
	testkit.Must(t, err)
	global, err := w.db.Client(0)
	testkit.Must(t, err)
	w.job(4)
	w.job(6)
	c.HSet(t.Context(), "job:1:5", "id", "5", "caller_id", "1", "timeout", "soon")
	c.HSet(t.Context(), "flow:5", "jobs_done", "12")
	c.HSet(t.Context(), "message:1:5", "id", "5", "caller_id", "1", "job", "[7]")
	c.HSet(t.Context(), "runner:5", "id", "6")
	global.HSet(t.Context(), "actor:5", "id", "6")
	var jobs []hero.Job
	w.call("job.list", dict2{"context_id": 7}, &jobs)
	if len(jobs) != 3 || jobs[0].ID != 4 || jobs[2].ID != 6 || jobs[0].Unreadable != "" || jobs[1].ID != 5 || jobs[1].CallerID != 1 || !strings.Contains(jobs[1].Unreadable, "timeout") {
		t.Errorf("%+v", jobs)
	}
	for method, why := range map[string]string{"flow.list": "jobs_done", "message.list": "job", "runner.list": "id", "actor.list": "id"} {
		var got []struct {
			ID         uint32
			Unreadable string
		}
		params := dict2{"context_id": 7}
		w.call(method, params, &got)
		found := false
		for _, o := range got {
			found = found || o.ID == 5 && o.Unreadable != ""
		}
		if !found {
			t.Errorf("%s (%s): %+v", method, why, got)
		}
	}
	// An unreadable context is listed for a caller with all rights, and for no caller whose
	// right depends on its lists.
	eight, err := w.db.Client(8)
	testkit.Must(t, err)
	eight.HSet(t.Context(), "context:8", "id", "8", "admins", "everybody")
	for caller, want := range map[uint32]int{0: 2, 1: 1} {
		var contexts []hero.Context
		w.call("context.list", dict2{"actor_id": caller}, &contexts)
		if len(contexts) != want || contexts[0].ID != 7 || want == 2 && !strings.Contains(contexts[1].Unreadable, "admins") {
			t.Errorf("%d: %+v", caller, contexts)
		}
	}
}

// The server sets the times, and ignores a client's created_at.
func TestACreateKeepsTheClientsCreatedAt(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	for method, params := range map[string]dict2{
		"actor.create":   {"actor": dict2{"id": 77, "pubkey": "ab", "created_at": 5, "updated_at": 6}},
		"runner.create":  {"context_id": 7, "runner": dict2{"id": 20, "local": true, "created_at": 5}},
		"context.create": {"context": dict2{"id": 9, "admins": []int{1}, "created_at": 5}},
	} {
		var got struct {
			Created uint32 `json:"created_at"`
		}
		w.call(method, params, &got)
		first := got.Created
		if w.call(method, params, &got); first < 1_000_000 || got.Created != first {
			t.Errorf("%s: %d, then %d", method, first, got.Created)
		}
	}
}
