//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/internal/harness"
	"edda/server"
	"edda/stream/wire"
)

// exampleWorkers are the workers that docs/NATS.md shows. Each serves the effect of its name.
func exampleWorkers() map[string]func(t testing.TB, effect, nats string) *child {
	return map[string]func(t testing.TB, effect, nats string) *child{
		"go": func(t testing.TB, effect, nats string) *child {
			return launchOf(t, theWorker.get(t), []string{"NATS_URL=" + nats}, effect)
		},
		"python": func(t testing.TB, effect, nats string) *child {
			cmd := exec.Command("python3", "../docs/examples/worker/worker.py", effect)
			cmd.Env = harness.Environ("NATS_URL=" + nats)
			return runCommand(t, cmd)
		},
	}
}

// exampleSaga has one step for each of the workers.
const exampleSaga = `
saga: parcel
key: event.id
on:
  Wanted:
    start: true
    do:
      - seq:
          - {effect: go, with: {id: =key}}
          - {effect: python, with: {go: =step.go.result.done}}
          - done: {python: =step.python.result.done}
`

// TestTheExampleWorkersServeEffectsOverNATS runs both against the program until all sagas are done.
func TestTheExampleWorkersServeEffectsOverNATS(t *testing.T) {
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "parcel.yaml", exampleSaga))
	_, js := client(t, c.nats)
	workers := map[string]*child{}
	for effect, launch := range exampleWorkers() {
		workers[effect] = launch(t, effect, c.nats)
	}
	const n = 30
	for i := range n {
		publish(t, js, message(0, fmt.Sprint("P", i), "Wanted", fmt.Sprintf(`{"id":"P%d"}`, i)))
	}
	until(t, "every saga is done", func() bool {
		done := slices.DeleteFunc(c.instances("parcel"), func(in server.InstanceSummary) bool { return in.Status != edda.StatusDone })
		return len(done) == n
	})
	for effect, w := range workers {
		if calls := strings.Count(w.err.String(), "call "); calls != n {
			t.Errorf("%s made %d calls for %d commands", effect, calls, n)
		}
	}
	if letters, _ := c.cli("deadletter", "list"); strings.Contains(letters, "effect_result") {
		t.Errorf("dead letters: %s", letters)
	}
}

// TestAnExampleWorkerKeepsTheRulesOfCommands: what it publishes for commands that the stream has in
// every way.
func TestAnExampleWorkerKeepsTheRulesOfCommands(t *testing.T) {
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "small.yaml", smallSaga))
	_, js := client(t, c.nats)
	for effect, launch := range exampleWorkers() {
		t.Run(effect, func(t *testing.T) {
			w := launch(t, effect, c.nats)
			send := func(id, msgID, more, notAfter string) {
				t.Helper()
				body := fmt.Sprintf(`{"command_id":%q,"payload":{"n":1}%s,"metadata":{"saga":"x","key":"K","step":"s","idempotency_key":"key-%s"%s}}`, id, more, id, notAfter)
				publish(t, js, &nats.Msg{Subject: "tenant.default.effect." + effect + "." + id, Header: nats.Header{"Nats-Msg-Id": {"default " + msgID}}, Data: []byte(body)})
			}
			a, b, late := effect+"-a", effect+"-b", effect+"-late"
			send(a, a, "", "")
			result(t, js, effect, a)
			send(a, a+" again", "", "") // as Edda does later, when the duplicate window has passed
			send(a, a+" revoked", `,"revoke":true`, "")
			send(late, late, "", `,"not_after":"2026-01-01T00:00:00Z"`)
			publish(t, js, &nats.Msg{Subject: "tenant.default.effect." + effect + ".broken", Data: []byte(`{`)})
			send(b, b, "", `,"not_after":"2999-01-01T00:00:00.5Z"`)
			for id, want := range map[string]string{a: "Succeeded", b: "Succeeded", late: "TimedOut"} {
				m := result(t, js, effect, id)
				var r struct {
					CommandID  string `json:"command_id"`
					ResultType string `json:"result_type"`
					Metadata   struct{ Saga, Key, Step string }
				}
				if err := json.Unmarshal(m.Data, &r); err != nil {
					t.Fatal(err)
				}
				if r.ResultType != want || r.CommandID != id || r.Metadata.Saga != "x" || r.Metadata.Step != "s" || m.Header.Get("Nats-Msg-Id") != "default "+id+".result" {
					t.Errorf("%s: %s %v", id, m.Data, m.Header)
				}
			}
			if said := w.err.String(); strings.Count(said, "call ") != 2 {
				t.Errorf("it called %s", said)
			}
			until(t, "every message is acknowledged", func() bool {
				consumer, err := js.Consumer(context.Background(), wire.WorkflowCommands, "worker_"+effect)
				if err != nil {
					t.Fatal(err)
				}
				info := consumer.CachedInfo()
				return info.NumAckPending == 0 && info.NumPending == 0
			})
		})
	}
}

// result waits for the result of a command.
func result(t testing.TB, js jetstream.JetStream, effect, id string) *jetstream.RawStreamMsg {
	t.Helper()
	s, err := js.Stream(context.Background(), wire.WorkflowEvents)
	if err != nil {
		t.Fatal(err)
	}
	var m *jetstream.RawStreamMsg
	until(t, "the result of "+id, func() bool {
		m, err = s.GetLastMsgForSubject(context.Background(), "tenant.default.effect_result."+effect+"."+id)
		return err == nil
	})
	return m
}

// rejectedSaga fails if its command is rejected.
const rejectedSaga = `
saga: parcel
key: event.id
on:
  Wanted: {start: true, do: [{command: Payment.Request, id: pay, to: =key, with: =event.id}]}
  Paid: {do: [{done: =key}]}
  pay.failed: {do: [{fail: =event.code}]}
`

// TestAServiceOverNATSRejectsACommandByItself: the command says all that its rejection needs.
func TestAServiceOverNATSRejectsACommandByItself(t *testing.T) {
	c := dev(t, t.TempDir(), write(t, t.TempDir(), "parcel.yaml", rejectedSaga))
	_, js := client(t, c.nats)
	publish(t, js, message(0, "P1", "Wanted", `{"id":"P1"}`))
	s, err := js.Stream(context.Background(), wire.WorkflowCommands)
	if err != nil {
		t.Fatal(err)
	}
	var asked struct {
		CommandID   string          `json:"command_id"`
		PayloadJSON string          `json:"payload_json"`
		Metadata    json.RawMessage `json:"metadata"`
	}
	until(t, "the command is there", func() bool {
		m, err := s.GetLastMsgForSubject(context.Background(), "tenant.default.command.Payment.P1")
		return err == nil && json.Unmarshal(m.Data, &asked) == nil
	})
	if asked.PayloadJSON != `{"command":"Request","value":"P1"}` {
		t.Errorf("payload %s", asked.PayloadJSON)
	}
	publish(t, js, &nats.Msg{
		Subject: "tenant.default.effect_result.command." + asked.CommandID, Header: nats.Header{"Nats-Msg-Id": {"default " + asked.CommandID + ".result"}},
		Data: fmt.Appendf(nil, `{"command_id":%q,"result_type":"Failed","payload":{"code":"no_account","message":"none"},"metadata":%s}`, asked.CommandID, asked.Metadata),
	})
	var in server.InstanceSummary
	until(t, "the saga has failed", func() bool {
		all := c.instances("parcel")
		if len(all) == 1 {
			in = all[0]
		}
		return in.Status == edda.StatusFailed
	})
	if reason := fmt.Sprint(c.describe("parcel", "P1").Instance.Reason); !strings.Contains(reason, "no_account") {
		t.Errorf("it failed for %s", reason)
	}
}
