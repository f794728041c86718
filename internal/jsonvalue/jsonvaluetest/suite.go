// Package jsonvaluetest is the test suite of every list of fields: the bytes and
// values must equal those of encoding/json, which knows the structs by reflection. A
// field that was added to a struct and not to its list fails here.
package jsonvaluetest

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edda/internal/jsonvalue"
)

// maxFields bounds the fields of a list, because a coder has a bit for each.
const maxFields = 64

// Suite compares the lists of some structs with encoding/json. A pointer to an empty
// struct stands for each. A map of JSON values counts as one.
func Suite(t *testing.T, structs ...any) {
	for _, s := range structs {
		of := reflect.TypeOf(s).Elem()
		t.Run(of.String(), func(t *testing.T) {
			t.Run("empty", func(t *testing.T) { same(t, reflect.New(of)) })
			t.Run("each field alone", func(t *testing.T) { alone(t, of) })
			t.Run("every field", func(t *testing.T) { every(t, of) })
			t.Run("truncated", func(t *testing.T) { truncated(t, of) })
			t.Run("hostile", func(t *testing.T) { hostileInput(t, of) })
			t.Run("any", rapid.MakeCheck(func(t *rapid.T) { same(t, Any(t, of)) }))
		})
	}
}

// seedBytes suffice for the largest struct of a seed.
const seedBytes = 64 << 10

// FuzzAppend writes structs with random fields.
func FuzzAppend(f *testing.F, structs ...any) {
	for n := range byte(64) {
		seed := make([]byte, seedBytes)
		_, _ = rand.NewChaCha8([32]byte{n}).Read(seed) // it cannot fail
		f.Add(seed)
	}
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		which := rapid.IntRange(0, len(structs)-1).Draw(t, "struct")
		same(t, Any(t, reflect.TypeOf(structs[which]).Elem()))
	}))
}

// FuzzDecode reads random bytes by the lists of all structs.
func FuzzDecode(f *testing.F, structs ...any) {
	for _, s := range structs {
		v := reflect.New(reflect.TypeOf(s).Elem())
		fill(v.Elem(), 0)
		data, err := json.Marshal(v.Interface())
		if err != nil {
			f.Fatal(err)
		}
		for _, text := range hostile(data) {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range structs {
			sameRead(t, reflect.TypeOf(s).Elem(), data)
		}
	})
}

// hostile returns variants of a document that readers of JSON treat differently.
func hostile(data []byte) [][]byte {
	out := [][]byte{data, append(data[:len(data):len(data)], ' '), append(data[:len(data):len(data)], '}'), data[:len(data)/2]}
	var spaced bytes.Buffer
	if json.Indent(&spaced, data, "\r", "\t ") == nil {
		out = append(out, spaced.Bytes())
	}
	for _, change := range [][2]string{
		{`":`, `" : `}, {`{"`, `{"x":[{"y":-1.5e+3}],"`}, {`{"`, `{"":1,"`}, {`"1`, `"\u0031`}, {`\u`, `\x`}, {`\u00e9`, `\u00g9`}, {`true`, `false`}, {`true`, `null`}, {`true`, `1`},
		{`":{`, `":null,"z":{`}, {`":[`, `":[],"z":[`}, {`":1`, `":01`}, {`":1`, `":-0`}, {`":1`, `":1.0`}, {`":1`, `":1e2`}, {`":1`, `":99999999999999999999`}, {`":1`, `":"1"`},
		{`2026`, `10000`}, {`Z"`, `+01:00"`}, {`Z"`, `"`}, {`"k`, "\"\xff"}, {`"k`, "\"\x01"}, {`"k`, `"é\n`}, {`,`, `,,`}, {`]`, `,]`}, {`}`, `,}`},
	} {
		out = append(out, bytes.ReplaceAll(data, []byte(change[0]), []byte(change[1])), bytes.Replace(data, []byte(change[0]), []byte(change[1]), 1))
	}
	return append(out, twice(data), upper(data), []byte("null"), []byte("[]"), []byte(`"a"`), []byte(""), []byte("{"), []byte(`{"a"`), []byte(`{}`), []byte(` { } `))
}

// again returns variants with one field of the struct twice, empty or with one empty item. They show
// what encoding/json keeps of the first.
func again(of reflect.Type, data []byte) (out [][]byte) {
	if of.Kind() != reflect.Struct {
		return nil
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		for _, value := range []string{"{}", "[]", "[{}]", `""`, "0", "null"} {
			out = append(out, bytes.Join([][]byte{data[:len(data)-1], []byte(`,"` + name + `":` + value + `}`)}, nil))
		}
	}
	return out
}

// twice returns a variant with every field twice.
func twice(data []byte) []byte {
	if len(data) < len("{}")+1 {
		return data
	}
	return bytes.Join([][]byte{data[:len(data)-1], []byte(","), data[1:]}, nil)
}

// upper returns a variant with a name that differs in case only.
func upper(data []byte) []byte {
	out := bytes.Clone(data)
	if i := bytes.IndexByte(out, '"'); i >= 0 {
		copy(out[i:], bytes.ToUpper(out[i:min(i+6, len(out))]))
	}
	return out
}

// alone sets one field at a time, so that all others are empty.
func alone(t *testing.T, of reflect.Type) {
	if of.Kind() == reflect.Map {
		return
	}
	if of.NumField() > maxFields {
		t.Errorf("%d fields, and a list has at most %d", of.NumField(), maxFields)
	}
	for i := range of.NumField() {
		v := reflect.New(of)
		fill(v.Elem().Field(i), 0)
		same(t, v)
	}
}

// every sets all fields. Then encoding/json may not be needed, as the allocations show.
func every(t *testing.T, of reflect.Type) {
	v := reflect.New(of)
	fill(v.Elem(), 0)
	same(t, v)
	data, err := jsonvalue.Marshal(v.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { _, _ = new(jsonvalue.Coder).Append(data[:0], v.Interface()) }); n > 1 {
		t.Errorf("written with %v allocations, as by encoding/json", n)
	}
	ours := testing.AllocsPerRun(10, func() { decode(of, data) })
	theirs := testing.AllocsPerRun(10, func() { _ = json.Unmarshal(data, reflect.New(of).Interface()) })
	if ours >= theirs {
		t.Errorf("read with %v allocations, and by encoding/json with %v", ours, theirs)
	}
}

// truncated ends a document at each of its bytes.
func truncated(t *testing.T, of reflect.Type) {
	v := reflect.New(of)
	fill(v.Elem(), 0)
	data, err := encode(v.Interface())
	if err != nil {
		t.Fatal(err)
	}
	for n := range min(len(data), mostCuts) {
		sameRead(t, of, data[:n])
	}
}

// hostileInput reads hostile variants of a document.
func hostileInput(t *testing.T, of reflect.Type) {
	v := reflect.New(of)
	fill(v.Elem(), 0)
	data, err := encode(v.Interface())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(hostile(data), again(of, data)...) {
		sameRead(t, of, text)
	}
}

// mostCuts suffices for every kind of value.
const mostCuts = 3000

// reporter is a *testing.T or a *rapid.T.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// same writes the struct that v points to and reads it back.
func same(t reporter, v reflect.Value) {
	t.Helper()
	before := []byte("before")
	got, err := new(jsonvalue.Coder).Append(before[:len(before):len(before)], v.Interface())
	want, wantErr := encode(v.Interface())
	if !bytes.Equal(got, append(before, want...)) || text(err) != text(wantErr) {
		t.Fatalf("%+v is written\n %s (%v), not\n %s (%v)", v.Elem(), got, err, want, wantErr)
	}
	if err == nil {
		sameRead(t, v.Elem().Type(), want)
	}
}

func sameRead(t reporter, of reflect.Type, data []byte) {
	t.Helper()
	kept := bytes.Clone(data)
	got, err := decode(of, kept)
	clear(kept) // the value may not retain a part of the input
	want := reflect.New(of)
	wantErr := json.Unmarshal(data, want.Interface())
	if !reflect.DeepEqual(got, want.Elem().Interface()) || text(err) != text(wantErr) {
		t.Fatalf("%q is read as\n %+v (%v), not\n %+v (%v)", data, got, err, want.Elem(), wantErr)
	}
}

func decode(of reflect.Type, data []byte) (any, error) {
	v := reflect.New(of)
	err := jsonvalue.UnmarshalAny(data, v.Interface(), func() { v.Elem().SetZero() })
	return v.Elem().Interface(), err
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// deep bounds the nesting of random structs.
const deep = 5

// fill sets v and everything in it to plain values.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 1000*depth, time.UTC)))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"k1":[1,-2.5e-3,"x\u00e9\n",true,null]}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("k1-é-" + v.Type().Name())
	case reflect.Int, reflect.Int64:
		v.SetInt(-17 - int64(depth))
	case reflect.Uint64:
		v.SetUint(17)
	case reflect.Bool:
		v.SetBool(true)
	default:
		fillParts(v, depth)
	}
}

func fillParts(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth+1)
		fill(v.Index(1), depth+2)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for _, key := range []string{"k2", "k1"} {
			item := reflect.New(v.Type().Elem()).Elem()
			fill(item, depth+1)
			v.SetMapIndex(reflect.ValueOf(key), item)
		}
	}
}
