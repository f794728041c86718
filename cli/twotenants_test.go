package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// callers are the commands that call a process, by whether they have a server's
// address to be told.
func callers(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		names = append(names, callers(c)...)
	}
	alone := !cmd.HasSubCommands() || cmd.ValidateArgs([]string{"x"}) == nil // as edda replay SAGA does
	if cmd.Runnable() && alone && cmd.Flag("token-file") != nil {
		names = append(names, strings.TrimPrefix(cmd.CommandPath(), "edda "))
	}
	return names
}

// otherDoors are commands of the Hero systems: their coordinator knows actors, not
// tenants, and its room has a table of its own. Whether a process works is nobody's secret.
var otherDoors = []string{"health", "hero call", "hero flow cancel", "hero flow create", "hero flow delete", "hero flow list", "hero flow met", "hero flow show", "hero flow start"}

// asAnother is how each command asks for what is acme's; LETTER is a dead letter of acme, FILE
// a file that is not there.
var asAnother = map[string][]string{
	"audit list":         {},
	"backup":             {"FILE"},
	"cluster deploy":     {"../manifests/examples"},
	"cluster finalize":   {"--why", "x", "--yes"},
	"cluster forget":     {"n9"},
	"cluster manifests":  {},
	"cluster move":       {},
	"cluster status":     {},
	"compact":            {"--why", "x"},
	"deadletter drop":    {"LETTER", "--why", "x"},
	"deadletter list":    {},
	"deadletter redrive": {"LETTER", "--why", "x"},
	"deadletter show":    {"LETTER"},
	"deadletter skip":    {"LETTER", "--why", "x"},
	"doctor":             {},
	"drain":              {},
	"eval":               {"--instance", "kept/A1-key", "state"},
	"gc":                 {"--why", "x"},
	"instance answer":    {"kept", "A1-key", "ask", "on"},
	"instance cancel":    {"kept", "A1-key", "--why", "x", "--yes"},
	"instance describe":  {"kept", "A1-key"},
	"instance held":      {},
	"instance parked":    {},
	"instance history":   {"kept", "A1-key"},
	"instance list":      {},
	"instance retry":     {"kept", "A1-key", "step", "--why", "x"},
	"instance signal":    {"kept", "A1-key", "finish"},
	"instance skip":      {"kept", "A1-key", "step", "--why", "x", "--yes"},
	"instance terminate": {"kept", "A1-key", "--why", "x", "--yes"},
	"ls":                 {},
	"mock down":          {"ship"},
	"mock fail":          {"ship"},
	"mock list":          {},
	"mock ok":            {"ship"},
	"mock timeout":       {"ship"},
	"reload":             {},
	"replay":             {"kept", "--why", "x", "--yes"},
	"replay list":        {},
	"source list":        {},
	"source unheard":     {},
}

func TestEveryCommandThatCallsIsAskedAsAnotherTenant(t *testing.T) {
	term := &terminal{in: strings.NewReader(""), out: newScreen(), err: newScreen()}
	names := callers(term.root())
	for _, name := range names {
		if _, ok := asAnother[name]; !ok && !slices.Contains(otherDoors, name) {
			t.Errorf("edda %s is not in the table: say how it asks for what is another tenant's", name)
		}
	}
	for name := range asAnother {
		if !slices.Contains(names, name) {
			t.Errorf("the table speaks of edda %s, which is not there", name)
		}
	}
	if t.Failed() {
		return
	}
	nats, files := startNATS(t, "127.0.0.1:0"), t.TempDir()
	book := filepath.Join(files, "tokens.yaml")
	owner, beta := token(t, book, "acme", "admin", "acme"), token(t, book, "beta", "admin", "beta")
	r := startRun(t, nats.URL(), folder(t, map[string]string{"kept.yaml": keptSaga}), "--data", t.TempDir(), "--tokens", book)
	r.err.wait(t, started)
	as := func(token string, args ...string) (int, string) {
		t.Helper()
		code, out, said := shell(t, []string{"EDDA_URL=" + r.addr, "EDDA_TOKEN=" + token, "NATS_URL=" + r.nats}, args...)
		return code, out + said
	}
	if code, out := as(owner, "send", "Order.OrderPlaced", "--id", "A1", "--tenant", "acme", "--data", `{"order_id":"A1-key","note":"of acme alone"}`); code != 0 {
		t.Fatal(out)
	}
	forge(t, r.nats, []forgery{{"tenant.acme.aggregate.Order.A2", "of acme alone, and no JSON", ""}})
	letter := ""
	untilTrue(t, func() bool {
		_, ids := as(owner, "deadletter", "list", "--tenant", "acme", "-o", "ids")
		_, one := as(owner, "instance", "describe", "kept", "A1-key", "--tenant", "acme")
		letter = strings.TrimSpace(ids)
		return letter != "" && !strings.Contains(letter, " ") && strings.Contains(one, "running")
	})
	state := func() string {
		_, one := as(owner, "instance", "describe", "kept", "A1-key", "--tenant", "acme", "-o", "json")
		_, letters := as(owner, "deadletter", "list", "--tenant", "acme", "-o", "json")
		_, audit := as(owner, "audit", "list", "--tenant", "acme", "-o", "json")
		return one + letters + audit
	}
	before := state()
	for name, args := range asAnother {
		file := filepath.Join(files, "backup")
		line := append(strings.Fields(name), args...)
		for i, word := range line {
			line[i] = strings.NewReplacer("LETTER", letter, "FILE", file).Replace(word)
		}
		code, out := as(beta, append(line, "--tenant", "acme")...)
		if refused := strings.Contains(out, `may not act for the tenant "acme"`) || strings.Contains(out, "bound to tenants"); code != 1 || !refused || strings.Contains(out, "of acme alone") {
			t.Errorf("%q for acme: %d %s", line, code, out)
		}
		if _, out := as(beta, append(line, "--tenant", "beta")...); strings.Contains(out, "of acme alone") || strings.Contains(out, "running") {
			t.Errorf("%q for its own: %s", line, out)
		}
		if raw, err := os.ReadFile(file); name == "backup" && err == nil && strings.Contains(string(raw), "of acme alone") || name != "backup" && err == nil {
			t.Errorf("%q left a file: %v", line, err)
		}
		_ = os.Remove(file) // a backup of beta, where beta has anything by now
	}
	if after := state(); after != before {
		t.Errorf("what is acme's changed from\n%s\nto\n%s", before, after)
	}
}
