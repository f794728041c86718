package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/access"
	"edda/internal/testcerts"
	"edda/internal/testkit"
)

// shell runs commands and keeps the outputs apart.
func shell(t *testing.T, env []string, args ...string) (code int, out, said string) {
	t.Helper()
	stdout, stderr := newScreen(), newScreen()
	term := &terminal{in: strings.NewReader(""), out: stdout, err: stderr, env: env, version: "dev"}
	code = term.run(t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// token makes one and returns it.
func token(t *testing.T, book, name, role, tenants string) string {
	t.Helper()
	code, out, said := shell(t, nil, "token", "create", "--tokens", book, "--name", name, "--role", role, "--tenants", tenants)
	if code != 0 {
		t.Fatal(said)
	}
	return strings.TrimSpace(out)
}

func TestTokensAreMadeListedAndRevoked(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	secret := token(t, book, "ops", "operator", "acme,eu-*")
	token(t, book, "ann", "admin", "*")
	text, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(book); info.Mode().Perm() != 0o600 || strings.Contains(string(text), secret) || !strings.HasPrefix(secret, "edda_") {
		t.Errorf("%v, token %s\n%s", info.Mode(), secret, text)
	}
	if code, out, _ := shell(t, []string{"EDDA_TOKENS_FILE=" + book}, "token", "list"); code != 0 || !strings.Contains(out, "acme,eu-*") || !strings.Contains(out, "admin") || strings.Contains(out, "sha256") {
		t.Errorf("%d %s", code, out)
	}
	for _, wrong := range [][]string{
		{"--name", "ops", "--role", "viewer", "--tenants", "x"}, {"--name", "b", "--role", "root", "--tenants", "x"},
		{"--name", "b", "--role", "viewer"}, {"--name", "b b", "--role", "viewer", "--tenants", "x"},
	} {
		if code, out, said := shell(t, nil, append([]string{"token", "create", "--tokens", book}, wrong...)...); code != 2 || out != "" {
			t.Errorf("%v: %d %s %s", wrong, code, out, said)
		}
	}
	if code, out, said := shell(t, nil, "token", "create", "--name", "x", "--role", "viewer", "--tenants", "a"); code != 0 || !strings.Contains(said, `- {name: "x", role: viewer, tenants: ["a"], hash: "sha256:`) || strings.Count(out, "\n") != 1 {
		t.Errorf("without a file: %d %s %s", code, out, said)
	}
	if code, _, said := shell(t, nil, "token", "revoke", "--tokens", book, "ops"); code != 0 {
		t.Error(said)
	}
	if code, _, _ := shell(t, nil, "token", "revoke", "--tokens", book, "ops"); code != 1 {
		t.Errorf("revoked twice: %d", code)
	}
	if _, out, _ := shell(t, nil, "token", "list", "--tokens", book, "-o", "ids"); out != "ann\n" {
		t.Errorf("left: %q", out)
	}
}

func TestATokenThatIsNotMadeNamesTheFlag(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	token(t, book, "ops", "operator", "acme")
	if code, _, said := shell(t, nil, "token", "create", "--tokens", book, "--name", "gate", "--certificate", "gate.example", "--role", "viewer", "--tenants", "*"); code != 0 {
		t.Fatal(said)
	}
	before, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--name a --role king --tenants x", "edda: --role king: want viewer, operator or admin\n"},
		{"--name a --tenants x", "edda: --role is missing: want viewer, operator or admin\n"},
		{"--role viewer --tenants x", "edda: --name is missing: want letters, digits, '.', '_', '@' or '-', at most 64\n"},
		{"--name a/b --role viewer --tenants x", "edda: --name a/b: want letters, digits, '.', '_', '@' or '-', at most 64\n"},
		{"--name a --role viewer", "edda: --tenants is missing: name 1 to 100, or \"*\" for all\n"},
		{"--name ops --role viewer --tenants x", "edda: " + book + ": ops has this name already: choose another --name, or take that one out with edda token revoke ops\n"},
		{"--name b --role viewer --tenants x --certificate gate.example", "edda: " + book + ": gate has this certificate already: choose another --certificate, or take that one out with edda token revoke gate\n"},
	} {
		code, out, said := shell(t, nil, append([]string{"token", "create", "--tokens", book}, strings.Fields(c.args)...)...)
		if code != 2 || out != "" || said != c.want {
			t.Errorf("%s: %d %q %q", c.args, code, out, said)
		}
	}
	if after, err := os.ReadFile(book); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed: %s", after)
	}
	if code, _, said := shell(t, nil, "token", "create", "--name", "a", "--role", "king", "--tenants", "x"); code != 2 || !strings.HasPrefix(said, "edda: --role king: want") {
		t.Errorf("without a file: %d %s", code, said)
	}
}

func TestATokenIsMadeForAWhile(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	for name, until := range map[string]string{"days": "30d", "day": "2999-01-31T10:00:00+01:00", "ever": ""} {
		args := []string{"token", "create", "--tokens", book, "--name", name, "--role", "viewer", "--tenants", "x"}
		if until != "" {
			args = append(args, "--expires", until)
		}
		if code, _, said := shell(t, nil, args...); code != 0 {
			t.Fatal(said)
		}
	}
	var listed []access.Entry
	if _, out, _ := shell(t, nil, "token", "list", "--tokens", book, "-o", "json"); json.Unmarshal([]byte(out), &listed) != nil || len(listed) != 3 {
		t.Fatal(out)
	}
	for _, e := range listed {
		in := time.Until(e.Expires)
		if e.Name == "days" && (in < 29*24*time.Hour || in > 30*24*time.Hour) || e.Name == "ever" && !e.Expires.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	over := access.Entry{Name: "over", Role: access.Viewer, Tenants: []string{"x"}, Hash: access.Hash("x"), Expires: time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)}
	text, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	write(t, book, string(text)+over.Line())
	_, out, _ := shell(t, nil, "token", "list", "--tokens", book)
	for _, want := range []string{"EXPIRES", "2999-01-31T09:00:00.000Z", "never", "expired 2020-01-02T03:04:05.000Z"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	for _, wrong := range []string{"0s", "-1d", "soon", "2020-01-01T00:00:00Z", "30", "9999999d"} {
		if code, out, said := shell(t, nil, "token", "create", "--name", "a", "--role", "viewer", "--tenants", "x", "--expires", wrong); code != 2 || out != "" || !strings.HasPrefix(said, "edda: --expires ") {
			t.Errorf("%s: %d %s %s", wrong, code, out, said)
		}
	}
}

// The CLI's own verbs, over TLS with client certificates, as callers with less
// than they need.
func TestTheCLIIsHeldToItsToken(t *testing.T) {
	ca := testcerts.New(t)
	server, mine := ca.Issue(t, "edda"), ca.Issue(t, "ann")
	book, secrets := filepath.Join(t.TempDir(), "tokens.yaml"), t.TempDir()
	give := func(name, role, tenants string) []string {
		file := filepath.Join(secrets, name)
		write(t, file, token(t, book, name, role, tenants)+"\n")
		return []string{"EDDA_TOKEN_FILE=" + file}
	}
	viewer, operator, bound, admin := give("viewer", "viewer", "acme"), give("operator", "operator", "acme"), give("bound", "admin", "beta"), give("admin", "admin", "*")
	nats := startNATS(t, "127.0.0.1:0")
	r := startRun(t, nats.URL(), folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir(),
		"--tokens", book, "--tls-cert", server.Cert, "--tls-key", server.Key, "--tls-client-ca", ca.File)
	r.err.wait(t, started)
	if code, out := r.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--tenant", "acme", "--data", `{"order_id":"O1"}`); code != 0 {
		t.Fatal(out)
	}
	base := []string{"EDDA_URL=" + r.addr, "EDDA_CA=" + ca.File, "EDDA_CERT=" + mine.Cert, "EDDA_KEY=" + mine.Key, "USER=mallory"}
	as := func(who []string, args ...string) (int, string) {
		t.Helper()
		code, out, said := shell(t, append(base, who...), args...)
		return code, out + said
	}
	untilTrue(t, func() bool {
		code, _ := as(viewer, "instance", "describe", "order", "O1", "--tenant", "acme")
		return code == 0
	})
	for _, tt := range []struct {
		name string
		who  []string
		want string // empty: done
		args []string
	}{
		{"no token", nil, "show a token", []string{"instance", "list", "--tenant", "acme"}},
		{"unknown", []string{"EDDA_TOKEN=edda_x"}, "not known", []string{"instance", "list", "--tenant", "acme"}},
		{"reads", viewer, "", []string{"instance", "list", "--tenant", "acme"}},
		{"reads another's", viewer, `may not act for the tenant "beta"`, []string{"instance", "list", "--tenant", "beta"}},
		{"acts", viewer, "takes the role operator", []string{"instance", "cancel", "order", "O1", "--yes", "--why", "test", "--tenant", "acme"}},
		{"another's instance", bound, `may not act for the tenant "acme"`, []string{"instance", "describe", "order", "O1", "--tenant", "acme"}},
		{"another's key", bound, "no instance", []string{"instance", "describe", "order", "O1", "--tenant", "beta"}},
		{"another's letters", bound, `may not act for the tenant "acme"`, []string{"deadletter", "list", "--tenant", "acme"}},
		{"cancels another's", bound, `may not act for the tenant "acme"`, []string{"instance", "cancel", "order", "O1", "--yes", "--why", "test", "--tenant", "acme"}},
		{"reload as an operator", operator, "takes the role admin", []string{"reload"}},
		{"reload as one tenant's admin", bound, "bound to tenants", []string{"reload"}},
		{"drain as one tenant's admin", bound, "bound to tenants", []string{"drain"}},
		{"operator", operator, "", []string{"instance", "cancel", "order", "O1", "--yes", "--why", "test", "--tenant", "acme"}},
		{"admin", admin, "", []string{"reload"}},
		{"admin reads", admin, "operator (mallory)", []string{"instance", "describe", "order", "O1", "--tenant", "acme", "-o", "json"}},
	} {
		code, out := as(tt.who, tt.args...)
		if wrong := strings.HasPrefix(tt.name, "admin"); (code == 0) != (tt.want == "" || wrong) || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %d %s", tt.name, code, out)
		}
	}
	if code, out := as(admin, "token", "revoke", "--tokens", book, "operator"); code != 0 {
		t.Fatal(out)
	}
	if code, out := as(admin, "reload"); code != 0 {
		t.Fatal(out)
	}
	if code, out := as(operator, "instance", "list", "--tenant", "acme"); code != 1 || !strings.Contains(out, "not known") {
		t.Errorf("revoked: %d %s", code, out)
	}
	write(t, book, "- {name: broken")
	before := strings.Count(r.err.String(), "manifests reloaded")
	code, out := as(admin, "reload")
	for _, wrong := range []string{":0:0", "errors"} {
		if code != 1 || !strings.Contains(out, "tokens: "+book) || !strings.Contains(out, "; the file of before stays in force; the manifests are reloaded") || strings.Contains(out, wrong) {
			t.Errorf("a broken file: %d %s", code, out)
		}
	}
	if n := strings.Count(r.err.String(), "manifests reloaded"); n != before+1 {
		t.Errorf("the manifests were reloaded %d times before and %d in all", before, n)
	}
	if code, out := as(admin, "instance", "list", "--tenant", "acme"); code != 0 {
		t.Errorf("after a broken file: %d %s", code, out)
	}
	base = base[:2]
	if code, out := as(admin, "instance", "list", "--tenant", "acme"); code != 1 || strings.Contains(out, "O1") {
		t.Errorf("without a certificate: %d %s", code, out)
	}
}

// A token is revoked also while NATS is away, and nothing else can be reloaded.
func TestATokenIsRevokedWithoutNATS(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	admin, gone := token(t, book, "admin", "admin", "*"), token(t, book, "gone", "viewer", "*")
	r := startRun(t, "nats://"+freeAddr(t), folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir(), "--tokens", book)
	probe(t, r, "/live", http.StatusOK)
	info := func(token string) int {
		req := testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/info", nil))
		req.Header.Set("Authorization", "Bearer "+token)
		resp := testkit.Value[*http.Response](t)(http.DefaultClient.Do(req))
		testkit.Must(t, resp.Body.Close())
		return resp.StatusCode
	}
	if code := info(gone); code != http.StatusOK {
		t.Fatal(code)
	}
	if code, _, said := shell(t, nil, "token", "revoke", "--tokens", book, "gone"); code != 0 {
		t.Fatal(said)
	}
	shell(t, []string{"EDDA_URL=" + r.addr, "EDDA_TOKEN=" + admin}, "reload") // fails: there is no NATS
	if code := info(gone); code != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", code)
	}
	if code := info(admin); code != http.StatusOK {
		t.Errorf("another token: %d", code)
	}
}

func TestRunIsRefusedWhereAnyoneCouldCall(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	token(t, book, "a", "viewer", "*")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	write(t, broken, "- {name: a}")
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	for want, args := range map[string][]string{
		"--tokens":      {"--addr", "0.0.0.0:0"},
		"tls.cert":      {"--addr", "0.0.0.0:0", "--tokens", book},
		"no such file":  {"--tokens", book + "x"},
		"broken.yaml":   {"--tokens", broken},
		"and a key":     {"--tls-cert", book},
		"tls.client_ca": {"--tls-client-ca", book},
	} {
		code, _, said := shell(t, []string{"NATS_URL=nats://127.0.0.1:1"}, append([]string{"run", dir, "--data", t.TempDir()}, args...)...)
		if code != 2 || !strings.Contains(said, want) {
			t.Errorf("%v: %d %s", args, code, said)
		}
	}
}

func TestATokenInTheClearIsWarnedOf(t *testing.T) {
	_, _, said := shell(t, []string{"EDDA_TOKEN=edda_secret"}, "instance", "list", "--addr", "http://192.0.2.1:1", "--tenant", "x", "--ca", "/nowhere")
	if !strings.Contains(said, "in the clear") || strings.Contains(said, "edda_secret") {
		t.Error(said)
	}
	_, _, said = shell(t, []string{"EDDA_TOKEN=edda_secret"}, "instance", "list", "--addr", "127.0.0.1:1", "--tenant", "x")
	if strings.Contains(said, "in the clear") {
		t.Error(said)
	}
}

// untilTrue repeats a look until it sees what it looks for.
func untilTrue(t *testing.T, look func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !look() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it did not come to be")
		}
	}
}
