// Command edda-man writes the manual pages of Edda's commands, one page each, from the commands
// themselves. It is for the packages, so that the binary needs no renderer. The pages are compressed
// without a name and a time, as Debian wants them: the same commands give the same bytes.
//
//	go run ./cmd/edda-man --version 1.2.3 --date 1767225600 bin/man
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"edda/cli"
)

func main() {
	version := flag.String("version", "dev", "version of Edda")
	date := flag.Int64("date", time.Now().Unix(), "date of the pages, as Unix time")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "edda-man: name the folder to write the pages into")
		os.Exit(2)
	}
	if err := write(flag.Arg(0), *version, time.Unix(*date, 0).UTC()); err != nil {
		fmt.Fprintf(os.Stderr, "edda-man: %v\n", err)
		os.Exit(1)
	}
}

// write fills a folder with the pages, and removes those of commands that are gone.
func write(dir, version string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, "*.1.gz"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	found, err := pages(version, date)
	if err != nil {
		return err
	}
	for name, text := range found {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		_, _ = z.Write(text) // a buffer takes everything
		_ = z.Close()
		if err := os.WriteFile(filepath.Join(dir, name+".gz"), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pages returns the pages of all commands, by file name.
func pages(version string, date time.Time) (map[string][]byte, error) {
	root := cli.Commands(version)
	root.DisableAutoGenTag = true
	out := map[string][]byte{}
	var all func(*cobra.Command) error
	all = func(c *cobra.Command) error {
		var b bytes.Buffer
		h := &doc.GenManHeader{Section: "1", Date: &date, Source: "edda " + version, Manual: "Edda"}
		if err := doc.GenMan(inMarkdown(c), h, &b); err != nil {
			return fmt.Errorf("%s: %w", c.CommandPath(), err)
		}
		out[strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = b.Bytes()
		for _, sub := range c.Commands() {
			if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
				continue
			}
			if err := all(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return out, all(root)
}

// inMarkdown changes the texts of a command, which people read in a terminal, into the Markdown that
// the generator takes them for.
func inMarkdown(c *cobra.Command) *cobra.Command {
	c.Long = markdown(strings.TrimSpace(cmp.Or(c.Long, c.Short) + "\n\n" + commandsOf(c)))
	c.Short = escape(c.Short)
	c.Use = escape(c.Use)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, usage := pflag.UnquoteUsage(f)
		f.Usage = escape(usage)
	})
	return c
}

// commandsOf lists the commands in a command, as its help does.
func commandsOf(c *cobra.Command) string {
	var out strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(&out, "  %-*s %s\n", c.NamePadding(), sub.Name(), sub.Short)
		}
	}
	return out.String()
}

// markdown keeps the lines of a text: indented ones, such as commands and lists, stand as they are.
func markdown(text string) string {
	var out []string
	verbatim := false
	for _, line := range strings.Split(text, "\n") {
		switch indented := strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t"); {
		case indented && !verbatim:
			out, verbatim = append(out, "", "```", line), true
		case indented:
			out = append(out, line)
		case verbatim:
			out, verbatim = append(out, "```", "", escape(line)), false
		default:
			out = append(out, escape(line))
		}
	}
	if verbatim {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

// marks are the characters that mean something in Markdown.
var marks = regexp.MustCompile("[\\\\`*_<>\\[\\]#|~!&]")

func escape(text string) string { return marks.ReplaceAllString(text, `\$0`) }
