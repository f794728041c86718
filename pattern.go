package edda

import "strings"

// Matches tells whether the text is what the pattern says, in which '*' stands
// for any text, also none.
func Matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for _, middle := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(text, middle)
		if !found {
			return false
		}
		text = after
	}
	return strings.HasSuffix(text, last)
}
