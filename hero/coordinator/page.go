package coordinator

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
