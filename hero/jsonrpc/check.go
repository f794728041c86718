package jsonrpc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// maxDepth bounds how deep what is sent may be nested: no object of ours is
// deeper than ten, and serde, which the original is read with, ends at 128.
const maxDepth = 128

// check tells why the text is not one JSON value that everybody reads alike:
// UTF-8, not too deep, and no name twice in one object: one reader
// would take the first and another the last.
func check(raw []byte) *Error {
	if !utf8.Valid(raw) {
		return Errorf(ParseError, "what was sent is not UTF-8")
	}
	if !shallow(raw) {
		return Errorf(ParseError, "nested deeper than %d", maxDepth)
	}
	if !json.Valid(raw) {
		return Errorf(ParseError, "what was sent is not JSON: %v", json.Unmarshal(raw, new(any)))
	}
	if name := repeated(raw); name != "" {
		return Errorf(InvalidRequest, "the name %s is there twice in one object", name)
	}
	return nil
}

func shallow(raw []byte) bool {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i) - 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
		case '}', ']':
			depth--
		}
	}
	return true
}

// stringEnd is the place after the string that starts at i.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// repeated is the first name, quoted, that one object of the valid JSON has twice.
func repeated(raw []byte) string {
	var open []map[string]bool // the names of each object that is open, nil for a list
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{':
			open = append(open, map[string]bool{})
		case '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		case '"':
			end := stringEnd(raw, i)
			if named(raw[end:]) {
				name := canonical(raw[i:end])
				if names := open[len(open)-1]; names[name] {
					return name
				} else {
					names[name] = true
				}
			}
			i = end - 1
		}
	}
	return ""
}

// named tells whether the string before rest is the name of a member.
func named(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// canonical is the quoted name without needless escapes.
func canonical(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted)
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return string(quoted)
	}
	again, _ := json.Marshal(s) // a string always has JSON
	return string(again)
}
