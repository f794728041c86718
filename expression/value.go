package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"edda/internal/jsonvalue"
)

var errTooLarge = errors.New("the value is too large")

// own copies a value, so that the caller may change it, and makes it canonical. It fails if the
// JSON would have more than about limit bytes, because a small value that refers to itself many
// times is large when encoded.
func own(v any, limit int) (any, error) {
	c := copier{left: limit}
	out, err := c.value(v, 0)
	if errors.Is(err, errTooLarge) {
		// Both bounds have one message, because Go's random map order decides which fails first.
		return nil, fmt.Errorf("the value is larger than %d bytes or nested deeper than %d", limit, jsonvalue.MaxDepth)
	}
	return out, err
}

type copier struct{ left int }

func (c *copier) value(v any, depth int) (any, error) {
	if depth > jsonvalue.MaxDepth {
		return nil, errTooLarge
	}
	if err := c.take(2); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, int:
		return v, nil
	case string:
		return v, c.take(len(v))
	case json.Number:
		return v, c.take(len(v))
	case time.Duration:
		return v.String(), nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			owned, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out[i] = owned
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			if err := c.take(len(key) + 2); err != nil {
				return nil, err
			}
			owned, err := c.value(item, depth+1)
			if err != nil {
				return nil, err
			}
			out[key] = owned
		}
		return out, nil
	}
	return jsonvalue.Canonical(v)
}

func (c *copier) take(n int) error {
	if c.left -= n; c.left < 0 {
		return errTooLarge
	}
	return nil
}

// inspector checks whether own would return the value unchanged, with the same bounds.
type inspector struct{ left, values int }

func (c *inspector) canonical(v any, depth int) bool {
	c.values++
	if depth > jsonvalue.MaxDepth || !c.take(2) {
		return false
	}
	switch v := v.(type) {
	case nil, bool, int:
		return true
	case string:
		return c.take(len(v))
	case json.Number:
		return c.take(len(v))
	case []any:
		for _, item := range v {
			if !c.canonical(item, depth+1) {
				return false
			}
		}
		return v != nil
	case map[string]any:
		for key, item := range v {
			if !c.take(len(key)+2) || !c.canonical(item, depth+1) {
				return false
			}
		}
		return v != nil
	}
	return false
}

func (c *inspector) take(n int) bool {
	c.left -= n
	return c.left >= 0
}

// sortedKeys returns a map's keys in order, and charges the sorting.
func (m *machine) sortedKeys(v map[string]any) []string {
	out := make([]string, 0, len(v))
	for key := range v {
		m.charge(keySteps)
		m.chargeText(len(key))
		out = append(out, key)
	}
	sort.Strings(out)
	return out
}

// Text formats a value for "… ${expr} …": texts as they are (times are texts), null as nothing,
// numbers and booleans plain, lists and maps as JSON.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case time.Duration:
		return v.String()
	}
	data, err := jsonvalue.Encode(v)
	if err != nil {
		return "" // a canonical value always encodes
	}
	return string(data)
}
