package httpeffect

import (
	"fmt"
	"strings"
	"testing"

	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

func compile(t *testing.T, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse("e.yaml", []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse: %v", problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"http": Kind()})
}

// checks are manifests and what lint says of them.
func checks() []struct{ text, want string } {
	return []struct{ text, want string }{
		{"http: {url: 'https://pay'}", ""},
		{"http: {url: 'https://pay/${payload.id}', method: get, headers: {A: =secret.B}, query: {q: =id}, body: {a: [=tenant]}}", ""},
		{"http: {url: =payload.url, method: =payload.method, headers: =payload.headers}", ""},
		{"http: {url: '${secret.BASE}/x'}", ""},
		{"http: {url: 'https://pay/a/../b'}", "write the path that it leads to"},
		{"http: {url: 'https://pay/a/%2e./${id}'}", "write the path that it leads to"},
		{"http: {url: 'https://pay/.${id}/..${id}/...?a=/../'}", ""},
		{"http: {url: 'https://pay/x', headers: {A: '=raw(id)'}}", "in the url of an http effect"},
		{"http: {url: 'https://pay/${raw(id) + id}'}", "in the url of an http effect"},
		{"http: {url: 'https://pay/${raw(id, id)}'}", "in the url of an http effect"},
		{"http: {url: 'https://pay/${ raw( paylod.id ) }'}", `e.yaml:2:34: error: unknown name "paylod"`},
		{"http: {body: 1}", "http needs url"},
		{"http: {url: 'ftp://x'}", "http or https"},
		{"http: {url: '/x/${id}'}", "http or https"},
		{"http: {url: 7}", "http or https"},
		{"http: {url: 'http://x', method: FETCH}", "method is one of GET"},
		{"http: {url: 'http://x', headers: [a]}", "headers is a map"},
		{"http: {url: 'http://x', query: a=b}", "query is a map"},
		{"http: {url: 'http://x', headres: {}}", "http knows no headres; did you mean headers?"},
		{"http: {url: 'http://x', zzzzzz: {}}", "http knows no zzzzzz; it knows method, url, headers, query, body, form, raw, redirects, tls"},
		{"http: {url: 'https://'}", "http or https"},
		{"http: {url: 'https://${payload.host}/x'}", ""},
		{"http: {url: 'http://x', method: CONNECT}", "method is one of GET"},
		{"http: {url: 'http://x', method: trace}", ""},
		{"http: {url: 'http://x', headers: {'A B': c}}", "does not allow"},
		{"http: {url: 'http://x', headers: {A: \"b\\nc\"}}", "does not allow"},
		{"http: {url: 'http://x', headers: {content-length: 7}}", "set by the connection itself"},
		{"http: {url: 'http://x', headers: {Accept-Encoding: gzip}}", "set by the connection itself"},
		{"http: {url: 'http://x', headers: {Host: y, X: 5, Y: [a, b], Z: =id}}", ""},
		{"http: {url: 'http://x', form: {a: [=payload.b, 2]}}", ""},
		{"http: {url: 'http://x', form: =payload}", ""},
		{"http: {url: 'http://x', form: a=b}", "form is a map"},
		{"http: {url: 'http://x', form: [a]}", "form is a map"},
		{"http: {url: 'http://x', raw: text}", ""},
		{"http: {url: 'http://x', raw: 'a ${id}'}", ""},
		{"http: {url: 'http://x', raw: =payload.text}", ""},
		{"http: {url: 'http://x', raw: {base64: =payload.image}}", ""},
		{"http: {url: 'http://x', raw: {base64: AP8=}}", ""},
		{"http: {url: 'http://x', raw: {base64: '?'}}", "raw.base64 is not in base64"},
		{"http: {url: 'http://x', raw: {a: 1}}", "raw is a text, or {base64: text}"},
		{"http: {url: 'http://x', raw: {base64: AP8=, a: 1}}", "raw is a text, or {base64: text}"},
		{"http: {url: 'http://x', raw: 7}", "raw is a text, or {base64: text}"},
		{"http: {url: 'http://x', raw: [a]}", "raw is a text, or {base64: text}"},
		{"http: {url: 'http://x', body: 1, form: {}}", "one of body, form, raw, and this has body and form"},
		{"http: {url: 'http://x', raw: a, body: 1, form: {}}", "and this has raw and form"},
		{"http: {url: 'http://x', redirects: 0}", ""},
		{"http: {url: 'http://x', redirects: 10}", ""},
		{"http: {url: 'http://x', redirects: 11}", "to 10"},
		{"http: {url: 'http://x', redirects: -1}", "to 10"},
		{"http: {url: 'http://x', redirects: true}", "to 10"},
		{"http: {url: 'http://x', redirects: 1.5}", "to 10"},
		{"http: {url: 'http://x', redirects: =payload.n}", "to 10"},
		{"http: {url: 'https://x', tls: {ca: =secret.CA, cert: =secret.C, key: =secret.K, server_name: y}}", ""},
		{"http: {url: '${secret.BASE}/x', tls: {ca: =secret.CA}}", ""},
		{"http: {url: 'http://x', tls: {ca: =secret.CA}}", "write https"},
		{"http: {url: 'HTTP://x/${id}', tls: {ca: =secret.CA}}", "write https"},
		{"http: {url: 'https://x', tls: {insecure: true}}", "tls knows no insecure"},
		{"http: {url: 'https://x', tls: {ca: /etc/ca.pem}}", "not the file it is in"},
	}
}

func TestCheck(t *testing.T) {
	var accepted []string
	for _, tt := range checks() {
		text := "effect: a\n" + tt.text + "\n"
		_, problems := compile(t, text)
		if tt.want == "" {
			accepted = append(accepted, text)
		}
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
	effecttest.Schema(t, Kind().Spec, accepted...)
}

// TestBodiesOfMethodsThatHaveNone are warned of, no more.
func TestBodiesOfMethodsThatHaveNone(t *testing.T) {
	for text, want := range map[string]bool{
		"{url: 'http://x', method: get, body: =payload}": true, "{url: 'http://x', method: HEAD, raw: a}": true, "{url: 'http://x', method: DELETE, body: 1}": false,
		"{url: 'http://x', body: 1}": false, "{url: 'http://x', method: =payload.m, body: 1}": false, "{url: 'http://x', method: GET, query: {a: 1}}": false,
	} {
		e, problems := compile(t, "effect: a\nhttp: "+text+"\n")
		if e == nil || (len(problems) > 0) != want || want && !strings.Contains(fmt.Sprint(problems), "query gives it names") {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

func TestEscape(t *testing.T) {
	for _, tt := range []struct{ before, value, want string }{
		{"", "http://base/x", "http://base/x"},
		{"https://pay/", "a/b?c#d e", "a%2Fb%3Fc%23d%20e"},
		{"https://pay/x?key=", "a&b=c/d", "a%26b%3Dc%2Fd"},
		{"https://", "evil/", "evil%2F"},
		{"https://pay.", "x@evil", "x%40evil"},
		{"https://us:", "p@s", "p%40s"},
		{"https://pay/", "a@b", "a@b"},
	} {
		if got := escape(tt.before, tt.value); got != tt.want {
			t.Errorf("%q after %q is %q, want %q", tt.value, tt.before, got, tt.want)
		}
	}
}
