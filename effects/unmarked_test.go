package effects

import (
	"fmt"
	"strings"
	"testing"

	kindspec "edda/effects/spec"
	"edda/manifests"
)

// Authorization: "Bearer secret.PAY" went out with these words, and the call was refused.
func TestASecretInALongerTextIsAnError(t *testing.T) {
	kinds := map[string]ProviderKind{"http": {Spec: &kindspec.Fields{Name: "http", Fields: []kindspec.Field{{Name: "body"}, {Name: "script", Code: true}}}}}
	for line, want := range map[string]string{
		"body: Bearer secret.PAY":                  "${secret.PAY}",
		"body: {a: [x, 'key=secret.KEY_2 today']}": "${secret.KEY_2}",
		"body: 'Basic ${tenant}:secret.PW'":        "${secret.PW}",
		"body: 'Bearer ${secret.PAY}'":             "",
		"body: ='Bearer secret.PAY'":               "",
		"body: https://secret.EXAMPLE/a":           "",
		"body: ann@secret.EXAMPLE":                 "",
		"body: see secret.txt":                     "",
		"body: keep it secret. Nobody may know":    "",
		"body: my.secret.PAY":                      "",
		"script: 'print(secret.PAY)'":              "",
	} {
		f, ps := manifests.Parse("e.yaml", []byte("effect: a\nhttp: {"+line+"}\n"))
		_, found := Compile(f.Effects[0], kinds)
		ps = append(ps, found...)
		switch {
		case want == "" && len(ps) > 0:
			t.Errorf("%s: %v", line, ps)
		case want != "" && (len(ps) != 1 || ps[0].Warning || !strings.Contains(ps[0].Message, "write "+want+" in it")):
			t.Errorf("%s: %v, want an error that says %s", line, ps, want)
		}
	}
}

// TestAnUnmarkedExpressionIsAWarning puts a line into an effect.
func TestAnUnmarkedExpressionIsAWarning(t *testing.T) {
	kinds := map[string]ProviderKind{"http": {Spec: &kindspec.Fields{Name: "http", Fields: []kindspec.Field{
		{Name: "url"}, {Name: "body"}, {Name: "args", Type: kindspec.List},
		{Name: "proto", Literal: true}, {Name: "script", Code: true}, {Name: "server", Trusted: "who is called"},
	}}}}
	for _, tt := range []struct{ line, want string }{
		{"http: {body: payload}", "2:14 =payload"},
		{"http: {body: tenant}", "2:14 =tenant"},
		{"http: {body: {a: payload.id}}", "2:18 =payload.id"},
		{"http: {args: [payload.a, =payload.b]}", "2:15 =payload.a"},
		{"http: {url: 'https://x/{payload.order}'}", "2:13 ${payload.order}"},
		{"http: {url: 'https://x/${id}/{payload.order}'}", "2:13 ${payload.order}"},
		{"http: {url: 'https://x/$payload.order'}", "2:13 ${payload.order}"},
		{"http: {body: secret.TOKEN}", "2:14 =secret.TOKEN"},
		{"http: {server: secret.HOST}", "2:16 =secret.HOST"},
		{"result: {id: body.id}", "2:14 =body.id"},
		{"result: body", "2:9 =body"},
		{"result: {code: status}", "2:16 =status"},
		{"result: {id: 'a {body.id}'}", "2:14 ${body.id}"},
		{"limit: {key: tenant, concurrent: 1}", "2:14 =tenant"},
		{"limit: {key: payload.merchant, concurrent: 1}", "2:14 =payload.merchant"},
		{"version: 2\nupcast: {1: {set: {a: payload.b}}}", "3:23 =payload.b"},
		{"check: {http: {body: payload.a}, ok: 'true', result: {a: body.a}}", "2:22 =payload.a 2:58 =body.a"},

		{"http: {body: 'Bearer $TOKEN'}", "2:14 ${secret.TOKEN} for the secret"},
		{"http: {script: 'curl $URL'}", ""},

		{"http: {body: =payload}", ""},
		{"http: {body: ='payload.a'}", ""},
		{"http: {body: 'https://payload.example/a.b'}", ""},
		{"http: {body: see payload.log}", ""},
		{"http: {body: payload.json}", ""},
		{"http: {body: {sort: id}}", ""},
		{"http: {body: {type: secret}}", ""},
		{"http: {body: {sort: id.asc, host: tenant.internal, a: status.text}}", ""},
		{"http: {body: status}", ""}, // there is none before the call
		{"http: {body: event.id}", ""},
		{"http: {args: [payload, tenant]}", ""},
		{"http: {url: 'https://x/{id}/{order}'}", ""},
		{"http: {proto: payload.v1}", ""},
		{"http: {script: 'payload.run()'}", ""},
		{"http: {script: 'print(f\"{payload.x}\")'}", ""},
		{"http: {server: payload.host}", ""}, // it would be an error
		{"limit: {key: all, concurrent: 1}", ""},
		{"limit: {key: status, concurrent: 1}", ""},
		{"result: {state: paid}", ""},
	} {
		f, ps := manifests.Parse("e.yaml", []byte("effect: a\n"+tt.line+"\n"+map[bool]string{false: "http: {}\n"}[strings.Contains(tt.line, "\nhttp:") || strings.HasPrefix(tt.line, "http:")]))
		_, found := Compile(f.Effects[0], kinds)
		var got []string
		for _, p := range append(ps, found...) {
			_, mend, _ := strings.Cut(p.Message, "write ")
			mend, _, _ = strings.Cut(mend, " for its value")
			if got = append(got, fmt.Sprintf("%d:%d %s", p.Pos.Line, p.Pos.Column, mend)); !p.Warning {
				t.Errorf("%s: %v", tt.line, p.Error())
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.line, got, tt.want)
		}
	}
}
