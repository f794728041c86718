package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/server"
)

// forgery is a message as a stranger writes it; headers are "name: value", with
// bars between.
type forgery struct{ subject, body, header string }

// Who may write on one tenant's subjects, and on no other's, tries everything to
// reach acme's order through the stream: the body, headers, ids and metadata
// that name acme. Whatever it is, the subject's tenant has it.
func TestNoMessageReachesAnotherTenant(t *testing.T) {
	// Nobody serves the effect: its command waits for a result, anyone's.
	d := startDev(t, folder(t, map[string]string{"order.yaml": orderSaga}), "--data", t.TempDir())
	if code, out := d.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--tenant", "acme", "--data", `{"order_id":"O1","total":1}`); code != 0 {
		t.Fatal(out)
	}
	before := d.until(t, `"status": "running"`, "instance", "describe", "order", "O1", "--tenant", "acme", "-o", "json")
	command := commandOf(t, before)

	messages := []forgery{
		{"tenant.beta.aggregate.Order.O1", `{"tenant_id":"acme","event_id":"f1","event_type":"OrderPlaced","payload":{"order_id":"O1"}}`, ""},
		{"tenant.beta.aggregate.Order.O1", `{"event_id":"f2","event_type":"OrderPlaced","tenant":"acme","payload":{"order_id":"O1","tenant_id":"acme"},"metadata":{"tenant_id":"acme"}}`, "x-tenant-id: acme"},
		{"tenant.beta.aggregate.Order.O1", `{}`, "ce-specversion: 1.0|ce-type: OrderPlaced|ce-id: f3|ce-source: s|ce-tenantid: acme"},
		{"tenant.beta.aggregate.Order.O1", `{"specversion":"1.0","id":"f4","source":"s","type":"OrderPlaced","tenantid":"acme","data":{"order_id":"O1"}}`, ""},
		{"tenant.beta.workflow.order.O1", `{"tenant_id":"acme","signal_id":"f5","name":"finish"}`, ""},
		{"tenant.beta.workflow.order.O1", `{"signal_id":"f6","name":"finish"}`, "x-tenant-id: acme"},
		{"tenant.beta.effect_result.ship." + command, `{"tenant_id":"acme","command_id":"` + command + `","result_type":"Succeeded","payload":{"tracking":"forged"}}`, ""},
		{"tenant.beta.effect_result.ship." + command, `{"command_id":"` + command + `","result_type":"Succeeded","payload":{"tracking":"forged"}}`, ""},
		{"tenant.beta.effect_result.ship." + command, `{"command_id":"` + command + `","result_type":"Succeeded","payload":{"tracking":"forged"},"metadata":{"saga":"order","key":"O1","step":"ship","tenant_id":"acme"}}`, ""},
		{"tenant.beta%2Eacme.workflow.order.O1", `{"signal_id":"f7","name":"finish"}`, ""},
		{"tenant.%61cme%00.workflow.order.O1", `{"signal_id":"f8","name":"finish"}`, ""},
	}
	forge(t, d.nats, messages)
	// Behind all of them in each stream, so that they are applied.
	forge(t, d.nats, []forgery{
		{"tenant.gamma.aggregate.Order.O9", `{"event_id":"last","event_type":"OrderPlaced","payload":{"order_id":"O9","total":1}}`, ""},
	})
	last := d.until(t, `"status": "running"`, "instance", "describe", "order", "O9", "--tenant", "gamma", "-o", "json")
	forge(t, d.nats, []forgery{
		{"tenant.gamma.effect_result.ship." + commandOf(t, last), `{"result_type":"Succeeded","payload":{"tracking":"Z9"}}`, ""},
	})
	d.until(t, `"tracking": "Z9"`, "instance", "describe", "order", "O9", "--tenant", "gamma", "-o", "json")
	forge(t, d.nats, []forgery{{"tenant.gamma.workflow.order.O9", `{"signal_id":"end","name":"finish"}`, ""}})
	d.until(t, `"status": "done"`, "instance", "describe", "order", "O9", "--tenant", "gamma", "-o", "json")

	if after := d.until(t, "", "instance", "describe", "order", "O1", "--tenant", "acme", "-o", "json"); after != before {
		t.Errorf("acme's order changed:\n%s\nto\n%s", before, after)
	}
	if _, out := d.edda(t, "deadletter", "list", "--tenant", "acme", "-o", "ids"); out != "" {
		t.Errorf("acme has dead letters of others: %s", out)
	}
	if _, out := d.edda(t, "deadletter", "list", "--tenant", "beta", "-o", "json"); strings.Count(out, `"reason": "`+edda.DeadTenant+`"`) != 5 {
		t.Errorf("beta's dead letters: %s", out)
	}
}

// commandOf is the id of the effect command in an order's description.
func commandOf(t *testing.T, description string) string {
	t.Helper()
	var view server.InstanceView
	if err := json.Unmarshal([]byte(description), &view); err != nil {
		t.Fatal(err)
	}
	for _, r := range view.History {
		for _, o := range r.Outputs {
			if o.Word == "effect" {
				return o.ID
			}
		}
	}
	t.Fatalf("no command in %+v", view.History)
	return ""
}

func forge(t *testing.T, url string, messages []forgery) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range messages {
		msg := &nats.Msg{Subject: m.subject, Data: []byte(m.body), Header: nats.Header{"Nats-Msg-Id": {fmt.Sprintf("%s-%d", m.subject, i)}}}
		for _, line := range strings.Split(m.header, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				msg.Header[name] = []string{value}
			}
		}
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatalf("%s: %v", m.subject, err)
		}
	}
}
