package wire

import (
	"slices"
	"testing"
)

// TestAStreamIsReadWithFewFilters: none for all of it, and one for each tenant otherwise.
func TestAStreamIsReadWithFewFilters(t *testing.T) {
	for name, test := range map[string]struct {
		g       Grammar
		tenants Tenants
		echoes  bool
		want    []string
	}{
		"everything":                      {echoes: true},
		"everything without tenancy":      {g: Grammar{NoTenancy: true}, echoes: true},
		"no echoes":                       {want: []string{"tenant.*.*.*.*"}},
		"no echoes without tenancy":       {g: Grammar{NoTenancy: true}, want: []string{"*.*.*"}},
		"tenants":                         {tenants: Tenants{"b.c", "a"}, echoes: true, want: []string{"tenant.a.>", "tenant.b%2Ec.>"}},
		"tenants, no echoes":              {tenants: Tenants{"a"}, want: []string{"tenant.a.*.*.*"}},
		"tenants by a pattern":            {tenants: Tenants{"a*"}, echoes: true},
		"tenants by a pattern, no echoes": {tenants: Tenants{"a*"}, want: []string{"tenant.*.*.*.*"}},
	} {
		if got := test.g.FiltersOfAll(test.tenants, test.echoes); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
