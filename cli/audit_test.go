package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAuditListGoesOnUntilItHasWhatWasAskedFor: a page of the server may be
// short, or empty, where many acts are of other tenants.
func TestAuditListGoesOnUntilItHasWhatWasAskedFor(t *testing.T) {
	var asked []string
	pages := map[string]string{
		"":   `{"audits":[{"by":"ann","verb":"v1"}],"more":true,"next":"p2"}`,
		"p2": `{"audits":[],"more":true,"next":"p3"}`,
		"p3": `{"audits":[{"by":"ann","verb":"v3"}],"more":true,"next":"p4"}`,
		"p4": `{"audits":[{"by":"ann","verb":"<v4>"}]}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, q.Get("after")+":"+q.Get("limit"))
		fmt.Fprint(w, pages[q.Get("after")])
	}))
	defer s.Close()
	for _, tt := range []struct {
		line, asked string
		want        []string
		not         string
	}{
		{"", ":100 p2:99 p3:99 p4:98", []string{"v1", "v3", "<v4>"}, "more:"},
		{"--limit 2", ":2 p2:1 p3:1", []string{"v1", "v3", "more: add --after p4"}, "v4"},
		{"--after p3 --limit 1", "p3:1", []string{"v3", "more: add --after p4"}, "v1"},
		{"-o json", ":100 p2:99 p3:99 p4:98", []string{`"verb": "v1"`, `"verb": "v3"`, `"verb": "<v4>"`}, `"next"`},
	} {
		asked = nil
		out := newScreen()
		term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"EDDA_URL=" + s.URL}}
		code := term.run(t.Context(), append([]string{"audit", "list"}, strings.Fields(tt.line)...))
		if got := strings.Join(asked, " "); code != 0 || got != tt.asked || strings.Contains(out.String(), tt.not) {
			t.Errorf("%q: %d, asked %s, want %s\n%s", tt.line, code, got, tt.asked, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q lacks %s\n%s", tt.line, want, out)
			}
		}
	}
}
