package jsonvalue

import (
	"maps"
	"reflect"
	"strings"
	"testing"
)

func TestSetPathCopiesInnerMaps(t *testing.T) {
	inner := map[string]any{"b": 1, "c": 2}
	object := map[string]any{"a": inner, "x": "y"}
	got := maps.Clone(object)
	if err := SetPath(got, []string{"a", "b"}, 3); err != nil {
		t.Fatal(err)
	}
	if want := (map[string]any{"a": map[string]any{"b": 3, "c": 2}, "x": "y"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	UnsetPath(got, []string{"a", "c"})
	if want := (map[string]any{"a": map[string]any{"b": 3}, "x": "y"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if inner["b"] != 1 || inner["c"] != 2 || len(object) != 2 {
		t.Errorf("the object was changed: %v", object)
	}
}

func TestSetPathCreatesMissingMaps(t *testing.T) {
	got := map[string]any{}
	err := SetPath(got, []string{"a", "b", "c"}, nil)
	if want := (map[string]any{"a": map[string]any{"b": map[string]any{"c": nil}}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, v := range []any{true, 1, 1.5, "s", []any{}} {
		if err := SetPath(map[string]any{"a": v}, []string{"a", "b"}, 1); err == nil || err.Error() != "cannot set a.b: a is a "+TypeName(v)+", not a map" {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestUnsetPathOfNothing(t *testing.T) {
	for _, object := range []map[string]any{nil, {}, {"a": 1}, {"a": map[string]any{"c": 1}}} {
		got := maps.Clone(object)
		if UnsetPath(got, []string{"a", "b"}); !reflect.DeepEqual(got, object) {
			t.Errorf("%v became %v", object, got)
		}
	}
}

func TestMemberEqualsDecoding(t *testing.T) {
	for _, test := range []struct{ raw, path, want string }{
		{`{"a":{"b":[1,{"c":"}"}],"x":null},"b":2}`, "a.b", `[1,{"c":"}"}]`},
		{`{"a":{"b":[1,{"c":"}"}],"x":null},"b":2}`, "a.x", `null`},
		{`{"a":{"b":1},"b":2}`, "b", `2`},
		{`{"a":{"b":1},"b":2}`, "a", `{"b":1}`},
		{`{"a":{"b":1},"b":2}`, "c", ``},
		{`{"a":{"b":1},"b":2}`, "a.c", ``},
		{`{"a":1}`, "a.b", ``},
		{`{"a":["b"]}`, "a.b", ``},
		{`null`, "a", ``},
		{``, "a", ``},
		{`{"a":`, "a", ``},
		{`{"\"":1,"a":2}`, "a", ``}, // left to Decode
	} {
		got, ok := Member([]byte(test.raw), strings.Split(test.path, "."))
		if ok != (test.want != "") || ok && string(got) != test.want {
			t.Errorf("%s of %s: got %s, %t", test.path, test.raw, got, ok)
		}
	}
}
