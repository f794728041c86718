package manifests

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ExpectChange is a new list for the expect of a test's step.
type ExpectChange struct {
	Step    *TestStep
	Entries []ExpectEntry
}

// ExpectEntry is one entry of the new list. Old is the index of the entry whose place it takes, or
// -1 for a further one. Text is its text in flow style; empty keeps the old one as it is written.
type ExpectEntry struct {
	Old  int
	Text string
}

// RewriteExpects returns the source of a file with the lists of some steps changed. Everything else
// keeps its bytes: comments, order and layout. The error names a step that it cannot rewrite safely;
// then nothing is rewritten.
func (f *File) RewriteExpects(changes []ExpectChange) ([]byte, error) {
	s := &rewriter{text: f.Source, lines: splitLines(f.Source)}
	for _, c := range changes {
		if err := s.change(c); err != nil {
			return nil, fmt.Errorf("%s:%d:%d: %w: write its expect by hand", f.Name, c.Step.ExpectPos.Line, c.Step.ExpectPos.Column, err)
		}
	}
	slices.SortStableFunc(s.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out bytes.Buffer
	at := 0
	for _, e := range s.edits {
		if e.from < at {
			return nil, fmt.Errorf("%s: two steps share one list: write their expect by hand", f.Name)
		}
		out.Write(f.Source[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(f.Source[at:])
	return out.Bytes(), nil
}

// rewriter collects the edits of a source.
type rewriter struct {
	text  []byte
	lines []line
	edits []edit
}

// edit replaces a range of bytes.
type edit struct {
	from, to int
	text     string
}

// item is an entry of a flow list, with what stands before it, and a comment behind it on its line.
type item struct{ lead, text, trail string }

func (s *rewriter) change(c ExpectChange) error {
	at, err := s.offset(c.Step.ExpectPos)
	if err != nil {
		return err
	}
	switch {
	case s.text[at] == '[':
		return s.flowList(at, c)
	case s.text[at] == '-' && at+1 < len(s.text) && strings.ContainsRune(" \r\n", rune(s.text[at+1])):
		return s.blockList(c)
	}
	return errors.New("this list is no plain one")
}

// offset is the index of a position, whose column counts characters.
func (s *rewriter) offset(p Pos) (int, error) {
	if p.Line < 1 || p.Line > len(s.lines) {
		return 0, errors.New("this list is no plain one")
	}
	l := s.lines[p.Line-1]
	text := string(s.text[l.start:l.end])
	if p.Line == 1 {
		text = strings.TrimPrefix(text, "\ufeff")
	}
	column := 1
	for i := range text {
		if column == p.Column {
			return l.end - len(text) + i, nil
		}
		column++
	}
	return 0, errors.New("this list is no plain one")
}

// flowList rewrites [a, b]. Comments between the entries stay.
func (s *rewriter) flowList(at int, c ExpectChange) error {
	old, tail, end, err := flowItems(s.text, at)
	switch {
	case err != nil:
		return err
	case len(old) != len(c.Step.Expect):
		return errors.New("this list is no plain one")
	}
	var b strings.Builder
	b.WriteByte('[')
	separator := " "
	for _, o := range old {
		if i := strings.LastIndexAny(o.lead, "\r\n"); i >= 0 { // an entry a line
			separator = "\n" + o.lead[i+1:]
		}
	}
	var (
		next, written int
		trail         string // comment behind the entry written last
		kept          string // comments of removed entries, each after a line end
	)
	comment := func(text string) {
		for _, l := range strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' }) {
			if l = strings.TrimSpace(l); l != "" {
				kept += "\n" + strings.TrimPrefix(separator, "\n") + l
			}
		}
	}
	drop := func(until int) {
		for ; next < until; next++ {
			comment(old[next].lead)
			comment(old[next].trail)
		}
	}
	for _, e := range c.Entries {
		it := item{lead: separator, text: e.Text}
		if written == 0 && separator == " " {
			it.lead = ""
		}
		if e.Old >= 0 {
			drop(e.Old)
			o := old[e.Old]
			next, it.trail = e.Old+1, o.trail
			if strings.ContainsAny(o.lead, "#\r\n") || e.Old == 0 && written == 0 {
				it.lead = o.lead
			}
			switch {
			case e.Text == "":
				it.text = o.text
			case strings.Contains(o.text, "#"):
				return errors.New("an entry that changes may hold a comment")
			}
		}
		if written > 0 {
			b.WriteByte(',')
		}
		if kept != "" && !strings.ContainsAny(it.lead, "\r\n") || trail != "" && kept == "" && !strings.ContainsAny(it.lead, "\r\n") {
			it.lead = "\n" + strings.TrimPrefix(separator, "\n")
		}
		b.WriteString(trail + kept + it.lead + it.text)
		written, trail, kept = written+1, it.trail, ""
	}
	drop(len(old))
	if (trail != "" || kept != "") && !strings.ContainsAny(tail, "\r\n") {
		tail = "\n" + strings.TrimPrefix(separator, "\n")
	}
	if kept == "" && trail == "" && !strings.ContainsAny(tail, "#\r\n") {
		tail = ""
	}
	b.WriteString(trail + kept + tail + "]")
	s.edits = append(s.edits, edit{at, end, b.String()})
	return nil
}

// flowItems splits the flow list at an index. Tail is what stands between the last entry, or its
// comma, and the bracket; end is the index after the bracket.
func flowItems(text []byte, at int) (items []item, tail string, end int, err error) {
	i := at + 1
	for {
		start := i
		for i < len(text) && (strings.ContainsRune(" \t\r\n", rune(text[i])) || text[i] == '#') {
			if text[i] == '#' {
				i = lineEnd(text, i)
				continue
			}
			i++
		}
		if i >= len(text) {
			return nil, "", 0, errors.New("this list does not end")
		}
		lead := string(text[start:i])
		if text[i] == ']' {
			return items, lead, i + 1, nil
		}
		from := i
		if text[i] != '{' {
			return nil, "", 0, errors.New("an entry is no plain map")
		}
		if i, err = flowEnd(text, i); err != nil {
			return nil, "", 0, err
		}
		items = append(items, item{lead: lead, text: string(text[from:i])})
		after := i
		for i < len(text) && strings.ContainsRune(" \t\r\n", rune(text[i])) {
			i++
		}
		switch {
		case i < len(text) && text[i] == ',':
			i++
			if end := lineEnd(text, i); bare(text[i:end]) && bytes.Contains(text[i:end], []byte("#")) {
				items[len(items)-1].trail = string(text[i:end])
				i = end
			}
		case i < len(text) && (text[i] == ']' || text[i] == '#'):
			i = after
		default:
			return nil, "", 0, errors.New("this list is no plain one")
		}
	}
}

// flowEnd returns the index after the bracket that closes the one at an index.
func flowEnd(text []byte, i int) (int, error) {
	depth := 0
	for i < len(text) {
		switch c := text[i]; {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1, nil
			}
		case (c == '"' || c == '\'') && quoteBegins(text[:i]):
			end := quoteEnd(text, i)
			if end < 0 {
				return 0, errors.New("a quote does not end")
			}
			i = end
		case c == '#' && strings.ContainsRune(" \t\r\n", rune(text[i-1])):
			i = lineEnd(text, i)
			continue
		}
		i++
	}
	return 0, errors.New("this list does not end")
}

// quoteBegins reports whether a quote after this text begins a scalar, rather than standing in one.
func quoteBegins(before []byte) bool {
	before = bytes.TrimRight(before, " \t\r\n")
	return len(before) > 0 && strings.ContainsRune("{[,:", rune(before[len(before)-1]))
}

// quoteEnd returns the index of the quote that ends the scalar at an index, or -1.
func quoteEnd(text []byte, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch {
		case quote == '"' && text[i] == '\\':
			i++
		case text[i] == quote && quote == '\'' && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i
		}
	}
	return -1
}

func lineEnd(text []byte, i int) int {
	for i < len(text) && text[i] != '\n' && text[i] != '\r' {
		i++
	}
	return i
}

// blockList rewrites a list with an entry on each line, or over several lines.
func (s *rewriter) blockList(c ExpectChange) error {
	indent := c.Step.ExpectPos.Column - 1
	first := c.Step.ExpectPos.Line - 1
	if strings.TrimSpace(s.lineText(first)[:indent]) != "" {
		return errors.New("this list is no plain one")
	}
	newline := string(s.text[s.lines[first].end:s.lines[first].next])
	var starts []int
	end := first // the line after the last one that is of the list
	for i := first; i < len(s.lines); i++ {
		text := s.lineText(i)
		deep := len(text) - len(strings.TrimLeft(text, " "))
		trimmed := strings.TrimSpace(text)
		if trimmed == "" || trimmed[0] == '#' {
			continue
		}
		if deep < indent || deep == indent && trimmed != "-" && !strings.HasPrefix(trimmed, "- ") || marker([]byte(text)) != "" {
			break
		}
		if deep == indent {
			starts = append(starts, i)
		}
		end = i + 1
	}
	if len(starts) != len(c.Step.Expect) {
		return errors.New("this list is no plain one")
	}
	// Lines without content between two entries belong to neither, and stay.
	last := func(entry int) int {
		until := end
		if entry+1 < len(starts) {
			until = starts[entry+1]
		}
		for until > starts[entry]+1 && bare([]byte(s.lineText(until-1))) {
			until--
		}
		return until
	}
	prefix := strings.Repeat(" ", indent)
	place := s.lines[first].start // where the next further entry goes
	handled := make([]bool, len(starts))
	for _, e := range c.Entries {
		if e.Old < 0 {
			text := prefix + "- " + e.Text + cmp.Or(newline, "\n")
			if place == len(s.text) && lineEnd(s.text, s.lines[len(s.lines)-1].start) == place { // no line end at the end
				text = "\n" + prefix + "- " + e.Text
			}
			s.edits = append(s.edits, edit{place, place, text})
			continue
		}
		handled[e.Old] = true
		from, to := starts[e.Old], last(e.Old)
		place = s.lines[to-1].next
		if e.Text == "" {
			continue
		}
		old := s.text[s.lines[from].start+indent : s.lines[to-1].end]
		if bytes.ContainsAny(old, "#&*|>") {
			return errors.New("an entry that changes may hold a comment, an anchor or a text of lines")
		}
		s.edits = append(s.edits, edit{s.lines[from].start + indent, s.lines[to-1].end, "- " + e.Text})
	}
	if len(c.Entries) == 0 {
		return s.emptyBlock(first, end)
	}
	for i, ok := range handled {
		if !ok {
			s.edits = append(s.edits, edit{s.lines[starts[i]].start, s.lines[last(i)-1].next, ""})
		}
	}
	return nil
}

// emptyBlock makes a list of lines [].
func (s *rewriter) emptyBlock(first, end int) error {
	if first == 0 || !strings.HasSuffix(strings.TrimRight(s.lineText(first-1), " \t"), "expect:") {
		return errors.New("this list is no plain one")
	}
	for i := first; i < end; i++ {
		if strings.Contains(s.lineText(i), "#") {
			return errors.New("a list that ends up empty may hold a comment")
		}
	}
	s.edits = append(s.edits, edit{s.lines[first-1].end, s.lines[end-1].end, " []"})
	return nil
}

func (s *rewriter) lineText(i int) string { return string(s.text[s.lines[i].start:s.lines[i].end]) }
