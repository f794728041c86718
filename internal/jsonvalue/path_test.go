package jsonvalue

import (
	"reflect"
	"testing"
)

func TestSetPathLeavesTheObjectAsItWas(t *testing.T) {
	inner := map[string]any{"b": 1, "c": 2}
	object := map[string]any{"a": inner, "x": "y"}
	got, err := SetPath(object, []string{"a", "b"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[string]any{"a": map[string]any{"b": 3, "c": 2}, "x": "y"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	got = UnsetPath(got, []string{"a", "c"})
	if want := (map[string]any{"a": map[string]any{"b": 3}, "x": "y"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if inner["b"] != 1 || inner["c"] != 2 || len(object) != 2 {
		t.Errorf("the object was changed: %v", object)
	}
}

func TestSetPathMakesWhatIsMissing(t *testing.T) {
	got, err := SetPath(nil, []string{"a", "b", "c"}, nil)
	if want := (map[string]any{"a": map[string]any{"b": map[string]any{"c": nil}}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, v := range []any{true, 1, 1.5, "s", []any{}} {
		if _, err := SetPath(map[string]any{"a": v}, []string{"a", "b"}, 1); err == nil || err.Error() != "cannot set a.b: a is a "+TypeName(v)+", not a map" {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestUnsetPathOfNothing(t *testing.T) {
	for _, object := range []map[string]any{nil, {}, {"a": 1}, {"a": map[string]any{"c": 1}}} {
		if got := UnsetPath(object, []string{"a", "b"}); !reflect.DeepEqual(got, object) {
			t.Errorf("%v became %v", object, got)
		}
	}
}
