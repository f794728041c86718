package manifests

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// The colours of a printed problem.
const (
	red    = "\x1b[31;1m"
	yellow = "\x1b[33;1m"
	green  = "\x1b[32;1m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// maxWidth is how many columns of a long line are shown around the position.
const maxWidth = 160

// Sort orders problems by file name and position.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.fileName(), b.fileName()), a.Pos.Compare(b.Pos))
	})
}

func (p Problem) fileName() string {
	if p.File == nil {
		return ""
	}
	return p.File.Name
}

// Error formats the problem on one line: file.yaml:5:7: error: message.
func (p Problem) Error() string {
	return fmt.Sprintf("%s: %s: %s", p.place(), p.kind(), printable(p.Message))
}

func (p Problem) place() string {
	return fmt.Sprintf("%s:%d:%d", cmp.Or(p.fileName(), "-"), p.Pos.Line, p.Pos.Column)
}

func (p Problem) kind() string {
	if p.Warning {
		return "warning"
	}
	return "error"
}

// Print writes every problem, sorted by file and position, with its line and a caret under the
// column. The last line counts them.
func (ps Problems) Print(w io.Writer, color bool) {
	out := bufio.NewWriter(w)
	pen := pen{out, color}
	sorted := slices.Clone(ps)
	sorted.Sort()
	lines := map[*File][]line{}
	for _, p := range sorted {
		if _, split := lines[p.File]; !split && p.File != nil {
			lines[p.File] = splitLines(p.File.Source)
		}
		pen.problem(p, lines[p.File])
	}
	fmt.Fprintln(out, ps.Count())
	_ = out.Flush() // there is no place to report a failed write
}

// Count is the last line of Print: 2 errors, 1 warning.
func (ps Problems) Count() string {
	warnings := 0
	for _, p := range ps {
		if p.Warning {
			warnings++
		}
	}
	var parts []string
	add := func(n int, what string) {
		if n > 1 {
			what += "s"
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(ps)-warnings, "error")
	add(warnings, "warning")
	return cmp.Or(strings.Join(parts, ", "), "no problems")
}

// pen writes text with or without colour.
type pen struct {
	out   *bufio.Writer
	color bool
}

func (p pen) paint(color, text string) string {
	if !p.color {
		return text
	}
	return color + text + reset
}

func (p pen) problem(x Problem, lines []line) {
	kind := p.paint(red, "error")
	if x.Warning {
		kind = p.paint(yellow, "warning")
	}
	fmt.Fprintf(p.out, "%s: %s: %s\n", p.paint(bold, x.place()), kind, printable(x.Message))
	if x.Pos.Line < 1 || x.Pos.Line > len(lines) {
		return
	}
	l := lines[x.Pos.Line-1]
	text, caret := window([]rune(string(x.File.Source[l.start:l.end])), x.Pos.Column)
	fmt.Fprintf(p.out, "  %s\n  %s\n", text, p.paint(green, caret))
}

// window returns the part of a line around a column, and the caret under it. Tabs stay tabs in
// both, so that the terminal aligns the caret with the column. Wide characters take two columns.
func window(text []rune, column int) (shown, caret string) {
	column = min(max(column-1, 0), len(text))
	from := max(0, column-maxWidth/2)
	to := min(len(text), from+maxWidth)
	var under strings.Builder
	if from > 0 {
		shown = "…"
		under.WriteByte(' ')
	}
	for _, c := range text[from:column] {
		under.WriteString(blank(c))
	}
	shown += printable(string(text[from:to]))
	if to < len(text) {
		shown += "…"
	}
	return shown, under.String() + "^"
}

func blank(c rune) string {
	width := runewidth.Condition{} // independent of the locale
	if c == '\t' {
		return "\t"
	}
	return strings.Repeat(" ", width.RuneWidth(unprintable(c)))
}

// printable removes control characters, so that a manifest cannot write control sequences to a
// terminal.
func printable(s string) string { return strings.Map(unprintable, s) }

func unprintable(c rune) rune {
	if c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
		return '·'
	}
	return c
}
