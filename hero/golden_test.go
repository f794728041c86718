package hero

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"edda/internal/testkit"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func anActor() Actor {
	return Actor{ID: 12, PubKey: "9ab3", Address: []string{"5c3:aa::1", "http://10.0.0.1:9652"}, CreatedAt: 1755600000, UpdatedAt: 1755600001}
}

func aContext() Context {
	return Context{ID: 7, Admins: []uint32{12}, Readers: []uint32{}, Executors: []uint32{13, 14}, CreatedAt: 1755600000, UpdatedAt: 1755600001}
}

func aNode() FlowNode {
	return FlowNode{ID: 2001, Name: "pay", Depends: []uint32{}, Prerequisites: []string{"paid"}, SupervisorURL: "mycelium://9ab3?topic=jobs", NodeStatus: NodeReady}
}

func aFlow() Flow {
	return Flow{
		ID: 33, CallerID: 12, ContextID: 7, Name: "nightly", Jobs: []uint32{2001, 2002}, EnvVars: map[string]string{"B": "<2>", "A": "1"},
		Result: map[string]string{"2001.output": "a\nb"}, Nodes: []FlowNode{aNode()}, CreatedAt: 1755600000, UpdatedAt: 1755600001, Status: FlowStarted,
	}
}

func aRunner() Runner {
	return Runner{ID: 20, PubKey: "77", Address: "mycelium://77", Topic: "runner20", Local: true, Secret: "s3cret", CreatedAt: 1755600000, UpdatedAt: 1755600001}
}

func aJob() Job {
	return Job{
		ID: 2001, CallerID: 12, ContextID: 7, Script: "print('é')\n", ScriptType: ScriptPython, Executor: "python", Timeout: 60, Retries: 2,
		EnvVars: map[string]string{"A": "1"}, Result: map[string]string{}, Prerequisites: []string{"paid"}, Dependends: []uint32{2000},
		Signatures: json.RawMessage(`[{"key":"02ab","signature":"30"}]`), CreatedAt: 1755600000, UpdatedAt: 1755600001, Status: JobWaiting,
		FlowID: 33, Attempt: 2, MessageKey: "message:12:101", QueueTimeout: 3600, Priority: PriorityHigh, OwnEnv: map[string]string{"B": "2"}, Met: []string{"paid"}, Name: "job-123",
	}
}

func aMessage() Message {
	return Message{
		ID: 101, CallerID: 12, ContextID: 7, Message: "run it", MessageType: MessageJob, MessageFormat: FormatMD, Timeout: 10, TimeoutAck: 20, TimeoutResult: 30,
		Job: []Job{aJob()}, Nodes: []FlowNode{aNode()}, FlowID: 33, Logs: []Log{{Time: 1755600002, Level: "info", Source: "router", Text: "sent"}},
		TransportID: "0a0b", TransportStatus: TransportSent, CreatedAt: 1755600000, UpdatedAt: 1755600001, Status: MessageAcknowledged,
		TargetContext: 8, Topic: SupervisorTopic, To: 13, ReplyTo: "message:13:9", Attempt: 2, Origin: "8/message:13:9", Via: "5c3:aa::1",
	}
}

// golden is a hash as HGETALL shows it, its fields in order.
func golden(o Object) string {
	var b strings.Builder
	b.WriteString(o.Key() + "\n")
	fields := Fields(o)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		b.WriteString(name + " " + strings.ReplaceAll(fields[name], "\n", `\n`) + "\n")
	}
	return b.String()
}

func TestHashesAreAsTheyWere(t *testing.T) {
	objects := map[string]Object{
		"actor": anActor(), "context": aContext(), "flow": aFlow(), "runner": aRunner(), "job": aJob(), "message": aMessage(),
		"empty_actor": Actor{ID: 1}, "empty_context": Context{ID: 1}, "empty_flow": Flow{ID: 1, CallerID: 2}, "empty_runner": Runner{ID: 1},
		"empty_job": Job{ID: 1, CallerID: 2}, "empty_message": Message{ID: 1, CallerID: 2},
	}
	for name, o := range objects {
		t.Run(name, func(t *testing.T) {
			path, got := "testdata/"+name+".hash", golden(o)
			if *update {
				testkit.Must(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			testkit.Must(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryFieldOfTheDocumentsIsThere(t *testing.T) {
	// From the table of the documents; nothing optional is set.
	tests := map[Object]string{
		&Actor{ID: 1}:                   "id pubkey address created_at updated_at",
		&Context{ID: 1}:                 "id admins readers executors created_at updated_at",
		&Flow{ID: 1, CallerID: 2}:       "id caller_id context_id jobs env_vars result created_at updated_at status",
		&Message{ID: 1, CallerID: 2}:    "id caller_id context_id message message_type message_format_type timeout timeout_ack timeout_result job nodes logs created_at updated_at status",
		&Runner{ID: 1, PubKey: "local"}: "id pubkey address topic local created_at updated_at",
		&Job{ID: 1, CallerID: 2}:        "id caller_id context_id script script_type timeout retries env_vars result prerequisites dependends created_at updated_at status",
	}
	for o, want := range tests {
		got := slices.Sorted(maps.Keys(Fields(o)))
		if diff := cmp.Diff(slices.Sorted(slices.Values(strings.Fields(want))), got); diff != "" {
			t.Errorf("%s: %s", o.Key(), diff)
		}
	}
}

func TestAbsentNamesTheFieldsThatAreLeftOut(t *testing.T) {
	pairs := map[Object]Object{
		&Runner{ID: 1}: ptr(aRunner()), &Flow{ID: 33, CallerID: 1}: ptr(aFlow()),
		&Job{ID: 1, CallerID: 2}: ptr(aJob()), &Message{ID: 1, CallerID: 2}: ptr(aMessage()),
	}
	for empty, full := range pairs {
		if gone := Absent(full); len(gone) != 0 {
			t.Errorf("%s has all, but not %v", full.Key(), gone)
		}
		all := slices.Concat(Absent(empty), slices.Collect(maps.Keys(Fields(empty))))
		slices.Sort(all)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(Fields(full))), all); diff != "" {
			t.Errorf("%s: %s", full.Key(), diff)
		}
	}
}

func ptr[T any](v T) *T { return &v }
