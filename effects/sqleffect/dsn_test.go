package sqleffect

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/effects/dial"
)

// TestErrorsShowNoDSN greps every error and answer for what a DSN holds.
func TestErrorsShowNoDSN(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	const secret = "Hunter2"
	p, guarded := local(t), newProvider(t, dial.Options{})
	for _, dsn := range []string{
		"postgres://app:" + secret + "@" + nobody + "/shop", "postgres://app:" + secret + "@" + real.postgres.Address() + "/shop",
		"mysql://app:" + secret + "@" + nobody + "/shop", "mysql://app:" + secret + "@" + real.mariadb.Address() + "/shop",
		"postgres://app:" + secret + "@a b/shop", "postgres://app:" + secret + ":" + secret + "@db:x" + secret + "/shop", "postgres://app@db/shop?sslmode=" + secret, "postgres://app@db/shop?" + secret + "=1",
		"mysql://app:" + secret + "@db:" + secret + "/shop", "mysql://app:" + secret + "%zz@db/shop", "mysql://app@db/shop?tls=" + secret, "mysql://app@db/shop?" + secret + "=" + secret, "mysql://app:" + secret + "@/shop",
		"sqlite:/nowhere/" + secret + ".db", "sqlite:/x.db?" + secret + "=1", "file:" + secret + "%00", secret, "host=" + secret,
		"postgres://app:" + secret + "@db.invalid/shop", "mysql://app:" + secret + "@db.invalid/shop",
		"postgres://app:" + secret + "@" + real.mariadb.Address() + "/shop?connect_timeout=1", // speaks another language
	} {
		for _, provider := range []*Provider{p, guarded} {
			for _, driver := range []string{"", "postgres", "mysql"} {
				config := map[string]any{"dsn": dsn, "exec": "insert into t values (1)"}
				if driver != "" {
					config["driver"] = driver
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				r, err := provider.Call(ctx, side{}.command("c", config))
				cancel()
				if err == nil && r.Status == 200 {
					t.Errorf("%s was answered", dsn)
				}
				if all := fmt.Sprint(r, err); strings.Contains(all, secret) {
					t.Errorf("%s: %s", dsn, all)
				}
			}
		}
	}
}

// TestTheEnvironmentIsNotUsed: libpq's variables are Edda's, not the manifest's.
func TestTheEnvironmentIsNotUsed(t *testing.T) {
	s := on(t, "postgres")
	t.Setenv("PGPASSWORD", real.postgres.Password)
	t.Setenv("PGHOST", "127.0.0.1")
	t.Setenv("PGPORT", real.postgres.Port)
	t.Setenv("PGDATABASE", "postgres")
	t.Setenv("PGUSER", "edda")
	t.Setenv("PGOPTIONS", "-c search_path=nowhere")
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, ".pgpass"), []byte("*:*:*:*:"+real.postgres.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := s.call(t, local(t), "c1", map[string]any{"dsn": "postgres://edda@" + real.postgres.Address() + "/postgres", "query": "select 1 as one", "readonly": true})
	if err == nil && r.Status == 200 {
		t.Error("the environment's password was sent")
	}
	for _, dsn := range []string{"postgres://", "postgres:///shop", "postgres://edda@/shop"} {
		if _, err := s.call(t, local(t), "c1", map[string]any{"dsn": dsn, "query": "select 1 as one"}); !isPermanent(err) {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	body := s.must(t, local(t), 200, "c2", map[string]any{"query": "select current_setting('search_path') as path, current_setting('application_name') as name", "readonly": true})
	if got := encoded(t, body); strings.Contains(got, "nowhere") || !strings.Contains(got, `"name":"edda"`) {
		t.Errorf("settings %s", got)
	}
}

// TestFormsOfDSNs reaches the real servers by each form.
func TestFormsOfDSNs(t *testing.T) {
	pg, my := real.postgres, real.mariadb
	escaped := url.QueryEscape(filepath.Dir(pg.Socket))
	for _, tt := range []struct{ driver, dsn string }{
		{"", fmt.Sprintf("postgresql://%s:%s@%s/%s", pg.User, pg.Password, pg.Address(), pg.Database)},
		{"postgres", fmt.Sprintf("host=%s port=%s user=%s password='%s' dbname=%s", pg.Host, pg.Port, pg.User, pg.Password, pg.Database)},
		{"", fmt.Sprintf("postgres://%s:%s@/%s?host=%s&port=%s", pg.User, pg.Password, pg.Database, escaped, pg.Port)},
		{"", fmt.Sprintf("postgres://%s:%s@127.0.0.1:1,%s/%s", pg.User, pg.Password, pg.Address(), pg.Database)},
		{"", fmt.Sprintf("mariadb://%s:%s@%s/%s?collation=utf8mb4_unicode_ci&sql_mode='ANSI'", my.User, my.Password, my.Address(), my.Database)},
		{"", fmt.Sprintf("mysql://%s:%s@/%s?socket=%s", my.User, my.Password, my.Database, url.QueryEscape(my.Socket))},
		{"mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s", my.User, my.Password, my.Address(), my.Database)},
		{"mysql", fmt.Sprintf("%s:%s@unix(%s)/%s", my.User, my.Password, my.Socket, my.Database)},
	} {
		config := map[string]any{"dsn": tt.dsn, "query": "select 1 as one", "readonly": true}
		if tt.driver != "" {
			config["driver"] = tt.driver
		}
		r, err := local(t).Call(t.Context(), side{}.command("c", config))
		if err != nil || encoded(t, r.Body) != `{"rows":[{"one":1}]}` {
			t.Errorf("%s: %+v %v", tt.dsn, r, err)
		}
	}
}

// TestTheGuardIsAsked for addresses, sockets and files.
func TestTheGuardIsAsked(t *testing.T) {
	onAll(t, func(t *testing.T, s side) {
		file, _, _ := strings.Cut(strings.TrimPrefix(s.dsn, "sqlite:"), "?")
		allow := map[string]string{"postgres": "127.0.0.1", "mysql": real.mariadb.Address(), "sqlite": file}[s.name]
		for _, tt := range []struct {
			o       dial.Options
			allowed bool
		}{
			{dial.Options{}, false},
			{dial.Options{Allow: []string{allow}}, true},
			{dial.Options{AllowLoopback: true, ListedOnly: true}, false},
			{dial.Options{ListedOnly: true, Allow: []string{allow}}, true},
		} {
			r, err := s.call(t, newProvider(t, tt.o), "c1", map[string]any{"query": "select 1 as one", "readonly": true})
			if tt.allowed != (err == nil && r.Status == 200) || !tt.allowed && (!isPermanent(err) || !isNotSent(err)) {
				t.Errorf("%+v: %+v %v", tt.o, r, err)
			}
		}
	})
	for _, dsn := range []string{
		fmt.Sprintf("postgres://%s:%s@/x?host=%s&port=%s", real.postgres.User, real.postgres.Password, url.QueryEscape(filepath.Dir(real.postgres.Socket)), real.postgres.Port),
		fmt.Sprintf("mysql://%s:%s@/x?socket=%s", real.mariadb.User, real.mariadb.Password, url.QueryEscape(real.mariadb.Socket)),
	} {
		_, err := newProvider(t, dial.Options{}).Call(t.Context(), side{}.command("c", map[string]any{"dsn": dsn, "query": "select 1 as one"}))
		if !isPermanent(err) || !isNotSent(err) {
			t.Errorf("a socket: %v", err)
		}
	}
}

func TestSQLiteKeepsToItsFile(t *testing.T) {
	s := on(t, "sqlite")
	s.exec(t, "create table t (a integer)")
	p := local(t)
	r, err := s.call(t, p, "c1", map[string]any{"query": "select load_extension('/tmp/x.so') as x"})
	if err != nil || r.Status != 400 {
		t.Errorf("load_extension: %+v %v", r, err)
	}
	if r, err = s.call(t, p, "c2", map[string]any{"query": `select "nothing" as x from t`}); err != nil || r.Status != 400 {
		t.Errorf("a misspelt column is a text: %+v %v", r, err)
	}
	for _, dsn := range []string{"sqlite:" + filepath.Join(t.TempDir(), "none.db"), "sqlite:" + t.TempDir()} {
		if r, err := s.call(t, p, "c3", map[string]any{"dsn": dsn, "exec": "insert into t values (1)"}); err == nil && r.Status == 200 {
			t.Errorf("%s: %+v", dsn, r)
		}
	}
}

func TestPoolsAreBounded(t *testing.T) {
	p := newPools(nil)
	defer p.close()
	for i := range 3 * maxPools {
		taken, err := p.take(mustSource(t, fmt.Sprintf("postgres://app@db%d/shop", i)))
		if err != nil {
			t.Fatal(err)
		}
		p.give(taken)
	}
	if n := len(p.open); n != maxPools {
		t.Errorf("%d pools are open", n)
	}
	last := fmt.Sprintf("postgres://app@db%d/shop", 3*maxPools-1)
	again, err := p.take(mustSource(t, last))
	if err != nil || again.source.dsn != last || len(p.open) != maxPools {
		t.Errorf("the newest is gone: %v", err)
	}
	for i := range maxPools - 1 {
		if _, err := p.take(mustSource(t, fmt.Sprintf("postgres://app@busy%d/shop", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.take(mustSource(t, "postgres://app@onemore/shop")); !isNotSent(err) || isPermanent(err) {
		t.Errorf("one more than may be: %v", err)
	}
	if _, err := p.take(mustSource(t, last)); err != nil {
		t.Errorf("one that is in use: %v", err)
	}
	for _, pool := range p.open {
		pool.users, pool.used = 0, time.Now().Add(-2*idlePool)
	}
	p.sweep(time.Now())
	if n := len(p.open); n != 0 {
		t.Errorf("%d pools are open that nobody has used for long", n)
	}
}

func TestARotatedPasswordIsUsedAtOnce(t *testing.T) {
	s := on(t, "postgres")
	s.exec(t, "create role rotated login password 'old'")
	t.Cleanup(func() { _, _ = s.db.ExecContext(context.Background(), "drop role rotated") })
	_, rest, _ := strings.Cut(s.dsn, "@")
	p := local(t)
	with := func(password string) map[string]any {
		return map[string]any{"dsn": "postgres://rotated:" + password + "@" + rest, "query": "select 1 as one", "readonly": true}
	}
	s.must(t, p, 200, "c1", with("old"))
	s.exec(t, "alter role rotated password 'new'")
	s.must(t, p, 200, "c2", with("new"))
	if r, err := s.call(t, p, "c3", with("wrong")); err != nil || r.Status != 503 || !r.Retry || !r.Refused {
		t.Errorf("a wrong password: %+v %v", r, err)
	}
}
