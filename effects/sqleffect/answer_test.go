package sqleffect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/effects"
)

func isPermanent(err error) bool { return errors.Is(err, edda.Permanent) }
func isNotSent(err error) bool   { return errors.Is(err, effects.ErrNotSent) }

func TestConstraintsAreDefiniteFailures(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table customers (id integer primary key)")
		s.exec(t, "create table orders (id integer primary key, email varchar(50) not null, total integer, customer integer, constraint mail unique (email), constraint positive check (total > 0), constraint whose foreign key (customer) references customers (id))")
		s.exec(t, "insert into orders (id, email, total) values (1, 'alice@shop', 1)")
		p := local(t)
		for _, tt := range []struct {
			name       string
			args       []any
			constraint map[string]string
		}{
			{"primary", []any{1, "b@shop", 1, nil}, map[string]string{"postgres": "orders_pkey", "mysql": "PRIMARY", "sqlite": "orders.id"}},
			{"unique", []any{2, "alice@shop", 1, nil}, map[string]string{"postgres": "mail", "mysql": "mail", "sqlite": "orders.email"}},
			{"check", []any{3, "c@shop", -1, nil}, map[string]string{"postgres": "positive", "mysql": "positive", "sqlite": "positive"}},
			{"foreign", []any{4, "d@shop", 1, 77}, map[string]string{"postgres": "whose", "mysql": "whose", "sqlite": ""}},
			{"not null", []any{5, nil, 1, nil}, map[string]string{"postgres": "", "mysql": "email", "sqlite": "orders.email"}},
		} {
			r, err := s.call(t, p, tt.name, map[string]any{"exec": "insert into orders (id, email, total, customer) values (?, ?, ?, ?)", "args": tt.args})
			body, _ := r.Body.(map[string]any)
			constraint, _ := body["constraint"].(string)
			if err != nil || r.Status != 409 || r.Retry || r.Refused || r.Unknown || constraint != tt.constraint[s.name] || body["code"] == "" || body["message"] == "" {
				t.Errorf("%s: %+v %v", tt.name, r, err)
			}
			if strings.Contains(fmt.Sprint(r.Body), "alice") || strings.Contains(fmt.Sprint(r.Body), "77") {
				t.Errorf("%s: a row's value shows: %v", tt.name, r.Body)
			}
		}
	})
}

func TestOtherMistakesAreDefiniteToo(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer, name varchar(5), day date)")
		p := local(t)
		for name, config := range map[string]map[string]any{
			"syntax":  {"exec": "insert intoo orders"},
			"table":   {"exec": "insert into nowhere (id) values (1)"},
			"column":  {"query": "select nothing from orders"},
			"twice":   {"query": "select 1 as id, 2 as id"},
			"too few": {"exec": "insert into orders (id, name) values (?, ?)", "args": []any{1}},
		} {
			r, err := s.call(t, p, name, config)
			if err != nil || r.Status != 400 || r.Retry || r.Unknown {
				t.Errorf("%s: %+v %v", name, r, err)
			}
			body, _ := r.Body.(map[string]any)
			if body["code"] == "" || body["message"] == "" {
				t.Errorf("%s says nothing: %v", name, body)
			}
		}
		if n := s.number(t, "select count(*) from edda_effects"); n != 0 {
			t.Errorf("%d rows of commands", n)
		}
	})
}

func TestDataThatDoesNotFitIsNotShown(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer, name varchar(5), day date)")
		p := local(t)
		for name, config := range map[string]map[string]any{
			"number": {"exec": "insert into orders (id) values (?)", "args": []any{"s3cret'\"7"}},
			"date":   {"exec": "insert into orders (day) values (?)", "args": []any{"s3cret"}},
			"length": {"exec": "insert into orders (name) values (?)", "args": []any{"s3cret-s3cret"}},
			"range":  {"exec": "insert into orders (id) values (?)", "args": []any{9007199254740993}},
		} {
			r, err := s.call(t, p, name, config)
			if err != nil || r.Status != 400 || r.Retry || strings.Contains(fmt.Sprint(r.Body), "s3cret") {
				t.Errorf("%s: %+v %v", name, r, err)
			}
		}
		if n := s.number(t, "select count(*) from orders"); n != 0 {
			t.Errorf("%d rows: something was cut to fit", n)
		}
	})
}

// TestADeadlockIsTriedAgain lets two transactions wait for each other.
func TestADeadlockIsTriedAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table accounts (id integer primary key, balance integer)")
		for id := range 40 {
			s.exec(t, fmt.Sprintf("insert into accounts (id, balance) values (%d, 10)", id))
		}
		p := local(t)
		victim := effects.Response{}
		for try := 0; !victim.Retry; try++ { // the server chooses the victim, and may choose ours
			if try == 10 {
				t.Fatal("the provider never was the victim")
			}
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("update accounts set balance = balance + 1 where id >= 2"); err != nil {
				t.Fatal(err)
			}
			got := make(chan effects.Response, 1)
			key := fmt.Sprint("c", try)
			go func() {
				// holds 1, then waits for 2: one statement that takes both in order
				r, err := p.Call(t.Context(), s.command(key, map[string]any{"exec": "update accounts set balance = balance + 100 where id in (1, 2)"}))
				if err != nil {
					t.Error(err)
				}
				got <- r
			}()
			until(t, func() bool { return s.waits(t) })
			_, _ = tx.Exec("update accounts set balance = balance + 1 where id = 1")
			_ = tx.Rollback()
			if r := <-got; r.Status != 200 {
				victim = r
			}
		}
		if victim.Status != 503 || !victim.Retry || !victim.Refused || victim.Unknown {
			t.Errorf("answer %+v", victim)
		}
	})
}

// waits reports whether a transaction waits for another's lock.
func (s side) waits(t *testing.T) bool {
	t.Helper()
	return s.number(t, map[string]string{
		"postgres": "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
		"mysql":    "select count(*) from information_schema.processlist where info like 'update accounts set balance = balance + 100%' and time_ms > 50",
	}[s.name]) > 0
}

// TestASerializationFailureIsTriedAgain: both read what the other changes.
func TestASerializationFailureIsTriedAgain(t *testing.T) {
	s := on(t, "postgres")
	s.exec(t, "create table doctors (id integer primary key, duty boolean)")
	s.exec(t, "insert into doctors (id, duty) values (1, true), (2, true)")
	p := local(t)
	s.must(t, p, 200, "first", map[string]any{"exec": "update doctors set duty = true"})
	tx, err := s.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"set transaction isolation level serializable", "select count(*) from doctors where duty", "update doctors set duty = false where id = 2"} {
		if _, err := tx.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	// The statement has its snapshot and waits for a lock in its middle until the other has committed.
	holder, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if _, err := holder.ExecContext(t.Context(), "select pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"isolation": "serializable", "exec": "update doctors set duty = false where id = 1 and (select count(*) from doctors where duty) > 1 and pg_advisory_xact_lock(?::bigint) is not null", "args": []any{7}}
	got := make(chan effects.Response, 1)
	go func() {
		r, err := p.Call(t.Context(), s.command("c1", config))
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	until(t, func() bool { return s.waits(t) })
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.ExecContext(t.Context(), "select pg_advisory_unlock(7)"); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Status != 503 || !r.Retry || !r.Refused || r.Body.(map[string]any)["code"] != "40001" {
		t.Errorf("answer %+v", r)
	}
	if body := s.must(t, p, 200, "c1", config); body["affected"] != 0 {
		t.Errorf("the second time it answered %v", body)
	}
	if n := s.number(t, "select count(*) from doctors where duty"); n != 1 {
		t.Errorf("%d doctors on duty", n)
	}
}

func TestALockedFileIsTriedAgain(t *testing.T) {
	s := on(t, "sqlite")
	s.exec(t, "create table orders (id integer)")
	p := local(t)
	config := map[string]any{"dsn": s.at("", "busy_timeout=10"), "exec": "insert into orders (id) values (1)"}
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "begin immediate"); err != nil {
		t.Fatal(err)
	}
	r, err := s.call(t, p, "c1", config)
	if err != nil || r.Status != 503 || !r.Retry || !r.Refused || r.Body.(map[string]any)["code"] != "SQLITE_BUSY" {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := conn.ExecContext(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	s.must(t, p, 200, "c1", config)
}

func TestALockTimeoutIsTriedAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table accounts (id integer primary key, balance integer)")
		s.exec(t, "insert into accounts (id, balance) values (1, 10)")
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("update accounts set balance = 0"); err != nil {
			t.Fatal(err)
		}
		dsn := s.at("", map[string]string{"postgres": "lock_timeout=50", "mysql": "innodb_lock_wait_timeout=1"}[s.name])
		r, err := s.call(t, local(t), "c1", map[string]any{"dsn": dsn, "exec": "update accounts set balance = 1"})
		if err != nil || r.Status != 503 || !r.Retry || !r.Refused {
			t.Errorf("%+v %v", r, err)
		}
	})
}

func TestTooManyConnectionsIsTriedAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		user := "few" + s.name
		for _, text := range map[string][]string{
			"postgres": {"create role " + user + " login password 'x' connection limit 1"},
			"mysql":    {"create user " + user + " identified by 'x' with max_user_connections 1", "grant all on *.* to " + user},
		}[s.name] {
			s.exec(t, text)
		}
		t.Cleanup(func() {
			_, _ = s.db.ExecContext(context.Background(), map[string]string{"postgres": "drop role ", "mysql": "drop user "}[s.name]+user)
		})
		scheme, rest, _ := strings.Cut(s.dsn, "://")
		dsn := scheme + "://" + user + ":x@" + rest[strings.Index(rest, "@")+1:]
		raw := openRaw(t, dsn)
		conn, err := raw.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.call(t, local(t), "c1", map[string]any{"dsn": dsn, "query": "select 1 as one", "readonly": true})
		if err != nil || r.Status != 503 || !r.Retry || !r.Refused {
			t.Errorf("%+v %v", r, err)
		}
		conn.Close()
		raw.Close()
	})
}

func TestMoreRowsThanAskedForIsAFailure(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer primary key, note varchar(2000))")
		for i := range 150 {
			s.exec(t, fmt.Sprintf("insert into orders (id, note) values (%d, '%s')", i, strings.Repeat("x", 1800)))
		}
		p := local(t)
		limited := func(n int) string { return fmt.Sprintf("select id from orders where id < %d order by id", n) }
		for key, tt := range map[string]struct {
			config map[string]any
			status int
		}{
			"default fits":   {map[string]any{"query": limited(100)}, 200},
			"default":        {map[string]any{"query": limited(101)}, 413},
			"asked for":      {map[string]any{"query": limited(101), "max_rows": 101}, 200},
			"asked for less": {map[string]any{"query": limited(3), "max_rows": 2}, 413},
			"none":           {map[string]any{"query": limited(0), "max_rows": 1}, 200},
			"bytes":          {map[string]any{"query": "select id, note from orders", "max_rows": 1000}, 413},
		} {
			r, err := s.call(t, p, key, tt.config)
			if err != nil || r.Status != tt.status || r.Retry || r.Unknown {
				t.Errorf("%s: %d %v %v", key, r.Status, r.Retry, err)
			}
		}
		if s.name == "mysql" {
			return // MariaDB has no update … returning
		}
		r, err := s.call(t, p, "writes", map[string]any{"query": "update orders set note = 'gone' returning id"})
		if n := s.number(t, "select count(*) from orders where note = 'gone'"); err != nil || r.Status != 413 || n != 0 {
			t.Errorf("%d %v, and %d rows changed", r.Status, err, n)
		}
	})
}

// TestALargeAnswerIsNotReadToItsEnd: closing it must not read the rest, which would take
// days. A call that ends at all did not, however long a busy machine takes.
func TestALargeAnswerIsNotReadToItsEnd(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		text := map[string]string{"postgres": "select generate_series(1::bigint, 1000000000000) as g", "mysql": "select seq from seq_1_to_1000000000000"}[s.name]
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		r, err := local(t).Call(ctx, s.command("c1", map[string]any{"query": text, "readonly": true}))
		if err != nil || r.Status != 413 || ctx.Err() != nil {
			t.Errorf("%+v %v %v", r, err, ctx.Err())
		}
	})
}

// TestThePlanOfAChangedTableIsTriedAgain: prepared statements go stale.
func TestThePlanOfAChangedTableIsTriedAgain(t *testing.T) {
	s := on(t, "postgres")
	s.exec(t, "create table orders (id integer)")
	p := local(t)
	config := map[string]any{"query": "select * from orders where id = ?", "args": []any{1}}
	s.must(t, p, 200, "c1", config)
	s.exec(t, "alter table orders add column name text")
	r, err := s.call(t, p, "c2", config)
	if err != nil || r.Status != 200 && !(r.Retry && r.Refused) {
		t.Fatalf("%+v %v", r, err)
	}
	s.must(t, p, 200, "c2", config)
}

func TestATableThatMayNotBeMadeSaysWhatToRun(t *testing.T) {
	s := on(t, "postgres")
	s.exec(t, "create table orders (id integer)")
	s.exec(t, "create role plain login password 'x'")
	t.Cleanup(func() {
		_, _ = s.db.ExecContext(context.Background(), "drop owned by plain")
		_, _ = s.db.ExecContext(context.Background(), "drop role plain")
	})
	var schema string
	if err := s.db.QueryRowContext(t.Context(), "select current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "grant usage on schema "+schema+" to plain")
	s.exec(t, "grant insert on orders to plain")
	_, rest, _ := strings.Cut(s.dsn, "@")
	config := map[string]any{"dsn": "postgres://plain:x@" + rest, "exec": "insert into orders (id) values (1)"}
	p := local(t)
	r, err := s.call(t, p, "c1", config)
	body, _ := r.Body.(map[string]any)
	message, _ := body["message"].(string)
	if err != nil || !r.Retry || !r.Refused || !strings.Contains(message, postgres{}.row().create) || body["code"] != "42501" {
		t.Fatalf("%+v %v", r, err)
	}
	s.exec(t, message[strings.Index(message, "CREATE TABLE"):])
	s.exec(t, "grant select, insert, update on edda_effects to plain")
	s.must(t, p, 200, "c1", config)
}

// TestThePageHasTheTables keeps the operators' page true.
func TestThePageHasTheTables(t *testing.T) {
	page, err := os.ReadFile("../../docs/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range databases() {
		if !strings.Contains(string(page), d.row().create+";") {
			t.Errorf("docs/OPERATING.md does not show how to make the table in %s", name)
		}
	}
}
