package redisdb

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edda/hero"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

var rewrite = flag.Bool("update", false, "write the golden files anew")

// monitor is a connection on which Redis reports every command that it executes.
type monitor struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

func watch(t *testing.T, s *realservers.Server) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", s.Address())
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	testkit.Must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprint(conn, "MONITOR\r\n")
	m := &monitor{t, conn, bufio.NewScanner(conn)}
	if m.lines.Buffer(nil, 1<<20); !m.lines.Scan() || m.lines.Text() != "+OK" {
		t.Fatal(m.lines.Text(), m.lines.Err())
	}
	return m
}

// until returns the writing commands up to one with that word, in the documents' notation, with
// only the names of a hash's fields.
func (m *monitor) until(word string) []string {
	m.t.Helper()
	var out []string
	for m.lines.Scan() {
		words := m.words(m.lines.Text())
		if slices.Contains(words, word) {
			return out
		}
		if line := documented(words); line != "" {
			out = append(out, line)
		}
	}
	m.t.Fatal("the trace ended: ", m.lines.Err())
	return nil
}

// words splits a line: +1755600000.123456 [7 lua] "HSET" "flow:33" …
func (m *monitor) words(line string) []string {
	_, rest, _ := strings.Cut(line, "] ")
	var out []string
	for rest != "" {
		quoted, err := strconv.QuotedPrefix(rest)
		testkit.Must(m.t, err)
		word, err := strconv.Unquote(quoted)
		testkit.Must(m.t, err)
		out = append(out, word)
		rest = strings.TrimPrefix(rest[len(quoted):], " ")
	}
	return out
}

// documented drops the parts of a command that the documents leave open: all values except a
// status, and Edda's own fields and keys.
func documented(words []string) string {
	command := strings.ToUpper(words[0])
	switch command {
	case "LPUSH", "BLMOVE", "LMOVE", "LREM":
		return strings.Join(append([]string{command}, words[1:min(len(words), 4)]...), " ")
	case "HSET":
		fields := fieldsOf(words[2:])
		if len(fields) == 0 {
			return ""
		}
		return strings.Join(append([]string{command, words[1]}, fields...), " ")
	case "SET", "DEL", "EXPIRE", "HDEL", "RPUSH", "INCR":
		if !strings.HasPrefix(words[1], "edda:") {
			return strings.Join(words, " ")
		}
	}
	return ""
}

func fieldsOf(pairs []string) []string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		switch name := pairs[i]; {
		case name == "status":
			out = append(out, "status="+pairs[i+1])
		case !strings.HasPrefix(name, "edda_"):
			out = append(out, name)
		}
	}
	return out
}

// The trace of a flow's job, from the actor to the result, is the documents'.
func TestRedisSeesTheDocumentsSequence(t *testing.T) {
	t.Parallel()
	s := real(t, realservers.RedisOptions{})
	d, ctx := open(t, Options{Addr: s.Address()}), t.Context()
	m := watch(t, s)
	const running = "queue:python:running:20"
	step := func(err error) {
		t.Helper()
		testkit.Must(t, err)
	}
	step(d.PutActor(ctx, hero.Actor{ID: 12}))
	step(d.PutContext(ctx, hero.Context{ID: 7, Admins: []uint32{12}}))
	step(d.PutRunner(ctx, 7, hero.Runner{ID: 20, Local: true}))
	step(d.PutFlow(ctx, hero.Flow{ID: 33, CallerID: 12, ContextID: 7, Jobs: []uint32{2001}}))
	j := hero.Job{ID: 2001, CallerID: 12, ContextID: 7, Script: "print(1)", ScriptType: hero.ScriptPython}
	step(d.PutJob(ctx, j))
	step(third(d.Send(ctx, 7, "dispatch", hero.Message{ID: 101, CallerID: 12, ContextID: 7, MessageType: hero.MessageJob, Job: []hero.Job{j}})))
	step(second(d.Take(ctx, 7, hero.MsgOut, hero.MsgOutCoordinator, 0)))
	step(third(d.Create(ctx, 7, "message:12:101", j, "queue:python")))
	step(second(d.MoveMessage(ctx, 7, "message:12:101", hero.MessageAcknowledged, MessageChange{TransportStatus: hero.TransportDelivered})))
	step(d.Done(ctx, 7, hero.MsgOutCoordinator, "message:12:101"))
	step(second(d.Take(ctx, 7, "queue:python", running, 0)))
	step(third(d.MoveJob(ctx, 7, 12, 2001, hero.JobStarted, nil)))
	step(third(d.MoveJob(ctx, 7, 12, 2001, hero.JobFinished, map[string]string{"output": "1"})))
	step(third(d.Send(ctx, 7, "result", hero.Message{ID: 900, CallerID: 12, ContextID: 7, MessageType: hero.MessageResult, ReplyTo: "message:12:101"})))
	step(d.Done(ctx, 7, running, "job:12:2001"))
	step(raw(t, d, 0).Echo(ctx, "the end").Err())
	got := strings.Join(m.until("the end"), "\n") + "\n"
	const path = "testdata/sequence.txt"
	if *rewrite {
		testkit.Must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	testkit.Must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
}

func third(_, _ any, err error) error { return err }
