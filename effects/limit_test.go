package effects

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"edda/manifests"
)

// compilePolicy compiles the breaker and the limit of an effect with these lines.
func compilePolicy(t *testing.T, lines string) (*breakerSpec, *limit, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("effects.yaml", []byte("effect: charge\nhttp: {url: x}\n"+lines+"\n"))
	if problems.Failed() || len(f.Effects) != 1 {
		return nil, nil, problems
	}
	c := &compiler{names: map[string]bool{}, m: f.Effects[0], secrets: map[string]bool{}}
	b, l := c.breaker(c.m.Breaker), c.limit(c.m.Limit)
	return b, l, c.problems
}

func TestBreakerCompiles(t *testing.T) {
	tests := []struct {
		lines string
		want  string
	}{
		{"breaker: {name: pay, failures: 3, open: 1m}", "pay 3 1m0s"},
		{"breaker: {}", "charge 5 30s"},
		{"breaker: {open: 1d}", "charge 5 24h0m0s"},
		{"breaker: {name: ==, failures: 1000}", ""},
		{"timeout: 1s", "none"},
	}
	for _, tt := range tests {
		b, _, problems := compilePolicy(t, tt.lines)
		got := ""
		switch {
		case problems.Failed():
		case b == nil:
			got = "none"
		default:
			got = fmt.Sprint(b.name, " ", b.failures, " ", b.open)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q (%v)", tt.lines, got, tt.want, problems)
		}
	}
}

func TestLimitCompiles(t *testing.T) {
	tests := []struct {
		lines string
		want  string // rate burst concurrent
	}{
		{"limit: {rate: 50/s}", "50 50 0"},
		{"limit: {rate: 90/m}", "1.5 2 0"},
		{"limit: {rate: 36/h, burst: 7}", "0.01 7 0"},
		{"limit: {rate: 2.5, concurrent: 4}", "2.5 3 4"},
		{"limit: {rate: 3}", "3 3 0"},
		{"limit: {rate: 0.5/s}", "0.5 1 0"},
		{"limit: {concurrent: 10}", "0 1 10"},
		{"limit: {rate: 100000}", "100000 100000 0"},
		{"timeout: 1s", "none"},
	}
	for _, tt := range tests {
		_, l, problems := compilePolicy(t, tt.lines)
		got := "none"
		if l != nil {
			got = fmt.Sprint(float64(l.rate), l.burst, l.concurrent)
		}
		if len(problems) > 0 || got != tt.want {
			t.Errorf("%s: %q, want %q (%v)", tt.lines, got, tt.want, problems)
		}
	}
}

func TestBadPoliciesAreProblemsWithTheirPlace(t *testing.T) {
	tests := []struct{ lines, want string }{
		{"breaker: 5", "breaker is a map"},
		{"breaker:", "breaker is a map"},
		{"breaker: {failures: 0}", "3:21: error: breaker.failures is a whole number from 1 to 1000"},
		{"breaker: {failures: 1001}", "breaker.failures is a whole number"},
		{"breaker: {failures: 2.5}", "breaker.failures is a whole number"},
		{"breaker: {failures: -1}", "breaker.failures is a whole number"},
		{"breaker: {failures: '5'}", "breaker.failures is a whole number"},
		{"breaker: {failures: =5}", "breaker.failures is a whole number from 1 to 1000, never an expression"},
		{"breaker: {failures: [5]}", "breaker.failures is a whole number"},
		{"breaker: {failures: }", "breaker.failures is a whole number"},
		{"breaker: {open: 30}", "3:17: error: breaker.open is a duration such as 30s"},
		{"breaker: {open: 0s}", "breaker.open is a duration"},
		{"breaker: {open: -3s}", "breaker.open is a duration"},
		{"breaker: {open: 25h}", "at most 24h0m0s"},
		{"breaker: {open: soon}", "breaker.open is a duration"},
		{"breaker: {open: =30s}", "never an expression"},
		{"breaker: {open: {a: 1}}", "breaker.open is a duration"},
		{"breaker: {name: 'a b'}", "breaker.name is the upstream's name"},
		{"breaker: {name: ''}", "breaker.name is"},
		{"breaker: {name: 5}", "breaker.name is"},
		{"breaker: {name: =tenant}", "never an expression"},
		{"breaker: {name: 'a${tenant}'}", "never an expression"},
		{"breaker: {name: " + strings.Repeat("x", 65) + "}", "at most 64"},
		{"breaker: {failure: 5}", "3:11: error: breaker has no failure: it knows failures, name, open"},
		{"limit: 50/s", "limit is a map"},
		{"limit: {}", "3:8: error: limit bounds nothing: give it rate (50/s), concurrent (10) or both"},
		{"limit: {key: =tenant}", "limit bounds nothing"},
		{"limit: {burst: 5, concurrent: 1}", "3:16: error: limit.burst is how far a rate may be exceeded"},
		{"limit: {rate: 0}", "limit.rate is calls in a time, such as 50/s"},
		{"limit: {rate: -1/s}", "limit.rate is"},
		{"limit: {rate: 50/d}", "limit.rate is"},
		{"limit: {rate: 50}", ""},
		{"limit: {rate: 50/ s}", "limit.rate is"},
		{"limit: {rate: 1e3/s}", "limit.rate is"},
		{"limit: {rate: inf/s}", "limit.rate is"},
		{"limit: {rate: '50'}", "limit.rate is"},
		{"limit: {rate: ./s}", "limit.rate is"},
		{"limit: {rate: 1.2.3/s}", "limit.rate is"},
		{"limit: {rate: 0.000001}", "limit.rate is"},
		{"limit: {rate: 1000000}", "limit.rate is"},
		{"limit: {rate: " + strings.Repeat("9", 400) + "/s}", "limit.rate is"},
		{"limit: {rate: true}", "limit.rate is"},
		{"limit: {rate: =payload.rate}", "3:15: error: limit.rate is"},
		{"limit: {rate: [1]}", "limit.rate is"},
		{"limit: {rate: 1, burst: 0}", "limit.burst is a whole number from 1 to 100000"},
		{"limit: {rate: 1, burst: 100001}", "limit.burst is"},
		{"limit: {concurrent: 0}", "limit.concurrent is a whole number from 1 to 10000"},
		{"limit: {concurrent: 1.0e99}", "limit.concurrent is"},
		{"limit: {rate: 1, key: }", "limit.key is one value, such as =tenant"},
		{"limit: {rate: 1, key: [a]}", "limit.key is one value"},
		{"limit: {rate: 1, key: {a: 1}}", "limit.key is one value"},
		{"limit: {rate: 1, key: =status}", "status"},
		{"limit: {rate: 1, key: =secret.PAY}", "secret"},
		{"limit: {rate: 1, key: =payload.}", "3:24"},
		{"limit: {rate: 1, per: s}", "limit has no per: it knows burst, concurrent, key, rate"},
	}
	for _, tt := range tests {
		_, _, problems := compilePolicy(t, tt.lines)
		got := fmt.Sprint(problems)
		if tt.want == "" && len(problems) > 0 || !strings.Contains(got, tt.want) || problems.Failed() != (tt.want != "") {
			t.Errorf("%s: %s, want %q", tt.lines, got, tt.want)
		}
	}
}

// All problems of both are told at once.
func TestBadPoliciesAreToldAtOnce(t *testing.T) {
	_, _, problems := compilePolicy(t, "breaker: {failures: 0, open: 1, x: 1}\nlimit: {rate: 0, burst: 0, concurrent: 0}")
	if len(problems) != 6 {
		t.Errorf("%d problems, want 6: %v", len(problems), problems)
	}
}

func TestBreakersOfOneNameHaveTheSameNumbers(t *testing.T) {
	var specs []*breakerSpec
	for i, text := range []string{"failures: 5, open: 30s", "", "open: 31s", "failures: 4", "failures: 5"} {
		f, problems := manifests.Parse(fmt.Sprintf("e%d.yaml", i), fmt.Appendf(nil, "effect: e%d\nhttp: {url: x}\nbreaker: {name: pay, %s}\n", i, text))
		if problems.Failed() {
			t.Fatal(problems)
		}
		specs = append(specs, (&compiler{names: map[string]bool{}, m: f.Effects[0]}).breaker(f.Effects[0].Breaker))
	}
	if got := breakerConflicts(specs[:2]); len(got) != 0 {
		t.Errorf("the same numbers, said and unsaid: %v", got)
	}
	got := breakerConflicts(specs)
	if len(got) != 4 || !got.Failed() {
		t.Fatalf("%d problems, want both places of two: %v", len(got), got)
	}
	want := "e2.yaml:3:10: error: breaker pay is failures: 5, open: 31s here and failures: 5, open: 30s in effect e0 (e0.yaml:3:10): give both the same numbers, or one another name"
	if got[0].Error() != want {
		t.Errorf("got %s, want %s", got[0].Error(), want)
	}
	if !strings.HasPrefix(got[1].Error(), "e0.yaml:3:10") || !strings.Contains(got[1].Error(), "in effect e2 (e2.yaml:3:10)") {
		t.Errorf("the other place is not shown: %s", got[1].Error())
	}
}

func TestKeyOf(t *testing.T) {
	vars := map[string]any{"id": "c1", "tenant": "acme", "secret": map[string]any{}, "payload": map[string]any{
		"n": 7, "text": "7", "long": strings.Repeat("x", 200), "longer": strings.Repeat("x", 201), "list": []any{1, "a"}}}
	tests := []struct{ key, want string }{
		{"=tenant", "acme"},
		{"=payload.n", "7"},
		{"=payload.text", "7"},
		{"=payload.list", `[1,"a"]`},
		{"=payload.gone", ""},
		{"all", "all"},
		{"'${tenant}/${payload.n}'", "acme/7"},
	}
	for _, tt := range tests {
		_, l, problems := compilePolicy(t, "limit: {rate: 1, key: "+tt.key+"}")
		if problems.Failed() {
			t.Fatal(problems)
		}
		if got, err := l.keyOf("acme", vars); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.key, got, err, tt.want)
		}
	}
	long, longer := keyText(t, "=payload.long", vars), keyText(t, "=payload.longer", vars)
	if len(long) > maxKey || len(longer) > maxKey || long == longer {
		t.Errorf("long keys are %q and %q", long, longer)
	}
	if got, err := (*limit)(nil).keyOf("acme", vars); got != "acme" || err != nil {
		t.Errorf("without a limit %q, %v", got, err)
	}
	if got, err := (&limit{rate: 1}).keyOf("acme", vars); got != "acme" || err != nil {
		t.Errorf("without a key %q, %v", got, err)
	}
	_, l, _ := compilePolicy(t, "limit: {rate: 1, key: =payload.n + payload.list}")
	if _, err := l.keyOf("acme", vars); err == nil {
		t.Error("an expression that fails gave a key")
	}
}

func keyText(t *testing.T, key string, vars map[string]any) string {
	t.Helper()
	_, l, problems := compilePolicy(t, "limit: {rate: 1, key: "+key+"}")
	got, err := l.keyOf("acme", vars)
	if err != nil || problems.Failed() {
		t.Fatal(err, problems)
	}
	return got
}

// After a reload the same text is the same key, and no other is.
func TestKeySource(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"=tenant", "tenant", "'${tenant}'", "'${tenant} '", "=payload.a", "'${payload.a}${payload.b}'", "'${payload.a} ${payload.b}'", "5", "'5'", "true"} {
		_, l, problems := compilePolicy(t, "limit: {rate: 1, key: "+key+"}")
		_, again, _ := compilePolicy(t, "limit: {rate: 2, key: "+key+"}")
		if problems.Failed() || l.source != again.source {
			t.Errorf("%s: %q and %q (%v)", key, l.source, again.source, problems)
		}
		if was := seen[l.source]; was != "" {
			t.Errorf("%s and %s have the same source %q", key, was, l.source)
		}
		seen[l.source] = key
	}
}

// What the rate library is trusted with: a token can be given back, and an
// instant that was computed is the one at which the token is there.
func TestBucket(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, perSecond := range []float64{minRate, 0.01, 1.0 / 3, 1, 100.0 / 60, 3, 7, 50, 1e5} {
		b, at := (&limit{rate: rate.Limit(perSecond), burst: 3}).bucket(), now
		for i := range 1000 {
			next := ready(b, 1, at)
			if !next.After(at) && i >= 3 && perSecond < 1e5 {
				t.Fatalf("rate %v: a token too many", perSecond)
			}
			at = next
			if !b.AllowN(at, 1) {
				t.Fatalf("rate %v: the token %d is not there at %v", perSecond, i, at)
			}
			if i%7 == 0 {
				b.AllowN(at, -1)
				if !b.AllowN(at, 1) || b.AllowN(at, 1) && i > 10 {
					t.Fatalf("rate %v: one token given back is not one token", perSecond)
				}
			}
		}
	}
	full := (&limit{rate: 1, burst: 3}).bucket()
	full.AllowN(now, -1)
	if got := full.TokensAt(now); got != 3 {
		t.Errorf("a full bucket took a fourth token: %v", got)
	}
}
