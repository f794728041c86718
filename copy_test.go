package edda

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

var copied = []string{
	``, ` `, `{}`, `{"a":1}`, `{"b":1,"a":2}`, `{"b":{"d":1,"c":[{"z":1,"y":2}]},"a":"x"}`, `{"a":1,"a":2}`, `{"b":1,"a":1,"b":2}`, `[1,2]`, `null`,
	`{"a":null}`, `{"a":{"b":null}}`, `{"a":{"b":1},"a":null}`, `{"a":{"b":1},"a":{}}`, `{"a":-0}`, `{"a":1.0}`, `{"a":1e3}`, `{"a":1.50}`, `{"a":12345678901234567890}`,
	`{"a":9007199254740993.0}`, `{"a":1e400}`, `{"a":"\u00e9\n"}`, "{\"a\":\"\u2028\"}", "{\"a\":\"\xff\"}", `{"\u0061":1}`, ` { "a" : [ 1 , true , false , null ] } `,
	`{"a":[}`, `{"a":1}x`, `{"a"}`, `{"a":01}`, `{"b":1,"c":{"a":1},"a":{"b":{"b":[[],{}]}}}`, `{"a":5e-324,"b":123456789012345678901e0}`, `{"":1,"a":2}`,
	`{"p":1,"o":2,"n":3,"m":4,"l":5,"k":6,"j":7,"i":8,"h":9,"g":10,"f":11,"e":12,"d":13,"c":14,"b":15,"a":16}`, `{"a":3,"A":2,"é":1}`, `{"a":1e21,"b":-1E-7}`,
}

var paths = [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"b", "c"}, {""}}

// sameMember compares what is copied with what is made of the value.
func sameMember(t *testing.T, text string, path []string) {
	t.Helper()
	got, ok := AppendMember([]byte("before"), text, path)
	if !ok {
		if string(got) != "before" {
			t.Errorf("%q of %q left %s", path, text, got)
		}
		return
	}
	v, found := Find(text, path)
	want, err := Encode(v)
	if !found || err != nil || string(got) != "before"+string(want) {
		t.Errorf("%q of %q: %s, not %s (%v, %v)", path, text, got, want, found, err)
	}
}

// sameObject compares an object with members with what is made of the map.
func sameObject(t *testing.T, text string, with []Member) {
	t.Helper()
	got, ok := WithMembers(text, with)
	if !ok {
		return
	}
	v, err := Decode([]byte(text))
	object, is := v.(map[string]any)
	if err != nil || !is && v != nil {
		t.Fatalf("%q with %v: %s, but %v", text, with, got, err)
	}
	if object == nil {
		object = map[string]any{}
	}
	for _, m := range with {
		if object[m.Name], err = Decode(m.Value); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := Encode(object); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%q with %v: %s, not %s, %v", text, with, got, want, err)
	}
}

func TestMembersAreCopiedAsTheyWouldBeEncoded(t *testing.T) {
	for _, text := range copied {
		for _, path := range paths {
			sameMember(t, text, path)
		}
		sameObject(t, text, nil)
		sameObject(t, text, []Member{{"a", json.RawMessage(`"new"`)}})
		sameObject(t, text, []Member{{"z", json.RawMessage(`1`)}, {"b", json.RawMessage(`[]`)}, {"z", json.RawMessage(`2`)}, {"", json.RawMessage(`3`)}})
	}
	for text, want := range map[string]string{`{"b":1,"a":{"d":[1.0],"c":"x"}}`: `{"a":{"c":"x","d":[1]},"b":1}`, `{"a":1}`: `{"a":1}`, ` 1 `: `1`} {
		if got, ok := AppendMember(nil, text, nil); !ok || string(got) != want {
			t.Errorf("%s is copied as %s, %v", text, got, ok)
		}
	}
	if got, ok := WithMembers(``, []Member{{"b", json.RawMessage(`1`)}, {"a", json.RawMessage(`2`)}}); !ok || string(got) != `{"a":2,"b":1}` {
		t.Errorf("%s, %v", got, ok)
	}
}

// What is plain is not left to others: or nothing would be gained, and nobody would know.
func TestPlainObjectsAreCopied(t *testing.T) {
	for _, text := range copied {
		v, plain := read([]byte(text))
		if _, ok := AppendMember(nil, text, nil); ok != plain && !twice(text) {
			t.Errorf("%q is copied: %v, but read: %v", text, ok, plain)
		}
		_ = v
	}
}

// twice tells whether a name comes twice in one object.
func twice(text string) bool {
	return slices.Contains([]string{`{"b":1,"a":1,"b":2}`, `{"a":1,"a":2}`, `{"a":{"b":1},"a":null}`, `{"a":{"b":1},"a":{}}`}, text)
}

func FuzzAppendMember(f *testing.F) {
	for _, text := range copied {
		f.Add(text, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, first, second string) {
		for _, path := range [][]string{nil, {first}, {first, second}} {
			sameMember(t, text, path)
		}
		sameObject(t, text, []Member{{first, json.RawMessage(`{"x":[1]}`)}, {second, json.RawMessage(`"y"`)}})
	})
}
