package hero

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Object is any of the six that lie in Redis, each as a hash.
type Object interface {
	Key() string
	hash() *hash
}

// Fields is what the object's hash holds: numbers in decimal, true or false, lists and
// maps as compact JSON, texts as they are. Optional fields that are empty are left out.
func Fields(o Object) map[string]string {
	pairs := o.hash().pairs
	out := make(map[string]string, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i].(string)] = pairs[i+1].(string)
	}
	return out
}

// Pairs is the same as alternating names and values, all of them strings, in the documents'
// order: as a command to Redis takes them.
func Pairs(o Object) []any { return o.hash().pairs }

// Absent names the optional fields that the object leaves out, which are to go
// from a hash that has them. Fields of other writers are none of ours.
func Absent(o Object) []string { return o.hash().absent }

// hash collects the fields of an object: what is to be set, and the names of
// optional fields that the object leaves out.
type hash struct {
	pairs  []any // names and values alternate
	absent []string
}

// The fields that the largest object has, with room for two of a writer's own, and
// those that may be absent.
const (
	mostFields = 28
	mostAbsent = 8
)

func newHash() *hash {
	return &hash{pairs: make([]any, 0, 2*mostFields), absent: make([]string, 0, mostAbsent)}
}

func (h *hash) set(name, v string) { h.pairs = append(h.pairs, name, v) }

func (h *hash) text(name, v string) { h.set(name, v) }

func (h *hash) number(name string, v uint32) { h.set(name, strconv.FormatUint(uint64(v), 10)) }

func (h *hash) truth(name string, v bool) { h.set(name, strconv.FormatBool(v)) }

// optional leaves an empty text out.
func (h *hash) optional(name, v string) {
	if v == "" {
		h.absent = append(h.absent, name)
		return
	}
	h.text(name, v)
}

// optionalNumber leaves 0 out.
func (h *hash) optionalNumber(name string, v uint32) {
	if v == 0 {
		h.absent = append(h.absent, name)
		return
	}
	h.number(name, v)
}

// list writes a list as compact JSON; none is [].
func list[T any](h *hash, name string, v []T) {
	if len(v) == 0 {
		h.set(name, "[]")
		return
	}
	h.set(name, compact(v))
}

// optionalList leaves an empty list out.
func optionalList[T any](h *hash, name string, v []T) {
	if len(v) == 0 {
		h.absent = append(h.absent, name)
		return
	}
	list(h, name, v)
}

// filled and mapped make JSON write an empty list or map rather than null.
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

// pairs writes a map as compact JSON, its keys in order; none is {}.
func (h *hash) object(name string, v map[string]string) {
	if len(v) == 0 {
		h.set(name, "{}")
		return
	}
	h.set(name, compact(v))
}

// optionalPairs leaves nil out; an empty map is one.
func (h *hash) optionalPairs(name string, v map[string]string) {
	if v == nil {
		h.absent = append(h.absent, name)
		return
	}
	h.object(name, v)
}

// compact is the JSON of values that JSON can always write. Bytes that are no
// UTF-8 become U+FFFD.
func compact(v any) string {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		panic("hero: " + err.Error()) // a type of ours that JSON cannot write
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// known is the JSON of something that came as JSON; other text is put in quotes.
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
