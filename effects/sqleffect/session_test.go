package sqleffect

import "testing"

// TestWhatACommandSetsForItsSessionIsForgotten before another one, perhaps
// another tenant's, has the connection.
func TestWhatACommandSetsForItsSessionIsForgotten(t *testing.T) {
	s := on(t, "postgres")
	p := local(t)
	backend := func(key string) string {
		return encoded(t, s.must(t, p, 200, key, map[string]any{"query": "select pg_backend_pid() as pid", "readonly": true})["rows"])
	}
	before := backend("c1")
	s.must(t, p, 200, "c2", map[string]any{"query": "select set_config('app.tenant', 'acme', false) as a, set_config('lock_timeout', '777s', false) as b, pg_advisory_lock(7) is null as c"})
	got := encoded(t, s.must(t, p, 200, "c3", map[string]any{"readonly": true,
		"query": "select current_setting('app.tenant', true) as tenant, current_setting('lock_timeout') <> '777s' as own, (select count(*) from pg_locks where locktype = 'advisory') as locks"})["rows"])
	if want := `[{"locks":0,"own":true,"tenant":""}]`; got != want {
		t.Errorf("the next command sees %s, want %s", got, want)
	}
	if after := backend("c4"); after != before {
		t.Errorf("another connection, %s after %s: this test shows nothing", after, before)
	}
}
