package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestAnActOnAllLettersSaysWhereItBrokeOff and goes on from there.
func TestAnActOnAllLettersSaysWhereItBrokeOff(t *testing.T) {
	answers := map[string]string{
		"":   `{"done":99,"failed":1,"failures":[{"dead_letter":"D7","error":"it stays"}],"next":"p2"}`,
		"p2": `{"done":3,"failed":0,"failures":[],"stopped":"NATS is away","next":"p3"}`,
		"p4": `{"done":5,"failed":0,"failures":[]}`,
		"p5": `{"done":0,"failed":0,"failures":[],"stopped":"NATS is away","next":"p5"}`,
	}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = append(asked, r.Method+r.URL.Path+" "+q.Get("after")+" "+q.Get("limit")+" "+q.Get("saga")+" "+q.Get("reason"))
		answer, ok := answers[q.Get("after")]
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, answer)
	}))
	defer s.Close()
	for _, tt := range []struct {
		line  string
		code  int
		asked int
		want  []string
	}{
		{"drop --all --yes", 1, 3, []string{"D7: it stays", "99 dropped, 1 failed, so far", "102 dropped, 1 failed, so far; NATS is away", "102 dropped, 1 failed; what is done stays done: say it again to go on, with --after p3"}},
		{"drop --all --yes --max 100", 1, 1, []string{"99 dropped, 1 failed\n", "there are more: say it again, with --after p2"}},
		{"redrive --all --after p4 --saga order --reason-of poison", 0, 1, []string{"5 redriven, 0 failed\n"}},
		{"skip --all --yes --after p5", 1, 2, []string{"0 skipped, 0 failed", "the server goes no further: NATS is away", "--after p5"}},
		{"drop --all", exitUsage, 0, []string{"drop --all cannot be taken back: add --yes"}},
		{"drop D1 --saga order", exitUsage, 0, []string{"choose among --all"}},
		{"skip", exitUsage, 0, []string{"name one dead letter, or say --all"}},
	} {
		asked = nil
		out := newScreen()
		term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"EDDA_URL=" + s.URL}}
		code := term.run(t.Context(), append([]string{"deadletter"}, append(strings.Fields(tt.line), "--why", "a test")...))
		if code != tt.code || len(asked) != tt.asked {
			t.Errorf("%s: exit %d, want %d; asked %q\n%s", tt.line, code, tt.code, asked, out)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s lacks %q\n%s", tt.line, want, out)
			}
		}
		if strings.HasPrefix(tt.line, "redrive") && asked[0] != "POST/v1/deadletters/redrive p4 100 order poison" {
			t.Errorf("asked %q", asked)
		}
	}
}
