//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/stream/wire"
)

// TestAnEffectProcessMadeAStreamInThePlaceOfALostOne, which stood in the way of restoring
// it. It waits, says for what, and goes on by itself.
func TestAnEffectProcessMadeAStreamInThePlaceOfALostOne(t *testing.T) {
	nats := startNATS(t, freeAddr(t), t.TempDir())
	_, js := client(t, nats.url())
	site := &gatedSite{calls: map[string]int{}}
	site.shut()()
	server := httptest.NewServer(site)
	defer server.Close()
	dir := t.TempDir()
	config := write(t, dir, "edda.yaml", "effects: {allow: [127.0.0.1]}\n")
	sagas, effects := write(t, dir, "mailing.yaml", mailingSaga), write(t, dir, "mail.yaml", fmt.Sprintf(mailingEffect, server.URL))
	run := func(role string, more ...string) *child {
		t.Helper()
		addr := freeAddr(t)
		c := launch(t, append([]string{"run", "--config", config, "--role", role, "--nats-url", nats.url(), "--data", filepath.Join(dir, role), "--addr", addr}, more...)...)
		c.addr, c.nats, c.tenant = addr, nats.url(), "default"
		return c
	}
	order := func(k string) {
		t.Helper()
		if err := publishSurely(js, message(0, k, "Begin", fmt.Sprintf(`{"k":%q}`, k))); err != nil {
			t.Fatal(err)
		}
	}
	worker := run("effect", effects) // the first there is: nobody has read anything
	worker.says(`"msg":"started"`)
	saga := run("saga", sagas)
	saga.says(`"msg":"started"`)
	order("K1")
	until(t, "it is mailed", func() bool { return site.called() == 1 })
	until(t, "it is done", func() bool { all := saga.instances("mailing"); return len(all) == 1 && all[0].Status == "done" })
	saga.terminate()
	worker.terminate()
	for _, name := range []string{wire.WorkflowEvents, wire.WorkflowCommands} {
		if err := js.DeleteStream(context.Background(), name); err != nil {
			t.Fatal(err)
		}
	}
	worker = run("effect", effects)
	worker.says("the streams are not made by this process")
	body, code := worker.fetch("/health")
	for _, word := range []string{wire.WorkflowEvents, wire.WorkflowCommands, "nats stream restore", "--accept-stream-loss"} {
		if code != http.StatusServiceUnavailable || !strings.Contains(string(body), word) {
			t.Errorf("health does not say %q: %d %s", word, code, body)
		}
	}
	for _, name := range []string{wire.WorkflowEvents, wire.WorkflowCommands} {
		if _, err := js.Stream(context.Background(), name); err != jetstream.ErrStreamNotFound {
			t.Errorf("stream %s: %v", name, err)
		}
	}
	saga = run("saga", "--accept-stream-loss", sagas)
	saga.says(`"msg":"started"`)
	worker.says(`"msg":"started"`)
	order("K2")
	until(t, "it is mailed, too", func() bool { return site.called() == 2 })
	until(t, "both are done", func() bool {
		all := saga.instances("mailing")
		return len(all) == 2 && all[0].Status == "done" && all[1].Status == "done"
	})
}

// TestAStreamThatIsRestoredIsReadOn by the process that lost it, without a restart; where the
// backup is older than what was handled, it starts anew by itself.
func TestAStreamThatIsRestoredIsReadOn(t *testing.T) {
	for _, c := range []struct {
		name   string
		behind int // events that are not in the backup
	}{{"all of it", 0}, {"without its handled end", 3}} {
		t.Run(c.name, func(t *testing.T) { isReadOn(t, c.behind) })
	}
}

func isReadOn(t *testing.T, behind int) {
	server := startNATS(t, freeAddr(t), t.TempDir())
	conn, js := client(t, server.url())
	dir, addr := t.TempDir(), freeAddr(t)
	args := []string{"run", "--role", "saga", "--nats-url", server.url(), "--data", filepath.Join(dir, "data"), "--addr", addr, write(t, dir, "count.yaml", adding)}
	c := launch(t, args...)
	c.addr, c.nats, c.tenant = addr, server.url(), "default"
	c.says(`"msg":"started"`)
	sent := 0
	send := func(n int) {
		t.Helper()
		for range n {
			name := "Add"
			if sent == 0 {
				name = "Begin"
			}
			m := messageOf(0, "K", fmt.Sprintf("e%d", sent), name, `{"k":"K"}`)
			if err := publishSurely(js, m); err != nil {
				t.Fatal(err)
			}
			sent++
		}
	}
	counted := func(n int) {
		t.Helper()
		untilIn(t, 2*soon, fmt.Sprintf("%d are counted", n), func() bool {
			view, ok := c.answers("/v1/instances/count/K")
			return ok && strings.Contains(view, fmt.Sprintf(`"n":%d}`, n))
		})
	}
	send(5)
	counted(4)
	copied := backUp(t, conn, wire.AggregateEvents)
	send(behind)
	counted(4 + behind)
	if err := js.DeleteStream(context.Background(), wire.AggregateEvents); err != nil {
		t.Fatal(err)
	}
	untilIn(t, deafWithin, "health says that it is gone", func() bool {
		body, _ := c.fetch("/health")
		return strings.Contains(string(body), "AGGREGATE_EVENTS is gone")
	})
	copied.restore(t, conn)
	send(2)
	counted(6 + behind)
	untilIn(t, deafWithin, "health says up", func() bool {
		_, ok := c.answers("/health")
		return ok
	})
	if resumed := strings.Contains(c.err.String(), "all of which was handled"); resumed != (behind > 0) {
		t.Errorf("it said that it goes on behind a loss: %v", resumed)
	}
	if n := strings.Count(c.err.String(), `"msg":"started"`); behind == 0 && n != 1 {
		t.Errorf("it was started %d times", n)
	}
	for range 2 { // the new stream's time is that of the positions now
		if code := c.terminate(); code != 0 {
			t.Errorf("exit code %d: %s", code, c.err.tail())
		}
		c = launch(t, args...)
		c.addr, c.nats, c.tenant = addr, server.url(), "default"
		c.says(`"msg":"started"`)
		behind++
		send(1)
		counted(6 + behind)
	}
}

// answers is what it says, while it may be starting anew.
func (c *child) answers(path string) (string, bool) {
	body, status, err := c.try(path)
	return string(body), err == nil && status == http.StatusOK
}

// streamCopy is what `nats stream backup` makes.
type streamCopy struct {
	name   string
	config json.RawMessage
	state  json.RawMessage
	data   [][]byte
}

// backUp takes a snapshot of a stream, its consumers included.
func backUp(t *testing.T, conn *nats.Conn, name string) streamCopy {
	t.Helper()
	inbox := conn.NewInbox()
	chunks, err := conn.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = chunks.Unsubscribe() }() // the test ends
	var answer struct {
		Error         any
		Config, State json.RawMessage
	}
	askNATS(t, conn, "$JS.API.STREAM.SNAPSHOT."+name, fmt.Sprintf(`{"deliver_subject":%q}`, inbox), &answer)
	if answer.Error != nil {
		t.Fatal(answer.Error)
	}
	out := streamCopy{name: name, config: answer.Config, state: answer.State}
	for {
		m, err := chunks.NextMsg(soon)
		if err != nil {
			t.Fatal(err)
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(m.Data) == 0 {
			return out
		}
		out.data = append(out.data, bytes.Clone(m.Data))
	}
}

func (s streamCopy) restore(t *testing.T, conn *nats.Conn) {
	t.Helper()
	request, err := json.Marshal(map[string]json.RawMessage{"config": s.config, "state": s.state})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Error   any
		Deliver string `json:"deliver_subject"`
	}
	askNATS(t, conn, "$JS.API.STREAM.RESTORE."+s.name, string(request), &answer)
	if answer.Error != nil {
		t.Fatal(answer.Error)
	}
	for _, chunk := range append(s.data, nil) {
		reply, err := conn.Request(answer.Deliver, chunk, soon)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(reply.Data), `"error"`) {
			t.Fatalf("restore: %s", reply.Data)
		}
	}
}

func askNATS(t *testing.T, conn *nats.Conn, subject, request string, into any) {
	t.Helper()
	reply, err := conn.Request(subject, []byte(request), 20*time.Second)
	if err == nil {
		err = json.Unmarshal(reply.Data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
}
