package sqleffect

import (
	"net"
	"testing"

	"edda/effects/effecttest"
)

// seen records which commands had their effect: within its transaction a
// command's row has no result yet, and the rows of others have, or do not show.
const seen = "insert into seen (command) select command from edda_effects where result is null"

func TestSuite(t *testing.T) {
	hangs := map[string]string{
		"postgres": "select pg_sleep(60)", "mysql": "select sleep(60)",
		"sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
	}
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, map[string]string{"mysql": "create table seen (command varbinary(255))"}[s.name]+map[bool]string{true: "create table seen (command text)"}[s.name != "mysql"])
		effecttest.Run(t, effecttest.Fixture{
			Provider:    local(t),
			Accepted:    s.command("", map[string]any{"exec": seen}).Config,
			Hangs:       s.command("", map[string]any{"query": hangs[s.name]}).Config,
			Unreachable: s.unreachable(t),
			Impossible:  map[string]any{"dsn": s.dsn, "exec": "drop table seen"},
			Seen: func(key string) int {
				n := s.number(t, "select count(*) from seen where command = ?", key)
				if key == "hangs" && n == 0 && s.busy(t) {
					return 1
				}
				return n
			},
			Once: true,
		})
	})
}

// unreachable is a call of a database that is not there.
func (s side) unreachable(t *testing.T) map[string]any {
	t.Helper()
	if s.name == "sqlite" {
		return map[string]any{"dsn": s.at("nowhere", "") + ".not", "exec": "select 1"}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return map[string]any{"dsn": s.at(l.Addr().String(), ""), "exec": "select 1"}
}

// busy reports whether the server works on a statement of the provider's.
func (s side) busy(t *testing.T) bool {
	t.Helper()
	switch s.name {
	case "postgres":
		return s.number(t, "select count(*) from pg_stat_activity where state = 'active' and query like 'select pg_sleep%' and datname = current_database()") > 0
	case "mysql":
		return s.number(t, "select count(*) from information_schema.processlist where info like 'select sleep%' and db = database()") > 0
	}
	_, err := s.db.ExecContext(t.Context(), "insert into seen (command) select 'x' where false")
	return err != nil // locked
}
