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
	runnerTypeNames = []string{"type", "runner_type"}
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
	actorFields   = sync.OnceValue(fieldNames[Actor])
	contextFields = sync.OnceValue(fieldNames[Context])
	runnerFields  = sync.OnceValue(fieldNames[Runner])
	flowFields    = sync.OnceValue(fieldNames[Flow])
	messageFields = sync.OnceValue(fieldNames[Message])
	jobFields     = sync.OnceValue(fieldNames[Job])
	nodeFields    = sync.OnceValue(fieldNames[FlowNode])
)

// beside are the parameters of calls that stand among an object's fields where it is sent
// without its wrapper.
var beside = []string{"context_id", "caller_id", "actor_id"}

// notUnderstood are the names that the type does not have, in order.
func notUnderstood(object map[string]json.RawMessage, fields map[string]bool, aliases ...string) []string {
	var out []string
	for name, value := range object {
		if !fields[name] && !slices.Contains(aliases, name) && !slices.Contains(beside, name) && string(value) != "null" {
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

// understand reads an object into to, whose fields may have other names, and says which
// of its names nobody here understands. What is no object is an error of to's type.
func understand(raw []byte, to any, fields map[string]bool, renames ...[]string) (unknown []string, err error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return nil, json.Unmarshal(raw, to) // which says what is wrong with it
	}
	unknown = notUnderstood(object, fields, slices.Concat(renames...)...)
	if len(renames) > 0 {
		for _, names := range renames {
			if err := rename(object, names); err != nil {
				return nil, err
			}
		}
		if raw, err = json.Marshal(object); err != nil {
			return nil, err
		}
	}
	return unknown, json.Unmarshal(raw, to)
}

// UnmarshalJSON reads a job whose fields may have the names of the newer documents:
// payload, depends, dependencies, and an executor alone.
func (j *Job) UnmarshalJSON(raw []byte) (err error) {
	type plain Job
	unknown, err := understand(raw, (*plain)(j), jobFields(), dependendsNames, scriptNames)
	if err != nil {
		return err
	}
	if j.Unknown = unknown; j.ScriptType == "" && j.Executor != "" {
		j.ScriptType, err = ParseScriptType(j.Executor)
	}
	return err
}

// UnmarshalJSON reads a node whose edges may be called dependends or dependencies.
func (n *FlowNode) UnmarshalJSON(raw []byte) (err error) {
	type plain FlowNode
	unknown, err := understand(raw, (*plain)(n), nodeFields(), dependsNames)
	n.Unknown = unknown
	return err
}

// UnmarshalJSON reads an actor and notes what is not understood.
func (a *Actor) UnmarshalJSON(raw []byte) (err error) {
	type plain Actor
	unknown, err := understand(raw, (*plain)(a), actorFields())
	a.Unknown = unknown
	return err
}

// UnmarshalJSON reads a context and notes what is not understood.
func (c *Context) UnmarshalJSON(raw []byte) (err error) {
	type plain Context
	unknown, err := understand(raw, (*plain)(c), contextFields())
	c.Unknown = unknown
	return err
}

// UnmarshalJSON reads a runner and notes what is not understood.
func (r *Runner) UnmarshalJSON(raw []byte) (err error) {
	type plain Runner
	unknown, err := understand(raw, (*plain)(r), runnerFields(), runnerTypeNames)
	r.Unknown = unknown
	return err
}

// UnmarshalJSON reads a flow and notes what is not understood.
func (f *Flow) UnmarshalJSON(raw []byte) (err error) {
	type plain Flow
	unknown, err := understand(raw, (*plain)(f), flowFields())
	f.Unknown = unknown
	return err
}

// UnmarshalJSON reads a message and notes what is not understood.
func (m *Message) UnmarshalJSON(raw []byte) (err error) {
	type plain Message
	unknown, err := understand(raw, (*plain)(m), messageFields())
	m.Unknown = unknown
	return err
}
