package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// The names in a body are matched as they are written. The switch is the package's own,
// so it is set once, before any server runs.
func init() { huma.ValidateStrictCasing = true }

// bodies reads what callers send: one JSON value that everybody reads alike.
func bodies() map[string]huma.Format {
	f := huma.DefaultJSONFormat
	f.Unmarshal = readAlike
	return map[string]huma.Format{"application/json": f, "json": f}
}

// readAlike refuses an object that has a name twice, of which one reader would take the
// first and another the last. Each body is read into any value before anything else.
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

// fewNames of an object are compared one by one; of more there is a map.
const fewNames = 16

// object is one that is open; a list has no names.
type object struct {
	from int             // its first name
	many map[string]bool // its names, once they are more than a few
}

// repeatedName is the first name, quoted, that one object of the valid JSON has twice; nil
// where none has.
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

// has tells whether the object has the name already, and remembers it where it has many.
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

// quoteEnd is the place behind the string that begins at i.
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

// unescaped is the quoted name as it is read: without needless escapes, and with one
// letter for all that is none.
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
