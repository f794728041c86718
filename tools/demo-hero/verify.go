package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"edda/internal/harness"
)

// finding is one thing that was checked.
type finding struct{ what, want, got string }

func found(what string, want, got any) finding {
	return finding{what, fmt.Sprint(want), fmt.Sprint(got)}
}

func (f finding) agrees() bool { return f.want == f.got }

// verify compares the books with the plan until they agree, and prints the table. It fails if
// they do not agree in time. more are the checks of this act only.
func (r *run) verify(ctx context.Context, p plan, more func(books) []finding) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	var all []finding
	err := harness.Poll(ctx, "the books to agree", func() error {
		b, err := r.read(ctx, p)
		if err != nil {
			return err
		}
		all = append(p.check(b), more(b)...)
		return wrong(all)
	})
	r.table(all)
	if differ := wrong(all); differ != nil {
		return fmt.Errorf("the books of flow %d do not agree:\n%w", p.id, differ) // instead of the timeout
	}
	return err
}

// wrong lists the failed checks.
func wrong(all []finding) error {
	var errs []error
	for _, f := range all {
		if !f.agrees() {
			errs = append(errs, fmt.Errorf("%s: want %s, got %s", f.what, f.want, f.got))
		}
	}
	return errors.Join(errs...)
}

// widest bounds the width of a finding in the table.
const widest = 76

func (r *run) table(all []finding) {
	t := table.NewWriter()
	t.SetOutputMirror(r.Out)
	t.SetStyle(table.StyleLight)
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: widest}})
	t.AppendHeader(table.Row{"", "what was checked", "found"})
	for _, f := range all {
		sign, got := "✔", text.Trim(f.got, widest)
		if !f.agrees() {
			sign, got = "✘", f.got+"\nwant "+f.want
		}
		t.AppendRow(table.Row{sign, f.what, got})
	}
	t.Render()
}

// check compares all books of a flow with its plan.
func (p plan) check(b books) []finding {
	out := []finding{found(fmt.Sprintf("flow %d", p.id), "finished", b.flow.Status)}
	gathered := map[string]string{}
	for _, t := range p.jobs {
		out = append(out, t.check(b))
		for key, value := range t.result {
			gathered[fmt.Sprintf("%d.%s", t.id, key)] = value
		}
	}
	return append(out,
		finding{"the flow's result is that of its jobs", show(gathered), show(b.flow.Result)},
		p.checkOrder(b), p.checkMessages(b), p.checkArrived(b), p.checkPath(b))
}

// check: a job has its end, its result, its attempts, and as many runs as those.
func (t task) check(b books) finding {
	line := func(status string, result map[string]string, attempts, runs, done int) string {
		return fmt.Sprintf("%s: attempts %d, runs %d, done %d: %s", status, attempts, runs, done, show(result))
	}
	job := object{Status: "missing"}
	if i := slices.IndexFunc(b.jobs, func(j object) bool { return j.ID == t.id }); i >= 0 {
		job = b.jobs[i]
	}
	return finding{
		what: fmt.Sprintf("%d %s", t.id, t.name),
		want: line("finished", t.result, t.wanted(), t.wanted(), 1),
		got:  line(job.Status, job.Result, b.flow.Nodes[fmt.Sprint(t.id)].Attempt, b.ledger.count(t.id, "start"), b.ledger.count(t.id, "done")),
	}
}

// show writes a result in the order of its keys.
func show(result map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(result)) {
		words = append(words, fmt.Sprintf("%s=%s", key, strings.TrimSuffix(result[key], "\n")))
	}
	return strings.Join(words, " ")
}

// checkOrder: no script began before those it depends on were done, as they
// themselves wrote down.
func (p plan) checkOrder(b books) finding {
	edges, early := 0, []string{}
	for _, t := range p.jobs {
		for _, dep := range t.depends {
			edges++
			if !b.ledger.before(dep, t.id) {
				early = append(early, fmt.Sprintf("%d began before %d was done", t.id, dep))
			}
		}
	}
	want := fmt.Sprintf("%d dependencies, all kept", edges)
	if len(early) > 0 {
		return finding{"order", want, strings.Join(early, ", ")}
	}
	return finding{"order", want, fmt.Sprintf("%d dependencies, all kept", len(b.flow.Edges))}
}

// checkMessages: each attempt was one message, and each message is processed.
func (p plan) checkMessages(b books) finding {
	statuses := map[string]int{}
	for _, t := range p.jobs {
		for attempt := range t.wanted() {
			if n := b.sent(t.id, attempt+1); n != 1 {
				statuses[fmt.Sprintf("for attempt %d of %d", attempt+1, t.id)] = n
			}
		}
	}
	for _, m := range b.messages {
		if m.MessageType == "job" {
			statuses[m.Status]++
		}
	}
	return found("messages, one an attempt", tally(map[string]int{"processed": p.attempts()}), tally(statuses))
}

// sent counts the messages that carried an attempt.
func (b books) sent(job uint32, attempt int) int {
	n := 0
	for _, m := range b.messages {
		if m.MessageType == "job" && m.Attempt == attempt && len(m.Job) == 1 && m.Job[0].ID == job {
			n++
		}
	}
	return n
}

func tally(n map[string]int) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(n)) {
		words = append(words, fmt.Sprintf("%d %s", n[key], key))
	}
	return strings.Join(words, ", ")
}

// checkArrived: each message has its answer on the caller's msg_in, once.
func (p plan) checkArrived(b books) finding {
	answered := map[string]int{}
	for _, m := range b.messages {
		key := fmt.Sprintf("message:%d:%d", m.CallerID, m.ID)
		if m.MessageType == "result" && slices.Contains(b.arrived, key) {
			answered[m.ReplyTo]++
		}
	}
	once := 0
	for _, m := range b.messages {
		if m.MessageType == "job" && answered[fmt.Sprintf("message:%d:%d", m.CallerID, m.ID)] == 1 {
			once++
		}
	}
	return found("results on msg_in", fmt.Sprintf("%d, of %d messages", p.attempts(), p.attempts()), fmt.Sprintf("%d, of %d messages", len(answered), once))
}

// checkPath: the jobs are in the supervisor's Redis, ended, and in no queue of the
// coordinator's.
func (p plan) checkPath(b books) finding {
	statuses := map[string]int{}
	for _, j := range b.far {
		statuses[j.Status]++
	}
	if len(b.queues) > 0 {
		statuses["in queues of the coordinator's redis"] = len(b.queues)
	}
	return found("jobs in the supervisor's redis", tally(map[string]int{"finished": len(p.jobs)}), tally(statuses))
}

// undisturbed are the checks of counters that began with the flow: each attempt
// was one message, one run, and one message with an answer between the nodes.
func (p plan) undisturbed(b books) []finding {
	n := p.attempts()
	messages := func(all, processed int) string { return fmt.Sprintf("%d messages, %d processed", all, processed) }
	runs := func(started, finished, failed int) string {
		return fmt.Sprintf("%d started, %d finished, %d failed", started, finished, failed)
	}
	way := func(calls, answers int) string {
		return fmt.Sprintf("%d calls of node1, %d answers of node2", calls, answers)
	}
	calls, answers := b.mycelium.Sum(carried, `from="node1"`, `kind="call"`), b.mycelium.Sum(carried, `from="node2"`, `kind="reply"`)
	return []finding{
		found("metrics of the coordinator", messages(n, n), messages(b.coordinator.Sum(routed, `type="job"`), b.coordinator.Sum(routed, `type="job"`, `fate="processed"`))),
		found("metrics of the runner", runs(n, len(p.jobs), n-len(p.jobs)),
			runs(b.runner.Sum(begun), b.runner.Sum(ended, `status="finished"`), b.runner.Sum(ended, `status="error"`))),
		found("through mycelium, as it counted", way(max(n, calls), max(n, answers)), way(calls, answers)), // it is asked, too, whether a job began
	}
}

// What the coordinator, the runner and the stand-in count.
const (
	routed  = "edda_hero_messages_total"
	begun   = "edda_hero_runner_jobs_started_total"
	ended   = "edda_hero_runner_jobs_ended_total"
	lost    = "edda_hero_runner_jobs_lost_total"
	carried = "edda_hero_standin_messages_total"
)

// disturbed: the runner that came back found what the killed one had left.
func (p plan) disturbed(b books) []finding {
	return []finding{found("runs that the killed runner left, as the next one found", p.attempts()-len(p.jobs), b.runner.Sum(lost))}
}
