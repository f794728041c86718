package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const mockedOrder = `saga: order
key: event.order_id
on:
  Placed:
    start: true
    do: [{command: Payment.Request, to: =key}]
  Payment.Paid:
    do:
      - seq:
          - {effect: reserve, undo: {effect: release}}
          - {effect: ship}
          - done: =step.ship.result.tracking
tests:
  - name: paid and shipped
    steps:
      - {event: Placed, data: {order_id: O1}}
      - {event: Payment.Paid, data: {order_id: O1, by: it's me}}
      - {ok: reserve}
      - {ok: ship, data: {tracking: Z9}}
    end: {status: done}
---
effect: reserve
http: {url: "http://127.0.0.1:1/reserve", headers: {Authorization: =secret.NOBODY_HAS_IT}}
---
effect: release
http: {url: "http://127.0.0.1:1/release"}
---
effect: ship
http: {url: "http://127.0.0.1:1/ship"}
retry: {max: 3, backoff: 1ms}
`

// pasted runs the last command that a text shows after a line, as a shell would.
func (r *running) pasted(t *testing.T, text, after string) string {
	t.Helper()
	_, text, found := strings.Cut(text, after)
	if !found {
		t.Fatalf("%q is not in\n%s", after, text)
	}
	line := regexp.MustCompile(`(?m)^  edda (send|instance answer|instance signal) .*$`).FindString(text)
	code, out := r.edda(t, words(t, strings.TrimPrefix(strings.TrimSpace(line), "edda "))...)
	if code != 0 {
		t.Fatalf("%q: %d %s", line, code, out)
	}
	return out
}

// words splits a command line as a shell does, with quotes and backslashes.
func words(t *testing.T, line string) (out []string) {
	t.Helper()
	var word strings.Builder
	quoted, begun := byte(0), false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case (c == '\'' || c == '"') && quoted == 0:
			quoted, begun = c, true
		case c == quoted:
			quoted = 0
		case c == '\\' && quoted == 0:
			i++
			word.WriteByte(line[i])
		case c == ' ' && quoted == 0:
			if begun || word.Len() > 0 {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteByte(c)
		}
	}
	if quoted != 0 {
		t.Fatalf("a quote does not end: %s", line)
	}
	if begun || word.Len() > 0 {
		out = append(out, word.String())
	}
	return out
}

func TestAMockedOrderEndsInDoneByWhatIsPrinted(t *testing.T) {
	t.Parallel()
	r := startDev(t, "--mock", "--data", t.TempDir(), filepath.Join(folder(t, map[string]string{"order.yaml": mockedOrder}), "order.yaml"))
	if text := r.out.String(); !strings.Contains(text, "no effect calls out") {
		t.Errorf("the start does not say that it mocks:\n%s", text)
	}
	if text := r.err.String(); strings.Contains(text, "NOBODY_HAS_IT") {
		t.Errorf("a mocked effect asks for its secret:\n%s", text)
	}
	r.pasted(t, r.out.String(), "Try:")
	r.out.wait(t, `command Payment.Request of order O1 reaches no service`)
	r.out.wait(t, `order O1 waits; go on as the test "paid and shipped" does:\n  edda send Payment.Paid --id O1 `)
	r.pasted(t, r.out.String(), "go on as")
	r.out.wait(t, `mock: reserve of order O1 answered ok {} \(test "paid and shipped"\)`)
	r.out.wait(t, `mock: ship of order O1 answered ok {"tracking":"Z9"} \(test "paid and shipped"\)`)
	r.out.wait(t, `order O1 is done: "Z9"\n  edda instance describe order O1`)
	r.until(t, "done", "instance", "describe", "order", "O1")
}

func TestAMockedEffectFailsAsItIsTold(t *testing.T) {
	t.Parallel()
	r := startDev(t, "--mock", "--data", t.TempDir(), filepath.Join(folder(t, map[string]string{"order.yaml": mockedOrder}), "order.yaml"))
	run := func(id string) {
		t.Helper()
		for _, event := range []string{"Order.Placed", "Payment.Paid"} {
			if code, out := r.edda(t, "send", event, "--id", id, "--data", `{"order_id":"`+id+`"}`); code != 0 {
				t.Fatal(out)
			}
		}
	}
	order := func(want string, args ...string) {
		t.Helper()
		if code, out := r.edda(t, append([]string{"mock"}, args...)...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("mock %v: %d %s", args, code, out)
		}
	}
	order("failed sold_out", "fail", "ship", "--code", "sold_out", "--times", "1")
	run("O2")
	r.out.wait(t, `order O2 is undone: ship.failed`)
	r.until(t, "sold_out", "instance", "describe", "order", "O2")
	order("down", "down", "ship", "--times", "2") // and the third call is the last that retry.max allows
	run("O3")
	r.out.wait(t, `order O3 is done: "Z9"`)
	order("timeout", "timeout", "ship")
	run("O4")
	r.out.wait(t, `order O4 is undone: ship.timeout`)
	order(`{"tracking":7}`, "ok", "ship", "--result", `{"tracking":7}`)
	run("O5")
	r.out.wait(t, `order O5 is done: 7`)
	order(`test "paid and shipped"`, "ok", "ship")
	order("release", "list")
	for _, wrong := range [][]string{{"fail", "shipp"}, {"fail", "ship", "--times", "-1"}, {"ok", "ship", "--result", "{"}} {
		if code, out := r.edda(t, append([]string{"mock"}, wrong...)...); code == 0 {
			t.Errorf("mock %v is taken: %s", wrong, out)
		}
	}
}

func TestAMockTakesTheAnswersOfAChangedTest(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"order.yaml": mockedOrder})
	r := startDev(t, "--mock", "--data", t.TempDir(), dir)
	write(t, filepath.Join(dir, "order.yaml"), strings.ReplaceAll(mockedOrder, "Z9", "Q8"))
	r.out.wait(t, `Reloaded: `)
	r.until(t, "Q8", "mock", "list")
}

func TestWithoutMockThereIsNothingToTell(t *testing.T) {
	t.Parallel()
	r := startDev(t, "--data", t.TempDir(), filepath.Join(folder(t, map[string]string{"order.yaml": mockedOrder}), "order.yaml"))
	if code, out := r.edda(t, "mock", "fail", "ship"); code == 0 || !strings.Contains(out, "edda dev --mock") {
		t.Errorf("%d %s", code, out)
	}
}

// TestTheReadmesSagaEndsInDone runs the README's first commands. Before, its saga waited for ever.
func TestTheReadmesSagaEndsInDone(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "\nRun a saga to its end.")
	dir := filepath.Join(t.TempDir(), "shop")
	var commands [][]string
	for _, m := range regexp.MustCompile(`(?m)^bin/edda (.*)$`).FindAllStringSubmatch(block, 5) {
		line, _, _ := strings.Cut(m[1], "    #")
		commands = append(commands, words(t, strings.Replace(line, " shop", " "+dir, 1)))
	}
	if len(commands) != 5 || commands[0][0] != "init" || commands[1][0] != "dev" || commands[4][1] != "describe" {
		t.Fatalf("the commands are %q", commands)
	}
	if code, out := (&running{}).edda(t, commands[0]...); code != exitDone {
		t.Fatalf("%d %s", code, out)
	}
	r := startDev(t, append(commands[1][1:], "--data", t.TempDir())...)
	commands = commands[1:]
	for _, command := range commands[1:3] {
		if code, out := r.edda(t, command...); code != exitDone {
			t.Fatalf("%q: %d %s", command, code, out)
		}
	}
	r.out.wait(t, `order O1 is done: {"tracking":"Z9"}`)
	if code, out := r.edda(t, commands[3]...); code != exitDone || !strings.Contains(out, "status      done") {
		t.Errorf("%d %s", code, out)
	}
	if text := r.err.String(); text != "" {
		t.Errorf("dev complains: %s", text)
	}
}

// A real call must not go on with a result that the mock invented, nor the other way round.
func TestMockedAndRealDataAreKeptApart(t *testing.T) {
	for _, mock := range []bool{true, false} {
		data := t.TempDir()
		if err := oneKindOfAnswers(data, mock); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(data, "store"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := oneKindOfAnswers(data, mock); err != nil {
			t.Errorf("again, mock %v: %v", mock, err)
		}
		if err := oneKindOfAnswers(data, !mock); err == nil || !strings.Contains(err.Error(), "--data") {
			t.Errorf("the other way, mock %v: %v", mock, err)
		}
	}
}
