package jsonrpc

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// full is the result with empty lists and maps where Go has nil: the document
// says that they are lists and objects, and null is neither.
func full(v reflect.Value) reflect.Value {
	if !v.IsValid() || plain(v.Type()) {
		return v
	}
	switch v.Kind() {
	case reflect.Interface:
		return full(v.Elem())
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(full(v.Elem()))
		return p
	case reflect.Struct:
		return fullStruct(v)
	case reflect.Slice:
		return fullSlice(v)
	case reflect.Map:
		return fullMap(v)
	}
	return v
}

// plain tells of types that have nothing to fill in, or write their JSON themselves.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Map:
		return t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	}
	return true
}

func fullStruct(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	fill(out)
	return out
}

// fill fills in the fields of a copy. Those of an embedded type that is not
// exported can be set, although it cannot.
func fill(out reflect.Value) {
	for i := range out.NumField() {
		f, t := out.Field(i), out.Type().Field(i)
		options := strings.Split(t.Tag.Get("json"), ",")[1:]
		switch {
		case t.Anonymous && t.Type.Kind() == reflect.Struct && !f.CanSet():
			fill(f)
		case f.CanSet() && !slices.Contains(options, "omitzero"):
			set(f, full(f))
		}
	}
}

func fullSlice(v reflect.Value) reflect.Value {
	if v.IsNil() {
		return reflect.MakeSlice(v.Type(), 0, 0)
	}
	if plain(v.Type().Elem()) {
		return v
	}
	out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		set(out.Index(i), full(v.Index(i)))
	}
	return out
}

func fullMap(v reflect.Value) reflect.Value {
	if !v.IsNil() && plain(v.Type().Elem()) {
		return v
	}
	out := reflect.MakeMap(v.Type())
	for k, e := range v.Seq2() {
		if e = full(e); !e.IsValid() {
			e = reflect.Zero(v.Type().Elem())
		}
		out.SetMapIndex(k, e)
	}
	return out
}

// set leaves a nil interface as it is.
func set(to, v reflect.Value) {
	if v.IsValid() {
		to.Set(v)
	}
}
