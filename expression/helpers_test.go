package expression

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edda/internal/jsonvalue"
)

// scope are the names that the tests' expressions may use.
var scope = []string{"event", "state", "step", "meta", "key", "now", "count", "total", "first", "sum", "result", "big"}

func compile(t testing.TB, source string) *Program {
	t.Helper()
	p, errs := Compile(source, Options{Names: scope})
	for _, err := range errs {
		t.Fatalf("%s: %d:%d %s (%v)", source, err.Line, err.Column, err.Message, err.Err)
	}
	return p
}

// decode makes a variable of JSON.
func decode(t testing.TB, text string) any {
	t.Helper()
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func eval(t testing.TB, source string, vars map[string]any) any {
	t.Helper()
	v, err := compile(t, source).Eval(Env{Vars: vars})
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return v
}

// wants evaluates source over an event, and compares with JSON.
func wants(t testing.TB, source, event, want string) {
	t.Helper()
	got := eval(t, source, map[string]any{"event": decode(t, event), "now": "2026-01-01T00:00:00.000Z"})
	data, err := jsonvalue.Encode(got)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("%s over %.200s (-want +got):\n%s", source, event, diff)
	}
}

// refuses wants an error at compile or run time whose message has the part.
func refuses(t testing.TB, source, event, part string) {
	t.Helper()
	message := failure(t, source, map[string]any{"event": decode(t, event), "now": "2026-01-01T00:00:00.000Z"})
	if message == "" {
		t.Errorf("%s over %.200s: no error, want %q", source, event, part)
	} else if !strings.Contains(message, part) {
		t.Errorf("%s over %.200s: %q, want %q", source, event, message, part)
	}
}

func failure(t testing.TB, source string, vars map[string]any) string {
	t.Helper()
	p, errs := Compile(source, Options{Names: scope})
	if len(errs) > 0 {
		return errs[0].Message
	}
	if _, err := p.Eval(Env{Vars: vars}); err != nil {
		return err.Error()
	}
	return ""
}

// refusedByCompile wants the error before anything is evaluated.
func refusedByCompile(t testing.TB, source, part string) *Error {
	t.Helper()
	_, errs := Compile(source, Options{Names: scope})
	if len(errs) == 0 {
		t.Fatalf("%s: compiles, want %q", source, part)
	}
	if !strings.Contains(errs[0].Message, part) {
		t.Errorf("%s: %q, want %q", source, errs[0].Message, part)
	}
	return errs[0]
}

// given is a Source with fixed values.
type given struct {
	lazy func(name string) (any, error)
	ids  string // before the name; empty: no ids
}

func (s given) Lazy(name string) (any, error) {
	if s.lazy == nil {
		return nil, nil
	}
	return s.lazy(name)
}

func (s given) UUID(name string) (string, bool) { return s.ids + name, s.ids != "" }
