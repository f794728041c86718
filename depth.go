package edda

import "bytes"

// Fits tells whether a value, as JSON that [Encode] or [Check] has seen, may stand so many
// levels further in: then [Decode] reads a value around it. It also reads a text, true, false
// or null that is in an object one level further in; nothing is put there.
func Fits(raw []byte, levels int) bool {
	begins := bytes.Count(raw, []byte{'{'}) + bytes.Count(raw, []byte{'['})
	return begins+levels <= MaxDepth || deepest(raw)+levels <= MaxDepth
}

// deepest is how many lists and objects are around the innermost value.
func deepest(raw []byte) (most int) {
	level, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			most = max(most, level)
		case quoted:
		case c == '{' || c == '[':
			most = max(most, level)
			level++
		case c == '}' || c == ']':
			level--
		case c > ' ' && c != ',' && c != ':':
			most = max(most, level)
		}
	}
	return most
}
