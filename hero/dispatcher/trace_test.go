package dispatcher

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"edda/internal/testkit"
)

var update = flag.Bool("update", false, "rewrite the checked-in traces")

// monitor records every command that Redis executes, inside scripts too.
type monitor struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func newMonitor(b *bench) *monitor {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.server.Address())
	testkit.Must(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "MONITOR\r\n")
	m := &monitor{conn, bufio.NewScanner(conn)}
	m.lines.Buffer(nil, 1<<20)
	m.lines.Scan() // +OK
	return m
}

var quoted = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)

// until reads the commands up to a mark, which the test sends as a command.
func (m *monitor) until(b *bench, mark string) [][]string {
	b.t.Helper()
	b.db.Echo(b.ctx, mark)
	var out [][]string
	for m.lines.Scan() {
		var command []string
		for _, w := range quoted.FindAllStringSubmatch(m.lines.Text(), -1) {
			text, err := strconv.Unquote(`"` + w[1] + `"`)
			if err != nil {
				text = w[1]
			}
			command = append(command, text)
		}
		if len(command) == 2 && command[1] == mark {
			return out
		}
		if len(command) > 0 {
			out = append(out, command)
		}
	}
	b.t.Fatal("the monitor ended")
	return nil
}

// documented keeps the commands on keys of the document, with the fields of the document.
// It drops EVALSHA, because the monitor shows the commands of a script.
func documented(commands [][]string, id string) string {
	var out []string
	for _, c := range commands {
		name := strings.ToUpper(c[0])
		if len(c) < 2 || name == "EVALSHA" || name == "EVAL" || name == "SCRIPT" {
			continue
		}
		key := strings.ReplaceAll(c[1], id, "{job_id}")
		if !regexp.MustCompile(`^hero:(job:|work_queue:|stop_queue:|reply:)`).MatchString(key) || key == "hero:job:" {
			continue
		}
		line := name + " " + key
		switch name {
		case "HSET":
			line += fields(c[2:])
		case "LPUSH", "EXPIRE":
			line += " " + strings.ReplaceAll(c[2], id, "{job_id}")
		}
		if len(out) == 0 || out[len(out)-1] != line { // drops repeated polls
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

// fields formats the fields of a status change, and only the names for a creation.
func fields(pairs []string) string {
	if pairs[0] == "id" {
		return " {job_fields}"
	}
	var out string
	for i := 0; i+1 < len(pairs); i += 2 {
		switch pairs[i] {
		case "status", "output", "error":
			out += fmt.Sprintf(" %s %q", pairs[i], pairs[i+1])
		default:
			out += " " + pairs[i]
		}
	}
	return out
}

// The commands to create, submit, process and reply are those of the document, in its
// order, except where docs/HERO.md decides otherwise; the expected trace shows both.
func TestTheTraceIsTheDocuments(t *testing.T) {
	b := newBench(t, Options{})
	m := newMonitor(b)
	j, err := b.client.Create(b.ctx, Job{ID: "4f9c", WorkerID: "w", Script: "x"})
	testkit.Must(t, err)
	trace := "# create\n" + documented(m.until(b, "created"), j.ID)
	b.submit(j.ID, Queued)
	trace += "# submit\n" + documented(m.until(b, "submitted"), j.ID)
	stop := b.work("w", echo, WorkerOptions{Sweep: -1})
	b.ended(j.ID)
	stop()
	trace += "# process, reply and wait\n" + relevant(documented(m.until(b, "processed"), j.ID))
	want, err := os.ReadFile("testdata/trace.txt")
	if *update {
		err = os.WriteFile("testdata/trace.txt", []byte(trace), 0o644)
		want = []byte(trace)
	}
	testkit.Must(t, err)
	if trace != string(want) {
		t.Errorf("the trace is now\n%swant\n%s", trace, want)
	}
	inOrder(t, trace, []string{
		"HSET hero:job:{job_id} {job_fields}",
		"LPUSH hero:work_queue:w {job_id}",
		"HGETALL hero:job:{job_id}",
		`HSET hero:job:{job_id} status "started"`,
		`HSET hero:job:{job_id} status "finished" output "x"`,
		"LPUSH hero:reply:{job_id} x",
		"EXPIRE hero:reply:{job_id} 3600",
	})
}

// relevant drops polls, because their number depends on the duration of a run.
func relevant(trace string) string {
	var out string
	for line := range strings.Lines(trace) {
		if strings.HasPrefix(line, "HSET") || strings.HasPrefix(line, "LPUSH") || strings.HasPrefix(line, "EXPIRE") || strings.HasPrefix(line, "HGETALL") && !strings.Contains(out, line) {
			out += line
		}
	}
	return out
}

// inOrder checks that lines with these prefixes follow each other.
func inOrder(t *testing.T, trace string, want []string) {
	t.Helper()
	rest := strings.Split(trace, "\n")
	for _, w := range want {
		i := 0
		for i < len(rest) && !strings.HasPrefix(rest[i], w) {
			i++
		}
		if i == len(rest) {
			t.Fatalf("%q does not come, or not in its place", w)
		}
		rest = rest[i+1:]
	}
}
