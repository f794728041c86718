package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"edda/internal/harness"
)

// agreed are books that agree with a plan in everything.
func agreed(p plan) books {
	n := p.attempts()
	b := books{
		flow:        flowState{Status: "finished", Result: map[string]string{}},
		coordinator: harness.ParseCounters(fmt.Sprintf(`edda_hero_messages_total{fate="processed",type="job"} %d`, n)),
		mycelium:    harness.ParseCounters(fmt.Sprintf("%[1]s{from=\"node1\",kind=\"call\",to=\"node2\"} %[2]d\n%[1]s{from=\"node2\",kind=\"reply\",to=\"node1\"} %[2]d", carried, n)),
		runner: harness.ParseCounters(fmt.Sprintf("edda_hero_runner_jobs_started_total{type=\"python\"} %d\n"+
			"edda_hero_runner_jobs_ended_total{error=\"\",status=\"finished\",type=\"python\"} %d\n"+
			"edda_hero_runner_jobs_ended_total{error=\"exit\",status=\"error\",type=\"python\"} %d\nedda_hero_runner_jobs_lost_total %[3]d", n, len(p.jobs), n-len(p.jobs))),
	}
	b.flow.Nodes = map[string]node{}
	for _, t := range p.jobs {
		b.flow.Nodes[fmt.Sprint(t.id)] = node{Status: "completed", Attempt: t.wanted()}
		b.jobs = append(b.jobs, object{ID: t.id, Status: "finished", Result: t.result})
		b.far = append(b.far, object{ID: t.id, Status: "finished"})
		for key, value := range t.result {
			b.flow.Result[fmt.Sprintf("%d.%s", t.id, key)] = value
		}
		for _, dep := range t.depends {
			b.flow.Edges = append(b.flow.Edges, [2]uint32{dep, t.id})
		}
		for attempt := range t.wanted() {
			b.ledger = append(b.ledger, entry(t.id, "start"))
			b.told(t.id, attempt+1)
		}
		b.ledger = append(b.ledger, entry(t.id, "done"))
	}
	return b
}

// told adds the message of an attempt, and its answer.
func (b *books) told(job uint32, attempt int) {
	id := uint32(len(b.messages) + 1)
	b.messages = append(b.messages,
		object{ID: id, CallerID: actorID, Status: "processed", MessageType: "job", Attempt: attempt, Job: []object{{ID: job}}},
		object{ID: id + 1, CallerID: actorID, MessageType: "result", ReplyTo: fmt.Sprintf("message:%d:%d", actorID, id)})
	b.arrived = append(b.arrived, fmt.Sprintf("message:%d:%d", actorID, id+1))
}

func TestTheBooksAgree(t *testing.T) {
	for _, p := range []plan{saga(), storm()} {
		b := agreed(p)
		if err := wrong(append(append(p.check(b), p.undisturbed(b)...), p.disturbed(b)...)); err != nil {
			t.Errorf("flow %d: %v", p.id, err)
		}
	}
}

// Each way in which the books can be wrong is noticed, and by the check that is
// for it.
func TestEachDisagreementIsNoticed(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*books)
		by    string
	}{
		"the flow is in error":              {func(b *books) { b.flow.Status = "error" }, "flow 33: "},
		"the flow has not ended":            {func(b *books) { b.flow.Status = "started" }, "flow 33: "},
		"a wrong result":                    {func(b *books) { b.jobs[1].Result = map[string]string{"letters": "205"} }, "2002 letters: "},
		"no result":                         {func(b *books) { b.jobs[1].Result = nil }, "2002 letters: "},
		"a job is missing":                  {func(b *books) { b.jobs = b.jobs[1:] }, "2001 text: "},
		"a job has not ended":               {func(b *books) { b.jobs[0].Status = "started" }, "2001 text: "},
		"the flow gathered too little":      {func(b *books) { delete(b.flow.Result, "2009.total") }, "the flow's result"},
		"an attempt too few":                {func(b *books) { b.flow.Nodes["2010"] = node{Attempt: 2} }, "2010 flaky: "},
		"a script ran twice":                {func(b *books) { b.ledger = append(b.ledger, entry(2001, "start")) }, "2001 text: "},
		"a script was done twice":           {func(b *books) { b.ledger = append(b.ledger, entry(2001, "done")) }, "2001 text: "},
		"no script ran":                     {func(b *books) { b.ledger = nil }, "2001 text: "},
		"the override is not heard":         {func(b *books) { b.jobs[10].Result = map[string]string{"language": "old norse", "tone": "solemn"} }, "2011 greet: "},
		"out of order":                      {func(b *books) { slices.Reverse(b.ledger) }, "order: "},
		"a dependency is unknown":           {func(b *books) { b.flow.Edges = b.flow.Edges[1:] }, "order: "},
		"a message is not processed":        {func(b *books) { b.messages[4].Status = "acknowledged" }, "messages, one an attempt: "},
		"a message too many":                {func(b *books) { b.told(2001, 1) }, "messages, one an attempt: "},
		"a message of the wrong attempt":    {func(b *books) { b.messages[0].Attempt = 2 }, "messages, one an attempt: "},
		"a result did not arrive":           {func(b *books) { b.arrived = b.arrived[1:] }, "results on msg_in: "},
		"a result for nobody":               {func(b *books) { b.messages[1].ReplyTo = "message:12:999" }, "results on msg_in: "},
		"the supervisor's job is not ended": {func(b *books) { b.far[3].Status = "started" }, "jobs in the supervisor's redis: "},
		"a job ran on the near side":        {func(b *books) { b.queues = []string{"queue:python"} }, "jobs in the supervisor's redis: "},
		"the coordinator counted otherwise": {func(b *books) { b.coordinator[`edda_hero_messages_total{fate="error",type="job"}`] = 1 }, "metrics of the coordinator: "},
		"the runner counted otherwise":      {func(b *books) { b.runner[`edda_hero_runner_jobs_started_total{type="bash"}`] = 1 }, "metrics of the runner: "},
		"past mycelium":                     {func(b *books) { b.mycelium = nil }, "through mycelium, as it counted: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := saga()
			b := agreed(p)
			tt.spoil(&b)
			err := wrong(append(p.check(b), p.undisturbed(b)...))
			if err == nil || !strings.Contains("\n"+err.Error(), "\n"+tt.by) {
				t.Errorf("want a line that begins with %q, got: %v", tt.by, err)
			}
		})
	}
	p := storm()
	b := agreed(p)
	b.runner["edda_hero_runner_jobs_lost_total"] = 0
	if err := wrong(p.disturbed(b)); err == nil {
		t.Error("a run that nobody found is not noticed")
	}
}

func TestEveryScriptIsThere(t *testing.T) {
	for _, p := range []plan{saga(), storm()} {
		for _, task := range p.jobs {
			source, err := task.source()
			if err != nil || !strings.Contains(source, "done(") {
				t.Errorf("%d: %v", task.id, err)
			}
		}
	}
}

func TestTheLedgerOfAFlowThatHasNotBegunIsEmpty(t *testing.T) {
	dir := t.TempDir()
	if l, err := readLedger(dir); err != nil || len(l) != 0 {
		t.Errorf("%v, %v", l, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ledger"), []byte("1 start\n1 done\n2 start\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := readLedger(dir)
	if err != nil || !l.before(1, 2) || l.before(2, 1) || l.count(1, "start") != 1 {
		t.Errorf("%v, %v", l, err)
	}
}
