//go:build !race

package systemtest

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edda/hero"
)

var rewrite = flag.Bool("update", false, "write the golden files anew")

// theDocumentsSequence compares what Redis saw of a job, from the actor to its
// result, with what the documents draw: once for a job message and once for a flow.
func theDocumentsSequence(h *heroWorld, t *testing.T, _ []meshNode) {
	h.place(inTrace, hero.Runner{ID: ourRunner, Local: true})
	h.warm(inTrace)
	trace := h.traces(inTrace)
	var ignored json.RawMessage
	h.must(json.Unmarshal([]byte(h.says(by("router", "actor.py"), h.redis.Port, fmt.Sprint(inTrace), "101", `print("hello")`)), &ignored))
	h.idle(inTrace)
	got := "A job message of an actor\n" + trace.until("the message ended") + "\nA flow of one job\n"
	h.flow(inTrace, 33, step{id: 2001, script: "print(1)"})
	h.finished(inTrace, 33, map[string]string{"2001.output": "1"})
	h.idle(inTrace)
	got += trace.until("the flow ended")

	path := filepath.Join("testdata", "hero_sequence.txt")
	if *rewrite {
		h.must(os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	h.must(err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

// warm has the runner serve the context: it looks for new ones now and then.
func (h *heroWorld) warm(in uint32) {
	h.t.Helper()
	h.flow(in, 1, step{id: 1, script: "print(1)"})
	h.finished(in, 1, nil)
	h.idle(in)
	h.must(h.client(in).Del(context.Background(), hero.MsgIn).Err())
}

// tracer is a connection on which Redis shows every command that it runs.
type tracer struct {
	h     *heroWorld
	in    string
	lines *bufio.Scanner
}

func (h *heroWorld) traces(in uint32) *tracer {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.redis.Address())
	h.must(err)
	h.t.Cleanup(func() { conn.Close() })
	h.must(conn.SetDeadline(time.Now().Add(2 * heroEnds)))
	fmt.Fprint(conn, "MONITOR\r\n")
	m := &tracer{h, fmt.Sprintf("[%d ", in), bufio.NewScanner(conn)}
	if m.lines.Buffer(nil, 1<<20); !m.lines.Scan() || m.lines.Text() != "+OK" {
		h.t.Fatal(m.lines.Text(), m.lines.Err())
	}
	return m
}

// until reads what Redis ran in the context until now, and returns it as the
// documents write it: first what is in order, then the flow's hash, which is
// written beside the rest. How far a message is, and what is taken from a list, is
// left out: a BLMOVE that waits is shown before what it waits for.
func (m *tracer) until(mark string) string {
	m.h.t.Helper()
	m.h.must(m.h.client(0).Echo(context.Background(), mark).Err())
	var order, flows []string
	seen := map[string]bool{}
	for m.lines.Scan() {
		words := m.words(m.lines.Text())
		if len(words) < 2 {
			continue
		}
		if slices.Contains(words, mark) {
			return renamed(strings.Join(append(order, flows...), "\n") + "\n")
		}
		if !strings.Contains(m.lines.Text(), m.in) {
			continue
		}
		line := documented(words, seen)
		switch {
		case line == "":
		case strings.HasPrefix(line, "HSET flow:"):
			flows = append(flows, line)
		case len(order) == 0 || order[len(order)-1] != line:
			order = append(order, line)
		}
	}
	m.h.t.Fatal("the trace ended: ", m.lines.Err())
	return ""
}

// words are those of one line: +1755600000.123456 [7 lua] "HSET" "flow:33" …
func (m *tracer) words(line string) (out []string) {
	_, rest, _ := strings.Cut(line, "] ")
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		m.h.must(err)
		word, err := strconv.Unquote(quoted)
		m.h.must(err)
		out = append(out, word)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return out
}

// documented is a command as the documents write it; of a hash, the names of the
// fields that they know, with the status. A message is shown as it was made.
func documented(words []string, seen map[string]bool) string {
	key, _, _ := strings.Cut(words[1], ":")
	switch strings.ToUpper(words[0]) {
	case "LPUSH":
		return strings.Join(words, " ")
	case "HSET":
		if _, known := documentedFields()[key]; !known || key == "message" && seen[words[1]] {
			return ""
		}
		seen[words[1]] = true
		if fields := fieldsOf(key, words[2:]); len(fields) > 0 {
			return "HSET " + words[1] + " " + strings.Join(fields, " ")
		}
	}
	return ""
}

func fieldsOf(kind string, pairs []string) (out []string) {
	for i := 0; i < len(pairs); i += 2 {
		switch name := pairs[i]; {
		case name == "status":
			out = append(out, "status="+strings.ToLower(pairs[i+1]))
		case slices.Contains(strings.Fields(documentedFields()[kind]), name):
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// documentedFields are those of the documents' tables; others are Edda's own.
func documentedFields() map[string]string {
	return map[string]string{
		"flow":    "id caller_id context_id jobs env_vars result created_at updated_at",
		"message": "id caller_id context_id message message_type message_format_type timeout timeout_ack timeout_result job nodes flow_id logs created_at updated_at",
		"job":     "id caller_id context_id script script_type timeout retries env_vars result prerequisites dependends created_at updated_at",
	}
}

var messageKey = regexp.MustCompile(`message:12:\d+`)

// renamed gives messages names in the order in which they appear: most ids are
// derived.
func renamed(text string) string {
	names := map[string]string{}
	return messageKey.ReplaceAllStringFunc(text, func(key string) string {
		if names[key] == "" {
			names[key] = "message:12:" + string(rune('A'+len(names)))
		}
		return names[key]
	})
}
