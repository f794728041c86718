package hero

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestResultsAsText(t *testing.T) {
	for _, r := range []map[string]string{{"output": "hello\n"}, {"output": ""}, {"a": "1", "output": "x"}, {"a": `{"b":1}`}} {
		if got := ReadResult(ResultText(r)); !reflect.DeepEqual(got, r) {
			t.Errorf("%v came back as %v", r, got)
		}
	}
	for text, want := range map[string]map[string]string{
		"{broken": {"output": "{broken"}, "[1]": {"output": "[1]"}, `{"n":1.5,"l":[1],"s":"x"}`: {"n": "1.5", "l": "[1]", "s": "x"},
	} {
		if got := ReadResult(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v", text, got)
		}
	}
}

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

// Other programs know these words from the documents: none may change.
func TestTheWordsOnTheWire(t *testing.T) {
	for _, words := range []struct {
		want string
		have []string
	}{
		{"dispatched waiting_for_prerequisites started error finished", spelt(JobDispatched, JobWaiting, JobStarted, JobError, JobFinished)},
		{"dispatched started error finished", spelt(FlowDispatched, FlowStarted, FlowError, FlowFinished)},
		{"pending ready dispatched running completed failed cancelled", spelt(NodePending, NodeReady, NodeDispatched, NodeRunning, NodeCompleted, NodeFailed, NodeCancelled)},
		{"dispatched acknowledged error processed", spelt(MessageDispatched, MessageAcknowledged, MessageError, MessageProcessed)},
		{"job chat mail result", spelt(MessageJob, MessageChat, MessageMail, MessageResult)},
		{"html text md", spelt(FormatHTML, FormatText, FormatMD)},
		{"queued sent delivered read failed", spelt(TransportQueued, TransportSent, TransportDelivered, TransportRead, TransportFailed)},
		{"osis sal v python", spelt(ScriptOSIS, ScriptSAL, ScriptV, ScriptPython)},
		{"v python osis rust", spelt(RunnerV, RunnerPython, RunnerOSIS, RunnerRust)},
		{"msg_out msg_out_coordinator msg_in queue:python", []string{MsgOut, MsgOutCoordinator, MsgIn, ScriptPython.Queue()}},
		{"supervisor.rpc output error", []string{SupervisorTopic, ResultOutput, ResultError}},
	} {
		if have := strings.Join(words.have, " "); have != words.want {
			t.Errorf("%s, want %s", have, words.want)
		}
	}
}

func spelt[T ~string](words ...T) (out []string) {
	for _, w := range words {
		out = append(out, string(w))
	}
	return out
}
