package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// update rewrites the reference, and the wanted outputs of the scripts.
var update = flag.Bool("update", false, "rewrite docs/CLI.md and the wanted outputs of the scripts")

const referencePage = "../docs/CLI.md"

// TestTheReferenceHasEveryCommandAndFlag compares docs/CLI.md with the tree of commands;
// -update writes the page.
func TestTheReferenceHasEveryCommandAndFlag(t *testing.T) {
	want := reference((&terminal{}).root())
	if *update {
		if err := os.WriteFile(referencePage, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(page, want) {
		return
	}
	for line := range strings.Lines(string(want)) {
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks: %s", line)
		}
	}
	for line := range strings.Lines(string(page)) {
		if !strings.Contains(string(want), line) {
			t.Errorf("no command or flag is as the page says: %s", line)
		}
	}
	t.Error("docs/CLI.md differs from the commands: write it with go test ./cli -run Reference -update")
}

// reference is the page: a list of the commands, then a section for each.
func reference(root *cobra.Command) []byte {
	root.InitDefaultCompletionCmd("with a name")
	var page, sections bytes.Buffer
	page.WriteString("# Command line reference\n\n" +
		"`go test ./cli -run Reference -update` writes this page from the commands; a test fails where they differ.\n" +
		"Every command also takes `-h`, `--help`. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration,\n" +
		"3 a dry run of a replay found instances that differ.\n\n" +
		"| command | what it does |\n|---|---|\n")
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		fmt.Fprintf(&page, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
		referenceOf(&sections, c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return append(page.Bytes(), sections.Bytes()...)
}

func referenceOf(page *bytes.Buffer, c *cobra.Command) {
	fmt.Fprintf(page, "\n## %s\n\n%s.\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
	if !c.HasSubCommands() {
		fmt.Fprintf(page, "\n    %s\n", c.UseLine())
	} else if c.HasAvailablePersistentFlags() {
		page.WriteString("\nIts commands take these flags too.\n")
	}
	if len(c.Aliases) > 0 {
		fmt.Fprintf(page, "\nOther names: `%s`.\n", strings.Join(c.Aliases, "`, `"))
	}
	c.InitDefaultVersionFlag()
	table := false
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !table {
			table = true
			page.WriteString("\n| flag | takes | default | what it does |\n|---|---|---|---|\n")
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		takes, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(page, "| %s | %s | %s | %s |\n", name, cell(takes), code(f.DefValue), cell(usage))
	})
}

// cell makes a text one cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}

// code marks a default; defaults that say nothing are left out.
func code(text string) string {
	switch text {
	case "", "false", "[]", "0", "0s":
		return ""
	}
	return "`" + cell(text) + "`"
}
