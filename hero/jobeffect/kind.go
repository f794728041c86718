// Package jobeffect calls effects that are Hero jobs: one script a command, run by a runner
// or supervisor of the job's context.
//
// It promises that a command makes one job, however often it is called, because the job's id
// is derived from the command's key: a repeated call finds the job and its result. It
// refuses values of the payload in the text of a script, where they would be code; a
// script gets them by env.
package jobeffect

import (
	"time"

	"edda/effects"
	"edda/effects/spec"
	"edda/manifests"
)

// timeout is the default of an effect: a script may take long, and waits for a runner first.
const timeout = 10 * time.Minute

// Kind describes the effect job to the compiler.
func Kind() effects.ProviderKind {
	return effects.ProviderKind{Spec: fields(), NoCheck: "a job needs no check: its result is found again by itself", OK: "status == 0", Timeout: timeout, Once: true}
}

// fields describes a job: map.
func fields() *spec.Fields {
	owner := func(name, needed string) spec.Field {
		return spec.Field{Name: name, Needed: "the number of the " + needed, Read: spec.Reads(func(v any) (uint32, error) { return number(name, v) })}
	}
	duration := func(name string) spec.Field {
		return spec.Field{Name: name, Read: spec.Reads(func(v any) (uint32, error) { return seconds(name, v) })}
	}
	return &spec.Fields{Name: "job", Check: checkTogether, Fields: []spec.Field{
		owner("context", "context it runs in"), owner("caller", "actor who asks for it"),
		{Name: "type", Read: spec.Reads(scriptType)},
		{Name: "script", Type: spec.Text, Code: true, Check: checkCode},
		{Name: "file", Type: spec.Text, Code: true, Trusted: "what is run", Check: checkCode},
		{Name: "env", Type: spec.Map, Says: "a map of names and values"},
		duration("timeout"), duration("queue_timeout"),
		{Name: "retries", Read: spec.Reads(retries)},
		{Name: "supervisor", Trusted: "who is shown the job"},
	}}
}

// checkCode refuses a template: code comes from the manifest or its file, and a payload is
// data.
func checkCode(c *spec.Checker, f manifests.Field) {
	if f.Value.Kind == manifests.Template {
		c.Errorf(f.Value.Pos, "a value within a %s would be run as code: give it by env, and read it there", f.Name)
	}
}

func checkTogether(c *spec.Checker, m *manifests.Value) {
	if (m.Field("script") == nil) == (m.Field("file") == nil) {
		c.Errorf(m.Pos, "job needs one of script, the text, and file, where it is")
	}
}
