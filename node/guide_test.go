package node

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"edda"
	"edda/manifests"
	"edda/saga"
	"edda/store"
)

const guided = `saga: loan
key: event.loan
on:
  Applied: {start: true, do: [{ask: review, to: staff, with: {choices: [yes, no]}}, {timer: remind, after: 1d}]}
  review.yes: {}
  timer.remind: {}
  signal.hurry: {}
  Bank.Paid: {do: [{done: ok}]}
tests:
  - name: refused
    steps:
      - {event: Applied, data: {loan: L1}}
      - {answer: review, with: "no"}
  - name: paid
    steps:
      - {event: Applied, data: {loan: L1, of: [L1, x]}}
      - {advance: 1h, expect: []}
      - {answer: review, with: "yes", data: {note: it's fine}}
      - {event: Bank.Paid, data: {loan: L1}}
    end: {status: done}
  - name: hurried
    steps:
      - {event: Applied, data: {loan: L1}}
      - {advance: 2d}
      - {signal: hurry, data: {loan: L1}}
`

func TestTheGuideGoesOnAsATestDoes(t *testing.T) {
	applied, yes := edda.Event{Kind: edda.KindEvent, Type: "Applied"}, edda.Event{Kind: edda.KindAnswer, Step: "review", Type: "yes"}
	timer, paid := edda.Event{Kind: edda.KindTimer}, edda.Event{Kind: edda.KindEvent, Type: "Paid"}
	tests := []struct {
		name             string
		past             []edda.Event // oldest first
		test, next, data string
	}{
		{"the test that ends in done is followed", []edda.Event{applied}, "paid", "answer review yes", `{"note":"it's fine"}`},
		{"the test's key becomes the instance's", []edda.Event{applied, yes}, "paid", "event Bank.Paid", `{"loan":"L9"}`},
		{"a reminder that the test does not mention", []edda.Event{applied, timer, yes}, "paid", "event Bank.Paid", `{"loan":"L9"}`},
		{"a test that has ended has no next", []edda.Event{applied, yes, paid}, "", "", ""},
		{"inputs of no test", []edda.Event{applied, paid}, "", "", ""},
	}
	f, problems := manifests.Parse("loan.yaml", []byte(guided))
	if problems.Failed() {
		t.Fatal(problems)
	}
	p, problems := saga.Compile(f.Sagas[0], saga.Options{})
	if p == nil {
		t.Fatal(problems)
	}
	set, err := saga.NewSet(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var history []store.Record
			for _, ev := range tt.past {
				history = append([]store.Record{{Event: ev, Fate: edda.FateHandled}}, history...)
			}
			g := guide{set: func() *saga.Set { return set }, log: zap.NewNop(), history: func(edda.Key, int) ([]store.Record, error) { return history, nil }}
			in := &edda.Instance{Key: edda.Key{Tenant: "default", Saga: "loan", Correlation: "L9"}, Status: edda.StatusRunning}
			h, ok := g.hint(noticed{transition: edda.Transition{Key: in.Key, Instance: in}})
			next := ""
			switch h.Next.Kind {
			case edda.KindAnswer:
				next = "answer " + h.Next.Step + " " + h.Next.Type
			case edda.KindEvent:
				next = "event " + h.Next.Name()
			}
			if !ok || h.Test != tt.test || next != tt.next || strings.TrimSpace(string(h.Next.Payload)) != tt.data {
				t.Errorf("%t: test %q, next %q with %s", ok, h.Test, next, h.Next.Payload)
			}
		})
	}
}

func TestTheGuideIsSilentWhileAnInstanceGoesOnByItself(t *testing.T) {
	g := guide{gateway: true}
	in := &edda.Instance{Status: edda.StatusRunning, Steps: []edda.Step{{ID: "ship", Kind: edda.StepEffect, Status: edda.StepPending}}}
	if h, ok := g.hint(noticed{transition: edda.Transition{Instance: in}}); ok {
		t.Errorf("told %+v", h)
	}
	g.gateway = false
	work := []edda.Work{{Kind: edda.WorkCommand, Name: "Payment.Request"}}
	if h, ok := g.hint(noticed{transition: edda.Transition{Instance: in, Work: work}}); !ok || len(h.Commands) != 1 {
		t.Errorf("a command that reaches nobody is not told: %+v", h)
	}
}

func TestAFullTerminalDelaysNeitherEngineNorCalls(t *testing.T) {
	g := guide{queue: make(chan noticed, 1)}
	for range 3 { // nobody takes them
		g.observe([]edda.Transition{{Instance: &edda.Instance{}}})
	}
	if len(g.queue) != 1 {
		t.Errorf("%d hints wait", len(g.queue))
	}
}

// TestTheExamplesHaveWarnings: the first contact was a list of 39.
func TestTheExamplesHaveWarnings(t *testing.T) {
	problems, err := Lint([]string{"../manifests/examples"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}
