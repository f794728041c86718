package sqleffect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda/effects"
	"edda/effects/dial"
	"edda/internal/realservers"
)

// servers are the real ones, for all tests of this package.
type servers struct{ postgres, mariadb *realservers.Server }

var real servers

func TestMain(m *testing.M) {
	code, err := withServers(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withServers starts both at once, and runs the tests even where one is
// missing: those of others may pass.
func withServers(run func() int) (int, error) {
	type started struct {
		s   *realservers.Server
		err error
	}
	second := make(chan started, 1)
	go func() {
		s, err := realservers.MariaDB()
		second <- started{s, err}
	}()
	first, err := realservers.Postgres()
	other := <-second
	code := 1
	if err = errors.Join(err, other.err); err == nil {
		real = servers{first, other.s}
		code = run()
	}
	for _, s := range []*realservers.Server{first, other.s} {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	return code, err
}

// side is one of the three databases as a test sees it.
type side struct {
	name string
	dsn  string
	db   *sql.DB
}

// mark writes the placeholders of a statement as the database does.
func (s side) mark(text string) string {
	if s.name != "postgres" {
		return text
	}
	for i := 1; strings.Contains(text, "?"); i++ {
		text = strings.Replace(text, "?", fmt.Sprintf("$%d", i), 1)
	}
	return text
}

// at is the dsn with another address, where one is given, and a query.
func (s side) at(address, query string) string {
	dsn := s.dsn
	if address != "" {
		dsn = strings.NewReplacer(real.postgres.Address(), address, real.mariadb.Address(), address).Replace(dsn)
	}
	if query == "" {
		return dsn
	}
	if strings.Contains(dsn, "?") {
		return dsn + "&" + query
	}
	return dsn + "?" + query
}

// onAll runs a test on each database: an empty one of its own.
func onAll(t *testing.T, test func(t *testing.T, s side)) {
	t.Helper()
	for _, name := range []string{"postgres", "mysql", "sqlite"} {
		t.Run(name, func(t *testing.T) { test(t, on(t, name)) })
	}
}

// on makes a database of a test's own.
func on(t *testing.T, name string) side {
	t.Helper()
	s := side{name: name}
	own := "t" + strings.ToLower(strings.NewReplacer("/", "_", "#", "_", "-", "_").Replace(t.Name()))
	own = own[:min(len(own), 60)]
	switch name {
	case "postgres":
		s.dsn = server(t, real.postgres, "postgres", real.postgres.Database, "SCHEMA "+own, " CASCADE", "") + "?sslmode=disable&search_path=" + own
	case "mysql":
		s.dsn = server(t, real.mariadb, "mysql", own, "DATABASE "+own, "", " CHARACTER SET utf8mb4")
	case "sqlite":
		path := filepath.Join(t.TempDir(), "shop.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.dsn = "sqlite:" + path
	}
	s.db = openRaw(t, s.dsn+map[string]string{"sqlite": "?busy_timeout=20"}[name])
	return s
}

// server makes something empty at a server, and gives the dsn of a database there.
func server(t *testing.T, r *realservers.Server, scheme, database, empty, drop, create string) string {
	t.Helper()
	address := func(database string) string {
		return (&url.URL{Scheme: scheme, User: url.UserPassword(r.User, r.Password), Host: r.Address(), Path: "/" + database}).String()
	}
	admin := openRaw(t, address(r.Database))
	if _, err := admin.ExecContext(t.Context(), "CREATE "+empty+create); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP "+empty+drop); err != nil {
			t.Error(err)
		}
	})
	return address(database)
}

// openRaw is a pool of the test's own, past the provider.
func openRaw(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	guard, err := dial.New(dial.Options{AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPools(guard).take(mustSource(t, dsn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.DB.Close() })
	p.DB.SetMaxOpenConns(0)
	return p.DB
}

func mustSource(t *testing.T, dsn string) source {
	t.Helper()
	s, err := sourceOf(map[string]any{"dsn": dsn}, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// exec prepares something, past the provider.
func (s side) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), s.mark(text), args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// number is the first column of the first row.
func (s side) number(t *testing.T, text string, args ...any) int {
	t.Helper()
	var n int
	if err := s.db.QueryRowContext(t.Context(), s.mark(text), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

func newProvider(t *testing.T, o dial.Options) *Provider {
	t.Helper()
	guard, err := dial.New(o)
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Guard: guard})
	t.Cleanup(p.Close)
	return p
}

// local is a provider that may reach this machine.
func local(t *testing.T) *Provider {
	t.Helper()
	return newProvider(t, dial.Options{AllowLoopback: true})
}

// call is a command of tenant acme.
func (s side) call(t *testing.T, p *Provider, key string, config map[string]any) (effects.Response, error) {
	t.Helper()
	return p.Call(t.Context(), s.command(key, config))
}

// command has the dsn and the placeholders of this database.
func (s side) command(key string, config map[string]any) effects.Call {
	full := map[string]any{"dsn": s.dsn}
	for name, v := range config {
		if text, isText := v.(string); isText && (name == "exec" || name == "query") {
			v = s.mark(text)
		}
		full[name] = v
	}
	return effects.Call{Effect: "pay", ID: key, Key: key, Tenant: "acme", Config: full}
}

// must is a call that is answered with a status.
func (s side) must(t *testing.T, p *Provider, status int, key string, config map[string]any) map[string]any {
	t.Helper()
	r, err := s.call(t, p, key, config)
	body, _ := r.Body.(map[string]any)
	if err != nil || r.Status != status {
		t.Fatalf("%s %v: %d %v %v, want %d", key, config, r.Status, r.Body, err, status)
	}
	return body
}
