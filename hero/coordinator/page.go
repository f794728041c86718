package coordinator

import (
	"slices"
	"strconv"
	"strings"

	"edda/hero"
	"edda/hero/redisdb"
)

// The bounds of one page of a list: an answer that a client can take in at once.
const (
	pageDefault = 1000
	pageMost    = 10000
)

// page is a part of a list.
type page struct {
	Offset uint32 `json:"offset,omitempty"`
	Limit  uint32 `json:"limit,omitempty"` // 1000 when 0
}

func (p page) check() error {
	if p.Limit > pageMost {
		return invalid("limit", "is %d, and may be %d: ask for the rest with offset", p.Limit, pageMost)
	}
	return nil
}

// cut takes the page out of the whole list; it is never nil, so that JSON shows
// a list.
func cut[T any](p page, all []T, show func(T) T) []T {
	if p.Limit == 0 {
		p.Limit = pageDefault
	}
	from := min(int(p.Offset), len(all))
	to := min(from+int(p.Limit), len(all))
	out := make([]T, 0, to-from)
	for _, v := range all[from:to] {
		out = append(out, show(v))
	}
	return out
}

// withUnreadable adds to a list the objects whose hashes cannot be read, each with its
// ids and why: one hash that another program broke hides no other, and is seen.
func withUnreadable[T any](c *Coordinator, all []T, err error, name func(e *hero.FieldError) T, compare func(a, b T) int) ([]T, error) {
	broken, err := redisdb.Unreadable(err)
	if err != nil {
		return nil, err
	}
	for _, e := range broken {
		c.unreadable.Failed(e)
		all = append(all, name(e))
	}
	if len(broken) > 0 {
		slices.SortFunc(all, compare)
	}
	return all, nil
}

// idsOf are the ids that a key of two ids, or of one, names.
func idsOf(key string) (first, second uint32) {
	var ids [2]uint32
	for i, word := range strings.Split(key, ":")[1:] {
		if n, err := strconv.ParseUint(word, 10, 32); err == nil && i < len(ids) {
			ids[i] = uint32(n)
		}
	}
	return ids[0], ids[1]
}

// show makes lists and maps that JSON shows as such, not as null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func dict(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
