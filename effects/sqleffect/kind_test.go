package sqleffect

import (
	"fmt"
	"strings"
	"testing"

	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

func compile(t *testing.T, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("e.yaml", []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse %s: %v", text, problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"sql": Kind()})
}

func TestCheck(t *testing.T) {
	const dsn, exec = "dsn: =secret.DB", "exec: insert into t (a) values (?)"
	var accepted []string
	for _, tt := range []struct{ text, want string }{
		{dsn + ", " + exec + ", args: [=payload.a]", ""},
		{dsn + ", " + exec + ", args: =payload.list", ""},
		{dsn + ", query: select 1, max_rows: 10000, readonly: true, isolation: serializable, driver: postgres", ""},
		{dsn + ", tls: {ca: =secret.CA}, query: '(select 1) union select 2;'", ""},
		{"dsn: 'sqlite:/data/shop.db?busy_timeout=100', " + exec, ""},
		{"dsn: 'postgres://app@db/shop?sslmode=verify-full', " + exec, ""},
		{"dsn: 'mysql://app@db/shop?tls=true', " + exec, ""},
		{"dsn: 'postgres://app:${secret.PW}@db/shop_${tenant}', " + exec, ""},
		{"dsn: '${secret.BASE}/shop_${tenant}', " + exec, ""},
		{"dsn: 'host=db user=app', driver: postgres, " + exec, ""},

		{exec, "sql needs dsn"},
		{dsn, "sql needs exec or query"},
		{dsn + ", " + exec + ", query: select 1", "has exec and query"},
		{dsn + ", " + exec + ", max_rows: 3", "max_rows is for query"},
		{dsn + ", " + exec + ", readonly: true", "readonly is for query"},
		{dsn + ", " + exec + ", statement: x", "sql knows no statement"},
		{dsn + ", " + exec + ", args: {a: 1}", "args is a list"},
		{dsn + ", " + exec + ", args: 1", "args is a list"},
		{dsn + ", " + exec + ", isolation: chaos", "isolation is one of"},
		{dsn + ", " + exec + ", isolation: =payload.x", "isolation is one of"},
		{dsn + ", " + exec + ", driver: oracle", "driver is one of mysql, postgres, sqlite"},
		{dsn + ", query: select 1, max_rows: 10001", "max_rows is 1 to 10000"},
		{dsn + ", query: select 1, max_rows: 0", "max_rows is 1 to"},
		{dsn + ", query: select 1, max_rows: =payload.n", "max_rows is 1 to"},
		{dsn + ", query: select 1, readonly: 1", "readonly is true or false"},
		{dsn + ", tls: {key: abc, cert: x}, query: select 1", "a private key is a secret"},

		{dsn + ", exec: =payload.sql", "literal text, so that no value can become SQL"},
		{dsn + ", exec: \"delete from t where a = '${payload.a}'\"", "write a placeholder"},
		{dsn + ", exec: [a]", "exec is a statement"},
		{dsn + ", exec: ''", "sql needs exec or query"},
		{dsn + ", exec: 'insert into t values (1); drop table t'", "one statement a command"},
		{dsn + ", exec: drop table t", "a statement begins with one of"},
		{dsn + ", exec: commit", "a statement begins with one of"},
		{dsn + ", exec: \"attach 'x.db' as x\"", "a statement begins with one of"},
		{dsn + ", exec: pragma query_only = 0", "a statement begins with one of"},
		{dsn + ", exec: '/*!50000 drop table t */'", "a statement begins with one of"},
		{dsn + ", exec: \"load data local infile '/etc/passwd' into table t\"", "a statement begins with one of"},

		{"dsn: 'postgres://app:hunter2@db/shop', " + exec, "a password is a secret"},
		{"dsn: 'postgres://app@db/shop?password=hunter2', " + exec, "a password is a secret"},
		{"dsn: 'app:hunter2@tcp(db)/shop', driver: mysql, " + exec, "a password is a secret"},
		{"dsn: 'host=db user=app password=hunter2', driver: postgres, " + exec, "a password is a secret"},
		{"dsn: '=\"postgres://app:hunter2@db/\" + secret.NAME', " + exec, "a password is a secret"},
		{"dsn: 'postgres://app:hunter2@db/${tenant}', " + exec, "a password is a secret"},
		{"dsn: =payload.dsn, " + exec, "dsn may use only secret, not payload"},
		{"dsn: =tenant, " + exec, "dsn may use only secret, not tenant"},
		{"dsn: 'postgres://app:${secret.PW}@${payload.host}/shop', " + exec, "dsn may use only secret and tenant, not payload"},
		{"dsn: 'app:${secret.PW}@tcp(db)/shop', driver: mysql, " + exec, "is written as a URL"},
		{"dsn: [a], " + exec, "dsn is a text"},
		{"dsn: 'oracle://db', " + exec, "which database the dsn is for cannot be seen"},
		{"dsn: 'mysql://app@db/shop', driver: postgres, " + exec, "driver and the dsn's scheme differ"},
		{"dsn: 'sqlite::memory:', " + exec, "in memory"},
		{"dsn: 'sqlite:/x.db?mode=rwc', " + exec, "dsn of sqlite may set"},
		{"dsn: 'sqlite:/x.db?_pragma=writable_schema(1)', " + exec, "dsn of sqlite may set"},
		{"dsn: 'mysql://app@db/shop?allowAllFiles=true', " + exec, "dsn may not set allowAllFiles"},
		{"dsn: 'mysql://app@db/shop?multiStatements=true', " + exec, "dsn may not set multiStatements"},
		{"dsn: 'mysql://app@db/shop?interpolateParams=true', " + exec, "dsn may not set interpolateParams"},
		{"dsn: 'mysql://app@db/shop?autocommit=1', " + exec, "dsn sets a variable"},
		{"dsn: 'mysql://app@db/shop?sql_mode=(select%201)', " + exec, "dsn sets a variable"},
		{"dsn: 'postgres://app@db/shop?passfile=/etc/shadow', " + exec, "dsn may not set passfile"},
		{"dsn: 'postgres://app@db/shop?service=x', " + exec, "dsn may not set service"},
		{"dsn: 'postgres://app@db/shop?sslkey=/etc/key', " + exec, "dsn may not set sslkey"},
		{"dsn: 'postgres://app@db/shop?default_query_exec_mode=simple_protocol', " + exec, "pastes text into SQL"},
		{"dsn: 'postgres:///shop', " + exec, "names no host or no user"},
	} {
		text := "effect: a\nsql: {" + tt.text + "}\n"
		_, problems := compile(t, text)
		if tt.want == "" {
			accepted = append(accepted, text)
		}
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
		if strings.Contains(fmt.Sprint(problems), "hunter2") {
			t.Errorf("%s: the password shows: %v", tt.text, problems)
		}
	}
	effecttest.Schema(t, Kind().Spec, accepted...)
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ before, value, want string }{
		{"", "postgres://a:b@c/d", "postgres://a:b@c/d"},
		{"postgres://app:", "p@ss:w/or?d#% ", "p%40ss%3Aw%2For%3Fd%23%25%20"},
		{"postgres://", "db:5432", "db:5432"},
		{"postgres://app:x@", "db:5432", "db:5432"},
		{"postgres://app:x@db/shop_", "x?sslmode=disable", "x%3Fsslmode%3Ddisable"},
		{"postgres://app:x@db/shop_", "acme-1_A", "acme-1_A"},
		{"sqlite:/data/", "..", "%2E%2E"},
		{"sqlite:/data/", "../x", "..%2Fx"},
	} {
		if got := escape(tt.before, tt.value); got != tt.want {
			t.Errorf("%q after %q is %q, want %q", tt.value, tt.before, got, tt.want)
		}
	}
}
