package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// namedOutputs drops the notes that a test does not name. A note only informs people: an event waits
// behind a hold, or the condition of an inner trigger was false.
func namedOutputs(expect []manifests.Expect, outs []edda.Output) []edda.Output {
	var kept []edda.Output
	for _, o := range outs {
		n, note := len(kept), o.Word == "held" || o.Word == "guarded" && o.Name != "true"
		if !note || n < len(expect) && matches(expect[n], o) {
			kept = append(kept, o)
		}
	}
	return kept
}

// matches reports whether an output has every expected field.
func matches(e manifests.Expect, o edda.Output) bool {
	if e.Word != o.Word {
		return false
	}
	for name, want := range e.Fields {
		if !fieldMatches(name, want, o) {
			return false
		}
	}
	return true
}

func fieldMatches(name string, want any, o edda.Output) bool {
	switch name {
	case o.Word:
		return nameMatches(want, o)
	case "step":
		return text(want) == o.Step
	case "to":
		return text(want) == o.To
	case "key":
		return text(want) == o.Key
	case "id":
		return text(want) == o.ID
	case "with", "result":
		return subset(want, decodeOrNil(o.With))
	case "due":
		return sameDuration(text(want), o.Due)
	case "for":
		return sameDuration(text(want), o.For)
	case "undoes":
		return text(want) == o.Undoes
	case "attempt":
		return want == any(o.Attempt)
	case "version":
		return want == any(o.Version)
	case "reason":
		return text(want) == o.Reason
	case "incomplete":
		return subset(want, anyList(o.Incomplete))
	}
	return false
}

// nameMatches compares the word's value. A test may write an event with or without its kind or
// aggregate type: signal.x or x. It may name an incident by its step or its reason, and a message
// by its text, its type or a map.
func nameMatches(want any, o edda.Output) bool {
	if fields, ok := want.(map[string]any); ok {
		return o.Word == "message" && subset(fields, decodeOrNil(o.With))
	}
	w := text(want)
	if w == o.Name || o.Word == "guarded" && want == true {
		return true
	}
	switch o.Word {
	case "parked", "unparked", "held", "late", "duplicate", "dead", "ignored", "dropped", "refused":
		return strings.HasSuffix(o.Name, "."+w) || strings.HasSuffix(w, "."+o.Name)
	case "fired":
		return w == "saga."+deadlineName && o.Name == deadlineName
	case "incident":
		return w == o.Reason
	case "message":
		fields, _ := decodeOrNil(o.With).(map[string]any)
		return w == fields["message_type"]
	}
	return false
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

func decodeOrNil(raw json.RawMessage) any {
	v, _ := jsonvalue.Decode(raw)
	return v
}

func anyList(list []string) any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// subset reports whether got has every wanted field; lists match item by item.
func subset(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range want {
			if inner, there := g[k]; !there && v != nil || !subset(v, inner) {
				return false
			}
		}
		return true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return false
		}
		for i := range want {
			if !subset(want[i], g[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}

// sameDuration compares durations by length, and times by instant.
func sameDuration(a, b string) bool {
	if a == b {
		return true
	}
	x, err1 := manifests.ParseDuration(a)
	y, err2 := manifests.ParseDuration(b)
	if err1 == nil && err2 == nil {
		return x == y
	}
	t, err1 := time.Parse(time.RFC3339Nano, a)
	u, err2 := time.Parse(time.RFC3339Nano, b)
	return err1 == nil && err2 == nil && t.Equal(u)
}

// compareEnd compares the first instance after the last step.
func (w *tester) compareEnd(end *manifests.Value) string {
	if end == nil {
		return ""
	}
	in := w.cells[w.first].Instance
	if in == nil {
		return "end: there is no instance"
	}
	var lines []diffLine
	for _, f := range end.Fields {
		lines = append(lines, compareField(f.Name, f.Value, endField(in, f.Name))...)
	}
	return showDiff("end", lines)
}

func endField(in *edda.Instance, name string) any {
	switch name {
	case "status":
		return string(in.Status)
	case "reason":
		return in.Reason
	case "result":
		return decodeOrNil(in.Result)
	case "state":
		return decodeOrNil(in.State)
	case "incomplete":
		return anyList(in.Incomplete)
	}
	return nil
}
