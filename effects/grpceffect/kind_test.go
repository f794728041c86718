package grpceffect

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

func compile(t *testing.T, name, text string) (*effects.Effect, manifests.Problems) {
	t.Helper()
	f, problems := manifests.Parse(name, []byte(text))
	if problems.Failed() || len(f.Effects) != 1 {
		t.Fatalf("parse: %v", problems)
	}
	return effects.Compile(f.Effects[0], map[string]effects.ProviderKind{"grpc": Kind()})
}

func TestCheck(t *testing.T) {
	folder := t.TempDir()
	writeProto(t, filepath.Join(folder, "shop.proto"), shopProto)
	writeProto(t, filepath.Join(folder, "broken.proto"), "syntax = \"proto3\";\nmessage {")
	writeSet(t, filepath.Join(folder, "shop.binpb"), descriptorSetOf(compileProto(t, shopProto)))
	const charge = "target: 'pay:443', method: shop.v1.Payments/Charge"
	var accepted []string
	for _, tt := range []struct{ text, want string }{
		{charge, ""},
		{"target: 'pay.example:443', method: shop.v1.Payments/Charge, message: =payload, metadata: {authorization: =secret.PAY, x: [a, =id]}, plaintext: true", ""},
		{"target: '${secret.BASE}', method: =payload.method, metadata: =payload.md", ""},
		{"target: 'pay-${payload.region}.example:443', method: 'shop.v1.Payments/${payload.op}', message: {a: 1}", ""},
		{"target: '[::1]:443', method: a.B/C, tls: {ca: =secret.CA}, plaintext: false", ""},
		{"method: a.B/C", "grpc needs target"},
		{"target: 'pay:443'", "grpc needs method"},
		{"target: pay, method: a.B/C", "target is host:port"},
		{"target: 'pay:0', method: a.B/C", "target is host:port"},
		{"target: 'pay:99999', method: a.B/C", "target is host:port"},
		{"target: 'https://pay:443', method: a.B/C", "target is host:port"},
		{"target: 'dns:///pay:443', method: a.B/C", "target is host:port"},
		{"target: 'unix:/tmp/a:1', method: a.B/C", "target is host:port"},
		{"target: 'https://pay${id}:443', method: a.B/C", "target is host:port"},
		{"target: 443, method: a.B/C", "target is host:port"},
		{"target: 'pay:443', method: /a.B/C", "method is package.Service/Method"},
		{"target: 'pay:443', method: a.B.C", "method is package.Service/Method"},
		{"target: 'pay:443', method: 'a.B/${id}/C'", "method is package.Service/Method"},
		{charge + ", mesage: {}", "grpc knows no mesage; did you mean message?"},
		{charge + ", zzzzzz: {}", "grpc knows no zzzzzz; it knows target, method, message"},
		{charge + ", message: [1]", "message is a map"},
		{charge + ", message: 'a${id}'", "message is a map"},
		{charge + ", metadata: a=b", "metadata is a map"},
		{charge + ", metadata: {'a b': c}", `metadata "a b"`},
		{charge + ", metadata: {grpc-timeout: 1S}", "keeps for itself"},
		{charge + ", metadata: {a: \"b\\r\\nc\"}", "not printable"},
		{charge + ", metadata: {a: [ok, \"b\\nc\"]}", "not printable"},
		{charge + ", metadata: {a-bin: '!'}", "not in base64"},
		{charge + ", metadata: {a: {b: c}}", "a text or a list of texts"},
		{charge + ", plaintext: 'yes'", "plaintext is true or false"},
		{charge + ", plaintext: =payload.x", "plaintext is true or false"},
		{charge + ", plaintext: true, tls: {}", "tls and plaintext exclude each other"},
		{charge + ", tls: {cert: a}", "go together"},
		{charge + ", proto: shop.proto, descriptor_set: shop.binpb", "proto and descriptor_set exclude each other"},
		{charge + ", proto: =payload.file", "proto is the path of a file"},
		{charge + ", proto: 7", "proto is the path of a file"},
		{charge + ", import_paths: [a]", "there is no proto"},
		{charge + ", proto: shop.proto, import_paths: a", "import_paths is a list"},
		{charge + ", proto: shop.proto, import_paths: [=id]", "import_paths is the path"},
		{charge + ", proto: nobody.proto", "nobody.proto"},
		{charge + ", descriptor_set: nobody.binpb", "no such file"},
		{charge + ", proto: broken.proto", "broken.proto:2:9"},
		{charge + ", descriptor_set: shop.proto", "shop.proto is no descriptor set"},
		{charge + ", proto: shop.proto, message: {order: =id, amount_cents: 1, amountCents: 2, items: [{sku: a}], byName: {any: {count: 1}}}", ""},
		{charge + ", proto: shop.proto, message: =payload", ""},
		{charge + ", descriptor_set: shop.binpb, message: {order: a, oder: =id}", "shop.v1.ChargeRequest has no field oder; it has order, amountCents"},
		{charge + ", proto: shop.proto, message: {items: [{sku: a}, {skew: b}]}", "shop.v1.Item has no field skew"},
		{charge + ", proto: shop.proto, message: {by_name: {any: {skew: b}}}", "shop.v1.Item has no field skew"},
		{"target: 'pay:443', method: shop.v1.Payments/Echo, proto: shop.proto, message: {child: {child: {tiny: 1}}, loose: {any: 1}, packed: {'@type': a/b}, counts: {any: 1}}", "shop.v1.Everything has no field tiny"},
		{"target: 'pay:443', method: shop.v1.Payments/Refund, proto: shop.proto", "has no method Refund; described are shop.v1.Payments/Charge, shop.v1.Payments/Echo"},
		{"target: 'pay:443', method: shop.v2.Payments/Charge, proto: shop.proto", "there is no service shop.v2.Payments"},
		{"target: 'pay:443', method: shop.v1.Payments/Watch, proto: shop.proto", "streams"},
		{"target: 'pay:443', method: 'shop.v1.Payments/${id}', proto: shop.proto", ""},
	} {
		text := "effect: a\ngrpc: {" + tt.text + "}\n"
		_, problems := compile(t, filepath.Join(folder, "e.yaml"), text)
		if tt.want == "" {
			accepted = append(accepted, text)
		}
		if got := fmt.Sprint(problems); problems.Failed() != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %q", tt.text, got, tt.want)
		}
	}
	effecttest.Schema(t, Kind().Spec, accepted...)
}

// TestProblemsPointAtTheirField in a message that the file does not know.
func TestProblemsPointAtTheirField(t *testing.T) {
	folder := t.TempDir()
	writeProto(t, filepath.Join(folder, "shop.proto"), shopProto)
	_, problems := compile(t, filepath.Join(folder, "e.yaml"), `effect: a
grpc:
  target: pay:443
  method: shop.v1.Payments/Charge
  proto: shop.proto
  message:
    order: =id
    oder: =id
`)
	if len(problems) != 1 || problems[0].Pos != (manifests.Pos{Line: 8, Column: 5}) {
		t.Errorf("problems %+v", problems)
	}
}

func TestEscape(t *testing.T) {
	kind := Kind()
	for _, tt := range []struct{ field, before, value, want string }{
		{"target", "", "pay.example:443", "pay.example:443"},
		{"target", "pay-", "eu.west-1", "eu.west-1"},
		{"target", "pay-", "x:1/y", "x%1%y"},
		{"method", "", "shop.v1.Payments/Charge", "shop.v1.Payments/Charge"},
		{"method", "shop.v1.Payments/", "Charge_2", "Charge_2"},
		{"method", "shop.v1.Payments/", "../Admin/Drop", "%%%Admin%Drop"},
	} {
		if got := kind.Escape[tt.field](tt.before, tt.value); got != tt.want {
			t.Errorf("%s: %q after %q is %q, want %q", tt.field, tt.value, tt.before, got, tt.want)
		}
	}
	if isTarget("pay-x%1%y:443") || methodForm.MatchString("shop.v1.Payments/%%%Admin%Drop") {
		t.Error("what was escaped can be called")
	}
}
