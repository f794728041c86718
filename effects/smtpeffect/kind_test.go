package smtpeffect

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
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"smtp": Kind()})
}

// good is the least that a manifest says; a test changes or adds fields.
func good(change string) string {
	fields := map[string]string{"server": "mail.example:587", "from": "a@b.example", "to": "=payload.to", "subject": "Hi ${payload.name}", "text": "x"}
	order := []string{"server", "from", "to", "subject", "text"}
	for _, c := range strings.Split(change, "\n") {
		name, v, found := strings.Cut(c, ": ")
		if _, known := fields[name]; !known && name != "" {
			order = append(order, name)
		}
		if fields[name] = v; !found {
			delete(fields, name)
		}
	}
	out := "effect: a\nsmtp:\n"
	for _, name := range order {
		if v, found := fields[name]; found {
			out += "  " + name + ": " + v + "\n"
		}
	}
	return out
}

func TestCheck(t *testing.T) {
	var accepted []string
	for _, tt := range []struct{ change, want string }{
		{"", ""},
		{"server: =secret.SERVER", ""},
		{"server: \"${secret.HOST}:587\"", ""},
		{"server: '[::1]:25'", ""},
		{"security: tls\ntls: {ca: =secret.CA, server_name: mail}\nusername: u\npassword: =secret.P\nauth: plain", ""},
		{"server: localhost:1025\nsecurity: none\nusername: u\npassword: =secret.P", ""},
		{"server: 127.0.0.1:1025\nsecurity: none\nusername: u\npassword: =secret.P", ""},
		{"server: =secret.S\nsecurity: none\nusername: u\npassword: =secret.P", ""},
		{"to: [a@b.example, 'Ann <c@d.example>', {name: =payload.name, address: =payload.to}]\ncc: []\nbcc: =payload.bcc\nreply_to: a@b.example", ""},
		{"headers: {X-A: =id, List-Id: a}\nattachments: [{name: a, content: =payload.a}, =payload.b]", ""},
		{"headers: =payload.headers\nattachments: =payload.files", ""},
		{"text\nhtml: <p>", ""},
		{"server", "smtp needs server"},
		{"to", "smtp needs to"},
		{"from", "smtp needs from"},
		{"subject", "smtp needs subject"},
		{"text", "smtp needs text, html, or both"},
		{"text: ''", "smtp needs text, html, or both"},
		{"text: 7", "text is a text"},
		{"sevrer: x", "smtp knows no sevrer; did you mean server?"},
		{"zzzzzz: x", "smtp knows no zzzzzz; it knows server, security"},
		{"server: mail.example", "server is host:port"},
		{"server: mail.example:0", "server is host:port"},
		{"server: mail.example:smtp", "server is host:port"},
		{"server: smtp://mail.example:25", "server is host:port"},
		{"server: =payload.server", "server may not come from the payload"},
		{"tls: {ca: =payload.ca}", "tls may not come from the payload"},
		{"security: ssl", "security is written out as one of starttls, tls, none"},
		{"security: =payload.s", "security is written out"},
		{"auth: PLAIN\nusername: u\npassword: =secret.P", "auth is written out as one of auto, plain"},
		{"auth: plain", "auth has no meaning without username"},
		{"username: u", "go together"},
		{"password: =secret.P", "go together"},
		{"username: u\npassword: hunter2", "write password: =secret.NAME"},
		{"username: u\npassword: ='hunter2'", "write password: =secret.NAME"},
		{"username: 7\npassword: =secret.P", "username is a text"},
		{"username: ''\npassword: =secret.P", "not empty"},
		{"username: u\npassword: =payload.p + secret.P", "password may not come from the payload"},
		{"security: none\nusername: u\npassword: =secret.P", "not shown over a connection that is not encrypted"},
		{"security: none\ntls: {ca: =secret.CA}", "tls has no meaning with security: none"},
		{"tls: {cap: x}", "tls knows no cap"},
		{"tls: {key: x, cert: y}", "a private key is a secret"},
		{"from: nobody", "from is no single address"},
		{"from: [a@b.example]", "from is no single address"},
		{"to: a@b.example, c@d.example", "to is no single address"},
		{"to: []", "to is empty"},
		{"to: [a@b.example, nobody]", "to is no single address"},
		{"to: {name: a}", "to is no single address"},
		{"to: {adress: =payload.a}", "an address knows no adress; did you mean address?"},
		{"to: {name: =payload.a}", "an address needs address"},
		{"bcc: [[a@b.example]]", "bcc is no single address"},
		{"cc: [" + strings.Repeat("a@b.example, ", 101) + "]", "cc has 101 addresses"},
		{`subject: "a\nb"`, "subject holds a line end"},
		{"subject: [a]", "subject is a text"},
		{"headers: a", "headers is a map"},
		{"headers: {From: a}", "From is none"},
		{"headers: {Message-ID: a}", "Message-ID is none"},
		{"headers: {'X-A: b': a}", "is none"},
		{`headers: {X-A: "a\nb"}`, "headers.X-A holds a line end"},
		{"attachments: a", "attachments is a list"},
		{"attachments: [{name: a}]", "either content, a text, or base64"},
		{"attachments: [{name: a, base64: '?'}]", "base64 is none"},
		{"attachments: [{name: a, content: =payload.a, typ: b}]", "a file knows no typ; did you mean type?"},
	} {
		_, problems := compile(t, good(tt.change))
		if tt.want == "" {
			accepted = append(accepted, good(tt.change))
		}
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.change, got, tt.want)
		}
		for _, p := range problems {
			if p.Pos.Line < 2 {
				t.Errorf("%s: %s has no place", tt.change, p.Message)
			}
		}
	}
	effecttest.Schema(t, Kind().Spec, accepted...)
}

func TestAMailIsNoCheck(t *testing.T) {
	_, problems := compile(t, good("")+"check: {smtp: {}, ok: 'true'}\n")
	if !strings.Contains(fmt.Sprint(problems), "a mail asks nobody") {
		t.Errorf("problems %v", problems)
	}
}

func TestEscape(t *testing.T) {
	if got := escape("<p>", `<b a="x">&'`); got != "&lt;b a=&#34;x&#34;&gt;&amp;&#39;" {
		t.Errorf("escaped %q", got)
	}
}
