package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/testkit"
	"edda/node"
	"edda/stream/wire"
)

// TestSagasReadAStreamThatExistedBefore walks the way of somebody with a stream of plain JSON: edda
// source add, edda source test, edda run, and the types that no saga hears.
func TestSagasReadAStreamThatExistedBefore(t *testing.T) {
	server := startNATS(t, "127.0.0.1:0")
	js := jetStream(t, server.URL())
	publish := func(subject, body, id string) {
		t.Helper()
		m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
		if id != "" {
			m.Header.Set("Nats-Msg-Id", id)
		}
		testkit.Value[*jetstream.PubAck](t)(js.PublishMsg(t.Context(), m))
	}
	testkit.Value[jetstream.Stream](t)(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SHOP", Subjects: []string{"shop.>"}}))
	publish("shop.orders.created.O1", `{"order":"O1","total":3,"event_id":"e1"}`, "")
	publish("shop.orders.canceled.O1", `{"order":"O1","event_id":"e2"}`, "")
	publish("shop.orders.created.O2", `{"total":3,"event_id":"e3"}`, "")

	dir := folder(t, map[string]string{
		"ship.yaml": "saga: ship\nkey: event.order\non:\n  orders.created: {start: true, set: {total: =event.total}}\n  orders.cancelled: {do: [{done: true}]}\n",
	})
	config, data := filepath.Join(dir, "edda.yaml"), t.TempDir()
	write(t, config, "# of the shop\nmanifests: [ship.yaml]   # one saga\n")
	r := &running{nats: server.URL(), addr: freeAddr(t), tenant: "default"}
	source := func(want int, says []string, args ...string) {
		t.Helper()
		code, out := r.edda(t, append([]string{"source"}, append(args, "--config", config)...)...)
		for _, text := range says {
			if !strings.Contains(out, text) {
				t.Errorf("edda source %s does not say %q:\n%s", strings.Join(args, " "), text, out)
			}
		}
		if code != want {
			t.Errorf("edda source %s: exit code %d\n%s", strings.Join(args, " "), code, out)
		}
	}
	source(2, []string{"the configuration has no sources"}, "test", "shop")
	source(2, []string{"name the stream with --stream: there are SHOP"}, "add", "shop")
	source(1, []string{"source shop: there is no stream SHOPS"}, "add", "shop", "--stream", "SHOPS")
	source(2, []string{`type: "=tokens[2]"`, "dead letter (no-key)", "nobody is at the terminal"}, "add", "shop", "--stream", "SHOP")
	source(0, []string{`id: "=body.event_id"`, "ship O1", "did you mean orders.cancelled?"}, "add", "shop", "--stream", "SHOP", "--from", "all", "--yes")
	source(2, []string{"has a source shop already"}, "add", "shop", "--stream", "SHOP")
	source(2, []string{"there is no source shp; did you mean shop?"}, "test", "shp")
	source(1, []string{"SHOP e2", "3 messages of the stream SHOP; 1 become dead letters"}, "test", "shop")
	source(1, []string{`"type":"canceled"`, `"did_you_mean":"orders.cancelled"`}, "test", "shop", "--last", "2", "-o", "json")
	const written = `sources:
  shop:
    stream: SHOP
    from: all
    id: "=body.event_id"
    type: "=tokens[2]"
    aggregate: {type: "=tokens[1]", id: "=tokens[3]"}
`
	text := string(testkit.Value[[]byte](t)(os.ReadFile(config)))
	if !strings.HasPrefix(text, "# of the shop\n") || !strings.Contains(text, "# one saga\n") || !strings.HasSuffix(text, written) {
		t.Errorf("the configuration is\n%s", text)
	}

	live := startRun(t, server.URL(), "--config", config, "--data", data)
	live.err.wait(t, started)
	live.tenant = "default"
	live.until(t, "O1   running", "instance", "list")
	live.until(t, "orders.canceled  1      SHOP", "source", "unheard")
	live.until(t, "no-key", "deadletter", "list")
	publish("shop.orders.cancelled.O1", `{"order":"O1","event_id":"e4"}`, "")
	publish("shop.orders.created.O4", `{"order":"O4","event_id":"e5"}`, "")
	publish("shop.orders.cancelled.O4", `{"order":"O4","event_id":"e5"}`, "the same event_id under another id of NATS")
	live.until(t, "duplicate", "instance", "history", "ship", "O4")
	live.until(t, "O4   running", "instance", "list")
	live.until(t, "shop    SHOP    6         6     6", "source", "list")
	if _, out := live.edda(t, "instance", "list"); !strings.Contains(out, "O1   done") {
		t.Errorf("the cancelled order:\n%s", out)
	}
	live.stop()

	publish("shop.orders.created.O5", `{"order":"O5","event_id":"e6"}`, "")
	live = startRun(t, server.URL(), "--config", config, "--data", data)
	live.err.wait(t, started)
	live.tenant = "default"
	live.until(t, "O5   running", "instance", "list")
}

func TestAMistakeInASourceOfTheConfigurationNamesTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"sources: {shop: {stream: SHOP, subjects: ['a b']}}":                    `"a b" is no filter of subjects`,
		"sources: {shop: {stream: my.stream}}":                                  `"my.stream" is no name of a stream`,
		"sources: {shop: }":                                                     "sources.shop.stream: want the name of a JetStream stream",
		"sources: {shop: {stream: SHOP, tenant: =body.t}}\ntenants: ['eu-*']":   `the tenant "default" is not among those`,
		"sources: {shop: {stream: SHOP, typ: x}}":                               "unknown key sources.shop.typ; did you mean sources.shop.type?",
		"sources: {shop: {stream: SHOP, aggregate: {name: x}}}":                 "unknown key sources.shop.aggregate.name",
		"sources: {shop: {subjects: [a]}}":                                      "sources.shop.stream: want the name of a JetStream stream",
		"sources: {shop: {stream: SHOP}, s2: {stream: SHOP}}":                   "both read the stream SHOP",
		"sources: {shop: {stream: AGGREGATE_EVENTS}}":                           "a source reads a stream of others",
		"sources: {Shop: {stream: SHOP}}":                                       "a source's name is of lower-case letters",
		"sources: {shop: {stream: SHOP, from: later}}":                          `sources.shop.from "later": want now or all`,
		"sources: {shop: {stream: SHOP, type: 'body.type'}}":                    "write =body.type for its value",
		"sources: {shop: {stream: SHOP, tenant: acme}}\ntenants: [other]":       `the tenant "acme" is not among those that this process serves: other`,
		"sources: {shop: {stream: SHOP}}\ntenants: [a, b]":                      `the tenant "default" is not among those`,
		"sources: {shop: {stream: SHOP, tenant: a}}\ntenancy: {enabled: false}": "there are no tenants where tenancy.enabled is false",
	} {
		file := filepath.Join(t.TempDir(), "edda.yaml")
		write(t, file, text)
		r := &running{}
		code, out := r.edda(t, "config", "view", "--config", file)
		if code != 2 || !strings.Contains(out, want) {
			t.Errorf("%s\n%d %s", text, code, out)
		}
	}
	file := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, file, "sources: {shop: {stream: SHOP, subjects: 'a.*,b', aggregate: {id: '=body.id'}}}")
	if code, out := (&running{}).edda(t, "config", "view", "--config", file); code != 0 || !strings.Contains(out, "id: =body.id") || !strings.Contains(out, "- a.*") || !strings.Contains(out, "- b") {
		t.Errorf("%d %s", code, out)
	}
}

// TestASourceIsWrittenIntoWhatTheFileHas: layouts and comments stay.
func TestASourceIsWrittenIntoWhatTheFileHas(t *testing.T) {
	block := sourceBlock("shop", wire.MappingOptions{Stream: "SHOP", Type: "true", AggregateType: "null"}, "all")
	const written = "  shop:\n    stream: SHOP\n    from: all\n    type: \"true\"\n    aggregate: {type: \"null\"}\n"
	wide := strings.ReplaceAll(written, "  shop", "    shop")
	wide = strings.ReplaceAll(wide, "\n    ", "\n      ")
	for text, want := range map[string]string{
		"":                                      "sources:\n" + written,
		"data: d":                               "data: d\n\nsources:\n" + written,
		"sources:\ndata: d\n":                   "sources:\n" + written + "data: d\n",
		"sources: # ours\n  a: {stream: A}\n":   "sources: # ours\n" + written + "  a: {stream: A}\n",
		"sources: {} # none\n":                  "sources: # none\n" + written,
		"sources: ~\n":                          "sources:\n" + written,
		"sources:\n    a:\n        stream: A\n": "sources:\n" + wide + "    a:\n        stream: A\n",
		"# sources: {}\n":                       "# sources: {}\n\nsources:\n" + written,
	} {
		file := filepath.Join(t.TempDir(), "edda.yaml")
		write(t, file, text)
		got, err := withSource(file, block)
		if err != nil || string(got) != want {
			t.Errorf("%q became\n%s\nwant\n%s\n%v", text, got, want, err)
		}
		term := &terminal{}
		if c, err := term.loadSources(node.Sources{File: file, Text: got}); err != nil || c.Sources["shop"].Type != "true" || c.Sources["shop"].Aggregate.Type != "null" {
			t.Errorf("%q is read as %+v: %v", got, c.Sources, err)
		}
	}
	file := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, file, "sources: {a: {stream: A}}\n")
	if _, err := withSource(file, block); err == nil || !strings.Contains(err.Error(), "break it into lines") {
		t.Errorf("a flow of sources: %v", err)
	}
}
