package natseffect

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

// example is the first manifest that comes with the program.
func example(t testing.TB) *effects.Effect {
	t.Helper()
	return exampleOf(t, "effect-nats.yaml")
}

func exampleOf(t testing.TB, name string) *effects.Effect {
	t.Helper()
	text, err := fs.ReadFile(manifests.Examples(), name)
	if err != nil {
		t.Fatal(err)
	}
	e, problems := compile(t, name, string(text))
	if e == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	return e
}

func reserve(id, sku string) effects.Command {
	return effects.Command{Tenant: "acme", ID: id, Effect: "reserve_lot", Payload: json.RawMessage(fmt.Sprintf(`{"sku":%q,"qty":2}`, sku))}
}

// refuse answers with an error of the services API.
func (d *depot) refuse(m *nats.Msg, code, text string) {
	h := nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {text}}
	if err := m.RespondMsg(&nats.Msg{Header: h}); err != nil {
		d.t.Error(err)
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	queue := effecttest.Work(t, example(t), provider(t, d.url))
	d.answers(func(m *nats.Msg) {
		if d.count("c1") < 3 {
			d.refuse(m, "429", "slow down")
			return
		}
		d.respond(m, `{"id":"R1"}`)
	})
	r := queue.Do(reserve("c1", "a"))
	if r.Outcome != edda.Succeeded || string(r.Payload) != `{"reservation":"R1"}` || r.Attempts != 3 {
		t.Errorf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
	m := d.latest()
	if m.Subject != "stock.reserve.a" || string(m.Data) != `{"qty":2}` || m.Header.Get("X-Tenant") != "acme" {
		t.Errorf("the service got %s %s %v", m.Subject, m.Data, m.Header)
	}
}

// TestOutcomes are what a saga gets for each answer of the service.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	d := openDepot(t)
	e, problems := compile(t, "e.yaml", `
effect: reserve_lot
nats: {subject: "${payload.to}.reserve.${payload.sku}", headers: {Authorization: "Bearer ${secret.DEPOT}"}}
fail: body.code == "503"
timeout: 200ms
retry: {max: 2, backoff: 1ms}
`)
	if e == nil {
		t.Fatal(problems)
	}
	queue := effecttest.Work(t, e, provider(t, d.url))
	for _, tt := range []struct {
		id, to, sku string
		code, text  string
		outcome     edda.Outcome
		calls, seen int
		payload     string
	}{
		{"taken", "stock", "a", "", "", edda.Succeeded, 1, 1, `{"id":"R1"}`},
		{"empty", "stock", "a", "OUT_OF_STOCK", "none left", edda.Failed, 1, 1, `"code":"OUT_OF_STOCK","message":"none left"`},
		{"unknown", "stock", "a", "404", "no such sku", edda.Failed, 1, 1, `"code":"404","message":"no such sku"`},
		{"busy", "stock", "a", "429", "slow down", edda.Failed, 2, 2, `"code":"429"`},
		{"broken", "stock", "a", "500", "oops", edda.TimedOut, 2, 2, `"code":"500","message":"oops"`},
		{"denied by fail", "stock", "a", "503", "closed", edda.Failed, 1, 1, `"code":"503"`},
		{"said again", "stock", "a", "403", "Bearer s3cret is nobody", edda.Failed, 1, 1, `Bearer [secret DEPOT] is nobody`},
		{"no service", "nobody", "a", "", "", edda.Failed, 2, 0, `no service subscribes to nobody.reserve.a`},
		{"slow", "stock", "slow", "", "", edda.TimedOut, 2, 2, `no answer within 200ms`},
		{"two tokens", "stock", "a.b", "", "", edda.Failed, 0, 0, `"code":"expression"`},
		{"the server", "$SYS", "a", "", "", edda.Failed, 0, 0, `it belongs to the NATS server`},
	} {
		d.answers(func(m *nats.Msg) {
			switch {
			case tt.code != "":
				d.refuse(m, tt.code, tt.text)
			case tt.sku != "slow":
				d.respond(m, `{"id":"R1"}`)
			}
		})
		c := reserve(tt.id, tt.sku)
		c.Payload = json.RawMessage(fmt.Sprintf(`{"to":%q,"sku":%q}`, tt.to, tt.sku))
		r := queue.Do(c)
		if r.Outcome != tt.outcome || r.Attempts != tt.calls || d.count(tt.id) != tt.seen || !strings.Contains(string(r.Payload), tt.payload) {
			t.Errorf("%s: %s %s after %d calls, of which the service saw %d", tt.id, r.Outcome, r.Payload, r.Attempts, d.count(tt.id))
		}
	}
}

// TestCallsThatMayHaveBeenDone are asked for before anything is called again.
func TestCallsThatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		found bool
		calls int
	}{{"it was done", true, 1}, {"it was not done", false, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := openDepot(t)
			reserved := 0 // one goroutine handles the subscription
			d.answers(func(m *nats.Msg) {
				switch {
				case m.Subject == "stock.find" && !tt.found:
					d.refuse(m, "404", "no such command")
				case m.Subject == "stock.find":
					d.respond(m, `{"id":"R1"}`)
				default:
					if reserved++; reserved == 1 {
						d.refuse(m, "500", "the database went away")
						return
					}
					d.respond(m, `{"id":"R2"}`)
				}
			})
			r := effecttest.Work(t, example(t), provider(t, d.url)).Do(reserve("c1", "a"))
			if want := fmt.Sprintf(`{"reservation":"R%d"}`, tt.calls); r.Outcome != edda.Succeeded || string(r.Payload) != want || r.Attempts != tt.calls {
				t.Errorf("%s %s after %d calls, want %s", r.Outcome, r.Payload, r.Attempts, want)
			}
		})
	}
}
