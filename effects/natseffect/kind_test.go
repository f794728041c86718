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
		{"nats: {subject: a, url: b}", "nats knows no url; it knows subject, headers, body, stream, answer"},
		{"nats: {subject: 'a.${raw(id, id)}'}", `raw`},
		{"nats: {subject: a, stream: A}", ""},
		{"nats: {subject: a, stream: A, answer: {stream: B, subject: b.done}}\ncheck: {nats: {answer: {stream: B, subject: b.done}}, ok: status == 200}", ""},
		{"nats: {subject: a, stream: '${tenant}'}", "stream is the name of a stream, and not evaluated"},
		{"nats: {subject: a, answer: {stream: B, subject: b.done}}", "answer needs stream: the stream that stores the request"},
		{"nats: {subject: a, stream: A, answer: {subject: b.done}}", "answer needs stream: which stream the answer comes in"},
		{"nats: {subject: a, stream: A, answer: {stream: B}}", "answer needs subject: the subject of the answer"},
		{"nats: {subject: a, stream: A, answer: {stream: B, subject: 'b.${id}'}}", "answer.subject is a text"},
		{"nats: {subject: a, stream: A, answer: {stream: B, subject: b.}}", "subject is one subject"},
		{"nats: {subject: a, stream: A, answer: {stream: B, subject: b, id: c}}", "answer knows no id"},
		{"nats: {subject: a}\ncheck: {nats: {subject: b, answer: {stream: B, subject: b.done}}, ok: status == 200}", "leave subject out"},
		{"nats: {answer: {stream: B, subject: b.done}}", "nats needs subject"},
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
