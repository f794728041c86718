package hero

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FieldError names a hash, and the field of it, that cannot be read as the documents say:
// the hash is broken, or another program's under a key of ours. Edda leaves it as it is.
type FieldError struct {
	Key   string // of the hash
	Field string // empty where the key itself is wrong
	// Value is the beginning of the field's value; empty for fields that may hold secrets.
	Value string
	Why   string
}

// maxShown bounds the part of a value that an error shows, in bytes.
const maxShown = 60

func (e *FieldError) Error() string {
	switch {
	case e.Field == "":
		return fmt.Sprintf("%.200q %s", e.Key, e.Why)
	case e.Value == "":
		return fmt.Sprintf("hash %s: field %s %s", e.Key, e.Field, e.Why)
	}
	return fmt.Sprintf("hash %s: field %s is %q: %s", e.Key, e.Field, e.Value, e.Why)
}

func shown(value string) string {
	if len(value) > maxShown {
		return value[:maxShown] + "…"
	}
	return value
}

// HashReader reads the fields of one hash, liberally and by the type of the field: a
// number in a field of text stays text. It keeps the first error and goes on: a caller
// reads all fields and then calls Err.
type HashReader struct {
	key    string // of the hash, for errors
	within string // the path of an embedded object: "job[0]."
	h      map[string]string
	json   map[string]json.RawMessage // of an embedded object, as it was sent
	err    error
}

// ReadHash returns the reader of a hash.
func ReadHash(key string, h map[string]string) *HashReader { return &HashReader{key: key, h: h} }

// Err returns the first error, a *FieldError.
func (r *HashReader) Err() error { return r.err }

// Fail notes that a field cannot be read.
func (r *HashReader) Fail(field, value, why string) {
	if r.err == nil {
		r.err = &FieldError{Key: r.key, Field: r.within + field, Value: shown(value), Why: why}
	}
}

// readKey makes the reader of a hash under a key of that kind. The hash must have the ids
// that the key names, as the fields of these names.
func readKey(kind, key string, h map[string]string, names ...string) *HashReader {
	r := &HashReader{key: key, h: h}
	ids, ok := parseKey(kind, key)
	if !ok {
		r.err = &FieldError{Key: key, Why: "is no key of a " + kind}
		return r
	}
	for i, name := range names {
		if _, ok := h[name]; !ok {
			r.Fail(name, "", "is missing: the hash is broken, or another program's")
		} else if r.Number(name) != ids[i] {
			r.Fail(name, h[name], "the key says "+decimal(ids[i]))
		}
	}
	return r
}

// owner reads an id that the hash must have.
func (r *HashReader) owner(name string) uint32 {
	if unquote(r.h[name]) == "" {
		r.Fail(name, "", "is missing: the hash is broken, or another program's")
	}
	return r.Number(name)
}

func (r *HashReader) text(name string) string { return r.h[name] }

// raw reads JSON of any kind, to be carried through.
func (r *HashReader) raw(name string) json.RawMessage {
	if v, ok := r.json[name]; ok && string(v) != "null" {
		return known(v)
	}
	return known(json.RawMessage(r.h[name]))
}

// Number reads a uint32; a field that is empty or left out is 0.
func (r *HashReader) Number(name string) uint32 { return uint32(r.bits(name, 32)) }

// time reads Unix seconds, or a time of RFC 3339, which other systems write.
func (r *HashReader) time(name string) uint32 {
	if s := unquote(r.h[name]); strings.Contains(s, "T") || strings.Contains(s, "t") {
		at, err := unixSeconds(s)
		if err != nil {
			r.Fail(name, "", err.Error())
		}
		return at
	}
	return r.Number(name)
}

func (r *HashReader) byte(name string) uint8 { return uint8(r.bits(name, 8)) }

func (r *HashReader) bits(name string, bits int) uint64 {
	s := unquote(r.h[name])
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, bits)
	if err != nil {
		r.Fail(name, r.h[name], "want a whole number from 0 to "+strconv.FormatUint(1<<bits-1, 10))
	}
	return n
}

// Truth reads true or false; a field that is empty or left out is false.
func (r *HashReader) Truth(name string) bool {
	switch strings.ToLower(unquote(r.h[name])) {
	case "true", "1":
		return true
	case "false", "0", "":
		return false
	}
	r.Fail(name, r.h[name], "want true or false")
	return false
}

// one reads a word of a set; a field that is empty or left out is the usual word.
func one[T ~string](r *HashReader, name string, usual T, parse func(string) (T, error)) T {
	s := r.h[name]
	if unquote(s) == "" {
		return usual
	}
	w, err := parse(s)
	if err != nil {
		r.Fail(name, "", "cannot be read: "+err.Error())
	}
	return w
}

// numbers reads a list of ids.
func (r *HashReader) numbers(name string) []uint32 {
	out := []uint32{}
	if s := r.h[name]; strings.HasPrefix(s, "[") && json.Unmarshal([]byte(s), &out) == nil && !strings.Contains(s, "null") {
		return filled(out) // as we write it
	}
	out = out[:0]
	for _, item := range r.items(name) {
		n, err := strconv.ParseUint(unquote(item), 10, 32)
		if err != nil {
			r.Fail(name, item, "want ids, whole numbers from 0 to 4294967295")
			return []uint32{}
		}
		out = append(out, uint32(n))
	}
	return out
}

// Texts reads a list of texts.
func (r *HashReader) Texts(name string) []string { return filled(r.items(name)) }

// optionalTexts is Texts, but nil for a list that is left out.
func (r *HashReader) optionalTexts(name string) []string {
	if _, ok := r.h[name]; !ok {
		return nil
	}
	return r.Texts(name)
}

// items reads a list of texts and numbers: JSON, CSV, or an empty field.
func (r *HashReader) items(name string) []string {
	s := strings.TrimSpace(r.h[name])
	if !strings.HasPrefix(s, "[") {
		s = unquote(s)
	}
	switch {
	case s == "" || s == "null" || s == "[]":
		return nil
	case !strings.HasPrefix(s, "["):
		var out []string
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out
	}
	var out []string
	for _, raw := range r.array(name, s) {
		item, scalar := plain(raw)
		if !scalar {
			r.Fail(name, "", "want a list of texts or numbers")
			return nil
		}
		out = append(out, item)
	}
	return out
}

// array reads a JSON list; the empty text is the empty list.
func (r *HashReader) array(name, s string) []json.RawMessage {
	var out []json.RawMessage
	if s == "" || s == "[]" {
		return nil
	}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		r.Fail(name, "", "is no JSON list: "+err.Error())
	}
	return out
}

// objects reads a JSON list of objects and calls read with a reader of each. A single
// object may stand for a list. A text in the list is an object with only the field alone.
func (r *HashReader) objects(name, alone string, read func(*HashReader)) {
	s := strings.TrimSpace(r.h[name])
	if strings.HasPrefix(s, "{") {
		s = "[" + s + "]"
	}
	for i, raw := range r.array(name, s) {
		within := r.within + name + "[" + strconv.Itoa(i) + "]"
		item := &HashReader{key: r.key, within: within + ".", err: r.err}
		if !item.object(raw, alone) {
			r.Fail(name, "", "holds something that is no JSON object, at "+within)
			return
		}
		read(item)
		r.err = item.err
	}
}

// object has the reader read a JSON object as if it were a hash.
func (r *HashReader) object(raw json.RawMessage, alone string) bool {
	if text, scalar := plain(raw); scalar && alone != "" {
		r.h = map[string]string{alone: text}
		return true
	}
	if json.Unmarshal(raw, &r.json) != nil || r.json == nil {
		return false
	}
	r.fill()
	return true
}

// fill makes a hash of the JSON object.
func (r *HashReader) fill() {
	r.h = make(map[string]string, len(r.json))
	for name, v := range r.json {
		if string(v) != "null" {
			r.h[name], _ = plain(v)
		}
	}
}

// named gives the fields of an embedded object their own names, where they are written
// in camelCase.
func (r *HashReader) named(n names) {
	if r.json == nil {
		return
	}
	if err := n.camels(r.json); err != nil {
		r.Fail("", "", err.Error())
	}
	r.fill()
}

// called returns the first of a field's names under which the hash has a value. Two
// names with different values are an error.
func (r *HashReader) called(names []string) string {
	found := names[0]
	empty := func(name string) bool {
		return slices.Contains([]string{"", "[]", "null"}, strings.TrimSpace(r.h[name]))
	}
	for _, name := range names[1:] {
		switch {
		case empty(name):
		case empty(found):
			found = name
		case r.h[name] != r.h[found]:
			r.Fail(name, "", "says something else than "+found+": give one of them")
		}
	}
	return found
}

// Pairs reads a map of texts. A value that is no text is taken as its JSON.
func (r *HashReader) Pairs(name string) map[string]string {
	out := map[string]string{}
	s := strings.TrimSpace(r.h[name])
	if s == "" || s == "null" || s == "[]" || s == "{}" {
		return out
	}
	var texts map[string]string
	if json.Unmarshal([]byte(s), &texts) == nil && !strings.Contains(s, "null") {
		return texts // as we write it
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &fields); err != nil {
		r.Fail(name, "", "is no JSON object: "+err.Error())
		return out
	}
	for k, v := range fields {
		if out[k], _ = plain(v); string(v) == "null" {
			out[k] = ""
		}
	}
	return out
}

// plain returns a JSON value as a hash holds it, and tells whether it is a text, a number
// or a boolean.
func plain(raw json.RawMessage) (string, bool) {
	raw = known(raw)
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case '{', '[', 'n':
		return string(raw), false
	}
	return string(raw), true
}

// unquote drops the spaces and one pair of quotes around a value.
func unquote(s string) string {
	s = strings.TrimSpace(s)
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		s = strings.TrimSpace(s[1 : n-1])
	}
	return s
}

// optionalPairs is Pairs, but nil for a field that is left out.
func (r *HashReader) optionalPairs(name string) map[string]string {
	if _, ok := r.h[name]; !ok {
		return nil
	}
	return r.Pairs(name)
}
