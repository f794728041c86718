package yamllayout

import "strings"

// The kinds of tokens in a flow collection, beside the characters { } [ ] , : and ?.
const (
	none   = 0   // no token yet
	word   = '&' // an anchor, alias or tag
	quoted = '"'
	plain  = 'a' // one line of a plain scalar
)

// flowToken returns the kind and end of the token at an index in a flow collection.
func flowToken(s string, i int, before byte) (kind byte, end int) {
	switch c := s[i]; {
	case strings.IndexByte("{}[],", c) >= 0, c == '?' && blankAt(s, i+1):
		return c, i + 1
	case c == ':' && (blankAt(s, i+1) || strings.IndexByte(",[]{}", s[i+1]) >= 0 || ends(before)):
		return c, i + 1
	case c == '&' || c == '*' || c == '!':
		return word, wordEnd(s, i, true)
	case c == '"' || c == '\'':
		end, _ = closingQuote(s, i+1, c)
		return quoted, end
	}
	return plain, plainEnd(s, i, true)
}

// ends reports whether a key may end with a token of a kind, so that a colon behind it needs no blank.
func ends(kind byte) bool { return strings.IndexByte("}]\"&a", kind) >= 0 }

// spaced reports whether a blank separates two tokens of a line.
func spaced(before, kind byte) bool {
	switch {
	case before == none || before == '{' || before == '[':
		return false
	case before == ':' || before == '?':
		return true
	case kind == ':':
		return before == word // its name could take the colon
	}
	return strings.IndexByte(",]}", kind) < 0
}

// flow lays out a flow collection.
func (l *layout) flow() {
	var (
		opened []int // of each open bracket, the column of the line that opens it
		column = l.base
		before = byte(none)
		begins = true // the next token is the first one of its line
	)
	for !l.done() {
		if l.skipBlanks(); l.atEnd() {
			column, begins = l.flowLine(opened[len(opened)-1], before), true
			continue
		}
		s := l.lines[l.at]
		kind, end := flowToken(s, l.pos, before)
		if !begins && spaced(before, kind) {
			l.space()
		}
		before, begins = kind, false
		switch kind {
		case quoted:
			at, inner := l.at, opened[len(opened)-1]+step
			if l.quoted(inner); l.at > at {
				column = inner
			}
			continue
		case '{', '[':
			opened = append(opened, column)
		case '}', ']':
			opened = opened[:len(opened)-1]
		}
		l.row.WriteString(strings.TrimRight(s[l.pos:end], " \t"))
		if l.pos = end; len(opened) == 0 {
			return
		}
	}
}

// flowLine ends a line of a flow collection, and goes to the next one with a token. It returns the column
// of that token.
func (l *layout) flowLine(opened int, before byte) (column int) {
	l.endLine()
	l.hold()
	s := l.lines[l.at]
	if l.pos = indentation(s); l.done() {
		return 0
	}
	kind, _ := flowToken(s, l.pos, before)
	if before == plain && kind == plain { // the lines between are line ends of the scalar
		for range l.held {
			l.endRow("")
		}
		l.held = l.held[:0]
	}
	column = opened + step
	if l.place(func(int) int { return column }) {
		l.endRow("")
	}
	if kind == '}' || kind == ']' {
		column = opened
	}
	l.row.WriteString(strings.Repeat(" ", column))
	return column
}
