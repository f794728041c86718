package httpeffect

import (
	"fmt"
	"strings"
	"testing"

	"edda/effects"
	"edda/manifests"
)

func compile(t *testing.T, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("e.yaml", []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse: %v", problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.Kind{"http": Kind()})
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"http: {url: 'https://pay'}", ""},
		{"http: {url: 'https://pay/${payload.id}', method: get, headers: {A: =secret.B}, query: {q: =id}, body: {a: [=tenant]}}", ""},
		{"http: {url: =payload.url, method: =payload.method, headers: =payload.headers}", ""},
		{"http: {url: '${secret.BASE}/x'}", ""},
		{"http: {body: 1}", "http needs url"},
		{"http: {url: 'ftp://x'}", "http or https"},
		{"http: {url: '/x/${id}'}", "http or https"},
		{"http: {url: 7}", "http or https"},
		{"http: {url: 'http://x', method: FETCH}", "method is one of GET"},
		{"http: {url: 'http://x', headers: [a]}", "headers is a map"},
		{"http: {url: 'http://x', query: a=b}", "query is a map"},
		{"http: {url: 'http://x', headres: {}}", "http knows no headres"},
	} {
		_, problems := compile(t, "effect: a\n"+tt.text+"\n")
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ before, value, want string }{
		{"", "http://base/x", "http://base/x"},
		{"https://pay/", "a/b?c#d e", "a%2Fb%3Fc%23d%20e"},
		{"https://pay/", "..", "%2E%2E"},
		{"https://pay/x?key=", "a&b=c/d", "a%26b%3Dc%2Fd"},
		{"https://", "evil/", "evil%2F"},
	} {
		if got := escape(tt.before, tt.value); got != tt.want {
			t.Errorf("%q after %q is %q, want %q", tt.value, tt.before, got, tt.want)
		}
	}
}
