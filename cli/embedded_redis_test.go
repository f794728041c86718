package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// heroDev is edda dev --hero on free ports, with its coordinator's URL.
func heroDev(t *testing.T, data string) (*running, string) {
	t.Helper()
	d := startDev(t, "--hero", "--api-http-port", "0", "--api-ws-port", "0", "--data", data)
	m := regexp.MustCompile(`coordinator (http://\S+)`).FindStringSubmatch(d.out.String())
	if m == nil {
		t.Fatalf("it does not run:\n%s%s", d.out, d.err)
	}
	return d, m[1]
}

// heroSays runs one command of edda hero.
func heroSays(t *testing.T, url string, args ...string) string {
	t.Helper()
	out := newScreen()
	term := &terminal{in: strings.NewReader(""), out: out, err: out, env: []string{"COORDINATOR_URL=" + url}}
	code := term.run(t.Context(), append([]string{"hero"}, args...))
	return fmt.Sprintf("exit %d: %s", code, out)
}

// heroSession is the session of docs/HERO.md, without the worker's commands.
func heroSession(t *testing.T) (commands [][]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/HERO.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n## Start\n")
	text, _, _ = strings.Cut(text, "\n## ")
	words := regexp.MustCompile(`'[^']*'|\S+`)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " #")
		if rest, ok := strings.CutPrefix(line, "edda hero "); ok && !strings.Contains(rest, "worker") {
			var args []string
			for _, w := range words.FindAllString(rest, -1) {
				args = append(args, strings.Trim(w, "'"))
			}
			commands = append(commands, args)
		}
	}
	if len(commands) < 8 {
		t.Fatalf("the page's session is %q", commands)
	}
	return commands
}

// playPage says what each command of the session answers, without times, attempts,
// keys of messages and what the watch drew before the end.
func playPage(t *testing.T, url string) string {
	t.Helper()
	var out strings.Builder
	for _, args := range heroSession(t) {
		said := heroSays(t, url, args...)
		if at := strings.LastIndex(said, "flow 33 of context"); at > 0 {
			said = said[:len("exit 0: ")] + said[at:]
		}
		fmt.Fprintf(&out, "%s: %s\n", strings.Join(args, " "), said)
	}
	return regexp.MustCompile(`"(created_at|updated_at|message_key|attempt)": *("[^"]*"|\d+)`).ReplaceAllString(out.String(), `"$1": …`)
}

// flow.create said that the flow ran before and was deleted.
func TestTheReadmesSessionDoesTheSameAfterARestart(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	if first := playPage(t, url); strings.Contains(first, "-32") || !strings.Contains(first, "ZeroDivisionError") && !strings.Contains(first, "error") {
		t.Fatalf("the session:\n%s", first)
	}
	shown, again := heroSays(t, url, "flow", "show", "7", "33"), playPage(t, url)
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}

	d, url = heroDev(t, data)
	if got := heroSays(t, url, "flow", "show", "7", "33"); got != shown {
		t.Errorf("after the restart the flow is\n%s\nand was\n%s", got, shown)
	}
	if got := playPage(t, url); got != again {
		t.Errorf("after the restart the session is\n%s\nand was\n%s", got, again)
	}
	for _, args := range [][]string{
		{"call", "job.create", `{"context_id": 7, "job": {"id": 3, "caller_id": 12, "script": "print(6*7)", "script_type": "python"}}`},
		{"call", "flow.create", `{"context_id": 7, "flow": {"id": 34, "caller_id": 12, "jobs": [3]}}`},
		{"flow", "start", "7", "34"},
	} {
		if out := heroSays(t, url, args...); !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
	}
	if out := heroSays(t, url, "flow", "show", "7", "34", "--watch"); !strings.HasPrefix(out, "exit 0") || !strings.Contains(out, "finished") {
		t.Errorf("another flow: %s", out)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, d.err)
	}
}

// It ended as timeout, because its jobs were gone.
func TestAFlowUnderWayGoesOnAfterARestartOfDev(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	for _, args := range append(heroSession(t)[:3],
		[]string{"call", "job.create", `{"context_id": 7, "job": {"id": 1, "caller_id": 12, "script": "print(6*7)", "script_type": "python", "prerequisites": ["payment"]}}`},
		[]string{"call", "flow.create", `{"context_id": 7, "flow": {"id": 33, "caller_id": 12, "jobs": [1]}}`},
		[]string{"flow", "start", "7", "33"}) {
		if out := heroSays(t, url, args...); !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
	}
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}

	_, url = heroDev(t, data)
	if out := heroSays(t, url, "call", "flow.prerequisite_met", `{"context_id": 7, "caller_id": 12, "id": 33, "name": "payment"}`); !strings.HasPrefix(out, "exit 0") {
		t.Fatalf("the prerequisite: %s", out)
	}
	if out := heroSays(t, url, "flow", "show", "7", "33", "--watch"); !strings.HasPrefix(out, "exit 0") || !strings.Contains(out, "finished") {
		t.Errorf("the flow: %s", out)
	}
}

// An actor packs a whole flow into a message; the coordinator is restarted in the middle.
func TestAMessageThatCarriesAFlowIsProcessedOverARestart(t *testing.T) {
	data := t.TempDir()
	d, url := heroDev(t, data)
	say := func(args ...string) string {
		t.Helper()
		out := heroSays(t, url, args...)
		if !strings.HasPrefix(out, "exit 0") {
			t.Fatalf("%s: %s", args, out)
		}
		return out
	}
	for _, args := range heroSession(t)[:3] {
		say(args...)
	}
	say("call", "message.create", `{"context_id": 7, "message": {"id": 101, "caller_id": 12, "message_type": "job", "flow_id": 33, "job": [
		{"id": 2, "script": "print(2)", "script_type": "python", "dependends": [1]},
		{"id": 1, "script": "print(1)", "script_type": "python", "prerequisites": ["payment"]}]}}`)
	eventually(t, func() bool { return strings.Contains(heroSays(t, url, "flow", "show", "7", "33"), "started") })
	if code := d.stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, d.err)
	}
	_, url = heroDev(t, data)
	say("flow", "met", "7", "33", "payment")
	if out := say("flow", "show", "7", "33", "--watch"); !strings.Contains(out, "finished, 2 of 2 jobs completed\n  0   ✔ 1\n  1   ✔ 2 ←1\n") {
		t.Errorf("the flow: %s", out)
	}
	eventually(t, func() bool {
		return strings.Contains(say("call", "message.load", `{"context_id": 7, "caller_id": 12, "id": 101}`), `"status": "processed"`)
	})
	if out := say("call", "message.list", `{"context_id": 7}`); !strings.Contains(out, `"reply_to": "message:12:101"`) || !strings.Contains(out, `\"1.output\":\"1\\n\"`) {
		t.Errorf("no result message: %s", out)
	}
}

// The greeting ended with edda instance list, which shows nothing of flows. Its commands are played
// as they stand, up to a flow that runs.
func TestTheGreetingOfDevHeroNamesCommandsOfSagas(t *testing.T) {
	d, url := heroDev(t, t.TempDir())
	_, try, _ := strings.Cut(d.out.String(), "Try:\n")
	try, _, _ = strings.Cut(try, "\n\n")
	words := regexp.MustCompile(`'[^']*'|\S+`)
	lines := strings.Split(strings.TrimSpace(try), "\n")
	if len(lines) != 4 {
		t.Fatalf("it suggests %q", lines)
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		var args []string
		for _, w := range words.FindAllString(strings.Replace(line, "FILE", exampleFlow, 1), -1) {
			args = append(args, strings.Trim(w, "'"))
		}
		out := newScreen()
		if code := (&terminal{in: strings.NewReader(""), out: out, err: out}).run(t.Context(), args[1:]); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, out)
		}
	}
	eventually(t, func() bool { return strings.Contains(heroSays(t, url, "flow", "list", "7"), "finished") })
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come in")
		}
	}
}
