package jsonrpc

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a request. Our objects need ten levels; serde, which the
// original uses, stops at 128.
const maxDepth = 128

// check refuses a text that is not one JSON value in UTF-8, is nested too deep, or has a name
// twice in one object, where some readers take the first value and others the last.
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

// stringEnd returns the index after the string that starts at i.
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

// repeated returns the first name, quoted, that an object of the valid JSON has twice.
func repeated(raw []byte) string {
	var open []map[string]bool // the names of each enclosing object, nil for a list
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

// named reports whether the string before rest is the name of a member.
func named(rest []byte) bool {
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// canonical returns the quoted name without needless escapes.
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
