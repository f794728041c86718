package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"edda/cli"
)

var (
	someDay = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	// requests are lines of roff, and escapes its marks in a line.
	requests = regexp.MustCompile(`(?m)^\.\S+( |$)`)
	escapes  = regexp.MustCompile(`\\(f[A-Z]|&|e|-|\(aq|\*\(Aq)`)
	// struck finds the first strike of a bold letter, which a printer strikes twice.
	struck = regexp.MustCompile(".\b")
	// said finds the words of a text that a page may lose: those with a mark, and flags.
	said = regexp.MustCompile(`\S*[<>\[\]{}*_|#~$@'"\\-]\S*`)
)

// Every command has a page, with each word of its texts: <(…) and K*_1 mean something in Markdown.
func TestEveryCommandHasAPageWithAllItsWords(t *testing.T) {
	found, err := pages("1.2.3", someDay)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		n++
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page := plain(string(found[name]))
		texts := []string{c.Short, c.Long, c.Example, c.UseLine()}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				_, usage := pflag.UnquoteUsage(f)
				texts = append(texts, "--"+f.Name, usage)
			}
		})
		for _, text := range texts {
			for _, word := range said.FindAllString(text, -1) {
				if !strings.Contains(page, word) {
					t.Errorf("%s lacks %s", name, word)
				}
			}
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
				walk(sub)
			}
		}
	}
	walk(cli.Commands("1.2.3"))
	if n != len(found) || n < 50 {
		t.Errorf("%d commands have %d pages", n, len(found))
	}
	if root := string(found["edda.1"]); !strings.Contains(root, `.TH "EDDA" "1" "Jan 2026" "edda 1.2.3" "Edda"`) || strings.Contains(root, "Auto generated") {
		t.Errorf("the page of edda begins %.200s", root)
	}
}

// plain is a page without the marks of roff.
func plain(page string) string {
	page = requests.ReplaceAllString(page, "")
	return escapes.ReplaceAllStringFunc(page, func(mark string) string {
		switch mark {
		case `\e`:
			return `\`
		case `\-`:
			return "-"
		case `\(aq`, `\*(Aq`:
			return "'"
		}
		return ""
	})
}

// groff formats the pages as man does; most systems have it.
func TestGroffHasNothingToSayAboutThePages(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "edda-gone.1.gz")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(dir, "1.2.3", someDay); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("the page of a command that is gone stays")
	}
	for _, name := range []string{"edda", "edda-replay", "edda-hero-flow-create", "edda-completion-bash"} {
		packed, err := os.ReadFile(filepath.Join(dir, name+".1.gz"))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if !z.ModTime.IsZero() || z.Name != "" || packed[8] != 2 {
			t.Errorf("%s is compressed with a time, a name or less than gzip -9n does", name)
		}
		page, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath("groff"); err != nil {
			continue
		}
		c := exec.Command("groff", "-K", "utf8", "-man", "-T", "utf8", "-ww", "-P-c")
		var out, warnings bytes.Buffer
		c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(page), &out, &warnings
		if err := c.Run(); err != nil || warnings.Len() > 0 {
			t.Errorf("%s: %v: %s", name, err, &warnings)
		}
		text := struck.ReplaceAllString(out.String(), "")
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"} {
			if !strings.Contains(text, "\n"+section+"\n") {
				t.Errorf("%s has no %s:\n%s", name, section, text)
			}
		}
	}
}
