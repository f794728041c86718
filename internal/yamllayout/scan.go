package yamllayout

import "strings"

func isBlank(s string) bool { return strings.Trim(s, " \t") == "" }

func beginsComment(s string) bool { return strings.HasPrefix(strings.TrimLeft(s, " \t"), "#") }

func indentation(s string) int { return len(s) - len(strings.TrimLeft(s, " \t")) }

// isMarker reports whether a line begins or ends a document.
func isMarker(s string) bool {
	return (strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...")) && blankAt(s, 3)
}

// blankAt reports whether the line has a blank at an index, or ends there.
func blankAt(s string, i int) bool { return i >= len(s) || s[i] == ' ' || s[i] == '\t' }

// isIndicator reports whether a token at an index begins a list entry, or a key or value that is
// written with ? or :.
func isIndicator(s string, i int) bool {
	return (s[i] == '-' || s[i] == '?' || s[i] == ':') && blankAt(s, i+1)
}

// isKeyEnd reports whether the colon at an index ends a key.
func isKeyEnd(s string, i int) bool { return i < len(s) && s[i] == ':' && blankAt(s, i+1) }

// wordEnd returns the index after an anchor, alias, tag or block scalar header.
func wordEnd(s string, i int, flow bool) int {
	named := s[i] == '&' || s[i] == '*'
	for i < len(s) && !blankAt(s, i) && (!flow && !named || strings.IndexByte(",[]{}", s[i]) < 0) {
		i++
	}
	for named && s[i-1] == ':' { // the colon of a key
		i--
	}
	return i
}

// closingQuote returns the index after the quote that ends a scalar, from an index in the scalar. If it
// goes on after the line, the index is the line's end.
func closingQuote(s string, i int, quote byte) (end int, closed bool) {
	for ; i < len(s); i++ {
		switch {
		case quote == '"' && s[i] == '\\':
			i++
		case s[i] == quote && quote == '\'' && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1, true
		}
	}
	return len(s), false
}

// plainEnd returns the index after a plain scalar's text on a line, its trailing blanks included.
func plainEnd(s string, i int, flow bool) int {
	for from := i; i < len(s); i++ {
		switch c := s[i]; {
		case c == '#' && i > from && blankAt(s, i-1),
			c == ':' && blankAt(s, i+1),
			flow && strings.IndexByte(",[]{}", c) >= 0,
			flow && c == ':' && i+1 < len(s) && strings.IndexByte(",[]{}", s[i+1]) >= 0:
			return i
		}
	}
	return i
}
