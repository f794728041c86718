package server

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2/queryparam"
)

// queries ask for the whole process in ways that parsers may read otherwise.
func queries() []string {
	return []string{
		"process=true", "process", "%70rocess=1", "process=false&process=true", "process=true;", "process=t&x=%zz", "x=%zz&process=true", "x=%&process=T",
		strings.Repeat("&", 10_001) + "process=true", "process=true" + strings.Repeat("&a", 10_001), strings.Repeat("a=1&", 10_001) + "process=TRUE",
	}
}

// TestTheDoorIsNotBlindToAQueryOfTenThousandParameters: net/url gives none of them, and the
// handlers read on.
func TestTheDoorIsNotBlindToAQueryOfTenThousandParameters(t *testing.T) {
	for _, query := range queries() {
		r := httptest.NewRequest("GET", "/v1/audit", nil)
		if r.URL.RawQuery = query; !widened(r) {
			t.Errorf("%.40s… of %d bytes is not seen to ask for the whole process", query, len(query))
		}
	}
	for _, query := range []string{"", "process=false", "process=0&limit=5", "limit=5"} {
		r := httptest.NewRequest("GET", "/v1/audit", nil)
		if r.URL.RawQuery = query; widened(r) {
			t.Errorf("%s is taken to ask for the whole process", query)
		}
	}
}

// FuzzTheDoorSeesWhatTheHandlersSee: it refuses too much at worst.
func FuzzTheDoorSeesWhatTheHandlersSee(f *testing.F) {
	for _, query := range queries() {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest("GET", "/v1/audit", nil)
		r.URL.RawQuery = query
		if asked, err := strconv.ParseBool(queryparam.Get(query, "process")); err == nil && asked && !widened(r) {
			t.Errorf("%q asks for the whole process", query)
		}
	})
}
