package jsonvalue

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// SetPath gives the object with the leaf at path replaced. The maps on the way
// are made where they are missing and copied where not, so that the object stays
// as it was. What is no map on the way is an error.
func SetPath(object map[string]any, path []string, v any) (map[string]any, error) {
	out := maps.Clone(object)
	if out == nil {
		out = map[string]any{}
	}
	if len(path) == 1 {
		out[path[0]] = v
		return out, nil
	}
	child, ok := out[path[0]].(map[string]any)
	if !ok && out[path[0]] != nil {
		return nil, fmt.Errorf("cannot set %s: %s is a %s, not a map", strings.Join(path, "."), path[0], TypeName(out[path[0]]))
	}
	child, err := SetPath(child, path[1:], v)
	if err != nil {
		return nil, err
	}
	out[path[0]] = child
	return out, nil
}

// UnsetPath gives the object without the leaf at path, likewise.
func UnsetPath(object map[string]any, path []string) map[string]any {
	inner, present := object[path[0]]
	if !present {
		return object
	}
	out := maps.Clone(object)
	if len(path) == 1 {
		delete(out, path[0])
		return out
	}
	if child, ok := inner.(map[string]any); ok {
		out[path[0]] = UnsetPath(child, path[1:])
	}
	return out
}

// TypeName says what a canonical value is, in the words that people use of JSON.
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
