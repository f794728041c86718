package wire

import (
	"slices"
	"strings"

	"edda"
)

// maxFilters bounds the filters of one consumer: beyond it the server's
// matching costs more than reading what is not wanted.
const maxFilters = 32

// Tenants are the tenants a process serves: names, or patterns in which '*'
// stands for any text. None means all.
type Tenants []string

// Match tells whether the tenant is served.
func (t Tenants) Match(tenant string) bool {
	return len(t) == 0 || slices.ContainsFunc(t, func(p string) bool { return edda.Matches(p, tenant) })
}

// Exact tells whether the server can select the tenants by subject.
func (t Tenants) Exact() bool {
	return len(t) > 0 && len(t) <= maxFilters &&
		!slices.ContainsFunc(t, func(p string) bool { return strings.Contains(p, "*") })
}

// Filters are the subjects a consumer asks the server for; where a tenant is a
// pattern they select more than is wanted, and the reader drops the rest.
func (g Grammar) Filters(t Tenants, name string, families ...Family) []string {
	tenants := []string{"*"}
	if !g.NoTenancy && t.Exact() {
		tenants = slices.Compact(slices.Sorted(slices.Values(t)))
	}
	var out []string
	for _, tenant := range tenants {
		for _, f := range families {
			out = append(out, g.pattern(tenant, f, name))
		}
	}
	return out
}

// Overlap tells whether two processes, which serve these, may take in the same tenant.
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

// compatible tells whether some text matches both patterns; of two patterns that
// both have a '*' only the fixed ends are compared, which may say yes too often.
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
