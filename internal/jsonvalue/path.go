package jsonvalue

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// SetPath sets the leaf at path in the object. It creates the inner maps that are missing and copies
// the others, so that an object that shares them does not change. An inner value that is no map is
// an error.
func SetPath(object map[string]any, path []string, v any) error {
	name := path[0]
	if len(path) == 1 {
		object[name] = v
		return nil
	}
	child, ok := object[name].(map[string]any)
	if !ok && object[name] != nil {
		return fmt.Errorf("cannot set %s: %s is a %s, not a map", strings.Join(path, "."), name, TypeName(object[name]))
	}
	if child = maps.Clone(child); child == nil {
		child = map[string]any{}
	}
	if err := SetPath(child, path[1:], v); err != nil {
		return err
	}
	object[name] = child
	return nil
}

// UnsetPath removes the leaf at path from the object. It copies the inner maps, as SetPath does.
func UnsetPath(object map[string]any, path []string) {
	name := path[0]
	if len(path) == 1 {
		delete(object, name)
		return
	}
	if child, ok := object[name].(map[string]any); ok {
		child = maps.Clone(child)
		UnsetPath(child, path[1:])
		object[name] = child
	}
}

// Member returns the bytes of the member at path in an object that [Encode] wrote. They are part of
// raw. It reports false if there is no such member, and if only [Decode] can find it.
func Member(raw []byte, path []string) (json.RawMessage, bool) {
	s := scanner{data: raw}
	for _, name := range path {
		if !s.enter(name) {
			return nil, false
		}
	}
	begin := s.at
	s.skip(0)
	return raw[begin:s.at:s.at], !s.wrong
}

// enter moves to the value of a member of the next object, and reports whether there is one. It
// stops at a name with an escape.
func (s *scanner) enter(name string) bool {
	for n := 0; s.item(n, '{', '}'); n++ {
		key, escaped := s.quoted()
		s.expect(':')
		if s.wrong || escaped {
			return false
		}
		if string(key) == name {
			return true
		}
		s.skip(0)
	}
	return false
}

// TypeName returns the name of a canonical value's type, for messages.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case int:
		return "whole number"
	case float64:
		return "number with a fraction"
	case json.Number:
		return "number beyond 64 bits"
	case string:
		return "string"
	case []any:
		return "list"
	case map[string]any:
		return "map"
	}
	return fmt.Sprintf("%T", v)
}
