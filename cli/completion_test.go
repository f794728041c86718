package cli

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// completed is what a shell is offered, without cobra's line of the directive,
// which must forbid names of files.
func completed(t *testing.T, env []string, args ...string) string {
	t.Helper()
	_, out, said := shell(t, env, append([]string{"__complete"}, args...)...)
	words, ok := strings.CutSuffix(out, ":4\n")
	if !ok {
		t.Errorf("%v offers names of files: %q %s", args, out, said)
	}
	return words
}

func TestShellsAreOfferedWhatTheServerHas(t *testing.T) {
	d := startDev(t, folder(t, map[string]string{"sums.yaml": sums}), "--data", t.TempDir())
	id := d.poisoned(t, "A")
	env := []string{"EDDA_URL=" + d.addr}
	for _, verb := range []string{"show", "redrive", "drop", "skip"} {
		if got := completed(t, env, "deadletter", verb, ""); got != id+"\tpoison Sum.Add\n" {
			t.Errorf("%s: %q", verb, got)
		}
		for _, rest := range [][]string{{"x"}, {id, ""}} {
			if got := completed(t, env, append([]string{"deadletter", verb}, rest...)...); got != "" {
				t.Errorf("%s %v: %q", verb, rest, got)
			}
		}
	}
	for _, args := range []string{"replay", "instance held --saga", "instance parked --saga", "instance list --saga", "deadletter list --saga", "deadletter redrive --saga"} {
		words := strings.Fields(args)
		if got := completed(t, env, append(words, "su")...); got != "sums\n" {
			t.Errorf("%s: %q", args, got)
		}
		if got := completed(t, env, append(words, "x")...); got != "" {
			t.Errorf("%s x: %q", args, got)
		}
	}
	if got := completed(t, nil, "replay", "--addr", d.addr, ""); got != "list\tList the replays that are remembered, newest first\nsums\n" {
		t.Errorf("--addr: %q", got)
	}
	for _, args := range []string{"replay sums", "replay sums --key", "replay --from-seq", "instance held", "instance list --after", "deadletter list --after"} {
		if got := completed(t, env, append(strings.Fields(args), "")...); got != "" {
			t.Errorf("%s: %q", args, got)
		}
	}
}

// TestEveryListIsCalledLsToo, whatever it lists, and a shell completes after either.
func TestEveryListIsCalledLsToo(t *testing.T) {
	term := &terminal{out: io.Discard, err: io.Discard}
	found := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			look(c)
			if c.Name() != "list" {
				continue
			}
			found++
			if !c.HasAlias("ls") {
				t.Errorf("%s has no alias ls", c.CommandPath())
			}
			nouns := strings.Fields(cmd.CommandPath())[1:]
			for _, name := range []string{"list", "ls"} {
				if got := completed(t, nil, append(slices.Clone(nouns), name, "--out")...); got != "--output\ttable, json or ids\n" {
					t.Errorf("%v %s: %q", nouns, name, got)
				}
			}
			if got := completed(t, nil, append(slices.Clone(nouns), "l")...); !strings.HasPrefix(got, "list\t") {
				t.Errorf("%v: %q", nouns, got)
			}
		}
	}
	look(term.root())
	if found < 6 {
		t.Errorf("%d lists", found)
	}
}

func TestShellsAreOfferedTheNamesOfTokens(t *testing.T) {
	book := filepath.Join(t.TempDir(), "tokens.yaml")
	token(t, book, "ops", "operator", "acme")
	token(t, book, "ann", "admin", "*")
	if got := completed(t, nil, "token", "revoke", "--tokens", book, ""); got != "ops\toperator\nann\tadmin\n" {
		t.Errorf("%q", got)
	}
	if got := completed(t, []string{envTokens + "=" + book}, "token", "revoke", "a"); got != "ann\tadmin\n" {
		t.Errorf("%q", got)
	}
	if got := completed(t, nil, "token", "revoke", ""); got != "" {
		t.Errorf("without a file: %q", got)
	}
	for _, args := range []string{"token revoke --tokens", "deadletter list --ca", "replay --cert"} {
		if _, out, _ := shell(t, nil, append([]string{"__complete"}, append(strings.Fields(args), "")...)...); out != ":0\n" {
			t.Errorf("%s takes a file: %q", args, out)
		}
	}
}
