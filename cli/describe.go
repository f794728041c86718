package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"edda"
	"edda/server"
	"edda/store"
)

// describeInstance prints a cell, the most important facts first.
func describeInstance(w io.Writer, v server.InstanceView) error {
	i := v.Instance
	if i == nil {
		fmt.Fprintln(w, "no instance yet")
	} else {
		describeHead(w, i, v.VersionName)
	}
	for _, line := range v.Waits {
		fmt.Fprintln(w, "waits for   "+printable(line))
	}
	if i != nil {
		describeParts(w, i)
	}
	section(w, "parked", len(v.Parked), func() { printEntries(w, v.Parked) })
	section(w, "held", len(v.Held), func() { printEntries(w, v.Held) })
	section(w, "history, newest first", len(v.History), func() { printHistory(w, v.History) })
	return nil
}

func describeHead(w io.Writer, i *edda.Instance, version string) {
	status := string(i.Status)
	if i.Reason != "" {
		status += " (" + i.Reason + ")"
	}
	fmt.Fprintf(w, "saga        %s, version %s, generation %d\nkey         %s\n", printable(i.Key.Saga), version, i.Generation, printable(i.Key.Correlation))
	if i.Key.Tenant != "" {
		fmt.Fprintf(w, "tenant      %s\n", printable(i.Key.Tenant))
	}
	fmt.Fprintf(w, "status      %s\n", printable(status))
	if len(i.Incomplete) > 0 {
		fmt.Fprintf(w, "incomplete  %s\n", strings.Join(i.Incomplete, ", "))
	}
	fmt.Fprintf(w, "started     %s\nupdated     %s\n", clock(i.Started), clock(i.Updated))
	if !i.Ended.IsZero() {
		fmt.Fprintf(w, "ended       %s\n", clock(i.Ended))
	}
	if len(i.Result) > 0 {
		fmt.Fprintf(w, "result      %s\n", compact(i.Result))
	}
	fmt.Fprintf(w, "state       %s\n", compact(i.State))
}

func describeParts(w io.Writer, i *edda.Instance) {
	section(w, "steps", len(i.Steps), func() { printSteps(w, i.Steps) })
	section(w, "to undo, newest first", len(i.Frames), func() {
		for _, f := range slices.Backward(i.Frames) {
			fmt.Fprintf(w, "  %s  input %s  result %s\n", printable(f.Step), compact(f.Input), compact(f.Result))
		}
	})
	section(w, "timers", len(i.Timers), func() {
		for _, t := range i.Timers {
			fmt.Fprintf(w, "  %s at %s\n", timerName(t), clock(t.Due))
		}
	})
	section(w, "incidents", len(i.Incidents), func() {
		for _, in := range i.Incidents {
			fmt.Fprintf(w, "  %s: %s %s\n", printable(in.Step), printable(in.Reason), compact(in.Error))
		}
	})
}

func timerName(t edda.Timer) string {
	if t.Deadline {
		return "deadline"
	}
	return printable(t.Name)
}

func section(w io.Writer, name string, n int, print func()) {
	if n > 0 {
		fmt.Fprintf(w, "\n%s\n", name)
		print()
	}
}

func printSteps(w io.Writer, steps []edda.Step) {
	var lines [][]string
	for _, s := range steps {
		outcome := ""
		switch {
		case len(s.Error) > 0:
			outcome = compact(s.Error)
		case len(s.Result) > 0:
			outcome = compact(s.Result)
		}
		lines = append(lines, []string{"  " + s.ID, string(s.Kind), string(s.Status), strconv.Itoa(s.Attempt), clock(s.Due), outcome})
	}
	rows(w, []string{"  step", "kind", "status", "attempt", "due", "outcome"}, lines)
}

func printEntries(w io.Writer, entries []edda.Entry) {
	for _, e := range entries {
		line := fmt.Sprintf("  %s  %s %s", clock(e.Event.Time), e.Event.Type, e.Event.ID)
		if !e.Expires.IsZero() {
			line += ", expires " + clock(e.Expires)
		}
		if e.DeadLetter != "" {
			line += ", dead letter " + e.DeadLetter
		}
		fmt.Fprintln(w, printable(line))
	}
}

func printHistory(w io.Writer, records []store.Record) {
	var lines [][]string
	for _, r := range records {
		var did []string
		for _, o := range r.Outputs {
			did = append(did, outputLine(o))
		}
		lines = append(lines, []string{"  " + clock(r.Event.Time), inputName(r.Event) + byWhom(r.Event), string(r.Fate), string(r.Status), strings.Join(did, "; ")})
	}
	rows(w, []string{"  time", "event", "fate", "status", "what it did"}, lines)
}

// byWhom names the person behind an input, if there is one.
func byWhom(ev edda.Event) string {
	if ev.By == "" {
		return ""
	}
	return " by " + ev.By
}

// inputName names an input as a manifest does.
func inputName(ev edda.Event) string {
	switch ev.Kind {
	case edda.KindResult:
		return strings.TrimPrefix(ev.Step+"."+outcomeWord(ev.Outcome), ".")
	case edda.KindSignal:
		return "signal." + ev.Type
	case edda.KindAnswer:
		return ev.Step + "." + ev.Type
	case edda.KindTimer:
		return strings.TrimSpace(string(ev.Timer) + " " + ev.Type + ev.Step)
	case edda.KindOperator:
		return strings.TrimSpace("operator " + ev.Type + " " + ev.Step)
	case edda.KindSchedule:
		return "schedule." + ev.Type
	}
	return ev.Name()
}

// outcomeWord returns the word for a result in a trigger.
func outcomeWord(o edda.Outcome) string {
	switch o {
	case edda.Succeeded:
		return "ok"
	case edda.TimedOut:
		return "timeout"
	}
	return "failed"
}

// outputLine describes one output in a few words.
func outputLine(o edda.Output) string {
	words := []string{o.Word, o.Name}
	if o.Step != "" && o.Step != o.Name {
		words = append(words, "step "+o.Step)
	}
	if o.Undoes != "" {
		words = append(words, "undoes "+o.Undoes)
	}
	if o.To != "" {
		words = append(words, "to "+o.To)
	}
	if o.Key != "" {
		words = append(words, "key "+o.Key)
	}
	if o.For != "" {
		words = append(words, "for "+o.For)
	}
	if o.Reason != "" {
		words = append(words, "("+o.Reason+")")
	}
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// compact returns a JSON text on one line, truncated if it is long.
func compact(raw json.RawMessage) string {
	const most = 200
	text := string(raw)
	if len(raw) == 0 {
		return "null"
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return printable(text)
}
