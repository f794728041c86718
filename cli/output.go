package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"edda/internal/files"
)

// outputFlag is the output format of a command.
type outputFlag string

// The output formats.
const (
	outputTable outputFlag = "table"
	outputJSON  outputFlag = "json"
	outputIDs   outputFlag = "ids"
)

func outputs() []string { return []string{string(outputTable), string(outputJSON), string(outputIDs)} }

func (o *outputFlag) register(c *cobra.Command) {
	*o = outputTable
	c.Flags().VarP(o, "output", "o", "table, json or ids")
	offer(c, "output", outputs())
}

// offer completes a flag of the command with its words.
func offer(c *cobra.Command, flag string, words []string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // programming error: the flag does not exist
	}
}

func (o *outputFlag) String() string { return string(*o) }
func (o *outputFlag) Type() string   { return "form" }
func (o *outputFlag) Set(s string) error {
	if !slices.Contains(outputs(), s) {
		return fmt.Errorf("want one of %s", strings.Join(outputs(), ", "))
	}
	*o = outputFlag(s)
	return nil
}

// rows prints a table with a heading, one row per line.
func rows(w io.Writer, heading []string, lines [][]string) {
	tw := table.NewWriter()
	tw.SetOutputMirror(w)
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	tw.SetStyle(style)
	tw.SuppressTrailingSpaces()
	tw.AppendHeader(row(heading))
	for _, l := range lines {
		tw.AppendRow(row(l))
	}
	tw.Render()
}

func row(cells []string) table.Row {
	out := table.Row{}
	for _, c := range cells {
		out = append(out, printable(c))
	}
	return out
}

// printable makes foreign text safe for a terminal, on one line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '�'
		}
		return r
	}, s)
}

// text resolves the value of a flag or an argument, whose name is what. The value is the
// text itself, @FILE, or - for standard input.
func (t *terminal) text(what, from string) (string, error) {
	var text []byte
	var err error
	switch {
	case from == "-":
		text, err = io.ReadAll(io.LimitReader(t.in, maxAnswer))
	case strings.HasPrefix(from, "@"):
		text, err = files.Read(from[1:], maxAnswer)
	default:
		return from, nil
	}
	if err != nil {
		return "", usagef("%s: %w", what, err)
	}
	return string(text), nil
}

// content is like text, but an empty file or input is an error.
func (t *terminal) content(what, from string) (string, error) {
	text, err := t.text(what, from)
	if err == nil && text != from && strings.TrimSpace(text) == "" {
		err = usagef("%s %s: it is empty", what, from)
	}
	return text, err
}

// indented writes a JSON text with indentation.
func indented(w io.Writer, raw []byte) error {
	var buf bytes.Buffer
	if err := json.Indent(&buf, raw, "", "  "); err != nil {
		return fmt.Errorf("print json: %w", err)
	}
	buf.WriteByte('\n')
	_, err := buf.WriteTo(w)
	return err
}

// json writes a value as indented JSON.
func (t *terminal) json(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return indented(t.out, raw)
}
