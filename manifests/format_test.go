package manifests

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestFormatKeepsEveryMeaning formats generated files. A failure prints the file.
func TestFormatKeepsEveryMeaning(t *testing.T) {
	for seed := range uint64(3000) {
		g := &sloppy{rand: rand.New(rand.NewPCG(seed, 0))}
		for range 1 + g.upTo(2) {
			g.document()
		}
		source := g.String()
		if g.chance(30) {
			source = strings.ReplaceAll(source, "\n", "\r\n")
		}
		if g.chance(30) {
			source = strings.TrimRight(source, "\r\n")
		}
		if _, ps := (&File{Source: []byte(source)}).nodes(); len(ps) > 0 {
			t.Fatalf("the generator wrote\n%s\n%v", source, ps[0])
		}
		formatted(t, []byte(source))
	}
}

// formatted checks that a source is formatted, in one step, without a change of what the parser reports.
func formatted(t interface{ Fatalf(string, ...any) }, source []byte) []byte {
	after, ps := Format("x.yaml", source)
	if len(ps) > 0 {
		t.Fatalf("%q: %v", source, ps[0])
	}
	again, ps := Format("x.yaml", after)
	if len(ps) > 0 || string(again) != string(after) {
		t.Fatalf("%s\nis formatted to\n%s\nand this to\n%s%v", source, after, again, ps)
	}
	_, before := Parse("x.yaml", source)
	_, now := Parse("x.yaml", after)
	if a, b := messages(before), messages(now); a != b {
		t.Fatalf("%s\nis formatted to\n%s\nproblems\n%s\nand now\n%s", source, after, a, b)
	}
	return after
}

func messages(ps Problems) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Message)
	}
	return strings.Join(out, "\n")
}

// TestFormatSeesWhatItWouldBreak compares files with texts as a broken layout would make them.
func TestFormatSeesWhatItWouldBreak(t *testing.T) {
	for _, tt := range []struct {
		before, after string
		at            Pos
	}{
		{"a: 1\nb: |\n  x\n", "a: 1\nb: |\n  x", Pos{2, 4}},
		{"a: 1\nb: 'x  y'\n", "a: 1\nb: 'x y'\n", Pos{2, 4}},
		{"a: 1\nb: 'x'\n", "a: 1\nb: x\n", Pos{2, 4}},
		{"a: 1\n---\nb:\n  c: 1\n  d: 2\n", "a: 1\n---\nb:\n  c: 1\nd: 2\n", Pos{3, 1}},
		{"a: [&x 1, 2]\n", "a: [&y 1, 2]\n", Pos{1, 5}},
		{"a: {b: 1}\n", "a:\n  b: 1\n", Pos{1, 4}},
		{"a: 1\n---\nb: 1\n", "a: 1\n", Pos{3, 1}},
		{"a: 1\n", "a: 1\n---\nb: 1\n", Pos{1, 1}},
		{"# one\na: 1\n", "a: 1\n", Pos{1, 1}},
		{"a: 1 # one\nb: 2\n", "a: 1\nb: 2 # one\n", Pos{1, 1}},
		{"a: 1 # one two\n", "a: 1 # one three\n", Pos{1, 1}},
	} {
		f := &File{Source: []byte(tt.before)}
		nodes, ps := f.nodes()
		if pos, same := f.sameAs([]byte(tt.after), nodes); same || pos != tt.at || len(ps) > 0 {
			t.Errorf("%q as %q: %v, %v %v, want %v", tt.before, tt.after, same, pos, ps, tt.at)
		}
		if _, same := f.sameAs([]byte(tt.before), nodes); !same {
			t.Errorf("%q differs from itself", tt.before)
		}
	}
}

// sloppy writes valid YAML in any layout.
type sloppy struct {
	strings.Builder
	rand    *rand.Rand
	anchors int // of this document
	names   int
}

func (g *sloppy) chance(percent int) bool { return g.rand.IntN(100) < percent }
func (g *sloppy) upTo(n int) int          { return g.rand.IntN(n + 1) }
func (g *sloppy) blanks(n int) string     { return strings.Repeat(" ", g.upTo(n)) }
func (g *sloppy) one(of ...string) string { return of[g.rand.IntN(len(of))] }

func (g *sloppy) document() {
	g.anchors = 0
	g.WriteString(g.one("---\n", "--- # first\n", "---   \n\n\n"))
	g.blockMap(g.upTo(2), 0)
	if g.chance(20) {
		g.WriteString(g.one("...\n", "...  # end\n", "# last\n\n\n"))
	}
}

// between writes what may stand before an entry.
func (g *sloppy) between() {
	for g.chance(25) {
		g.WriteString(g.one("\n", "\n\n\n", "   \n", g.blanks(9)+"# comment: [x\n", g.blanks(3)+"#\n"))
	}
}

func (g *sloppy) lineEnd() {
	g.WriteString(g.blanks(2) + g.one("", "", "", " # it's: {a comment") + "\n")
}

func (g *sloppy) key() string {
	g.names++
	return fmt.Sprintf(g.one("k%d", "'k %d'", `"k: %d"`, "größe#%d", "a & b%d", "k%d?", "-k%d", ":k%d"), g.names)
}

func (g *sloppy) blockMap(column, depth int) {
	g.WriteString(strings.Repeat(" ", column))
	g.mapEntries(column, depth)
}

// mapEntries writes entries. The cursor is in the column of the first one.
func (g *sloppy) mapEntries(column, depth int) {
	for i := range 1 + g.upTo(2) {
		if i > 0 {
			g.between()
			g.WriteString(strings.Repeat(" ", column))
		}
		if g.chance(5) {
			g.WriteString("? " + g.key() + "\n" + strings.Repeat(" ", column) + ":")
		} else {
			g.WriteString(g.key() + g.one("", "", " ") + ":")
		}
		g.value(column, depth, column)
	}
}

func (g *sloppy) list(column, depth int) {
	for i := range 1 + g.upTo(2) {
		if i > 0 {
			g.between()
		}
		g.WriteString(strings.Repeat(" ", column) + "-")
		gap := 1 + g.upTo(3)
		switch {
		case depth > 3 || g.chance(40):
			g.value(column, depth, column+1)
		case g.chance(70):
			g.WriteString(strings.Repeat(" ", gap))
			g.mapEntries(column+1+gap, depth+1)
		default:
			g.WriteString(strings.Repeat(" ", gap))
			inner := &sloppy{rand: g.rand, anchors: g.anchors, names: g.names}
			inner.list(column+1+gap, depth+1)
			g.anchors, g.names = inner.anchors, inner.names
			g.WriteString(strings.TrimLeft(inner.String(), " "))
		}
	}
}

// value writes the value of an entry of a collection, and the line's end. A list below it begins in a
// column from least on.
func (g *sloppy) value(column, depth, least int) {
	if g.chance(10) {
		g.anchors++
		fmt.Fprintf(g, "%s&a%d", g.one(" ", "  "), g.anchors)
	} else if g.anchors > 0 && g.chance(5) {
		fmt.Fprintf(g, " *a%d", 1+g.upTo(g.anchors-1))
		g.lineEnd()
		return
	}
	if g.chance(10) {
		g.WriteString(" !!" + g.one("str", "str ") + " 12")
		g.lineEnd()
		return
	}
	deeper := column + 1 + g.upTo(3)
	kind := g.upTo(9)
	if depth > 3 && kind > 6 {
		kind = 0
	}
	switch kind {
	case 0:
		g.WriteString(g.one(" ", "   ") + g.one("word", "=event.x + 1", "a  b", "it's", "#x", "a#b", "-1", "12:30", "x:y", "?x", "ünïcode 日本", ""))
		g.lineEnd()
	case 1, 2:
		g.WriteString(g.one(" ", "\n"+strings.Repeat(" ", deeper)) + g.scalar(deeper))
		g.lineEnd()
	case 3:
		g.block(column)
	case 4, 5, 6:
		g.WriteString(g.one(" ", "  ", "\n"+strings.Repeat(" ", deeper)) + g.flow(0, deeper))
		g.lineEnd()
	case 7:
		g.lineEnd()
		g.between()
		g.blockMap(deeper, depth+1)
	case 8:
		g.lineEnd()
		g.between()
		g.list(least+g.upTo(3), depth+1)
	case 9:
		g.lineEnd()
	}
}

// scalar returns a quoted or plain scalar, whose further lines have an indentation.
func (g *sloppy) scalar(indent int) string {
	next := g.blanks(2) + "\n" + g.one("", "\n", "  \n\n") + strings.Repeat(" ", indent) + g.blanks(2)
	return g.one("plain"+next+"goes on", `"a \" # b`+next+`c\`+"\n"+strings.Repeat(" ", indent)+`\ d"`, "'it''s: ["+next+"]'", `"\\ "`, `"}, ${x} "`, "''")
}

func (g *sloppy) block(column int) {
	chomp, indent := g.one("", "-", "+"), 1+g.upTo(4)
	digit, first := "", ""
	if g.chance(40) {
		digit, first = fmt.Sprint(indent), g.blanks(3)
	}
	g.WriteString(" " + g.one("|", ">") + g.one(digit+chomp, chomp+digit) + g.one("", "  ", " # block") + "\n")
	for i := range 1 + g.upTo(4) {
		if i > 0 {
			first = g.one("", "\n", "  ")
			if strings.HasSuffix(first, "\n") {
				g.WriteString(first)
				first = ""
			}
		}
		g.WriteString(strings.Repeat(" ", column+indent) + first + g.one("text", "# no comment", "- x: y", "trailing  ", "\ttab", "]'\"") + "\n")
	}
	g.WriteString(g.one("", "\n", "\n\n\n"))
}

// flow returns a flow collection, whose further lines have at least an indentation.
func (g *sloppy) flow(depth, indent int) string {
	gap := func() string {
		switch g.upTo(9) {
		case 0:
			return g.one(" ", "", "  ") + g.one("", " # in flow: }") + "\n" + g.one("", "\n\n", "\n  # alone ]\n") + strings.Repeat(" ", indent+g.upTo(3))
		case 1, 2:
			return g.blanks(3)
		}
		return ""
	}
	item := func() string {
		if depth < 3 && g.chance(30) {
			return g.flow(depth+1, indent)
		}
		return g.one("a", "b  c", "it's", "12:30", "-1", "=x", `"q, ]"`, "'s}'", "a\n"+strings.Repeat(" ", indent)+"b", "c\n\n\n"+strings.Repeat(" ", indent)+"d", g.scalar(indent)+" ")
	}
	var parts []string
	list := g.chance(50)
	for range g.upTo(3) {
		part := gap() + item() + gap()
		if !list {
			g.names++
			part = gap() + fmt.Sprintf(g.one("k%d: ", "k%d : ", "\"k%d\":", "'k%d' :\t", "k%d:  "), g.names) + g.one("", item()) + gap()
		}
		parts = append(parts, part)
	}
	body := strings.Join(parts, ",")
	if len(parts) > 0 {
		body += g.one("", ",", " , ")
	}
	if list {
		return "[" + body + "]"
	}
	return "{" + body + "}"
}

// FuzzFormat formats any text that parses.
func FuzzFormat(f *testing.F) {
	for _, s := range []string{
		"saga: x\nkey: a\non:\n    E: {do: [ {done: } ]}\n",
		"a: |\n    x\n      y\n\n\nb: >+2\n    x\n\n\n# c\n",
		"a:\n- b: \"x\n    y\\\n   z\"\n  c: &d\n     - *d\n# e\n- - f\n  -   g: h\n      # i\n      j: k\n",
		"? a\n: - b\n  - c # d\n--- # e\na: {b: [c, 'd''s', \"e\"] , f: g\n  h\n\n i, # j\n  # k\n  }\n...\n\n\n--- {a: 1}\n",
		"a: |\n \t ", "a:\n|\n x", "a: |+\n  x\n  ", "a: >\n  x", "&0:,::", " ---",
		"\ufeffa: !!str b   # c\r\nd:\t[ ]\r\nlong: x\r\n   y\r\n\r\n   z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(strings.TrimLeft(s, "\ufeff"), "\ufeff") {
			return // YAML ignores this mark at the beginning of a line only: such a file is refused
		}
		if _, ps := (&File{Source: []byte(s)}).nodes(); len(ps) == 0 {
			formatted(t, []byte(s))
		}
	})
}
