package coordinator

import (
	"testing"

	"edda/hero"
	"edda/hero/jsonrpc"
)

// A job's priority is kept, however it is written; one that is none is refused by name.
func TestAPriorityOfAJobIsDropped(t *testing.T) {
	w := newWorld(t, Options{}).settle()
	create := func(id int, priority any) (j hero.Job) {
		w.call("job.create", dict2{"context_id": 7, "job": dict2{"id": id, "caller_id": admin, "script": "x", "script_type": "python", "priority": priority}}, &j)
		return j
	}
	for id, priority := range map[int]string{101: "high", 102: "High", 103: "normal", 104: ""} {
		want := hero.PriorityHigh
		if id > 102 {
			want = hero.PriorityNormal
		}
		if j := create(id, priority); j.Priority != want {
			t.Errorf("%q is %q", priority, j.Priority)
		}
		if j, err := w.db.Job(t.Context(), 7, admin, uint32(id)); err != nil || j.Priority != want {
			t.Errorf("%q is kept as %q, %v", priority, j.Priority, err)
		}
	}
	for _, priority := range []any{"urgent", 5} {
		d := w.refused(jsonrpc.InvalidParams, "job.create", dict2{"context_id": 7, "job": dict2{"id": 105, "caller_id": admin, "script": "x", "script_type": "python", "priority": priority}})
		if d.Field != "job.priority" {
			t.Errorf("%v: %+v", priority, d)
		}
	}
}

// The documents write mycelium://<ip> without the brackets of a URL.
func TestAnAddressOfMyceliumIsASupervisorsURL(t *testing.T) {
	for url, good := range map[string]bool{
		"mycelium://5f3:41a0::1": true, "mycelium://5f3:41a0::1?topic=supervisor.rpc": true, "mycelium://5f3:41a0::1/?topic=x": true,
		"mycelium://[5f3:41a0::1]?topic=x": true, "mycelium://abcd": true, "mycelium://": false, "mycelium://?topic=x": false, "http://5f3::1": false,
	} {
		if err := CheckURL("supervisor_url", url); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}
