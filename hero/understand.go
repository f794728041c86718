package hero

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// The names of fields that other documents call otherwise, Edda's own first.
var (
	dependendsNames = []string{"dependends", "depends", "dependencies"}
	scriptNames     = []string{"script", "payload"}
	dependsNames    = []string{"depends", "dependends", "dependencies"}
	runnerTypeNames = []string{"type", "runner_type"}
)

// names are the names of an object's fields.
type names struct {
	fields map[string]bool
	others [][]string // fields that have other names: for each, its name and those
	lists  []string   // lists of texts; a single text may stand for a list
}

// namesOf adds the names of T's fields in JSON, once they are needed.
func namesOf[T any](n names) func() names {
	return sync.OnceValue(func() names {
		n.fields = map[string]bool{}
		for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				n.fields[name] = true
			}
		}
		return n
	})
}

var (
	actorNames   = namesOf[Actor](names{lists: []string{"address"}})
	contextNames = namesOf[Context](names{})
	runnerNames  = namesOf[Runner](names{others: [][]string{runnerTypeNames}})
	flowNames    = namesOf[Flow](names{})
	messageNames = namesOf[Message](names{})
	jobNames     = namesOf[Job](names{others: [][]string{dependendsNames, scriptNames}})
	nodeNames    = namesOf[FlowNode](names{others: [][]string{dependsNames}})
)

// beside are the parameters of a call, which stand among the fields of an object that is
// sent without its wrapper.
var beside = []string{"context_id", "caller_id", "actor_id"}

// timeNames are the fields that hold a time, in Unix seconds. Other systems write RFC 3339.
var timeNames = []string{"created_at", "updated_at"}

// unknown returns the names of an object that are no field's, sorted.
func (n names) unknown(object map[string]json.RawMessage) []string {
	var out []string
	others := slices.Concat(n.others...)
	for name, value := range object {
		if !n.fields[name] && !slices.Contains(others, name) && !slices.Contains(beside, name) && string(value) != "null" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// camels renames fields in camelCase, such as contextId.
func (n names) camels(object map[string]json.RawMessage) error {
	for name, value := range object {
		if n.fields[name] || name == "" || name[0] < 'a' || name[0] > 'z' || strings.ToLower(name) == name || strings.Contains(name, "_") {
			continue
		}
		for _, own := range slices.Concat(slices.Collect(maps.Keys(n.fields)), slices.Concat(n.others...), beside) {
			if strings.ReplaceAll(own, "_", "") != strings.ToLower(name) {
				continue
			}
			if said, twice := object[own]; twice && !bytes.Equal(said, value) {
				return fmt.Errorf("%s says something else than %s: give one of them", name, own)
			}
			object[own] = value
			delete(object, name)
			break
		}
	}
	return nil
}

// understand decodes a JSON object into to, a plain type, under all names that its fields
// may have. It returns in unknown the names that Edda does not know. An error about a value
// that is no object names to's type.
func understand(raw []byte, to any, unknown *[]string, n names) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return json.Unmarshal(raw, to)
	}
	if err := n.camels(object); err != nil {
		return err
	}
	*unknown = n.unknown(object)
	for _, names := range n.others {
		if err := rename(object, names); err != nil {
			return err
		}
	}
	for _, name := range n.lists {
		switch one := object[name]; {
		case string(one) == `""`:
			object[name] = json.RawMessage("[]")
		case len(one) > 0 && one[0] == '"':
			object[name] = slices.Concat(json.RawMessage("["), one, json.RawMessage("]"))
		}
	}
	for _, name := range timeNames {
		var text string
		if value := object[name]; len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
			continue // left out, or no text: decoding says whether it is a number
		}
		at, err := unixSeconds(text)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		object[name] = json.RawMessage(decimal(at))
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}

// rename moves the value under another name of a field to the field.
func rename(object map[string]json.RawMessage, names []string) error {
	to := names[0]
	empty := func(raw json.RawMessage) bool {
		return len(raw) == 0 || slices.Contains([]string{"null", "[]", `""`}, string(bytes.TrimSpace(raw)))
	}
	for _, name := range names[1:] {
		raw, said := object[name]
		delete(object, name)
		switch {
		case !said || empty(raw):
		case empty(object[to]):
			object[to] = raw
		case !bytes.Equal(raw, object[to]):
			return fmt.Errorf("%s says something else than %s: give one of them", name, to)
		}
	}
	return nil
}

// unixSeconds reads a time of RFC 3339; the part of a second is cut.
func unixSeconds(text string) (uint32, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Unix() < 0 || at.Unix() > math.MaxUint32 {
		return 0, fmt.Errorf("%q is no time: want Unix seconds, or RFC 3339 as in 2026-01-31T12:00:00Z", shown(text))
	}
	return uint32(at.Unix()), nil
}

// word finds the word that s spells: in snake, Pascal or camel case, with or without
// quotes. The empty text is no word.
func word[T ~string](what, s string, known ...T) (T, error) {
	if slices.Contains(known, T(s)) && s != "" {
		return T(s), nil // as we write it
	}
	folded := fold(s)
	for _, w := range known {
		if folded != "" && folded == fold(string(w)) {
			return w, nil
		}
	}
	names := make([]string, len(known))
	for i, w := range known {
		names[i] = string(w)
	}
	return "", fmt.Errorf("%q is no %s: want %s", shown(s), what, strings.Join(names, ", "))
}

// fold drops everything in which the spellings of a word differ.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '_', '-', ' ', '\t', '\n', '\r', '"', '\'':
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// decode reads a word from JSON, in any spelling. The empty text is the empty word.
func decode[T ~string](to *T, text []byte, parse func(string) (T, error)) error {
	if len(text) == 0 {
		*to = ""
		return nil
	}
	w, err := parse(string(text))
	if err == nil {
		*to = w
	}
	return err
}
