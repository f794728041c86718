package effects

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/internal/files"
	"edda/manifests"
)

func TestCompileProblems(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown provider", "effect: a\ngrpc: {target: x}\n", "2:1? provider grpc is not built in; this version calls http"},
		{"unknown name", "effect: a\nhttp: {url: x}\nok: statsu == 200\n", "3:5"},
		{"nothing after the call before it", "effect: a\nhttp: {url: x, body: =status}\n", "2:"},
		{"a secret is named", "effect: a\nhttp: {url: x, body: =secret}\n", "secret.NAME"},
		{"a secret is not computed", "effect: a\nhttp: {url: x, body: '=secret[payload.x]'}\n", "secret.NAME"},
		{"a secret's name", "effect: a\nhttp: {url: x, body: '=secret[\"../x\"]'}\n", "letters, digits and _"},
		{"timeout", "effect: a\nhttp: {url: x}\ntimeout: 25h\n", "timeout is more than nothing and at most 24h"},
		{"too many calls", "effect: a\nhttp: {url: x}\nretry: {max: 100000}\n", "retry.max counts calls, 1 to 1000"},
		{"backoff", "effect: a\nhttp: {url: x}\nretry: {backoff: 1s..25h}\n", "retry.backoff"},
		{"schema", "effect: a\nhttp: {url: x}\nschema: {type: 3}\n", "schema"},
		{"schema from elsewhere", "effect: a\nhttp: {url: x}\nschema: {$ref: 'file:///etc/passwd'}\n", "schema"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, problems := compileText(t, tt.text)
			if e != nil || !problems.Failed() {
				t.Fatalf("compiled, problems %v", problems)
			}
			want := strings.TrimPrefix(tt.want, "2:1? ")
			if got := fmt.Sprint(problems); !strings.Contains(got, want) {
				t.Errorf("problems %s, want %s", got, want)
			}
		})
	}
}

func TestCompileReportsAllAtOnce(t *testing.T) {
	_, problems := compileText(t, "effect: a\nhttp: {url: x, body: =nobody}\nok: nothing\nfail: nowhere\ntimeout: 99h\nresult: =unheard\n")
	if len(problems) != 5 {
		t.Errorf("%d problems: %v", len(problems), problems)
	}
}

func TestCompileNumbersNeverPanic(t *testing.T) {
	f, _ := manifests.Parse("e.yaml", []byte(charge))
	m := f.Effects[0]
	for _, r := range []manifests.Retry{{Max: -1}, {Max: 1 << 40}, {Min: -1, Cap: 1}, {Min: time.Minute, Cap: time.Second}, {Min: 0, Cap: time.Second}} {
		m.Retry = &r
		if e, problems := Compile(m, testKinds()); e != nil || !problems.Failed() {
			t.Errorf("%+v compiled", r)
		}
	}
	m.Retry, m.Timeout = nil, &manifests.Duration{D: -1}
	if e, problems := Compile(m, testKinds()); e != nil || !problems.Failed() {
		t.Error("a negative timeout compiled")
	}
}

// TestAKindHasItsOwnTimeout: but what the manifest says comes first.
func TestAKindHasItsOwnTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"effect: a\nsmtp: {}\n": time.Minute, "effect: a\nsmtp: {}\ntimeout: 5s\n": 5 * time.Second} {
		f, _ := manifests.Parse("e.yaml", []byte(text))
		e, problems := Compile(f.Effects[0], map[string]ProviderKind{"smtp": {Timeout: time.Minute}})
		if e == nil || e.timeout != want {
			t.Errorf("%s: %+v %v", text, e, problems)
		}
	}
}

func TestCompileDefaults(t *testing.T) {
	e := compile(t, "effect: a\nhttp: {url: x}\n")
	if e.timeout != defaultTimeout || e.retry != (retry{defaultCalls, defaultBackoff, defaultCap, true}) || !e.repeatable() || e.Version() != 1 || e.Hash() == "" {
		t.Errorf("%+v", e)
	}
	if got := compile(t, charge).Secrets(); fmt.Sprint(got) != "[PAY]" {
		t.Errorf("secrets %v", got)
	}
}

func TestRetryDelay(t *testing.T) {
	r := retry{min: time.Second, cap: 10 * time.Second, jitter: true}
	for calls, want := range map[int][2]time.Duration{1: {1000, 1500}, 2: {1500, 3000}, 3: {3000, 6000}, 4: {5000, 10000}, 90: {5000, 10000}} {
		low, high := r.delay(calls, 0), r.delay(calls, 1)
		if low != want[0]*time.Millisecond || high != want[1]*time.Millisecond {
			t.Errorf("after %d calls %s to %s, want %v ms", calls, low, high, want)
		}
	}
	r.jitter = false
	if got := r.delay(3, 0.9); got != 4*time.Second {
		t.Errorf("without jitter %s", got)
	}
	long := retry{min: maxBackoff, cap: maxBackoff}
	if got := long.delay(30, 0); got != maxBackoff {
		t.Errorf("overflow gave %s", got)
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := write("other", "from a file\n")
	write("IN_DIR", "from the folder\r\n")
	env := map[string]string{"EDDA_SECRET_A": "from the environment\n", "EDDA_SECRET_B_FILE": other}
	s := Secrets{Dir: dir, Environ: func(name string) (string, bool) { v, found := env[name]; return v, found }}
	for name, want := range map[string]string{"A": "from the environment\n", "B": "from a file", "IN_DIR": "from the folder"} {
		if got, err := s.Get(name); got != want || err != nil {
			t.Errorf("%s is %q %v, want %q", name, got, err, want)
		}
	}
	if err := os.Truncate(write("LARGE", ""), files.Most+1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"C", "", "../other", "a/b", "LARGE"} {
		if got, err := s.Get(name); err == nil {
			t.Errorf("%q is %q", name, got)
		}
	}
	write("IN_DIR", "rotated")
	if got, _ := s.Get("IN_DIR"); got != "rotated" {
		t.Errorf("after rotation %q", got)
	}
}

// TestExpressionsReadHeaders: wherever they stand. They are only there for who reads them.
func TestExpressionsReadHeaders(t *testing.T) {
	r := Response{Status: 200, Headers: map[string]string{"x-shop": "open"}}
	for text, want := range map[string]string{
		"ok: headers['x-shop'] == 'open'\n":                        "Succeeded <nil>",
		"ok: 'false'\nfail: headers['x-shop'] != 'open'\n":         "Failed <nil>",
		"result: =headers['x-shop']\n":                             "Succeeded open",
		"result: {a: [\"is ${headers['x-shop']}\"]}\n":             "Succeeded map[a:[is open]]",
		"check:\n  http: {url: y}\n  ok: headers['x-shop'] != 1\n": "Succeeded <nil>",
	} {
		e := compile(t, "effect: a\nhttp: {url: x}\n"+text)
		vars := e.after(map[string]any{}, r)
		if a := e.judge(r, vars); fmt.Sprint(a.kind, " ", a.payload) != want || vars["headers"] == nil {
			t.Errorf("%s%s %v, want %s", text, a.kind, a.payload, want)
		}
		if c, err := e.request(&Command{}, e.config, nil); err != nil || c.Bare {
			t.Errorf("%scalls without headers, %v", text, err)
		}
	}
	nobody := compile(t, "effect: a\nhttp: {url: x}\n")
	if vars := nobody.after(map[string]any{}, r); vars["headers"] != nil {
		t.Error("headers for nobody")
	}
	if c, err := nobody.request(&Command{}, nobody.config, nil); err != nil || !c.Bare {
		t.Errorf("calls with headers for nobody, %v", err)
	}
}
