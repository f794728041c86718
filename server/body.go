package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// strictNames makes huma match member names case-sensitively. It runs once, before the
// first server, because the switch is a global variable of huma.
var strictNames = sync.OnceFunc(func() { huma.ValidateStrictCasing = true })

// bodies returns the body formats: JSON that every reader understands in the same way.
func bodies() map[string]huma.Format {
	strictNames()
	f := huma.DefaultJSONFormat
	f.Unmarshal = readAlike
	return map[string]huma.Format{"application/json": f, "json": f}
}

// readAlike refuses an object that repeats a name, because some readers take the first
// value and others the last. huma decodes each body into *any first.
func readAlike(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	if _, first := v.(*any); !first {
		return nil
	}
	if name := repeatedName(data); name != nil {
		return fmt.Errorf("the name %.80s is there twice in one object", name)
	}
	return nil
}

// fewNames is how many names of an object are compared one by one; above it a map is used.
const fewNames = 16

// object is an open object or list; a list has no names.
type object struct {
	from int             // index of its first name
	many map[string]bool // its names, if there are more than fewNames
}

// repeatedName returns the first repeated name in an object, quoted; nil if there is none.
// The JSON must be valid.
func repeatedName(raw []byte) []byte {
	var someNames [4 * fewNames][]byte
	var someOpen [16]object
	names, open := someNames[:0], someOpen[:0]
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			open = append(open, object{from: len(names)})
		case '}', ']':
			names = names[:open[len(open)-1].from]
			open = open[:len(open)-1]
		case '"':
			end := quoteEnd(raw, i)
			if isName(raw[end:]) {
				name := unescaped(raw[i:end])
				if open[len(open)-1].has(names, name) {
					return name
				}
				names = append(names, name)
			}
			i = end - 1
		}
	}
	return nil
}

// has tells whether the object has the name already. Above fewNames names it records the
// name.
func (o *object) has(all [][]byte, name []byte) bool {
	mine := all[o.from:]
	if len(mine) < fewNames {
		for _, other := range mine {
			if bytes.Equal(other, name) {
				return true
			}
		}
		return false
	}
	if o.many == nil {
		o.many = make(map[string]bool, 2*fewNames)
		for _, other := range mine {
			o.many[string(other)] = true
		}
	}
	if o.many[string(name)] {
		return true
	}
	o.many[string(name)] = true
	return false
}

// quoteEnd returns the index after the string that begins at i.
func quoteEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}

// isName tells whether the string before rest is the name of a member.
func isName(rest []byte) bool {
	for _, c := range rest {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ':'
		}
	}
	return false
}

// unescaped returns the quoted name in one canonical form: without needless escapes, and
// with U+FFFD for invalid UTF-8.
func unescaped(quoted []byte) []byte {
	if !bytes.ContainsFunc(quoted, func(r rune) bool { return r == '\\' || r >= utf8.RuneSelf }) {
		return quoted
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return quoted
	}
	again, _ := json.Marshal(s) // a string always has JSON
	return again
}
