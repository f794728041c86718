package coordinator

import (
	"slices"
	"strconv"

	"edda/hero"
	"edda/hero/redisdb"
)

// The bounds of one page of a list.
const (
	pageDefault = 1000
	pageMost    = 10000
)

// page selects a part of a list.
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

// cut returns the page of the list, shown. It is never nil, so that JSON has a list.
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

// withUnreadable adds to a list the objects whose hashes cannot be read, each with its ids
// and the reason: a hash that another program broke does not hide the others.
func withUnreadable[T hero.Object](c *Coordinator, context uint32, all []T, err error, read func(string, map[string]string) (T, error), reason func(*T) *string) ([]T, error) {
	broken, err := redisdb.Unreadable(err)
	if err != nil {
		return nil, err
	}
	for _, e := range broken {
		all = append(all, stub(c, context, e, read, reason))
	}
	if len(broken) > 0 {
		slices.SortFunc(all, func(a, b T) int { return hero.CompareKeys(a.Key(), b.Key()) })
	}
	return all, nil
}

// stub returns an object whose hash cannot be read: its ids, the status error, and the
// reason, which it logs.
func stub[T hero.Object](c *Coordinator, context uint32, e *hero.FieldError, read func(string, map[string]string) (T, error), reason func(*T) *string) T {
	c.unreadable.Failed(e)
	ids := hero.KeyIDs(e.Key)
	h := map[string]string{"id": decimal(ids[0]), "context_id": decimal(context), "status": "error"}
	if ids[1] != 0 { // <kind>:<caller_id>:<id>
		h["caller_id"], h["id"] = decimal(ids[0]), decimal(ids[1])
	}
	o, _ := read(e.Key, h) // a flow's creator is missing
	*reason(&o) = e.Error()
	return o
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func same[T any](v T) T { return v }

// list and dict have JSON write an empty list or map instead of null.
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
