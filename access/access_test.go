package access

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"net/http"

	"edda/internal/testkit"
)

func book(t *testing.T, entries ...Entry) *Book {
	t.Helper()
	var text []byte
	for _, e := range entries {
		var err error
		if text, err = Add(text, e); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return b
}

func TestATokenIsFoundByItsHash(t *testing.T) {
	mine, theirs := NewToken(), NewToken()
	b := book(t,
		Entry{Name: "ann", Role: Admin, Tenants: []string{"*"}, Hash: Hash(theirs)},
		Entry{Name: "ops", Role: Operator, Tenants: []string{"acme", "eu-*"}, Hash: Hash(mine)})
	c, ok := b.Bearer(mine)
	if !ok || c.Name != "ops" || c.Role != Operator || !c.Serves("acme") || !c.Serves("eu-west") || c.Serves("us") || c.Serves("") || c.Everywhere() {
		t.Errorf("%+v %t", c, ok)
	}
	if c, _ := b.Bearer(theirs); !c.Everywhere() || !c.Serves("") {
		t.Errorf("%+v", c)
	}
	for _, wrong := range []string{"", "edda_", mine + "x", mine[:len(mine)-1], strings.ToUpper(mine), Hash(mine), "ops", NewToken()} {
		if c, ok := b.Bearer(wrong); ok {
			t.Errorf("%q is taken for %s", wrong, c.Name)
		}
	}
}

func TestACertificateIsNoTokenAndTheReverse(t *testing.T) {
	token := NewToken()
	b := book(t,
		Entry{Name: "gateway", Role: Operator, Tenants: []string{"*"}, Certificate: "gateway.internal"},
		Entry{Name: "ann", Role: Viewer, Tenants: []string{"*"}, Hash: Hash(token)})
	if c, ok := b.Certificate([]string{"other", "gateway.internal"}); !ok || c.Name != "gateway" {
		t.Errorf("%+v %t", c, ok)
	}
	for _, names := range [][]string{nil, {""}, {"gateway"}, {Hash(token)}} {
		if c, ok := b.Certificate(names); ok {
			t.Errorf("%q is taken for %s", names, c.Name)
		}
	}
	if _, ok := b.Bearer("gateway.internal"); ok {
		t.Error("a certificate's name is a token")
	}
}

func TestTokensHave256RandomBits(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := NewToken()
		if seen[token] || len(token) != len(tokenMark)+43 {
			t.Fatalf("token %q", token)
		}
		seen[token] = true
	}
}

func TestATokenExpires(t *testing.T) {
	end := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("", 3600))
	b := book(t,
		Entry{Name: "short", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("short"), Expires: end},
		Entry{Name: "gate", Role: Viewer, Tenants: []string{"*"}, Certificate: "gate.example", Expires: end},
		Entry{Name: "ever", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("ever")})
	short, known := b.Bearer("short")
	gate, verified := b.Certificate([]string{"gate.example"})
	ever, _ := b.Bearer("ever")
	if !known || !verified || !short.Expires.Equal(end) {
		t.Fatalf("%+v %+v", short, gate)
	}
	for now, want := range map[time.Time]bool{end.Add(-1): false, end: true, end.AddDate(1, 0, 0): true} {
		if short.Expired(now) != want || gate.Expired(now) != want || ever.Expired(now) {
			t.Errorf("at %s: %t %t %t", now, short.Expired(now), gate.Expired(now), ever.Expired(now))
		}
	}
	for text, want := range map[string]time.Time{"2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "'2026-03-01T11:00:00Z'": end, "2026-03-01T12:00:00+01:00": end} {
		b, err := Parse([]byte("- {name: a, role: viewer, tenants: [x], hash: '" + Hash("x") + "', expires: " + text + "}"))
		if err != nil || !b.Entries()[0].Expires.Equal(want) {
			t.Errorf("%s: %v %v", text, b, err)
		}
	}
}

func TestRolesInclude(t *testing.T) {
	for _, tt := range []struct {
		has, needs Role
		want       bool
	}{
		{Viewer, Viewer, true}, {Viewer, Operator, false}, {Operator, Viewer, true}, {Operator, Admin, false},
		{Admin, Admin, true}, {Admin, Viewer, true}, {"", Viewer, false}, {"root", Viewer, false}, {Admin, "", false}, {"", "", false},
	} {
		if got := tt.has.Includes(tt.needs); got != tt.want {
			t.Errorf("%q includes %q: %t", tt.has, tt.needs, got)
		}
	}
}

func TestABookThatIsNotUnderstoodIsRefused(t *testing.T) {
	good := Hash("x")
	for name, text := range map[string]string{
		"no list":            "name: a",
		"unknown field":      "- {name: a, role: viewer, tenants: [x], hash: '" + good + "', rolle: admin}",
		"unknown role":       "- {name: a, role: root, tenants: [x], hash: '" + good + "'}",
		"no role":            "- {name: a, tenants: [x], hash: '" + good + "'}",
		"no tenants":         "- {name: a, role: viewer, hash: '" + good + "'}",
		"empty tenant":       "- {name: a, role: viewer, tenants: [''], hash: '" + good + "'}",
		"no hash":            "- {name: a, role: viewer, tenants: [x]}",
		"both":               "- {name: a, role: viewer, tenants: [x], certificate: y, hash: '" + good + "'}",
		"a token as hash":    "- {name: a, role: viewer, tenants: [x], hash: edda_abc}",
		"a short hash":       "- {name: a, role: viewer, tenants: [x], hash: 'sha256:ab'}",
		"a name with space":  "- {name: 'a (b)', role: viewer, tenants: [x], hash: '" + good + "'}",
		"no name":            "- {role: viewer, tenants: [x], hash: '" + good + "'}",
		"the same name":      "- {name: a, role: viewer, tenants: [x], hash: '" + good + "'}\n- {name: a, role: viewer, tenants: [x], hash: '" + Hash("y") + "'}",
		"the same hash":      "- {name: a, role: viewer, tenants: [x], hash: '" + good + "'}\n- {name: b, role: admin, tenants: [x], hash: '" + good + "'}",
		"an expiry of words": "- {name: a, role: viewer, tenants: [x], hash: '" + good + "', expires: soon}",
		"an expiry in days":  "- {name: a, role: viewer, tenants: [x], hash: '" + good + "', expires: 30d}",
		"a number as expiry": "- {name: a, role: viewer, tenants: [x], hash: '" + good + "', expires: 30}",
		"a second document":  "[]\n---\n- {name: a, role: viewer, tenants: [x], hash: '" + good + "'}",
		"too large":          strings.Repeat("#", maxBook+1),
	} {
		if b, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: taken as %+v", name, b.Entries())
		}
	}
	for name, text := range map[string]string{"empty": "", "comment": "# nobody yet\n", "empty list": "[]"} {
		if b, err := Parse([]byte(text)); err != nil || len(b.Entries()) != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARevokedTokenIsGoneAndTheRestStays(t *testing.T) {
	text := "# who may call\n" + Entry{Name: "a", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("a")}.Line() +
		"# the second\n" + Entry{Name: "b", Role: Admin, Tenants: []string{"x", "y*"}, Hash: Hash("b")}.Line()
	left, err := Remove([]byte(text), "a")
	testkit.Must(t, err)
	b, err := Parse(left)
	if err != nil {
		t.Fatalf("%v\n%s", err, left)
	}
	if _, ok := b.Bearer("a"); ok || len(b.Entries()) != 1 || !strings.Contains(string(left), "# the second") {
		t.Errorf("%s", left)
	}
	left, err = Remove(left, "b")
	testkit.Must(t, err)
	if b, err = Parse(left); err != nil || len(b.Entries()) != 0 {
		t.Errorf("%v %s", err, left)
	}
	again, err := Add(left, Entry{Name: "c", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("c")})
	if err != nil {
		t.Errorf("nothing can be added to %q: %v", left, err)
	}
	if _, err := Remove(again, "nobody"); err == nil {
		t.Error("nobody was removed")
	}
}

func TestABrokenFileLeavesTheBookAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if _, err := Open(path); err == nil {
		t.Error("a missing file is a book")
	}
	write := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(Entry{Name: "a", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("a")}.Line())
	k, err := Open(path)
	testkit.Must(t, err)
	write("- {")
	if err := k.Reload(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, ok := k.Book().Bearer("a"); !ok {
		t.Error("the book from before is gone")
	}
	write("[]")
	testkit.Must(t, k.Reload())
	if _, ok := k.Book().Bearer("a"); ok {
		t.Error("a revoked token is taken")
	}
}

func FuzzBook(f *testing.F) {
	f.Add([]byte(Entry{Name: "a", Role: Viewer, Tenants: []string{"*"}, Hash: Hash("a")}.Line()))
	f.Add([]byte("- &a {name: a}\n- *a\n"))
	f.Add([]byte("- {name: a, role: admin, tenants: [\"*\"], hash: null}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Parse(text)
		if err != nil {
			return
		}
		for _, e := range b.Entries() {
			if e.check() != nil {
				t.Fatalf("taken: %+v", e)
			}
			if left, err := Remove(text, e.Name); err != nil {
				t.Fatalf("%q cannot be removed: %v", e.Name, err)
			} else if again, err := Parse(left); err != nil || len(again.Entries()) != len(b.Entries())-1 {
				t.Fatalf("after removal of %q: %v\n%s", e.Name, err, left)
			}
		}
		if _, ok := b.Bearer(""); ok {
			t.Fatal("no token at all is taken")
		}
	})
}

func TestASecretHasOneOwner(t *testing.T) {
	s := SecretHashes[string]{}
	s.Add("one", "ann")
	s.Add("one", "ben")
	s.Add("two", "ben")
	for secret, want := range map[string]string{"one": "ann", "two": "ben", "": "", "ONE": "", "one ": ""} {
		if owner, ok := s.Owner(secret); owner != want || ok != (want != "") {
			t.Errorf("%q is %q's %t", secret, owner, ok)
		}
	}
}

func TestABearerTokenIsReadFromTheHeader(t *testing.T) {
	for header, want := range map[string]string{"Bearer x": "x", "bEARER  x ": "x", "Basic x": "", "Bearer": "", "": ""} {
		token, ok := BearerToken(&http.Request{Header: http.Header{"Authorization": {header}}})
		if ok != (want != "") || ok && token != want {
			t.Errorf("%q is %q %t", header, token, ok)
		}
	}
}
