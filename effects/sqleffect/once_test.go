package sqleffect

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestACommandHasItsEffectOnce(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer primary key, total integer)")
		p := local(t)
		config := map[string]any{"exec": "insert into orders (id, total) values (?, ?)", "args": []any{7, 100}}
		first := encoded(t, s.must(t, p, 200, "c1", config))
		for range 3 {
			if again := encoded(t, s.must(t, p, 200, "c1", config)); again != first {
				t.Errorf("answered %s, then %s", first, again)
			}
		}
		if n := s.number(t, "select count(*) from orders where id = 7 and total = 100"); n != 1 {
			t.Errorf("%d rows", n)
		}
		if n := s.number(t, "select count(*) from edda_effects where tenant = 'acme' and command = 'c1' and effect = 'pay' and created_at is not null"); n != 1 {
			t.Errorf("%d rows of the command", n)
		}
	})
}

func TestTwoTenantsMayHaveTheSameCommand(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (who varchar(20))")
		p := local(t)
		for _, tenant := range []string{"acme", "acme ", "ACME", "other"} {
			c := s.command("c1", map[string]any{"exec": "insert into orders (who) values (?)", "args": []any{tenant}})
			c.Tenant = tenant
			if r, err := p.Call(t.Context(), c); err != nil || r.Status != 200 {
				t.Errorf("%q: %+v %v", tenant, r, err)
			}
		}
		if n := s.number(t, "select count(*) from orders"); n != 4 {
			t.Errorf("%d rows of 4", n)
		}
	})
}

func TestAKeyOfAnotherEffectIsRefused(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		p := local(t)
		c := s.command("c1", map[string]any{"exec": "insert into orders (id) values (1)"})
		if r, err := p.Call(t.Context(), c); err != nil || r.Status != 200 {
			t.Fatal(r, err)
		}
		c.Effect = "refund"
		r, err := p.Call(t.Context(), c)
		if err != nil || r.Status != 409 || r.Retry || r.Body.(map[string]any)["code"] != "key_in_use" {
			t.Errorf("%+v %v", r, err)
		}
		if n := s.number(t, "select count(*) from orders"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestTwinsAreAnsweredAlike(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		p := local(t)
		var all sync.WaitGroup
		answers := make([]string, 16)
		for i := range answers {
			all.Go(func() {
				r, err := p.Call(t.Context(), s.command("c1", map[string]any{"exec": "insert into orders (id) values (?)", "args": []any{i}}))
				if err != nil || r.Status != 200 {
					t.Errorf("%+v %v", r, err)
				}
				answers[i] = encoded(t, r.Body)
			})
		}
		all.Wait()
		for _, a := range answers {
			if a != answers[0] {
				t.Errorf("answered %s and %s", answers[0], a)
			}
		}
		if n := s.number(t, "select count(*) from orders"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestAFailedStatementLeavesNothing(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer primary key)")
		s.exec(t, "insert into orders (id) values (1)")
		p := local(t)
		s.must(t, p, 409, "c1", map[string]any{"exec": "insert into orders (id) values (?)", "args": []any{1}})
		if n := s.number(t, "select count(*) from edda_effects"); n != 0 {
			t.Errorf("%d rows of commands", n)
		}
		s.exec(t, "delete from orders")
		s.must(t, p, 200, "c1", map[string]any{"exec": "insert into orders (id) values (?)", "args": []any{1}})
	})
}

func TestKeysOfAnyForm(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		p := local(t)
		long := make([]byte, 5000)
		for i := range long {
			long[i] = 'x'
		}
		keys := []string{string(long), string(long) + "y", "a", "A", "a ", "ä", "\xff", "a\x00b", "';drop table orders;--", ""}
		for _, key := range keys {
			for range 2 {
				s.must(t, p, 200, key, map[string]any{"exec": "insert into orders (id) values (1)"})
			}
		}
		if n := s.number(t, "select count(*) from orders"); n != len(keys) {
			t.Errorf("%d rows of %d", n, len(keys))
		}
	})
}

func TestAQueryMayWriteAndDoesSoOnce(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer primary key, total integer)")
		p := local(t)
		config := map[string]any{"query": "insert into orders (id, total) values (?, ?) returning id, total", "args": []any{1, 5}}
		for range 2 {
			if got := encoded(t, s.must(t, p, 200, "c1", config)); got != `{"rows":[{"id":1,"total":5}]}` {
				t.Errorf("body %s", got)
			}
		}
	})
}

func TestAReadonlyQueryLeavesNothing(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer primary key)")
		s.exec(t, "insert into orders (id) values (1)")
		p := local(t)
		for i := range 2 {
			body := s.must(t, p, 200, "c1", map[string]any{"query": "select count(*) as n from orders", "readonly": true})
			if got := encoded(t, body); got != map[int]string{0: `{"rows":[{"n":1}]}`, 1: `{"rows":[{"n":2}]}`}[i] {
				t.Errorf("body %s", got)
			}
			s.exec(t, fmt.Sprintf("insert into orders (id) values (%d)", i+2))
		}
		_, err := s.db.ExecContext(t.Context(), "select * from edda_effects")
		if err == nil {
			t.Error("the table of commands was made")
		}
		r, err := s.call(t, p, "c2", map[string]any{"query": "insert into orders (id) values (9) returning id", "readonly": true})
		if err != nil || r.Status == 200 {
			t.Errorf("a readonly query wrote: %+v %v", r, err)
		}
	})
}

func TestAStatementThatCommittedByItselfIsUnknown(t *testing.T) {
	s := on(t, "mysql")
	s.exec(t, "create table orders (id integer)")
	p := local(t)
	s.must(t, p, 200, "other", map[string]any{"exec": "insert into orders (id) values (1)"})
	s.exec(t, "insert into edda_effects (tenant, command, effect) values ('acme', 'c1', 'pay')")
	_, err := s.call(t, p, "c1", map[string]any{"exec": "insert into orders (id) values (1)"})
	if !isPermanent(err) || isNotSent(err) {
		t.Errorf("error %v", err)
	}
}
