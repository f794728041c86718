// Package yamllayout lays out YAML in one style, and changes nothing but blanks and line ends.
//
// It reads the text line by line, without a tree. A stack holds the block lists and maps around the
// cursor, each with the column that it has in the source and the one that it gets. So a line that
// begins an entry has its new column from the stack:
//
//	source            stack (old→new)           layout
//	on:               map 0→0                   on:
//	    A:            map 0→0, map 4→2            A:
//	        do:       …, map 8→4                    do:
//	        - x       …, map 8→4, list 8→6            - x
//
// The other lines belong to a value that began before them. Lines of a quoted or plain scalar and of
// a block scalar stand two columns right of the list or map that holds them; a block scalar with an
// indentation indicator keeps its distance. Lines of a flow collection stand two columns right of the
// line that opens the innermost bracket, and a line that begins with a closing bracket stands below
// that line. A comment has the column of the next entry, or of the collection that it was indented to.
//
// Within a line, tokens have the blanks of {a: 1, b: [x, y]}. The comments behind consecutive lines
// are aligned. One blank line stays of several, and none at the ends of a document.
//
// The text must be valid YAML whose documents are lists or maps. Lines keep their order and their
// characters that are not blank.
package yamllayout

import (
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	// step is the indentation of one level.
	step = 2
	// widest bounds the lines whose comments are aligned, because one long line would move the comments
	// of its neighbours out of sight.
	widest = 48
)

// Format returns the text in the one style. Formatting the result again does not change it.
func Format(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimLeft(text, "\ufeff"))
	l := &layout{lines: strings.Split(text, "\n")}
	if l.lines[len(l.lines)-1] != "" {
		l.lines, l.cut = append(l.lines, ""), true
	}
	for l.hold(); !l.done(); l.hold() {
		if s := l.lines[l.at]; isMarker(s) {
			l.marker()
		} else {
			l.entry()
		}
	}
	l.place(func(at int) int { return l.commentColumn(at, -1, 0) })
	return l.text()
}

// layout is the state of one text. The cursor is at a byte of a line.
type layout struct {
	lines   []string // an empty one follows the last one
	at, pos int
	cut     bool // the last line has no line end

	stack []collection // the block collections around the cursor, outermost first
	base  int          // column of the first token of this line that is no dash
	open  bool         // the value of the last entry may follow on the next line
	held  []string     // blank lines and comments whose column depends on the next entry

	rows  []row
	row   strings.Builder // the row being written
	begun bool            // the document has a row
	bare  bool            // the last row has no line end, because a block scalar would have it, too
}

// collection is a block list or map, with its columns in the source and in the layout.
type collection struct {
	list     bool
	old, new int
}

// row is a line of the layout. Its comment is aligned with those of the rows around it.
type row struct{ text, comment string }

// top is the innermost collection.
func (l *layout) top() collection {
	if len(l.stack) == 0 {
		return collection{old: -1, new: -step}
	}
	return l.stack[len(l.stack)-1]
}

// marker lays out a --- or ... line.
func (l *layout) marker() {
	l.place(func(at int) int { return l.commentColumn(at, -1, 0) })
	l.stack, l.base = nil, 0
	l.row.WriteString(l.lines[l.at][:3])
	l.pos = 3
	if l.value() {
		l.endLine() // no YAML: a key needs a line of its own
	}
	l.begun = false
}

// entry lays out a line that begins a list entry, a map entry or a value, and the lines of its value.
func (l *layout) entry() {
	s := l.lines[l.at]
	before := l.stack
	for l.pos = indentation(s); ; {
		old, indicator := l.pos, isIndicator(s, l.pos)
		list := indicator && s[old] == '-'
		// A collection ends before a line left of it. A list or block scalar may be in the column of its key.
		below := s[old] == '|' || s[old] == '>'
		for t := l.top(); t.old > old || t.old == old && !below && (t.list || !list); t = l.top() {
			l.stack = l.stack[:len(l.stack)-1]
		}
		column := l.top().new + step
		if l.row.Len() == 0 {
			holders := l.stack
			l.stack = before
			if l.place(func(at int) int { return l.commentColumn(at, old, column) }) {
				l.endRow("")
			}
			l.stack = holders
			l.row.WriteString(strings.Repeat(" ", column))
		}
		l.base = column
		if !indicator {
			for l.value() {
				l.indicator(false, old, column)
			}
			return
		}
		l.indicator(list, old, column)
		if l.skipBlanks(); l.atEnd() {
			l.open = true
			l.endLine()
			return
		}
		l.space()
	}
}

// indicator writes the - or ? of an entry, or the colon after a key, whose collection has these columns.
func (l *layout) indicator(list bool, old, column int) {
	l.stack = append(l.stack, collection{list, old, column})
	l.row.WriteByte(l.lines[l.at][l.pos])
	l.pos++
}

// value lays out a value in a block collection, and all of its lines. It returns true, without the end of
// the line, if a colon follows, because it is a key.
func (l *layout) value() (key bool) {
	for {
		l.skipBlanks()
		if l.open = l.atEnd(); l.open {
			break
		}
		s, at := l.lines[l.at], l.at
		l.space()
		switch c := s[l.pos]; {
		case c == '&' || c == '!' || c == '*':
			end := wordEnd(s, l.pos, false)
			l.row.WriteString(s[l.pos:end])
			l.pos = end
			continue // with a blank, because the name could take the colon of a key
		case c == '"' || c == '\'':
			l.quoted(l.top().new + step)
		case c == '{' || c == '[':
			l.flow()
		case c == '|' || c == '>':
			l.block()
			return false
		default:
			l.plain()
		}
		if l.skipBlanks(); l.at == at && isKeyEnd(s, l.pos) {
			return true
		}
		break
	}
	l.endLine()
	return false
}

// quoted lays out a quoted scalar. Its further lines get an indentation.
func (l *layout) quoted(indent int) {
	quote, from := l.lines[l.at][l.pos], l.pos+1
	for !l.done() {
		s := l.lines[l.at]
		end, closed := closingQuote(s, from, quote)
		if closed {
			l.row.WriteString(s[l.pos:end])
			l.pos = end
			return
		}
		text := strings.TrimRight(s[l.pos:], " \t")
		if strings.HasSuffix(text, `\`) {
			text = s[l.pos:] // the backslash may escape a blank
		}
		l.row.WriteString(text)
		l.nextRow(indent)
		from = l.pos
	}
}

// plain lays out a plain scalar of a block collection.
func (l *layout) plain() {
	holder := l.top()
	for {
		s := l.lines[l.at]
		end := plainEnd(s, l.pos, false)
		l.row.WriteString(strings.TrimRight(s[l.pos:end], " \t"))
		l.pos = end
		next := l.at + 1
		for next < len(l.lines)-1 && isBlank(l.lines[next]) {
			next++
		}
		if s = s[end:]; !isBlank(s) || next >= len(l.lines)-1 || beginsComment(l.lines[next]) ||
			indentation(l.lines[next]) <= holder.old {
			return
		}
		for l.at < next { // the blank lines are line ends of the value
			l.nextRow(holder.new + step)
		}
	}
}

// block lays out a block scalar, with its lines.
func (l *layout) block() {
	s, holder := l.lines[l.at], l.top()
	header := s[l.pos:wordEnd(s, l.pos, false)]
	l.row.WriteString(header)
	l.pos += len(header)
	l.endLine()
	old, column := -1, holder.new+step // old is -1 until a line shows it
	if i := strings.IndexAny(header, "123456789"); i > 0 {
		old, column = holder.old+int(header[i]-'0'), max(holder.new, 0)+int(header[i]-'0')
	}
	end := l.at // the line after the last one with content
	for i, s := range l.lines[l.at : len(l.lines)-1] {
		spaces := len(s) - len(strings.TrimLeft(s, " "))
		blank := spaces == len(s) // a tab is content
		if old < 0 && !blank {
			old = max(spaces, holder.old+1)
		}
		if !blank && spaces < old {
			break
		}
		if !blank || strings.Contains(header, "+") || old >= 0 && len(s) > old {
			end = l.at + i + 1
		}
	}
	l.bare = l.cut && end == len(l.lines)-1 && end > l.at && !strings.Contains(header, "-") && !isBlank(l.lines[end-1])
	for ; l.at < end; l.at++ {
		if s := l.lines[l.at]; old >= 0 && len(s) > old {
			l.row.WriteString(strings.Repeat(" ", column) + s[old:])
		}
		l.endRow("")
	}
}

// hold collects blank lines and comments.
func (l *layout) hold() {
	for ; !l.done() && (isBlank(l.lines[l.at]) || beginsComment(l.lines[l.at])); l.at++ {
		l.held = append(l.held, l.lines[l.at])
	}
}

// place writes the held lines, each comment in the column for the one that it has. It reports whether a
// blank line follows.
func (l *layout) place(column func(old int) int) (blank bool) {
	for _, s := range l.held {
		if isBlank(s) {
			blank = l.begun
			continue
		}
		if blank {
			l.endRow("")
		}
		l.row.WriteString(strings.Repeat(" ", column(indentation(s))) + strings.Trim(s, " \t"))
		l.endRow("")
		blank = false
	}
	l.held = l.held[:0]
	return blank
}

// commentColumn returns the new column of a comment before an entry with these columns. A comment that is
// indented deeper than the entry stays in the collection, or below the key, that it is indented to.
func (l *layout) commentColumn(at, old, column int) int {
	if t := l.top(); at > old && at > t.old && l.open {
		return t.new + step
	}
	for _, c := range slices.Backward(l.stack) {
		if c.old > old && c.old <= at {
			return c.new
		}
	}
	return column
}

func (l *layout) done() bool { return l.at >= len(l.lines)-1 }

func (l *layout) skipBlanks() {
	for s := l.lines[l.at]; l.pos < len(s) && blankAt(s, l.pos); {
		l.pos++
	}
}

// atEnd reports whether the line has no further token.
func (l *layout) atEnd() bool {
	s := l.lines[l.at]
	return l.pos >= len(s) || s[l.pos] == '#'
}

// space separates two tokens.
func (l *layout) space() {
	if s := l.row.String(); s != "" && !strings.HasSuffix(s, " ") {
		l.row.WriteByte(' ')
	}
}

// endLine ends the row, and the line of the source, with the comment that is left of it.
func (l *layout) endLine() {
	l.endRow(strings.Trim(l.lines[l.at][l.pos:], " \t"))
	l.at = min(l.at+1, len(l.lines)-1)
}

// nextRow goes on with the next line within a scalar.
func (l *layout) nextRow(indent int) {
	l.pos = len(l.lines[l.at])
	l.endLine()
	if s := l.lines[l.at]; !isBlank(s) {
		l.row.WriteString(strings.Repeat(" ", indent))
	}
	l.pos = indentation(l.lines[l.at])
}

func (l *layout) endRow(comment string) {
	l.rows = append(l.rows, row{l.row.String(), comment})
	l.row.Reset()
	l.begun = true
}

// text joins the rows.
func (l *layout) text() string {
	var b strings.Builder
	width := 0 // that the comments of these consecutive rows stand behind
	for i, r := range l.rows {
		b.WriteString(r.text)
		if r.comment != "" {
			if i == 0 || l.rows[i-1].comment == "" {
				width = widthOfRun(l.rows[i:])
			}
			b.WriteString(strings.Repeat(" ", max(width-utf8.RuneCountInString(r.text), 0)+2) + r.comment)
		}
		b.WriteByte('\n')
	}
	if l.bare {
		return strings.TrimSuffix(b.String(), "\n")
	}
	return b.String()
}

// widthOfRun is the width of the rows with comments at the beginning of a list, without the long ones.
func widthOfRun(rows []row) (width int) {
	for _, r := range rows {
		if r.comment == "" {
			break
		}
		if w := utf8.RuneCountInString(r.text); w <= widest {
			width = max(width, w)
		}
	}
	return width
}
