package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"edda"
	"edda/internal/jsonvalue"
	"edda/store"
)

// Difference is one place where the built instance differs from the stored one.
type Difference struct {
	Key  string          `json:"key"`
	Path string          `json:"path"`          // such as state.total, steps[0].status
	Was  json.RawMessage `json:"was,omitempty"` // empty: the stored one lacks it
	Is   json.RawMessage `json:"is,omitempty"`  // empty: the built one lacks it
}

// maxShownValue bounds a value in a difference, in bytes, because people read it.
const maxShownValue = 2000

// Same reports whether two cells are stored as the same bytes.
func Same(a, b edda.Cell) (bool, error) {
	x, err := store.CellBytes(a)
	if err != nil {
		return false, err
	}
	y, err := store.CellBytes(b)
	return bytes.Equal(x, y), err
}

// Compare lists where the built cell differs from the stored one, in the order of the paths and up
// to limit places.
func Compare(was, is edda.Cell, limit int) ([]Difference, error) {
	a, err := tree(was)
	if err != nil {
		return nil, err
	}
	b, err := tree(is)
	if err != nil {
		return nil, err
	}
	c := comparison{key: was.Key.Correlation, limit: limit}
	c.values("", a, b)
	return c.found, nil
}

// tree returns a cell as plain values, as users know it: the fields of the instance at the top,
// and its parked and held events beside them.
func tree(cell edda.Cell) (any, error) {
	raw, err := store.CellBytes(cell)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var whole map[string]any
	if err := d.Decode(&whole); err != nil {
		return nil, fmt.Errorf("compare %s: %w", cell.Key, err)
	}
	top, _ := whole["Instance"].(map[string]any)
	if top == nil {
		top = map[string]any{}
	}
	for name, field := range map[string]string{"parked": "Parked", "held_events": "Held"} {
		if list, _ := whole[field].([]any); len(list) > 0 {
			top[name] = list
		}
	}
	return top, nil
}

type comparison struct {
	key   string
	limit int
	found []Difference
}

// absent stands for a value that one side does not have.
type absent struct{}

func (c *comparison) values(path string, was, is any) {
	if a, ok := was.(map[string]any); ok {
		if b, ok := is.(map[string]any); ok {
			c.objects(path, a, b)
			return
		}
	}
	if a, ok := was.([]any); ok {
		if b, ok := is.([]any); ok {
			c.lists(path, a, b)
			return
		}
	}
	if x, y := shown(was), shown(is); !bytes.Equal(x, y) {
		c.add(Difference{Key: c.key, Path: path, Was: bounded(x), Is: bounded(y)})
	}
}

func (c *comparison) objects(path string, a, b map[string]any) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		to := name
		if path != "" {
			to = path + "." + name
		}
		c.values(to, or(a, name), or(b, name))
	}
}

func or(m map[string]any, name string) any {
	if v, ok := m[name]; ok {
		return v
	}
	return absent{}
}

func (c *comparison) lists(path string, a, b []any) {
	for i := range max(len(a), len(b)) {
		var x, y any = absent{}, absent{}
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		c.values(path+"["+strconv.Itoa(i)+"]", x, y)
	}
}

func (c *comparison) add(d Difference) {
	if len(c.found) < c.limit {
		c.found = append(c.found, d)
	}
}

// shown encodes a value as JSON; nil for an absent one.
func shown(v any) json.RawMessage {
	if _, ok := v.(absent); ok {
		return nil
	}
	raw, err := jsonvalue.Encode(v)
	if err != nil {
		return json.RawMessage(strconv.Quote(err.Error()))
	}
	return raw
}

// bounded cuts a value that is too long to read, and makes it a string.
func bounded(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxShownValue {
		return raw
	}
	cut, _ := json.Marshal(string(raw[:maxShownValue]) + "…") // a string always encodes
	return cut
}
