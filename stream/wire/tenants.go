package wire

import (
	"slices"
	"strings"

	"edda"
)

// maxFilters bounds the filters of one consumer. With more, the server's matching costs more than
// reading unwanted messages.
const maxFilters = 32

// Tenants are the tenants that a process serves: names, or patterns with '*' for any text. None
// means all.
type Tenants []string

// Match reports whether the tenant is served.
func (t Tenants) Match(tenant string) bool {
	return len(t) == 0 || slices.ContainsFunc(t, func(p string) bool { return edda.Matches(p, tenant) })
}

// Exact reports whether the server can select the tenants by subject.
func (t Tenants) Exact() bool {
	return len(t) > 0 && len(t) <= maxFilters &&
		!slices.ContainsFunc(t, func(p string) bool { return strings.Contains(p, "*") })
}

// Filters returns the subjects for a consumer. If a tenant is a pattern they match more than
// wanted, and the reader drops the rest.
func (g Grammar) Filters(t Tenants, name string, families ...Family) []string {
	var out []string
	for _, tenant := range g.selected(t) {
		for _, f := range families {
			out = append(out, g.pattern(tenant, f, name))
		}
	}
	return out
}

// FiltersOfAll returns the subjects for a consumer of all messages in a stream, or of all but echoes: one for each tenant. It
// is for streams that have no other messages.
func (g Grammar) FiltersOfAll(t Tenants, echoes bool) (out []string) {
	for _, tenant := range g.selected(t) {
		switch {
		case !echoes:
			out = append(out, g.pattern(tenant, familyAny, "*"))
		case tenant == "*":
			return nil
		default:
			out = append(out, "tenant."+escape(tenant)+".>")
		}
	}
	return out
}

// selected are the tenants that the server selects by subject; "*" means all.
func (g Grammar) selected(t Tenants) []string {
	if g.NoTenancy || !t.Exact() {
		return []string{"*"}
	}
	return slices.Compact(slices.Sorted(slices.Values(t)))
}

// Overlap reports whether two processes may serve the same tenant.
func (t Tenants) Overlap(other Tenants) bool {
	if len(t) == 0 || len(other) == 0 {
		return true
	}
	for _, p := range t {
		for _, q := range other {
			if compatible(p, q) {
				return true
			}
		}
	}
	return false
}

// compatible reports whether a text may match both patterns. Of two patterns with '*' it compares
// only the fixed ends, so it may be true too often.
func compatible(p, q string) bool {
	if !strings.Contains(p, "*") {
		return edda.Matches(q, p)
	}
	if !strings.Contains(q, "*") {
		return edda.Matches(p, q)
	}
	pFirst, qFirst := p[:strings.Index(p, "*")], q[:strings.Index(q, "*")]
	pLast, qLast := p[strings.LastIndex(p, "*")+1:], q[strings.LastIndex(q, "*")+1:]
	return (strings.HasPrefix(pFirst, qFirst) || strings.HasPrefix(qFirst, pFirst)) &&
		(strings.HasSuffix(pLast, qLast) || strings.HasSuffix(qLast, pLast))
}
