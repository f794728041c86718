package cloudevents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/protocol/nats_jetstream/v2"
	sdk "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/harness"
	"edda/internal/testkit"
)

// ofWebhooks names a file of webhooks in place of ours, such as the index.json of the npm package
// @octokit/webhooks-examples; see make test-octokit.
const ofWebhooks = "EDDA_WEBHOOKS"

const (
	startWithin  = time.Minute
	handleWithin = time.Minute
)

// hook is the payload of a webhook, and what the test asks it for.
type hook struct {
	number  int // in the file
	kind    string
	payload json.RawMessage
	about   struct {
		Action     string
		Repository struct {
			FullName string `json:"full_name"`
		}
		PullRequest struct{ Number int } `json:"pull_request"`
	}
}

// readHooks returns the payloads that are about pull requests.
func readHooks(t *testing.T) (out []hook) {
	t.Helper()
	data, err := os.ReadFile(cmp.Or(os.Getenv(ofWebhooks), "testdata/webhooks.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, of := range file {
		if !strings.HasPrefix(of.Name, "pull_request") {
			continue
		}
		for _, payload := range of.Examples {
			h := hook{number: len(out), kind: of.Name, payload: payload}
			if err := json.Unmarshal(payload, &h.about); err != nil {
				t.Fatal(err)
			}
			out = append(out, h)
		}
	}
	if len(out) < 8 {
		t.Fatalf("only %d webhooks are about pull requests", len(out))
	}
	return out
}

func (h hook) eventType() string { return "com.github." + h.kind + "." + h.about.Action }

// key is the key of the instance, with '/' and '#', and often with a dot.
func (h hook) key() string {
	return fmt.Sprintf("%s#%d", h.about.Repository.FullName, h.about.PullRequest.Number)
}

func (h hook) event(t *testing.T) sdk.Event {
	t.Helper()
	e := sdk.NewEvent()
	e.SetID(fmt.Sprintf("delivery %d%%", h.number))
	e.SetSource("https://git.example.com/" + h.about.Repository.FullName)
	e.SetType(h.eventType())
	e.SetSubject(h.key())
	e.SetTime(time.Date(2026, 1, 2, 12, 0, 0, 1000, time.UTC))
	if err := e.SetData(sdk.ApplicationJSON, h.payload); err != nil {
		t.Fatal(err)
	}
	return e
}

// manifest is a saga that counts the webhooks of each pull request, by the full types of the events.
func manifest(hooks []hook) string {
	types := map[string]bool{}
	for _, h := range hooks {
		types[h.eventType()] = true
	}
	var b strings.Builder
	b.WriteString("saga: pull_request\nkey: event.repository.full_name + \"#\" + string(event.pull_request.number)\nstate: {seen: 0}\non:\n")
	for name := range types {
		fmt.Fprintf(&b, "  %s: {start: true, set: {seen: =state.seen + 1}}\n", name)
	}
	return b.String()
}

// sends are the ways to send an event. Each returns when the event is stored.
func sends(t *testing.T, e *harness.Edda) map[string]func(context.Context, hook) error {
	t.Helper()
	conn, err := nats.Connect(e.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	overNATS := func(ctx context.Context, h hook) error {
		token := strings.NewReplacer("%", "%25", ".", "%2E", " ", "%20", "*", "%2A", ">", "%3E").Replace(h.key()) // as docs/NATS.md says
		sender, err := nats_jetstream.NewSenderFromConn(conn, "AGGREGATE_EVENTS", "tenant.default.aggregate."+h.kind+"."+token, nil)
		if err != nil {
			return err
		}
		return sender.Send(ctx, (*binding.EventMessage)(ptr(h.event(t))))
	}
	protocol, err := sdk.NewHTTP(sdk.WithTarget(e.API + "/v1/events"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := sdk.NewClient(protocol)
	if err != nil {
		t.Fatal(err)
	}
	overHTTP := func(ctx context.Context, h hook) error {
		if result := client.Send(ctx, h.event(t)); !sdk.IsACK(result) {
			return fmt.Errorf("the SDK says: %w", result)
		}
		return nil
	}
	return map[string]func(context.Context, hook) error{
		"NATS, structured": func(ctx context.Context, h hook) error { return overNATS(binding.WithForceStructured(ctx), h) },
		"NATS, binary":     func(ctx context.Context, h hook) error { return overNATS(binding.WithForceBinary(ctx), h) },
		"HTTP, structured": func(ctx context.Context, h hook) error { return overHTTP(binding.WithForceStructured(ctx), h) },
		"HTTP, binary":     func(ctx context.Context, h hook) error { return overHTTP(binding.WithForceBinary(ctx), h) },
	}
}

// build builds the binary under test.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "edda")
	testkit.Must(t, harness.GoBuild("-C", "../..", "-o", binary, "./cmd/edda"))
	return binary
}

func ptr[T any](v T) *T { return &v }

// TestTheSDK builds the binary once for all parts.
func TestTheSDK(t *testing.T) {
	binary := build(t)
	t.Run("webhooks reach their sagas", func(t *testing.T) { webhooks(t, binary) })
	t.Run("what a saga sends is read", func(t *testing.T) { outgoing(t, binary) })
}

// webhooks sends the webhooks in every way to a process of its own. Each
// starts an instance or advances it, and none is dead, ignored or parked. All of them once more in
// another way are duplicates: over the other transport, because a stream drops those of its own.
func webhooks(t *testing.T, binary string) {
	hooks := readHooks(t)
	ways := []string{"NATS, structured", "NATS, binary", "HTTP, structured", "HTTP, binary"}
	for i, way := range ways {
		t.Run(way, func(t *testing.T) {
			e := start(t, binary, hooks)
			sendAll(t, sends(t, e)[way], hooks)
			fates(t, e, map[string]int{"handled": len(hooks)})
			sendAll(t, sends(t, e)[ways[(i+2)%len(ways)]], hooks)
			fates(t, e, map[string]int{"handled": len(hooks), "duplicate": len(hooks)})
			instances(t, e, hooks)
		})
	}
	t.Run("HTTP, a batch", func(t *testing.T) {
		e := start(t, binary, hooks)
		for _, again := range []bool{false, true} {
			for _, published := range postBatch(t, e, hooks) {
				if published.Duplicate != again {
					t.Errorf("%s is a duplicate: %t", published.ID, published.Duplicate)
				}
			}
		}
		fates(t, e, map[string]int{"handled": len(hooks)})
		instances(t, e, hooks)
	})
	t.Run("NATS, batches", func(t *testing.T) {
		e := start(t, binary, hooks)
		publishBatches(t, e, hooks)
		fates(t, e, map[string]int{"handled": len(hooks)})
		publishBatches(t, e, hooks)
		fates(t, e, map[string]int{"handled": len(hooks), "duplicate": len(hooks)})
		instances(t, e, hooks)
	})
	t.Run("NATS, an id that is not escaped", func(t *testing.T) {
		e := start(t, binary, hooks)
		conn, err := nats.Connect(e.NATS)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sender, err := nats_jetstream.NewSenderFromConn(conn, "AGGREGATE_EVENTS", "tenant.default.aggregate.pull_request.example/shop.js#2", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(t.Context(), (*binding.EventMessage)(ptr(hooks[0].event(t)))); err != nil {
			t.Fatal(err)
		}
		died(t, e, "write a dot in an id as %2E")
	})
}

// start starts a process with the saga of the webhooks.
func start(t *testing.T, binary string, hooks []hook) *harness.Edda {
	t.Helper()
	return startWith(t, binary, manifest(hooks))
}

func startWith(t *testing.T, binary, manifest string) *harness.Edda {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "saga.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := harness.NewEdda(binary, dir, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartReady(t.Context(), startWithin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// published is an answer of the API to one event.
type published struct {
	ID        string `json:"event_id"`
	Duplicate bool
}

// batchRequest is a request with all webhooks, as the SDK writes it.
func batchRequest(t *testing.T, e *harness.Edda, hooks []hook) *http.Request {
	t.Helper()
	var events []sdk.Event
	for _, h := range hooks {
		events = append(events, h.event(t))
	}
	r, err := cehttp.NewHTTPRequestFromEvents(t.Context(), e.API+"/v1/events", events)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// perBatch keeps a message with so many webhooks within the limit of NATS.
const perBatch = 8

// publishBatches publishes the webhooks over NATS. The SDK has no batches there, so the body and its
// type are those that it writes for HTTP.
func publishBatches(t *testing.T, e *harness.Edda, hooks []hook) {
	t.Helper()
	conn, err := nats.Connect(e.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(hooks, perBatch) {
		r := batchRequest(t, e, some)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: "tenant.default.aggregate.webhooks.several", Header: nats.Header{"Content-Type": r.Header["Content-Type"]}, Data: body}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// postBatch posts all webhooks in one request.
func postBatch(t *testing.T, e *harness.Edda, hooks []hook) []published {
	t.Helper()
	resp, err := http.DefaultClient.Do(batchRequest(t, e, hooks))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct{ Events []published }
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || resp.StatusCode != http.StatusOK || len(list.Events) != len(hooks) {
		t.Fatalf("%s: %d events, %v", resp.Status, len(list.Events), err)
	}
	return list.Events
}

// died waits for a dead letter with the text in its error.
func died(t *testing.T, e *harness.Edda, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), handleWithin)
	defer cancel()
	if err := harness.Poll(ctx, "a dead letter", func() error {
		letters, err := harness.Get(ctx, e.API+"/v1/deadletters")
		if err == nil && !strings.Contains(string(letters), text) {
			err = fmt.Errorf("the dead letters are %s", letters)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func sendAll(t *testing.T, send func(context.Context, hook) error, hooks []hook) {
	t.Helper()
	for _, h := range hooks {
		if err := send(t.Context(), h); err != nil {
			t.Fatalf("%s of %s: %v", h.eventType(), h.key(), err)
		}
	}
}

// fates waits until as many events have each fate, and complains of every other fate.
func fates(t *testing.T, e *harness.Edda, want map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), handleWithin)
	defer cancel()
	err := harness.Poll(ctx, "the fates of the webhooks", func() error {
		got, err := e.Counters(ctx)
		if err != nil {
			return err
		}
		others, missing := got.Sum("edda_transitions_total"), 0
		for fate, n := range want {
			others -= got.Sum("edda_transitions_total", `fate="`+fate+`"`)
			missing += n - got.Sum("edda_transitions_total", `fate="`+fate+`"`)
		}
		if dead := got.Sum("edda_dead_letters_total"); others > 0 || dead > 0 {
			return harness.Fatal(fmt.Errorf("%d other fates than %v, and %d letters are dead:\n%s", others, want, dead, e.Tail()))
		}
		if missing != 0 {
			return fmt.Errorf("%d fates are missing of %v", missing, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// instances compares what the instances have counted.
func instances(t *testing.T, e *harness.Edda, hooks []hook) {
	t.Helper()
	want := map[string]int{}
	for _, h := range hooks {
		want[h.key()]++
	}
	var list struct{ Instances []struct{ Key string } }
	if err := harness.GetJSON(t.Context(), e.API+"/v1/instances?limit=1000", &list); err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Instances {
		var one struct {
			Instance struct{ State struct{ Seen int } }
		}
		path := strings.NewReplacer("%", "%25", "/", "%2F", "#", "%23").Replace(i.Key)
		if err := harness.GetJSON(t.Context(), e.API+"/v1/instances/pull_request/"+path, &one); err != nil {
			t.Fatal(err)
		}
		if one.Instance.State.Seen != want[i.Key] {
			t.Errorf("the instance %s has seen %d webhooks, want %d", i.Key, one.Instance.State.Seen, want[i.Key])
		}
	}
	if len(list.Instances) != len(want) {
		t.Errorf("%d instances, want %d", len(list.Instances), len(want))
	}
	t.Logf("%d webhooks, %d instances", len(hooks), len(want))
}

// startRun starts a process with a configuration and a NATS server that the test has.
func startRun(t *testing.T, binary, config, manifest string) *harness.Edda {
	t.Helper()
	dir := t.TempDir()
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	if !ns.ReadyForConnections(startWithin) {
		t.Fatal("the NATS server is not ready")
	}
	addrs, err := harness.FreeAddrs(1)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"edda.yaml": config, "saga.yaml": manifest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := &harness.Edda{API: "http://" + addrs[0], NATS: ns.ClientURL(), Process: harness.New("edda", filepath.Join(dir, "edda.log"), func() *exec.Cmd {
		cmd := exec.Command(binary, "run", "--config", filepath.Join(dir, "edda.yaml"), "--role", "combined", "--data", filepath.Join(dir, "data"),
			"--addr", addrs[0], "--nats-url", ns.ClientURL(), filepath.Join(dir, "saga.yaml"))
		cmd.Env = harness.Environ()
		return cmd
	})}
	if err := e.StartReady(t.Context(), startWithin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Kill)
	return e
}

// outgoing checks that facts and commands go out as CloudEvents where the configuration says
// so, and another saga hears the fact.
func outgoing(t *testing.T, binary string) {
	e := startRun(t, binary, "streams: {cloudevents: [facts, commands]}\n", `
saga: review
key: event.number
on:
  com.github.pull_request.opened:
    start: true
    do:
      - {command: Bot.Comment, to: =key, with: {text: "thanks, <you>"}}
      - {event: Opened, with: {number: =event.number}}
      - done: {}
---
saga: board
key: event.number
on:
  review.Opened: {start: true, do: [{done: {}}]}
`)
	conn, err := nats.Connect(e.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"tenant.*.command.Bot.*": `Bot.Comment from /edda/sagas/review about 7: {"text":"thanks, <you>"}`,
		"tenant.*.workflow_event.review.*": `review.Opened from /edda/sagas/review about 7: {"number":7}`}
	h := hook{kind: "pull_request", payload: json.RawMessage(`{"number":7}`)}
	h.about.Action = "opened"
	if err := sends(t, e)["NATS, binary"](t.Context(), h); err != nil {
		t.Fatal(err)
	}
	for subject, want := range want {
		sub, err := js.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		m, err := sub.NextMsg(handleWithin)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		got, err := binding.ToEvent(t.Context(), nats_jetstream.NewMessage(m))
		if err != nil {
			t.Fatalf("%s: %v", m.Data, err)
		}
		if says := fmt.Sprintf("%s from %s about %s: %s", got.Type(), got.Source(), got.Subject(), got.Data()); says != want || got.Validate() != nil || got.ID() == "" {
			t.Errorf("the SDK reads\n%s\nwant\n%s", says, want)
		}
	}
	fates(t, e, map[string]int{"handled": 2})
}
