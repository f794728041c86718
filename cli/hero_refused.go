package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"edda/hero/coordinator"
	"edda/hero/jsonrpc"
)

// refused tells a person what a call was answered: what and why in one line, then
// what it is about and what to do, a line each.
type refused struct{ err *jsonrpc.Error }

func (r refused) Unwrap() error { return r.err }

func (r refused) Error() string {
	why, rest, do := r.read()
	lines := append([]string{r.head(why)}, rest...)
	lines = append(lines, "what to do: "+cmp.Or(do, whatToDo(r.err.Code)))
	for i, line := range lines {
		lines[i] = printable(strings.ReplaceAll(line, "\n", " "))
	}
	return strings.Join(lines, "\n  ")
}

func (r refused) head(why string) string {
	head := fmt.Sprintf("%s (%d)", r.err.Message, r.err.Code)
	if why != "" {
		head += ": " + why
	}
	return head
}

// read takes the error's data apart: a coordinator's, a text, or another server's
// object.
func (r refused) read() (why string, rest []string, do string) {
	raw, err := json.Marshal(r.err.Data)
	if err != nil || r.err.Data == nil {
		return "", nil, ""
	}
	var d coordinator.Detail
	if json.Unmarshal(raw, &why) == nil {
		return why, nil, ""
	}
	if json.Unmarshal(raw, &d) == nil && d.Why != "" {
		return d.Why, about(d), inCommands(d.Do)
	}
	return "", members(raw), ""
}

// about is what the detail names and its reason does not.
func about(d coordinator.Detail) (lines []string) {
	if d.Field != "" && !strings.Contains(d.Why, d.Field) {
		lines = append(lines, "field: "+d.Field)
	}
	if d.Key != "" && !strings.Contains(d.Why, d.Key) {
		lines = append(lines, "object: "+d.Key)
	}
	if len(d.IDs) > 0 {
		lines = append(lines, "ids: "+orNone(d.IDs))
	}
	if len(d.Cycle) > 0 {
		lines = append(lines, "the way round: "+strings.ReplaceAll(orNone(d.Cycle), ", ", " → "))
	}
	return lines
}

// members are an object's, a line each; what is none is one line.
func members(raw []byte) (lines []string) {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return []string{string(raw)}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		text := string(object[name])
		_ = json.Unmarshal(object[name], &text) // what is no text is shown as it is
		lines = append(lines, name+": "+text)
	}
	return lines
}

// whatToDo is for answers that do not say it themselves.
func whatToDo(code int) string {
	switch code {
	case jsonrpc.ParseError, jsonrpc.InvalidRequest, jsonrpc.MethodNotFound, jsonrpc.InvalidParams:
		return "see what the coordinator takes with: edda hero call rpc.discover"
	case jsonrpc.PermissionDenied:
		return "call with --token-file as an actor who may, or have an admin of the context add it"
	case jsonrpc.Busy, jsonrpc.StorageError:
		return "call again in a moment; where that does not help, look at the coordinator's log"
	case jsonrpc.TooBig:
		return "send less at once"
	case jsonrpc.NotFound, jsonrpc.AlreadyExists, jsonrpc.DagError:
		return "correct what was called with, and call again"
	}
	return "look at the coordinator's log"
}

// commandsOf are the commands of methods that have one; other methods are called by their names.
func commandsOf() map[string]string {
	return map[string]string{
		"flow.create": "edda hero flow create FILE", "flow.list": "edda hero flow list CONTEXT", "flow.start": "edda hero flow start",
		"flow.cancel": "edda hero flow cancel", "flow.delete": "edda hero flow delete", "flow.prerequisite_met": "edda hero flow met",
	}
}

// inCommands says what to do in commands, where the coordinator names methods.
func inCommands(do string) string {
	words := strings.Fields(do)
	for i, word := range words {
		method := strings.TrimRight(word, ",.:;")
		command, ok := commandsOf()[method]
		if !ok && slices.Contains(coordinator.Methods(), method) {
			command, ok = "edda hero call "+method, true
		}
		if ok {
			words[i] = command + word[len(method):]
		}
	}
	return strings.Join(words, " ")
}
