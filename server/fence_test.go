package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"edda/internal/testkit"
)

// TestReadsOfInstancesPassTheFence: each route that shows a tenant's state, and no other one.
func TestReadsOfInstancesPassTheFence(t *testing.T) {
	var shut error
	asked := 0
	f := newFakes()
	h := start(t, f, func(o *Options) {
		o.Fence = func(context.Context) error { asked++; return shut }
	})
	for _, route := range Routes() {
		method, path, _ := strings.Cut(route, " ")
		if !strings.HasPrefix(path, "/") {
			continue // every other path
		}
		path = strings.NewReplacer("{saga}", "order", "{key}", "O1", "{id}", "D1", "{$}", "").Replace(path)
		want := 0
		if method == http.MethodGet && (strings.HasPrefix(path, "/v1/") || path == "/admin/replay") {
			want = 1
		}
		shut, asked = errors.New("the lease ran out"), 0
		req := testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, h.URL+path, nil))
		resp := testkit.Value[*http.Response](t)(http.DefaultClient.Do(req))
		_ = resp.Body.Close()
		if asked != want {
			t.Errorf("%s asks the fence %d times, want %d", route, asked, want)
		}
		refused := resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "1"
		if refused != (want == 1) {
			t.Errorf("%s behind the fence: %d", route, resp.StatusCode)
		}
	}
	shut = errors.New("the lease ran out")
	if _, body := call(t, h, "GET", "/v1/instances", ""); !strings.Contains(body, "the lease ran out") {
		t.Errorf("the answer does not say why: %s", body)
	}
	shut = nil
	if code, body := call(t, h, "GET", "/v1/instances", ""); code != 200 {
		t.Errorf("the fence is open: %d %s", code, body)
	}
}
