package manifests

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// A trace follows a scalar's value through its text in the file, to know the position of each
// character. It follows quotes and escapes exactly, and folded lines approximately.
type trace struct {
	r     *reader
	style yaml.Style
	value []byte // the bytes still to follow
	index int    // bytes followed so far
	line  int    // in r.lines, from 0
	col   int
	// indent is the prefix of a block scalar's lines that is not in the value. Elsewhere the value
	// has none of a line's leading blanks.
	indent int
}

const blockStyle = yaml.LiteralStyle | yaml.FoldedStyle

// trace starts at a scalar node's first character.
func (r *reader) trace(n *yaml.Node) *trace {
	t := &trace{r: r, style: n.Style, value: []byte(n.Value), line: n.Line - 1, col: n.Column - 1}
	t.skipProperties()
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		t.col++
	case n.Style&blockStyle != 0:
		t.indent = t.blockIndent()
		t.nextLine()
	}
	return t
}

// peek returns the character at the cursor; 0 at the end of a line.
func (t *trace) peek() rune { return t.at(0) }

func (t *trace) at(ahead int) rune {
	if t.line >= len(t.r.lines) || t.col+ahead >= len(t.r.lines[t.line]) {
		return 0
	}
	return t.r.lines[t.line][t.col+ahead]
}

// skipProperties skips anchors and tags before the scalar.
func (t *trace) skipProperties() {
	for t.peek() == '&' || t.peek() == '!' {
		for t.peek() > ' ' {
			t.col++
		}
		t.skipBlank()
		if t.peek() == 0 && t.line+1 < len(t.r.lines) {
			t.nextLine()
		}
	}
}

func (t *trace) skipBlank() {
	for t.peek() == ' ' || t.peek() == '\t' {
		t.col++
	}
}

func (t *trace) nextLine() {
	t.line, t.col = t.line+1, 0
	if t.style&blockStyle == 0 {
		t.skipBlank()
		return
	}
	for t.col < t.indent && t.peek() == ' ' {
		t.col++
	}
}

// blockIndent compares the first line that is not blank with the value's first line.
func (t *trace) blockIndent() int {
	first := strings.TrimLeft(string(t.value), "\n")
	kept := len(first) - len(strings.TrimLeft(first, " "))
	for _, text := range t.r.lines[min(t.line+1, len(t.r.lines)):] {
		if s := string(text); strings.TrimSpace(s) != "" {
			return max(0, len(s)-len(strings.TrimLeft(s, " "))-kept)
		}
	}
	return 0
}

// to returns the position of the value's byte at an index; the index never decreases.
func (t *trace) to(index int) Pos {
	for t.index < index && len(t.value) > 0 {
		t.step()
	}
	t.skipUnread()
	return Pos{t.line + 1 + t.r.chunk.before, t.col + 1}
}

// step follows one byte of the value. Its first byte moves the cursor over a character.
func (t *trace) step() {
	c := t.value[0]
	t.skipUnread()
	t.value, t.index = t.value[1:], t.index+1
	switch {
	case c&0xC0 == 0x80: // a continuation byte
	case t.peek() == 0:
		t.nextLine()
	case t.style&yaml.DoubleQuotedStyle != 0 && t.peek() == '\\':
		t.col += escapeLength(t.at(1))
	case t.style&yaml.SingleQuotedStyle != 0 && t.peek() == '\'':
		t.col += 2
	default:
		t.col++
	}
}

// skipUnread moves over text that the value does not have: an escaped line end, and blanks and
// line ends that are folded.
func (t *trace) skipUnread() {
	if len(t.value) == 0 || t.line >= len(t.r.lines) {
		return
	}
	for t.style&yaml.DoubleQuotedStyle != 0 && t.peek() == '\\' && t.at(1) == 0 {
		t.nextLine()
	}
	if c := t.value[0]; c == ' ' || c == '\n' || c == '\t' || c&0xC0 == 0x80 {
		return
	}
	for t.line < len(t.r.lines) && (t.peek() == 0 || t.peek() == ' ') {
		if t.skipBlank(); t.peek() == 0 {
			t.nextLine()
		}
	}
}

// escapeLength is the length of a double-quoted escape, by its letter.
func escapeLength(letter rune) int {
	switch letter {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}
