package grpceffect

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// echo sends a message and gives what came back of it.
func echo(t *testing.T, b *bank, p *Provider, message string) (map[string]any, error) {
	t.Helper()
	m, err := jsonvalue.Decode([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.call(p, "k", map[string]any{"method": "shop.v1.Payments/Echo", "message": m})
	if err != nil {
		return nil, err
	}
	return r.Body.(map[string]any), nil
}

// without leaves out what a message has by default, which is most of Everything.
func without(body map[string]any) string {
	kept := map[string]any{}
	for name, v := range body {
		switch shown := show(v); shown {
		case "0", `""`, "false", show([]any{}), show(map[string]any{}), `"NONE"`:
		default:
			kept[name] = v
		}
	}
	out, err := jsonvalue.Encode(kept)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func TestValues(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	for _, tt := range []struct{ message, want string }{
		{`{}`, `{}`},
		{`{"small":-2147483648,"big":9223372036854775807,"zig":-9223372036854775808,"fixed":9007199254740993}`, ``},
		{`{"big":"9007199254740993","counts":{"a":"18446744073709551615","b":9007199254740993},"many":["-1",9007199254740993]}`,
			`{"big":9007199254740993,"counts":{"a":"18446744073709551615","b":9007199254740993},"many":[-1,9007199254740993]}`},
		{`{"huge":"18446744073709551615"}`, ``},
		{`{"thin":0.1,"wide":0.1}`, ``},
		{`{"wide":3.0,"thin":1e10}`, `{"thin":10000000000,"wide":3}`},
		{`{"wide":"NaN","thin":"-Infinity"}`, ``},
		{`{"yes":true,"text":"<é>","raw":"AP8=","colour":"RED"}`, ``},
		{`{"colour":1}`, `{"colour":"RED"}`},
		{`{"colour":7}`, ``},
		{`{"text":null,"child":null}`, `{}`},
		{`{"at":"2026-01-01T00:00:00.5Z","took":"1.5s"}`, `{"at":"2026-01-01T00:00:00.500Z","took":"1.500s"}`},
		{`{"loose":{"a":[1,2.5,null,"x",{"b":9007199254740991}]}}`, ``},
		{`{"wrapped":9007199254740993}`, ``},
		{`{"packed":{"@type":"t/shop.v1.Item","sku":"S","count":2}}`, ``},
		{`{"packed":{"@type":"t/google.protobuf.Int64Value","value":"9007199254740993"}}`, `{"packed":{"@type":"t/google.protobuf.Int64Value","value":9007199254740993}}`},
		{`{"packed":{"@type":"t/google.protobuf.Struct","value":{"a":1}}}`, ``},
	} {
		body, err := echo(t, b, p, tt.message)
		want := tt.want
		if want == "" {
			want = canonical(t, tt.message)
		}
		if got := without(body); err != nil || got != want {
			t.Errorf("%s came back as %s %v, want %s", tt.message, got, err, want)
		}
	}
}

func canonical(t *testing.T, text string) string {
	t.Helper()
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonvalue.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestPresence: what has a default is there, what may be absent is there when it was set.
func TestPresence(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	plain, err := echo(t, b, p, `{}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"small": 0, "big": 0, "huge": 0, "yes": false, "text": "", "raw": "", "colour": "NONE", "many": []any{}, "counts": map[string]any{}} {
		if got, there := plain[name]; !there || show(got) != show(want) {
			t.Errorf("%s is %#v, want %#v", name, got, want)
		}
	}
	set, err := echo(t, b, p, `{"maybe":0,"left":0,"child":{}}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"maybe", "left", "child"} {
		if _, there := plain[name]; there {
			t.Errorf("%s is there without having been set", name)
		}
		if _, there := set[name]; !there {
			t.Errorf("%s was set and is not there", name)
		}
	}
}

// answered gives what comes of an answer of these bytes.
func answered(t *testing.T, b *bank, p *Provider, raw []byte) (effects.Response, error) {
	t.Helper()
	b.says(raw)
	return b.call(p, "k", map[string]any{"method": "shop.v1.Payments/Echo", "message": nil})
}

// The numbers of Everything's fields.
const (
	fieldText  = 9
	fieldMany  = 12
	fieldChild = 15
	fieldAny   = 20
	fieldDeep  = 14
)

func bytesField(n protowire.Number, held []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), held)
}

func nested(levels int) (raw []byte) {
	for range levels {
		raw = bytesField(fieldChild, raw)
	}
	return raw
}

// nestedAny is an Any in an Any in an Any.
func nestedAny(levels int) []byte {
	held := []byte{}
	for range levels {
		held = append(bytesField(1, []byte("t/google.protobuf.Any")), bytesField(2, held)...)
	}
	return bytesField(fieldAny, held)
}

// TestAnswersThatCannotBeRead: the call was accepted, so nobody may call it a failure.
func TestAnswersThatCannotBeRead(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	for name, raw := range map[string][]byte{
		"bytes that are no message":    {0xff, 0xff},
		"a text that is not UTF-8":     bytesField(fieldText, []byte("a\xffb")),
		"nesting without an end":       nested(1000),
		"nesting just too deep":        nested(jsonvalue.MaxDepth + 1),
		"an Any without an end":        nestedAny(300),
		"more values than fit":         bytesField(fieldMany, make([]byte, maxValues+1)),
		"more messages than fit":       manyEntries(20000),
		"a timestamp out of all range": bytesField(16, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1<<62)),
	} {
		r, err := answered(t, b, p, raw)
		if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), "accepted") {
			t.Errorf("%s: %.60v %v", name, r.Body, err)
		}
	}
	if _, err := answered(t, b, p, nested(jsonvalue.MaxDepth-2)); err != nil {
		t.Errorf("nesting that is just allowed: %v", err)
	}
}

// manyEntries is a map of n empty messages. Each unfolds to its defaults.
func manyEntries(n int) (raw []byte) {
	for i := range n {
		key := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(i))
		raw = append(raw, bytesField(fieldDeep, append(key, bytesField(2, nil)...))...)
	}
	return raw
}

func TestAnswerThatIsTooLongMayHaveBeenDone(t *testing.T) {
	b, p := openBank(t, describedV1), local(t)
	_, err := answered(t, b, p, bytesField(fieldText, []byte(strings.Repeat("x", maxAnswer))))
	if !errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("error %v", err)
	}
	if r, err := answered(t, b, p, bytesField(fieldText, []byte(strings.Repeat("x", maxAnswer-16)))); err != nil || r.Status != 0 {
		t.Errorf("an answer that just fits: %v", err)
	}
}

// FuzzAnswer: whatever a server says, what is made of it is a canonical value.
func FuzzAnswer(f *testing.F) {
	m, err := newMethod("shop.v1.Payments/Echo", compileProto(f, shopProto), nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][]byte{nested(3), nestedAny(3), manyEntries(3), bytesField(fieldText, []byte("é")), {0xff}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, _, err := m.decode(raw)
		if err != nil {
			return
		}
		text, err := jsonvalue.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := jsonvalue.Decode(text); err != nil || show(back) != show(v) {
			t.Errorf("%#v came back as %#v %v", v, back, err)
		}
	})
}
