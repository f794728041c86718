package hero

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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
func (r *HashReader) called(names []string) string {
	found := names[0]
	empty := func(name string) bool { s := strings.TrimSpace(r.h[name]); return s == "" || s == "[]" || s == "null" }
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

// names are those of an object's fields.
type names struct {
	fields map[string]bool
	others [][]string // for each field that has other names: itself, and those
	lists  []string   // lists of texts, of which one alone may stand for a list
}

// understand reads an object into to, whose fields may have other names, and says which
// of its names nobody here understands. What is no object is an error of to's type.
func understand(raw []byte, to any, n names) (unknown []string, err error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object == nil {
		return nil, json.Unmarshal(raw, to) // which says what is wrong with it
	}
	others := slices.Concat(n.others...)
	if err := camels(object, n.fields, others); err != nil {
		return nil, err
	}
	unknown = notUnderstood(object, n.fields, others...)
	for _, names := range n.others {
		if err := rename(object, names); err != nil {
			return nil, err
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
		if object[name], err = seconds(name, object[name]); err != nil {
			return nil, err
		}
	}
	if raw, err = json.Marshal(object); err != nil {
		return nil, err
	}
	return unknown, json.Unmarshal(raw, to)
}

// camels gives the fields that are named as in contextId the names that they have.
func camels(object map[string]json.RawMessage, fields map[string]bool, others []string) error {
	for name, value := range object {
		if fields[name] || name == "" || name[0] < 'a' || name[0] > 'z' || strings.ToLower(name) == name || strings.Contains(name, "_") {
			continue
		}
		for _, own := range slices.Concat(slices.Collect(maps.Keys(fields)), others, beside) {
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

// timeNames are the fields that are times, in Unix seconds; other systems write RFC 3339.
var timeNames = []string{"created_at", "updated_at"}

// seconds is a time in Unix seconds, where it is a text of RFC 3339; what is neither stays.
func seconds(name string, raw json.RawMessage) (json.RawMessage, error) {
	var text string
	if len(raw) == 0 {
		return json.RawMessage("null"), nil
	}
	if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
		return raw, nil
	}
	at, err := unixSeconds(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return json.RawMessage(strconv.FormatUint(uint64(at), 10)), nil
}

// unixSeconds reads a time of RFC 3339; the part of a second is cut.
func unixSeconds(text string) (uint32, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.Unix() < 0 || at.Unix() > math.MaxUint32 {
		return 0, fmt.Errorf("%q is no time: want Unix seconds, or RFC 3339 as in 2026-01-31T12:00:00Z", shown(text))
	}
	return uint32(at.Unix()), nil
}

// UnmarshalJSON reads a job whose fields may have the names of the newer documents:
// payload, depends, dependencies, and an executor alone.
func (j *Job) UnmarshalJSON(raw []byte) (err error) {
	type plain Job
	unknown, err := understand(raw, (*plain)(j), names{fields: jobFields(), others: [][]string{dependendsNames, scriptNames}})
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
	unknown, err := understand(raw, (*plain)(n), names{fields: nodeFields(), others: [][]string{dependsNames}})
	n.Unknown = unknown
	return err
}

// UnmarshalJSON reads an actor and notes what is not understood. Its address may be a text.
func (a *Actor) UnmarshalJSON(raw []byte) (err error) {
	type plain Actor
	unknown, err := understand(raw, (*plain)(a), names{fields: actorFields(), lists: []string{"address"}})
	a.Unknown = unknown
	return err
}

// UnmarshalJSON reads a context and notes what is not understood.
func (c *Context) UnmarshalJSON(raw []byte) (err error) {
	type plain Context
	unknown, err := understand(raw, (*plain)(c), names{fields: contextFields()})
	c.Unknown = unknown
	return err
}

// UnmarshalJSON reads a runner and notes what is not understood.
func (r *Runner) UnmarshalJSON(raw []byte) (err error) {
	type plain Runner
	unknown, err := understand(raw, (*plain)(r), names{fields: runnerFields(), others: [][]string{runnerTypeNames}})
	r.Unknown = unknown
	return err
}

// UnmarshalJSON reads a flow and notes what is not understood.
func (f *Flow) UnmarshalJSON(raw []byte) (err error) {
	type plain Flow
	unknown, err := understand(raw, (*plain)(f), names{fields: flowFields()})
	f.Unknown = unknown
	return err
}

// UnmarshalJSON reads a message and notes what is not understood.
func (m *Message) UnmarshalJSON(raw []byte) (err error) {
	type plain Message
	unknown, err := understand(raw, (*plain)(m), names{fields: messageFields()})
	m.Unknown = unknown
	return err
}
