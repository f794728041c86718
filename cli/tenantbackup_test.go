package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const keptSaga = `saga: kept
version: 1
key: event.order_id
on:
  OrderPlaced: {start: true, set: {note: =event.note}}
  signal.finish: {do: [{done: =state.note}]}
`

// tenantsFile is a backup of acme: it has what is acme's, and nothing of beta.
func tenantsFile(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(raw, []byte("of acme alone")) {
		t.Errorf("%s has nothing of acme", file)
	}
	for _, foreign := range []string{"beta", "B1-key", "of the other"} {
		if bytes.Contains(raw, []byte(foreign)) {
			t.Errorf("%s has %q of beta", file, foreign)
		}
	}
}

// One tenant's admin takes a backup over HTTP, an operator one of the file; both
// are stores of that tenant alone, on which its sagas go on beside the process
// that keeps the others.
func TestATenantMovesByItsBackup(t *testing.T) {
	nats, manifest := startNATS(t, "127.0.0.1:0"), folder(t, map[string]string{"kept.yaml": keptSaga})
	book, data, files := filepath.Join(t.TempDir(), "tokens.yaml"), t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(files, name) }
	tokens := map[string]string{}
	for name, of := range map[string][2]string{"acme": {"admin", "acme"}, "ops": {"operator", "acme"}, "beta": {"admin", "beta"}, "root": {"admin", "*"}} {
		tokens[name] = token(t, book, name, of[0], of[1])
	}
	r := startRun(t, nats.URL(), manifest, "--data", data, "--tokens", book)
	r.err.wait(t, started)
	as := func(r *running, who string, args ...string) (int, string) {
		t.Helper()
		code, out, said := shell(t, []string{"EDDA_URL=" + r.addr, "EDDA_TOKEN=" + tokens[who], "NATS_URL=" + r.nats}, args...)
		return code, out + said
	}
	for tenant, data := range map[string]string{"acme": `{"order_id":"A1-key","note":"of acme alone"}`, "beta": `{"order_id":"B1-key","note":"of the other"}`} {
		if code, out := as(r, "root", "send", "Order.OrderPlaced", "--id", "X", "--tenant", tenant, "--data", data); code != 0 {
			t.Fatal(out)
		}
		untilTrue(t, func() bool {
			_, out := as(r, "root", "instance", "list", "--tenant", tenant)
			return strings.Contains(out, "-key")
		})
	}
	for _, tt := range []struct {
		who, want string // empty: done
		args      []string
	}{
		{"ops", "takes the role admin", []string{"--tenant", "acme"}},
		{"beta", `may not act for the tenant "acme"`, []string{"--tenant", "acme"}},
		{"acme", "bound to tenants", nil}, // of the whole
		{"root", "nothing of a tenant of that name", []string{"--tenant", "nobody"}},
		{"acme", "", []string{"--tenant", "acme", "--why", "asked for"}},
	} {
		code, out := as(r, tt.who, append([]string{"backup", at("http.db")}, tt.args...)...)
		if (code == 0) != (tt.want == "") || !strings.Contains(out, tt.want) {
			t.Errorf("%s %v: %d %s", tt.who, tt.args, code, out)
		}
		if _, err := os.Stat(at("http.db")); (err == nil) != (tt.want == "") {
			t.Errorf("%s %v: the file: %v", tt.who, tt.args, err)
		}
	}
	if code, out := as(r, "acme", "audit", "list", "--tenant", "acme"); code != 0 || !strings.Contains(out, "backup") || !strings.Contains(out, "asked for") {
		t.Errorf("the tenant's audit: %d %s", code, out)
	}
	tenantsFile(t, at("http.db"))
	if code := r.stop(); code != 0 {
		t.Fatal(r.err)
	}
	if code, out := held(t, "backup", at("file.db"), "--tenant", "acme", "--data", data); code != 0 {
		t.Fatal(out)
	}
	tenantsFile(t, at("file.db"))

	for _, file := range []string{"http.db", "file.db"} {
		moved := filepath.Join(t.TempDir(), file)
		if code, out := held(t, "restore", at(file), "--data", moved); code != 0 || !strings.Contains(out, "tenants: [acme]") {
			t.Fatalf("%d %s", code, out)
		}
		if code, out := held(t, "doctor", "--data", moved); code != 0 || !strings.Contains(out, "0 findings") {
			t.Errorf("%d %s", code, out)
		}
		for _, tenants := range []string{"", "beta", "acme,beta", "ac*"} {
			if code, _, said := shell(t, []string{"NATS_URL=" + nats.URL()}, "run", manifest, "--data", moved, "--addr", freeAddr(t), "--tenants", tenants); code != 1 || !strings.Contains(said, "tenants: [acme]") {
				t.Errorf("run for %q: %d %s", tenants, code, said)
			}
		}
		if file == "file.db" {
			goesOn(t, nats.URL(), manifest, data, moved)
		}
	}
}

// goesOn runs the store of the others and that of acme side by side.
func goesOn(t *testing.T, nats, manifest, rest, moved string) {
	t.Helper()
	others := startRun(t, nats, manifest, "--data", rest, "--tenants", "beta")
	others.err.wait(t, started)
	acme := startRun(t, nats, manifest, "--data", moved, "--tenants", "acme")
	acme.err.wait(t, started)
	if out := acme.until(t, "of acme alone", "instance", "describe", "kept", "A1-key", "--tenant", "acme", "-o", "json"); strings.Contains(out, "beta") {
		t.Error(out)
	}
	acme.until(t, "OrderPlaced", "instance", "history", "kept", "A1-key", "--tenant", "acme")
	if code, out := acme.edda(t, "instance", "list", "--tenant", "beta"); code != 0 || strings.Contains(out, "B1") {
		t.Errorf("beta: %d %s", code, out)
	}
	if code, out := acme.edda(t, "instance", "signal", "kept", "A1-key", "finish", "--tenant", "acme"); code != 0 {
		t.Error(out)
	}
	acme.until(t, `"status": "done"`, "instance", "describe", "kept", "A1-key", "--tenant", "acme", "-o", "json")
	if code, out := others.edda(t, "instance", "signal", "kept", "B1-key", "finish", "--tenant", "beta"); code != 0 {
		t.Error(out)
	}
	others.until(t, `"status": "done"`, "instance", "describe", "kept", "B1-key", "--tenant", "beta", "-o", "json")
}
