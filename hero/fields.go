package hero

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
)

// Object is an actor, context, runner, job, flow or message. Each is a hash in Redis.
type Object interface {
	Key() string
	hash() *fields
}

// Fields returns the object's hash: numbers in decimal, true or false, lists and maps as
// compact JSON, texts as they are. Optional fields that are empty are left out.
func Fields(o Object) map[string]string {
	pairs := o.hash().pairs
	out := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1].(string)
	}
	return out
}

// Pairs returns the object's hash as a command to Redis takes it: names and values
// alternate, all of them strings, in the order of the documents.
func Pairs(o Object) []any { return o.hash().pairs }

// Absent names the optional fields that the object leaves out. A writer removes them from
// the hash and leaves the fields of other programs alone.
func Absent(o Object) []string { return o.hash().absent }

// fields reads an object from its hash or writes it to one. Each object lists its fields
// in one method, in the order of the documents, for both directions.
type fields struct {
	from *HashReader // set while reading

	// While writing: names and values alternate, and the optional fields that are empty.
	pairs  []any
	absent []string
}

// maxFields is the number of fields of the largest object, with room for two of a
// caller's own; maxAbsent the number of its optional ones.
const (
	maxFields = 28
	maxAbsent = 8
)

// newFields returns fields to write to.
func newFields() *fields {
	return &fields{pairs: make([]any, 0, 2*maxFields), absent: make([]string, 0, maxAbsent)}
}

// field reads one field, or writes its text unless it is to be left out.
func field[T any](f *fields, name string, v *T, read func(*HashReader, string) T, text string, absent bool) {
	switch {
	case f.from != nil:
		*v = read(f.from, name)
	case absent:
		f.absent = append(f.absent, name)
	default:
		f.pairs = append(f.pairs, name, text)
	}
}

// called returns the name of the field in the hash that is read, of the names that it may
// have, and the first name while writing.
func (f *fields) called(names []string) string {
	if f.from != nil {
		return f.from.called(names)
	}
	return names[0]
}

func (f *fields) text(name string, v *string) {
	field(f, name, v, (*HashReader).text, *v, false)
}

// optional is text; an empty one is left out.
func (f *fields) optional(name string, v *string) {
	field(f, name, v, (*HashReader).text, *v, *v == "")
}

func (f *fields) number(name string, v *uint32) {
	field(f, name, v, (*HashReader).Number, decimal(*v), false)
}

// optionalNumber is number; 0 is left out.
func (f *fields) optionalNumber(name string, v *uint32) {
	field(f, name, v, (*HashReader).Number, decimal(*v), *v == 0)
}

// owner is number for an id that a hash must have.
func (f *fields) owner(name string, v *uint32) {
	field(f, name, v, (*HashReader).owner, decimal(*v), false)
}

// time is number for Unix seconds, which a hash may hold as a time of RFC 3339.
func (f *fields) time(name string, v *uint32) {
	field(f, name, v, (*HashReader).time, decimal(*v), false)
}

func (f *fields) byte(name string, v *uint8) {
	field(f, name, v, (*HashReader).byte, decimal(uint32(*v)), false)
}

func (f *fields) truth(name string, v *bool) {
	field(f, name, v, (*HashReader).Truth, strconv.FormatBool(*v), false)
}

func (f *fields) numbers(name string, v *[]uint32) {
	field(f, name, v, (*HashReader).numbers, listText(*v), false)
}

func (f *fields) texts(name string, v *[]string) {
	field(f, name, v, (*HashReader).Texts, listText(*v), false)
}

// optionalTexts is texts; an empty list is left out and read as nil.
func (f *fields) optionalTexts(name string, v *[]string) {
	field(f, name, v, (*HashReader).optionalTexts, listText(*v), len(*v) == 0)
}

func (f *fields) object(name string, v *map[string]string) {
	field(f, name, v, (*HashReader).Pairs, objectText(*v), false)
}

// optionalObject is object; nil is left out, an empty map is not.
func (f *fields) optionalObject(name string, v *map[string]string) {
	field(f, name, v, (*HashReader).optionalPairs, objectText(*v), *v == nil)
}

// raw is JSON of any kind, carried through; nil is left out.
func (f *fields) raw(name string, v *json.RawMessage) {
	field(f, name, v, (*HashReader).raw, string(known(*v)), len(*v) == 0)
}

// oneOf is a word of a set; an empty one means the usual word.
func oneOf[T ~string](f *fields, name string, v *T, usual T, parse func(string) (T, error)) {
	if f.from != nil {
		*v = one(f.from, name, usual, parse)
		return
	}
	f.pairs = append(f.pairs, name, string(cmp.Or(*v, usual)))
}

// listText writes a list as compact JSON; an empty one is [].
func listText[T any](v []T) string {
	if len(v) == 0 {
		return "[]"
	}
	return compact(v)
}

// objectText writes a map as compact JSON, its keys in order; an empty one is {}.
func objectText(v map[string]string) string {
	if len(v) == 0 {
		return "{}"
	}
	return compact(v)
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// filled and mapped have JSON write an empty list or map instead of null.
func filled[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

func mapped(v map[string]string) map[string]string {
	if v == nil {
		return map[string]string{}
	}
	return v
}

// compact writes a value that JSON can always write. Bytes that are no UTF-8 become U+FFFD.
func compact(v any) string {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		panic("hero: " + err.Error()) // a type of ours that JSON cannot write
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// known compacts a value that was sent as JSON; other text is put in quotes.
func known(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) == nil {
		return b.Bytes()
	}
	return json.RawMessage(compact(string(raw)))
}
