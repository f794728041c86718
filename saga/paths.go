package saga

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

func splitPath(path string) []string { return strings.Split(path, ".") }

// setPath gives the object with the leaf at path replaced. The maps on the way
// are copied, so that the old state stays as it was.
func setPath(object map[string]any, path []string, v any) (map[string]any, error) {
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
		return nil, fmt.Errorf("cannot set %s: %s is a %s, not a map", strings.Join(path, "."), path[0], kindName(out[path[0]]))
	}
	child, err := setPath(child, path[1:], v)
	if err != nil {
		return nil, err
	}
	out[path[0]] = child
	return out, nil
}

// unsetPath gives the object without the leaf at path.
func unsetPath(object map[string]any, path []string) map[string]any {
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
		out[path[0]] = unsetPath(child, path[1:])
	}
	return out
}

// deepCopy copies maps and lists, so that nothing is shared with a program's constants.
func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = deepCopy(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = deepCopy(item)
		}
		return out
	}
	return v
}
