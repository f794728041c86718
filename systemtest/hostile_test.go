//go:build !race

package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda/internal/harness"
	"edda/internal/testkit"
)

// What somebody does to the binary from outside, who has read its documentation
// and wishes it ill. After each of it a witness, a saga like others, still goes
// from its first event to its end.

const (
	// hostileWait is how long the witness may take, on a busy machine.
	hostileWait = 30 * time.Second
	// hostileAll is how long all bombs at once may take: some ten seconds of all processors
	// where nothing else runs.
	hostileAll = 3 * time.Minute
	// hostileMemory bounds what the process has ever held.
	hostileMemory = 1 << 30
	// hostileCPU bounds what one command works on one file.
	hostileCPU = 20 * time.Second
	// hostileFiles bounds the files and connections that stay open.
	hostileFiles = 200
	// hostileSaid bounds what a command says.
	hostileSaid = 2 << 20
)

const witnessSaga = `saga: witness
version: 1
key: event.k
on:
  Begin: {start: true, set: {n: =event.n}}
  signal.finish: {do: [{done: =state.n}]}
`

// hostile is edda dev with a witness, and a file that nobody may show.
type hostile struct {
	*child
	t      *testing.T
	conn   *nats.Conn
	n      int
	canary string
	data   string
}

const canaryText = "CANARY-6f1d the contents of a file"

func newHostile(t *testing.T, manifests ...string) *hostile {
	t.Helper()
	h := &hostile{t: t, data: t.TempDir(), canary: write(t, t.TempDir(), "canary", canaryText)}
	dir := t.TempDir()
	write(t, dir, "witness.yaml", witnessSaga)
	for i, text := range manifests {
		write(t, dir, fmt.Sprintf("bomb%d.yaml", i), text)
	}
	h.child = dev(t, h.data, dir)
	h.conn, _ = client(t, h.nats)
	h.witness("nothing")
	return h
}

// witness fails the test where the process does not work after what was done.
func (h *hostile) witness(after string) {
	h.t.Helper()
	h.witnessIn(hostileWait, after)
}

// witnessIn is witness, but may take longer.
func (h *hostile) witnessIn(within time.Duration, after string) {
	h.t.Helper()
	h.n++
	key := fmt.Sprintf("W%d", h.n)
	h.publish("tenant.default.aggregate.Order."+key, fmt.Sprintf(`{"event_id":%q,"event_type":"Begin","payload":{"k":%q,"n":%d}}`, "w-"+key, key, h.n))
	is := func(status string) func() bool {
		return func() bool {
			if testkit.Closed(h.Ended()) {
				h.t.Fatalf("after %s it ended: %s", after, tail(h.err.String(), 4000))
			}
			body, code := h.fetch("/v1/instances/witness/" + key)
			return code == http.StatusOK && bytes.Contains(body, []byte(`"status":"`+status+`"`))
		}
	}
	untilIn(h.t, within, "after "+after+" the witness begins", is("running"))
	resp, err := http.Post("http://"+h.addr+"/v1/instances/witness/"+key+"/signal/finish", "application/json", strings.NewReader("{}"))
	if err != nil {
		h.t.Fatalf("after %s: %v", after, err)
	}
	_ = resp.Body.Close()
	untilIn(h.t, within, "after "+after+" the witness ends", is("done"))
	if strings.Contains(h.err.String(), "CANARY") || strings.Contains(h.out.String(), "CANARY") {
		h.t.Fatalf("after %s the file shows in the log", after)
	}
}

func (h *hostile) publish(subject, body string) {
	h.t.Helper()
	if err := h.conn.Publish(subject, []byte(body)); err != nil {
		h.t.Fatalf("%.80q: %v", subject, err)
	}
	if err := h.conn.Flush(); err != nil {
		h.t.Fatal(err)
	}
}

// sound looks at what the process has come to hold, and at its folder.
func (h *hostile) sound() {
	h.t.Helper()
	kib := peakMemory(h.Cmd.Process.Pid)
	if kib == 0 || kib<<10 > hostileMemory {
		h.t.Errorf("%d MiB were resident, want some and at most %d", kib>>10, hostileMemory>>20)
	}
	untilIn(h.t, hostileWait, "connections are given back", func() bool { return h.metric("process_open_fds") < hostileFiles })
	h.t.Logf("%d MiB resident at most, %v files, %v goroutines", kib>>10, h.metric("process_open_fds"), h.metric("go_goroutines"))
	if err := filepath.WalkDir(h.data, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, "hostile") {
			h.t.Errorf("%s was written", path)
		}
		return err
	}); err != nil {
		h.t.Error(err)
	}
	if text, err := os.ReadFile(h.canary); err != nil || string(text) != canaryText {
		h.t.Errorf("the file was changed: %q %v", text, err)
	}
	if strings.Contains(h.err.String(), "panic") {
		h.t.Errorf("it panicked: %s", tail(h.err.String(), 4000))
	}
	if code := h.terminate(); code != 0 {
		h.t.Errorf("exit code %d: %s", code, tail(h.err.String(), 4000))
	}
	if out, code := h.cli("doctor", "--data", h.data); code != 0 {
		h.t.Errorf("the store is not sound: %s", out)
	}
}

// bombs are expressions that are short and mean very much work, or very much text.
var bombs = map[string]string{
	"a range":            `len(1..2000000000)`,
	"ranges in ranges":   `sum(map(1..3000, sum(map(1..3000, sum(map(1..3000, #))))))`,
	"filters":            `len(filter(1..1000000, len(filter(1..1000000, # % 7 == 3)) > #))`,
	"reduce to a text":   `reduce(1..60, #acc + #acc, "boom")`,
	"reduce to a list":   `reduce(1..60, [#acc, #acc, #acc], [1])`,
	"reduce to maps":     `reduce(1..64, {{"a": #acc, "b": #acc}}, {"x": 1})`,
	"repeat":             `repeat(repeat(repeat("abcdefgh", 10000), 10000), 10000)`,
	"a regex":            `repeat("a", 40000) + "!" matches "^(a+)+$"`,
	"regex counts":       `repeat("a", 4000) matches "(((a{1,9}){1,9}){1,9}b)*$"`,
	"replace":            `replace(replace(repeat("a", 30000), "a", repeat("a", 30000)), "a", repeat("a", 30000))`,
	"split and join":     `join(map(split(repeat("a,", 100000), ","), repeat("b", 100000)), "c")`,
	"sorts":              `sum(map(1..5000, len(sortBy(1..5000, -#))))`,
	"powers":             `9 ** 9 ** 9 ** 9`,
	"huge numbers":       `9223372036854775807 * 9223372036854775807`,
	"a division":         `-9223372036854775807 / -1`,
	"a shift of time":    `now + duration("9999999999h") + duration("9999999999h")`,
	"an index":           `[1, 2, 3][-9223372036854775807]`,
	"a slice":            `repeat("a", 1000)[-9223372036854775807:9223372036854775807]`,
	"json in json":       `reduce(1..40, toJSON(#acc), "\"\\")`,
	"base64 of base64":   `reduce(1..60, toBase64(#acc), repeat("a", 1000))`,
	"groups":             `len(groupBy(1..1000000, string(#) + repeat("k", 1000)))`,
	"flatten":            `len(flatten(map(1..10000, map(1..10000, [#, #, #]))))`,
	"concat":             `len(reduce(1..40, concat(#acc, #acc), [1, 2, 3]))`,
	"the event, doubled": `reduce(1..40, [#acc, #acc], event)`,
}

// TestHostileExpressions loads each bomb as a saga and sets it off.
func TestHostileExpressions(t *testing.T) {
	var names []string
	var sagas []string
	checked := t.TempDir()
	for name, source := range bombs {
		text := fmt.Sprintf("saga: bomb%d\nversion: 1\nkey: event.k\non:\n  Go%d: {start: true, set: {x: %q}}\n  signal.finish: {do: [{done: true}]}\n", len(names), len(names), "="+source)
		out, code := command(t, "lint", write(t, checked, fmt.Sprintf("b%d.yaml", len(names)), text))
		switch {
		case code == 0:
			sagas, names = append(sagas, text), append(names, name)
		case code != 1:
			t.Errorf("lint of %s: %d %s", name, code, out)
		default: // refused before it runs: as good
			t.Logf("%s is refused: %s", name, tail(out, 300))
		}
	}
	if len(names) < len(bombs)/2 {
		t.Fatalf("only %d of %d bombs can be loaded at all", len(names), len(bombs))
	}
	h := newHostile(t, sagas...)
	for i, name := range names {
		began := time.Now()
		h.publish("tenant.default.aggregate.Order.hostile", fmt.Sprintf(`{"event_id":"b%d","event_type":"Go%d","payload":{"k":"K","deep":%s}}`, i, i, strings.Repeat("[", 50)+strings.Repeat("]", 50)))
		h.witness("the bomb " + name)
		fate := ""
		untilIn(t, hostileWait, "the bomb "+name+" has gone off", func() bool {
			_, begun := h.fetch(fmt.Sprintf("/v1/instances/bomb%d/K", i))
			letters, _ := h.fetch(fmt.Sprintf("/v1/deadletters?saga=bomb%d", i))
			_, why, dead := strings.Cut(string(letters), `"error":`)
			fate = why[:min(len(why), 120)]
			return begun == http.StatusOK || dead
		})
		t.Logf("%s: %v %s", name, time.Since(began).Round(time.Millisecond), fate)
	}
	for i := range names { // and all at once, for many keys
		for k := range 20 {
			h.publish("tenant.default.aggregate.Order.hostile", fmt.Sprintf(`{"event_id":"m%d-%d","event_type":"Go%d","payload":{"k":"M%d"}}`, i, k, i, k))
		}
	}
	h.witnessIn(hostileAll, "all bombs at once")
	h.sound()
}

// events are messages that no producer sends: subject and body.
func hostileEvents() map[string][2]string {
	const subject = "tenant.default.aggregate.Order.hostile"
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n) + strings.Repeat("]}", n) }
	event := func(payload string) [2]string {
		return [2]string{subject, `{"event_id":"h` + strconv.Itoa(len(payload)) + `","event_type":"Begin","payload":` + payload + `}`}
	}
	keyed := func(key string) [2]string { return event(`{"k":` + key + `}`) }
	out := map[string][2]string{
		"nothing":              {subject, ""},
		"one byte":             {subject, "\x00"},
		"deep":                 event(deep(5_000)),
		"deeper":               event(deep(100_000)),
		"half of deep":         {subject, `{"payload":` + strings.Repeat("[", 400_000)},
		"a long key":           keyed(`"` + strings.Repeat("k", 1<<20-300) + `"`),
		"a key of 40 KiB":      keyed(`"` + strings.Repeat("k", 40<<10) + `"`),
		"a key of NULs":        keyed(`"` + strings.Repeat(`\u0000`, 40<<10) + `"`),
		"a key as object":      keyed(`{"a":1}`),
		"a key as list":        keyed(deep(10)),
		"a huge number":        keyed(`1e400`),
		"a long number":        keyed(strings.Repeat("9", 200_000)),
		"an exponent":          keyed("1e999999999999999999"),
		"minus zero":           keyed("-0"),
		"NaN":                  keyed("NaN"),
		"Infinity":             keyed("-Infinity"),
		"twice the same name":  {subject, `{"event_id":"dup","event_id":"dup2","event_type":"Begin","event_type":"Other","payload":{"k":"a","k":"b"}}`},
		"invalid UTF-8":        keyed("\"\xff\xfe\xc0\x80\""),
		"half a surrogate":     keyed(`"\ud800"`),
		"controls":             keyed("\"\x01\x1b[2J\r\n\""),
		"escaped controls":     keyed(`"\u001b[2J\u0007\u202e\u0000"`),
		"a path":               keyed(`"../../../../hostile"`),
		"a path to a device":   keyed(`"/dev/zero"`),
		"dots":                 keyed(`".."`),
		"wildcards":            keyed(`"*.>"`),
		"spaces":               keyed(`"  \t "`),
		"an empty key":         keyed(`""`),
		"a prototype":          event(`{"k":"p","__proto__":{"x":1},"constructor":{"prototype":1}}`),
		"many names":           event(`{"k":"m"` + manyNames(40_000) + `}`),
		"an XML bomb":          {subject, `<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>`},
		"a YAML alias":         {subject, "a: &a [*a]"},
		"gzip":                 {subject, "\x1f\x8b\x08\x00\x00\x00\x00\x00"},
		"a huge version":       {subject, `{"event_id":"v","event_type":"Begin","version":99999999999999999999,"payload":{"k":"v"}}`},
		"a negative version":   {subject, `{"event_id":"v2","event_type":"Begin","version":-1,"payload":{"k":"v2"}}`},
		"the year 0":           {subject, `{"event_id":"t","event_type":"Begin","timestamp":"0000-00-00T00:00:00Z","payload":{"k":"t"}}`},
		"the year 9999":        {subject, `{"event_id":"t2","event_type":"Begin","timestamp":"9999-12-31T23:59:59Z","payload":{"k":"t2"}}`},
		"ids as lists":         {subject, `{"event_id":["x"],"event_type":{"y":1},"payload":"z"}`},
		"a long id":            {subject, `{"event_id":"` + strings.Repeat("i", 900_000) + `","event_type":"Begin","payload":{"k":"longid"}}`},
		"a long type":          {subject, `{"event_id":"lt","event_type":"` + strings.Repeat("T", 900_000) + `","payload":{"k":"lt"}}`},
		"a long correlation":   {subject, `{"event_id":"lc","event_type":"Begin","payload":{"k":"lc"},"metadata":{"correlation_id":"` + strings.Repeat("c", 900_000) + `"}}`},
		"a broken trace":       {subject, `{"event_id":"tr","event_type":"Begin","payload":{"k":"tr"},"metadata":{"trace_id":"00-` + strings.Repeat("zz", 100_000) + `"}}`},
		"CloudEvents, broken":  {subject, `{"specversion":"1.0","id":{},"source":[],"type":null,"data_base64":"%%%"}`},
		"a signal of nobody":   {"tenant.default.workflow.witness.hostile", `{"signal_id":"s","name":"finish","payload":` + deep(1000) + `}`},
		"a signal as a list":   {"tenant.default.workflow.witness.hostile", deep(3000)},
		"a verb, forged":       {"tenant.default.workflow.witness.hostile", `{"verb":"terminate","by":"\u0000","name":"terminate"}`},
		"a result of nothing":  {"tenant.default.effect_result.nothing.nothing", `{"command_id":"nothing","result_type":"Succeeded","payload":` + deep(1000) + `}`},
		"a command of nothing": {"tenant.default.effect.nothing.nothing", `{"command_id":"../../x","effect_name":"nothing","payload":"` + strings.Repeat("p", 500_000) + `"}`},
		"an escaped tenant":    {"tenant.%2E%2E%2F.aggregate.Order.hostile", `{"event_id":"et","event_type":"Begin","payload":{"k":"et"}}`},
		"a broken escape":      {"tenant.%zz%.aggregate.Order.%", `{"event_id":"be","event_type":"Begin","payload":{"k":"be"}}`},
		"a NUL as tenant":      {"tenant.%00.aggregate.Order.%00", `{"event_id":"nt","event_type":"Begin","payload":{"k":"nt"}}`},
		"a short subject":      {"tenant.default.aggregate", "{}"},
		"a long subject":       {"tenant.default.aggregate.Order." + strings.Repeat("s", 3000), `{"event_id":"ls","event_type":"Begin","payload":{"k":"ls"}}`},
		"many tokens":          {"tenant.default.aggregate" + strings.Repeat(".x", 500), `{"event_id":"mt","event_type":"Begin","payload":{"k":"mt"}}`},
	}
	return out
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"n%d":%d`, i, i)
	}
	return b.String()
}

func TestHostileEvents(t *testing.T) {
	h := newHostile(t)
	for name, message := range hostileEvents() {
		if len(message[1]) > int(h.conn.MaxPayload()) {
			t.Fatalf("%s is longer than any message", name)
		}
		h.publish(message[0], message[1])
		h.witness("the event " + name)
	}
	for name, header := range hostileHeaders() {
		msg := nats.NewMsg("tenant.default.aggregate.Order.hostile")
		msg.Data, msg.Header = []byte(`{"event_id":"hh","event_type":"Begin","payload":{"k":"hh"}}`), header
		if err := h.conn.PublishMsg(msg); err != nil {
			t.Logf("%s: the client refuses it: %v", name, err)
		}
		if err := h.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		h.witness("the header " + name)
	}
	for range 2000 { // a flood of what cannot be read
		if err := h.conn.Publish("tenant.default.aggregate.Order.hostile", []byte(`{"event_id":`)); err != nil {
			t.Fatal(err)
		}
	}
	h.witness("a flood")
	for _, path := range []string{"/v1/deadletters?limit=1000", "/v1/instances?limit=1000", "/v1/parked", "/v1/held", "/metrics", "/info"} {
		if body, code := h.fetch(path); code != 200 || bytes.Contains(body, []byte("root:x:0")) {
			t.Errorf("%s: %d %.200s", path, code, body)
		}
	}
	h.sound()
}

func hostileHeaders() map[string]nats.Header {
	many := nats.Header{}
	for i := range 5000 {
		many.Set(fmt.Sprintf("X-%d", i), strings.Repeat("v", 50))
	}
	return map[string]nats.Header{
		"long":         {"Traceparent": {strings.Repeat("a", 200_000)}, "X": {strings.Repeat("b", 500_000)}},
		"many":         many,
		"ce of a list": {"Ce-Specversion": {"1.0", "2.0"}, "Ce-Type": {"Begin", "Other"}, "Ce-Id": {""}, "Ce-Source": {"\x00"}},
		"ce, escaped":  {"Ce-Specversion": {"1.0"}, "Ce-Type": {"%00%ff%"}, "Ce-Id": {"%E0%80"}, "Ce-Source": {"../.."}, "Content-Type": {"application/json; charset=\x7f"}},
		"schedules":    {"Nats-Msg-Id": {strings.Repeat("m", 100_000)}, "Nats-TTL": {"1s"}},
		"a rollup":     {"Nats-Rollup": {"all"}, "Nats-Expected-Last-Sequence": {"1"}},
	}
}

// requests are sent as they stand, byte for byte.
func hostileRequests(canary string) map[string]string {
	get := func(target string, headers ...string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Join(headers, "\r\n") + strings.Repeat("\r\n", min(1, len(headers))) + "Connection: close\r\n\r\n"
	}
	post := func(target, kind, body string) string {
		return "POST " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: " + kind + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	const events = "/v1/events"
	out := map[string]string{
		"no HTTP":             "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 500),
		"HTTP/0.9":            "GET /\r\n",
		"HTTP/2 preface":      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 100),
		"a long line":         "GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\n\r\n",
		"many headers":        get("/live", strings.Repeat("X-A: b\r\n", 100_000)+"X: y"),
		"one long header":     get("/v1/instances", "X-Tenant-Id: "+strings.Repeat("t", 20_000)),
		"a long tenant":       get("/v1/instances", "X-Tenant-Id: "+strings.Repeat("%", 300)),
		"folded headers":      "GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\r\n b\r\n\r\n",
		"two lengths":         "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nContent-Length: 300\r\n\r\n{}\n",
		"length and chunks":   "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /admin/drain HTTP/1.1\r\n\r\n",
		"negative length":     "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
		"a chunk too large":   "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{",
		"chunks without end":  "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n", 4000),
		"cut off":             "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"expect":              "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999\r\nExpect: 100-continue\r\n\r\n",
		"another host":        "GET /v1/instances HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"no host":             "GET /v1/instances HTTP/1.1\r\n\r\n",
		"an absolute target":  "GET http://evil.example/v1/instances HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		"CONNECT":             "CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: 169.254.169.254:80\r\n\r\n",
		"TRACE":               "TRACE /info HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer hostile\r\n\r\n",
		"a file":              get("/.." + canary),
		"a file, escaped":     get("/docs/..%2f..%2f..%2f..%2f..%2f.." + strings.ReplaceAll(canary, "/", "%2f")),
		"a file, twice":       get("/schemas/%252e%252e%252f" + strings.ReplaceAll(canary, "/", "%252f")),
		"a file, backslashes": get(`/schemas/..\..\..\..` + strings.ReplaceAll(canary, "/", `\`)),
		"a file of schemas":   get("/schemas/" + strings.ReplaceAll(canary, "/", "%2f")),
		"a file URL":          get("file://" + canary),
		"NUL in the path":     get("/v1/instances/witness/%00"),
		"invalid UTF-8":       get("/v1/instances/witness/%ff%fe"),
		"a path as key":       get("/v1/instances/witness/..%2f..%2f..%2fhostile"),
		"a key of 30 KiB":     get("/v1/instances/witness/" + strings.Repeat("k", 30_000)),
		"a limit":             get("/v1/instances?limit=99999999999999999999"),
		"a negative limit":    get("/v1/instances?limit=-1"),
		"a limit of words":    get("/v1/instances?limit=1e9"),
		"a cursor":            get("/v1/instances?after=" + strings.Repeat("A", 20_000)),
		"a cursor of dots":    get("/v1/deadletters?after=%2e%2e%2f%00"),
		"a long list of args": get("/v1/instances?" + strings.Repeat("a=b&", 5_000)),
		"semicolons":          get("/v1/audit?process=true;limit=%zz"),
		"a date":              get("/v1/audit?since=99999-99-99T99:99:99Z"),
		"XML":                 post(events, "application/xml", `<!DOCTYPE x [<!ENTITY a SYSTEM "file://`+canary+`">]><x>&a;</x>`),
		"YAML":                post(events, "application/yaml", "a: &a [*a]"),
		"CBOR":                post(events, "application/cbor", "\x9f\x9f\x9f\x9f"+strings.Repeat("\x9f", 50_000)),
		"CBOR of a length":    post(events, "application/cbor", "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"),
		"a form":              post(events, "multipart/form-data; boundary=x", "--x\r\n"+strings.Repeat("A: b\r\n", 1000)),
		"a form without end":  post(events, "multipart/form-data; boundary="+strings.Repeat("x", 10_000), strings.Repeat("--x\r\n", 10_000)),
		"gzip":                "POST " + events + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + strings.Repeat("\x1f\x8b\x08\x00", 5),
		"3 MiB":               post(events, "application/json", `{"aggregate_type":"`+strings.Repeat("a", 3<<20)+`"}`),
		"deep JSON":           post(events, "application/json", `{"aggregate_type":"O","aggregate_id":"1","event_type":"Begin","payload":`+strings.Repeat("[", 1_000_000)),
		"deep JSON, whole":    post(events, "application/json", `{"aggregate_type":"O","aggregate_id":"1","event_type":"Begin","payload":`+strings.Repeat("[", 50_000)+strings.Repeat("]", 50_000)+`}`),
		"wrong types":         post(events, "application/json", `{"aggregate_type":{"a":1},"aggregate_id":[],"event_type":null,"version":"x","timestamp":-1}`),
		"names as paths":      post(events, "application/json", `{"aggregate_type":"../../hostile","aggregate_id":"..","event_type":"/etc/passwd","payload":{"k":"../hostile"}}`),
		"wildcards":           post(events, "application/json", `{"aggregate_type":">","aggregate_id":"*.>","event_type":"Begin","payload":{"k":"*"}}`),
		"a replay of all":     post("/admin/replay", "application/json", `{"saga":"../../../hostile","stream":">","from_seq":18446744073709551615,"version":2147483648}`),
		"a replay of times":   post("/admin/replay", "application/json", `{"saga":"witness","from_time":"9999-12-31T23:59:59Z","dry_run":true}`),
		"a redrive":           post("/v1/deadletters/..%2f..%2fhostile/redrive", "application/json", `{"why":"x","data":`+strings.Repeat("[", 100_000)),
		"a signal's name":     post("/v1/instances/witness/W1/signal/..%2f%00%2e%3e%2a", "application/json", `{}`),
		"another site":        "POST /admin/drain HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 0\r\n\r\n",
		"a web socket":        get("/v1/instances", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13"),
		"ranges":              get("/openapi.json", "Range: bytes="+strings.Repeat("0-,", 5_000)+"0-"),
		"what is accepted":    get("/openapi.json", "Accept: "+strings.Repeat("application/cbor;q=0.1,", 1_000)+"*/*"),
	}
	return out
}

func TestHostileRequests(t *testing.T) {
	beside(t)
	h := newHostile(t)
	for name, request := range hostileRequests(h.canary) {
		began := time.Now()
		answer := h.raw(request)
		if strings.Contains(answer, "CANARY") || strings.Contains(answer, "goroutine ") || strings.Contains(answer, "root:x:0") {
			t.Errorf("%s: %.500s", name, answer)
		}
		if strings.HasPrefix(answer, "HTTP/1.1 500") {
			t.Errorf("%s is our failure: %.500s", name, answer)
		}
		if took := time.Since(began); took > hostileWait {
			t.Errorf("%s: answered after %v", name, took)
		}
		h.witness("the request " + name)
	}
	h.slowly()
	h.sound()
}

// raw sends a request and reads what comes, until the other side ends it or has
// nothing more to say.
func (h *hostile) raw(request string) string {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() { defer close(wrote); _, _ = io.WriteString(conn, request) }() // it may be cut off: that is its right
	answer, _ := io.ReadAll(io.LimitReader(bufio.NewReader(conn), 1<<20))
	_ = conn.Close()
	<-wrote
	return string(answer)
}

// slowly holds many connections that say little, and others that read nothing.
func (h *hostile) slowly() {
	h.t.Helper()
	var all []net.Conn
	for i := range 150 {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, conn)
		_, _ = io.WriteString(conn, []string{"GET /live HTTP/1.1\r\nX", "POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{",
			strings.Repeat("GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 20)}[i%3])
	}
	h.witness("150 slow clients")
	for _, conn := range all {
		_ = conn.Close()
	}
	h.witness("150 slow clients that went away")
}

// peakMemory is what a process has held at most, in KiB; 0 once it has ended. Unlike Maxrss it
// leaves out the process that forked it, which is this test with all that it holds.
func peakMemory(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // there is none once it has ended
	if _, most, ok := strings.Cut(string(text), "VmHWM:"); ok {
		kib, _ := strconv.Atoi(strings.Fields(most)[0])
		return kib
	}
	return 0
}

// watchMemory follows a process until it is stopped, which returns the most that it held, in KiB.
func watchMemory(pid int) (stop func() int) {
	done, most := make(chan struct{}), make(chan int)
	go func() {
		look := time.NewTicker(2 * time.Millisecond)
		defer look.Stop()
		for held := 0; ; {
			held = max(held, peakMemory(pid))
			select {
			case <-done:
				most <- held
				return
			case <-look.C:
			}
		}
	}()
	return func() int { close(done); return <-most }
}

// command runs the binary alone, held to what a command may take, and returns
// what it said.
func command(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hostileWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, theBinary.get(t), args...)
	cmd.Env = harness.Environ("NATS_URL=nats://127.0.0.1:1", "EDDA_URL=127.0.0.1:1")
	cmd.Dir = t.TempDir()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := watchMemory(cmd.Process.Pid)
	_ = cmd.Wait() // the state says how it ended
	held := stop()
	said, short := out.String(), fmt.Sprintf("edda %.150q", args)
	state := cmd.ProcessState
	if code := state.ExitCode(); !slices.Contains([]int{0, 1, 2}, code) {
		t.Errorf("%s ended with %d: %s", short, code, tail(said, 2000))
	}
	if strings.Contains(said, "goroutine ") || strings.Contains(said, "CANARY") {
		t.Errorf("%s said: %s", short, tail(said, 2000))
	}
	if took := state.UserTime() + state.SystemTime(); took > hostileCPU {
		t.Errorf("%s worked for %v", short, took)
	}
	if held<<10 > hostileMemory {
		t.Errorf("%s held %d MiB", short, held>>10)
	}
	if len(said) > hostileSaid {
		t.Errorf("%s said %d bytes", short, len(said))
	}
	if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 && !slices.Contains([]string{"dev", "run"}, args[0]) {
		t.Errorf("%s left %v", short, left)
	}
	return said, state.ExitCode()
}
