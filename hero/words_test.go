package hero

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWordsInJSONAreLiberal(t *testing.T) {
	var j Job
	if err := json.Unmarshal([]byte(`{"status":"WaitingForPrerequisites","script_type":"Python"}`), &j); err != nil || j.Status != JobWaiting || j.ScriptType != ScriptPython {
		t.Errorf("%+v, %v", j, err)
	}
	var m Message
	if err := json.Unmarshal([]byte(`{"status":"","message_type":"Chat","message_format_type":"Md","nodes":[{"id":1,"node_status":"Pending"}]}`), &m); err != nil || m.Status != "" || m.MessageType != MessageChat || m.MessageFormat != FormatMD || m.Nodes[0].NodeStatus != NodePending {
		t.Errorf("%+v, %v", m, err)
	}
	var f Flow
	if err := json.Unmarshal([]byte(`{"status":"Created"}`), &f); err != nil || f.Status != FlowDispatched {
		t.Errorf("%+v, %v", f, err)
	}
	for text, says := range map[string]string{
		`{"status":"paused"}`:                               "waiting_for_prerequisites",
		`{"script_type":"a/b"}`:                             "python",
		`{"script_type":"` + strings.Repeat("x", 65) + `"}`: "python",
	} {
		if err := json.Unmarshal([]byte(text), &j); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
