package natseffect

import (
	"fmt"
	"strings"
	"testing"

	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

func compile(t testing.TB, name, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse(name, []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse: %v", problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"nats": Kind()})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	var accepted []string
	for _, tt := range []struct{ text, want string }{
		{"nats: {subject: stock.reserve}", ""},
		{"nats: {subject: 'stock.${payload.sku}.x-${id}', headers: {A: [=secret.B, c]}, body: {a: [=tenant]}}", ""},
		{"nats: {subject: stock.reserve, headers: =payload.headers, body: =payload}", ""},
		{"nats: {subject: '${tenant}.stock.reserve'}", ""},
		{"nats: {subject: '=\"stock.\" + tenant'}", ""},
		{"nats: {subject: stock.reserve}\ncheck: {nats: {subject: stock.find, body: =id}, ok: status == 200}", ""},
		{"nats: {body: 1}", "nats needs subject: where the service listens"},
		{"nats: {subject: ''}", "subject is a text, and not empty"},
		{"nats: {subject: 7}", "subject is a text"},
		{"nats: {subject: stock.}", "subject is one subject such as stock.reserve"},
		{"nats: {subject: 'stock.${id}..x'}", "subject is one subject"},
		{"nats: {subject: 'stock.>'}", "subject is one subject"},
		{"nats: {subject: 'stock reserve'}", "subject is one subject"},
		{"nats: {subject: '$JS.API.INFO'}", "it belongs to the NATS server"},
		{"nats: {subject: '_INBOX.${id}'}", "it belongs to the NATS server"},
		{"nats: {subject: a, headers: [a]}", "headers is a map of names and values"},
		{"nats: {subject: a, headers: {'a b': c}}", "does not allow"},
		{"nats: {subject: a, headers: {a: \"b\\nc\"}}", "does not allow"},
		{"nats: {subject: a, subjct: a}", "nats knows no subjct; did you mean subject?"},
		{"nats: {subject: a, url: b}", "nats knows no url; it knows subject, headers, body"},
		{"nats: {subject: 'a.${raw(id, id)}'}", `raw`},
	} {
		text := "effect: a\n" + tt.text + "\n"
		_, problems := compile(t, "e.yaml", text)
		if tt.want == "" {
			accepted = append(accepted, text)
		}
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
	effecttest.Schema(t, Kind().Spec, accepted...)
}

// TestPayloadsThatChooseTheService are warned of, no more.
func TestPayloadsThatChooseTheService(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]bool{
		"=payload.subject": true, "'${payload.region}.stock'": true, "'s${payload.region}.stock'": false, "'${tenant}.${payload.sku}'": false, "=tenant": false,
	} {
		e, problems := compile(t, "e.yaml", "effect: a\nnats: {subject: "+subject+"}\n")
		if e == nil || (len(problems) > 0) != want || want && !strings.Contains(fmt.Sprint(problems), "the payload chooses which service is called") {
			t.Errorf("%s: %v", subject, problems)
		}
	}
}
