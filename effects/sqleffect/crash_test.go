package sqleffect

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/effects"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// cutter stands between provider and server, and ends a connection in the
// moment in which the server answers a word that the provider sent.
type cutter struct {
	net.Listener
	server string
	all    sync.WaitGroup

	mu    sync.Mutex // guards below
	word  string     // none: nothing is cut
	early bool       // the word never arrives
	once  bool
	cuts  int
	conns []net.Conn
}

func newCutter(t *testing.T, server string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: l, server: server}
	c.all.Go(c.accept)
	t.Cleanup(c.close)
	return c
}

func (c *cutter) close() {
	c.Listener.Close()
	c.mu.Lock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.all.Wait()
}

// cut says which word is not answered from now on.
func (c *cutter) cut(word string, early bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.word, c.early = word, early
}

// cutOnce cuts the word's first answer only.
func (c *cutter) cutOnce(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.word, c.once = word, true
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}

func (c *cutter) accept() {
	for {
		client, err := c.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			client.Close()
			return
		}
		c.mu.Lock()
		c.conns = append(c.conns, client, server)
		c.mu.Unlock()
		p := &pipe{c: c, client: client, server: server}
		c.all.Go(p.up)
		c.all.Go(p.down)
	}
}

// pipe is one connection.
type pipe struct {
	c              *cutter
	client, server net.Conn
	mu             sync.Mutex // guards doomed
	doomed         bool       // what the server says next is its answer
}

func (p *pipe) close() {
	p.client.Close()
	p.server.Close()
}

func (p *pipe) up() {
	defer p.close()
	for buf := make([]byte, 64<<10); ; {
		n, err := p.client.Read(buf)
		if err != nil {
			return
		}
		p.c.mu.Lock()
		found := p.c.word != "" && bytes.Contains(buf[:n], []byte(p.c.word))
		early := p.c.early
		if found {
			p.c.cuts++
			if p.c.once {
				p.c.word = ""
			}
		}
		p.c.mu.Unlock()
		if found && early {
			return
		}
		if found {
			p.mu.Lock()
			p.doomed = true
			p.mu.Unlock()
		}
		if _, err := p.server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *pipe) down() {
	defer p.close()
	for buf := make([]byte, 64<<10); ; {
		n, err := p.server.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		doomed := p.doomed
		p.mu.Unlock()
		if doomed {
			return
		}
		if _, err := p.client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func address(name string) string {
	return map[string]*realservers.Server{"postgres": real.postgres, "mysql": real.mariadb}[name].Address()
}

func onServers(t *testing.T, test func(t *testing.T, s side)) {
	t.Helper()
	for _, name := range []string{"postgres", "mysql"} {
		t.Run(name, func(t *testing.T) { test(t, on(t, name)) })
	}
}

func TestALostAnswerToTheCommitIsFoundOut(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		proxy, p := newCutter(t, address(s.name)), local(t)
		config := map[string]any{"dsn": s.at(proxy.Addr().String(), ""), "exec": "insert into orders (id) values (?)", "args": []any{1}}
		proxy.cut("COMMIT", false)
		_, err := s.call(t, p, "c1", config)
		if err == nil || isNotSent(err) || isPermanent(err) || proxy.count() != 1 {
			t.Fatalf("error %v after %d cuts, want one that is neither ErrNotSent nor permanent", err, proxy.count())
		}
		proxy.cut("", false)
		if got := encoded(t, s.must(t, p, 200, "c1", config)); got != `{"affected":1}` {
			t.Errorf("answered %s", got)
		}
		if n := s.number(t, "select count(*) from orders"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestACommitThatNeverArrivesIsMadeAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		proxy, p := newCutter(t, address(s.name)), local(t)
		config := map[string]any{"dsn": s.at(proxy.Addr().String(), ""), "exec": "insert into orders (id) values (?)", "args": []any{1}}
		proxy.cut("COMMIT", true)
		if _, err := s.call(t, p, "c1", config); err == nil || isNotSent(err) || proxy.count() != 1 {
			t.Fatalf("error %v after %d cuts", err, proxy.count())
		}
		proxy.cut("", false)
		s.must(t, p, 200, "c1", config)
		if n := s.number(t, "select count(*) from orders"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestAConnectionLostBeforeTheCommitSurelyDidNothing(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		proxy, p := newCutter(t, address(s.name)), local(t)
		config := map[string]any{"dsn": s.at(proxy.Addr().String(), ""), "exec": "insert into orders (id) values (?)", "args": []any{1}}
		proxy.cut("insert into orders", false)
		_, err := s.call(t, p, "c1", config)
		if !isNotSent(err) || isPermanent(err) || proxy.count() != 1 {
			t.Fatalf("error %v after %d cuts", err, proxy.count())
		}
		proxy.cut("", false)
		s.must(t, p, 200, "c1", config)
		if n := s.number(t, "select count(*) from orders"); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// TestACutAtAnyWordIsRepaired cuts the first call at each of its steps, early
// and late; whatever it was, called again there is one row.
func TestACutAtAnyWordIsRepaired(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id varchar(50))")
		proxy := newCutter(t, address(s.name))
		for _, word := range []string{"BEGIN", "START TRANSACTION", "CREATE TABLE", "INSERT INTO edda_effects", "insert into orders", "UPDATE edda_effects", "COMMIT"} {
			for _, early := range []bool{true, false} {
				p := local(t) // or its statements are prepared, and the words do not pass
				key := strings.ReplaceAll(word, " ", "") + map[bool]string{true: "early", false: "late"}[early]
				config := map[string]any{"dsn": s.at(proxy.Addr().String(), ""), "exec": "insert into orders (id) values (?)", "args": []any{key}}
				proxy.cut(word, early)
				_, _ = s.call(t, p, key, config)
				proxy.cut("", false)
				s.must(t, p, 200, key, config)
				if n := s.number(t, "select count(*) from orders where id = ?", key); n != 1 {
					t.Errorf("%s: %d rows", key, n)
				}
			}
		}
		if proxy.count() < 10 {
			t.Errorf("only %d cuts", proxy.count())
		}
	})
}

func TestAConnectionThatDiedWhileIdleIsNoFailure(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		p := local(t)
		config := map[string]any{"exec": "insert into orders (id) values (1)"}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if _, err := p.Call(t.Context(), s.command("before"+string(rune('a'+i)), config)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for id := range s.sessions(t) {
			s.exec(t, map[string]string{"postgres": "select pg_terminate_backend(" + id + ")", "mysql": "kill " + id}[s.name])
		}
		for i := range 8 {
			r, err := s.call(t, p, "after"+string(rune('a'+i)), config)
			if err != nil || r.Status != 200 {
				t.Errorf("%+v %v", r, err)
			}
		}
	})
}

// sessions of the provider at the server: all but the test's own.
func (s side) sessions(t *testing.T) map[string]bool {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), map[string]string{
		"postgres": "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
		"mysql":    "select id from information_schema.processlist where db = database() and id <> connection_id()",
	}[s.name])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]bool{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		out[id] = true
	}
	return out
}

// TestAShutdownWhileItRunsIsTriedAgain ends the session as an administrator does.
func TestAShutdownWhileItRunsIsTriedAgain(t *testing.T) {
	onServers(t, func(t *testing.T, s side) {
		s.exec(t, "create table orders (id integer)")
		p := local(t)
		type answer struct {
			r   effects.Response
			err error
		}
		got := make(chan answer, 1)
		hang := map[string]string{"postgres": "select pg_sleep(60)", "mysql": "select sleep(60)"}[s.name]
		go func() {
			r, err := p.Call(t.Context(), s.command("c1", map[string]any{"query": hang}))
			got <- answer{r, err}
		}()
		until(t, func() bool { return s.busy(t) })
		for id := range s.sessions(t) {
			s.exec(t, map[string]string{"postgres": "select pg_terminate_backend(" + id + ")", "mysql": "kill " + id}[s.name])
		}
		a := <-got
		if !(a.err == nil && a.r.Retry && a.r.Refused) && !(isNotSent(a.err) && !isPermanent(a.err)) {
			t.Errorf("answer %+v %v", a.r, a.err)
		}
	})
}

// TestTheEndOfTheContextStopsTheStatement looks at the server: nothing works on.
func TestTheEndOfTheContextStopsTheStatement(t *testing.T) {
	hangs := map[string]string{
		"postgres": "select pg_sleep(60)", "mysql": "select sleep(60)",
		"sqlite": "with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) from n",
	}
	onAll(t, func(t *testing.T, s side) {
		s.exec(t, "create table seen (command varchar(20))")
		p := local(t)
		s.must(t, p, 200, "c0", map[string]any{"exec": "insert into seen (command) values ('x')"})
		for _, readonly := range []bool{false, true} {
			if readonly && s.name == "sqlite" {
				continue // a reader does not show
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			config := map[string]any{"query": hangs[s.name]}
			if readonly {
				config["readonly"] = true
			}
			go func() {
				_, err := p.Call(ctx, s.command("c1", config))
				ended <- err
			}()
			until(t, func() bool { return s.busy(t) })
			cancel()
			began := time.Now()
			if err := <-ended; !isNotSent(err) || isPermanent(err) {
				t.Errorf("error %v", err)
			}
			until(t, func() bool { return !s.busy(t) })
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the server went on for %s", took)
			}
			if n := s.number(t, "select count(*) from edda_effects where command = 'c1'"); n != 0 {
				t.Error("the command's row is there")
			}
		}
	})
}

// until waits for a condition of the outside world.
func until(t *testing.T, is func() bool) {
	t.Helper()
	testkit.Until(t, 20*time.Second, "it comes to pass", is)
}
