package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"edda/internal/testkit"
)

// TestAGetWithABodyIsAnsweredByAllShards: the standbys of two shards would forward parts of one body.
func TestAGetWithABodyIsAnsweredByAllShards(t *testing.T) {
	owner := func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); len(body) > 0 || err != nil || r.ContentLength != 0 {
			t.Errorf("%s %s has a body of %d bytes: %q, %v", r.Method, r.URL, r.ContentLength, body, err)
		}
		fmt.Fprint(w, "{}")
	}
	f := frontOf(t, owner, owner)
	for i := range f.shards {
		s := follower(t, ownedBy(t, owner))
		s.options.Front = f
		f.shards[i].now.Store(&hosted{Server: s})
	}
	front := httptest.NewServer(f.Handler())
	t.Cleanup(front.Close)
	targets := []string{"GET /info", "GET /admin/replay", "HEAD /v1/instances"}
	for route := range gatherings() {
		targets = append(targets, route)
	}
	for _, target := range targets {
		for kind, body := range map[string]io.Reader{"sized": strings.NewReader(`{"limit":1}`), "chunked": io.MultiReader(strings.NewReader(`{"limit":1}`))} {
			method, path, _ := strings.Cut(target, " ")
			req := testkit.Value[*http.Request](t)(http.NewRequestWithContext(t.Context(), method, front.URL+path, body))
			resp := testkit.Value[*http.Response](t)(front.Client().Do(req))
			text := testkit.Value[[]byte](t)(io.ReadAll(resp.Body))
			if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s with a %s body: %d %s, %v", target, kind, resp.StatusCode, text, err)
			}
		}
	}
}
