package hero

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// This file is how fields that other documents call otherwise are understood, and how
// those that nobody knows are noticed.

// Other names of a job's fields, in the newer documents.
var (
	dependendsNames = []string{"dependends", "depends", "dependencies"}
	scriptNames     = []string{"script", "payload"}
	dependsNames    = []string{"depends", "dependends", "dependencies"}
)

// called is the name, of those that a field has, under which the hash holds something.
// Two that say different things are refused.
func (r *reader) called(names []string) string {
	found := names[0]
	empty := func(name string) bool { s := strings.TrimSpace(r.h[name]); return s == "" || s == "[]" || s == "null" }
	for _, name := range names[1:] {
		switch {
		case empty(name):
		case empty(found):
			found = name
		case r.h[name] != r.h[found]:
			r.fail(name, "", "says something else than "+found+": give one of them")
		}
	}
	return found
}

// fieldNames are the names of a type's fields in JSON.
func fieldNames[T any]() map[string]bool {
	out := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = true
		}
	}
	return out
}

var (
	jobFields  = sync.OnceValue(fieldNames[Job])
	nodeFields = sync.OnceValue(fieldNames[FlowNode])
)

// notUnderstood are the names that the type does not have, in order. actor_id says who
// calls and may stand beside any object.
func notUnderstood(object map[string]json.RawMessage, fields map[string]bool, aliases ...string) []string {
	var out []string
	for name, value := range object {
		if !fields[name] && !slices.Contains(aliases, name) && name != "actor_id" && string(value) != "null" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// rename moves what is said under another name of a field to the field.
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

// UnmarshalJSON reads a job whose fields may have the names of the newer documents:
// payload, depends, dependencies, and an executor alone.
func (j *Job) UnmarshalJSON(raw []byte) error {
	type plain Job
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return json.Unmarshal(raw, (*plain)(j)) // which says what is wrong with it
	}
	unknown := notUnderstood(object, jobFields(), slices.Concat(dependendsNames, scriptNames)...)
	if err := rename(object, dependendsNames); err != nil {
		return err
	}
	if err := rename(object, scriptNames); err != nil {
		return err
	}
	all, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(all, (*plain)(j)); err != nil {
		return err
	}
	if j.Unknown = unknown; j.ScriptType == "" && j.Executor != "" {
		j.ScriptType, err = ParseScriptType(j.Executor)
	}
	return err
}

// UnmarshalJSON reads a node whose edges may be called dependends or dependencies.
func (n *FlowNode) UnmarshalJSON(raw []byte) error {
	type plain FlowNode
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return json.Unmarshal(raw, (*plain)(n))
	}
	unknown := notUnderstood(object, nodeFields(), dependsNames...)
	if err := rename(object, dependsNames); err != nil {
		return err
	}
	all, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(all, (*plain)(n))
	}
	n.Unknown = unknown
	return err
}
