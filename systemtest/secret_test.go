//go:build !race

package systemtest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// payToken is a secret that stands nowhere by chance.
const payToken = "tr0ub4dor&3/+zz\"correct horse"

// tellTale is an upstream that says everything it is told again, also where it
// refuses or breaks off.
func tellTale(heard *sync.Map) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		all := map[string]any{"code": r.Header.Get("X-Token"), "message": "you said " + r.URL.RawQuery, "url": r.URL.String(), "token": r.Header.Get("X-Token"),
			"auth": r.Header.Get("Authorization"), "body": string(body)}
		if r.Header.Get("X-Token") == payToken && r.URL.Query().Get("token") == payToken && strings.Contains(string(body), "tr0ub4dor") {
			heard.Store(r.URL.Path, r.Header.Get("Traceparent"))
		}
		w.Header().Set("X-Echo", url.QueryEscape(payToken))
		switch r.URL.Path {
		case "/declined":
			w.WriteHeader(http.StatusPaymentRequired)
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/broken":
			panic(http.ErrAbortHandler)
		}
		_ = json.NewEncoder(w).Encode(all)
	}
}

const secretSaga = `
saga: small
version: 1
key: event.k
on:
  Begin:
    start: true
    do:
      - {effect: fine, with: {k: =key}}
      - {effect: declined, with: {k: =key}}
      - {effect: down, with: {k: =key}}
      - {effect: broken, with: {k: =key}}
  fine.ok: {set: {fine: =event}}
  declined.failed: {set: {declined: =event}}
  down.timeout: {set: {down: =event}}
  broken.timeout: {set: {broken: =event}}
`

func secretEffects(upstream string) string {
	var b strings.Builder
	for _, name := range []string{"fine", "declined", "down", "broken"} {
		fmt.Fprintf(&b, `---
effect: %[1]s
http: {url: "%[2]s/%[1]s?token=${secret.PAY}", headers: {X-Token: =secret.PAY, Authorization: "Bearer ${secret.PAY}"}, body: {token: =secret.PAY, k: =payload.k}}
ok: status == 200 and headers["x-echo"] != ""
fail: status == 402
retry: {max: 2, backoff: 10ms..20ms}
`, name, upstream)
	}
	return b.String()
}

// TestSecretsAreNowhere greps for a secret in all that Edda writes or shows: its
// log, its files, the streams, the API, the metrics and the traces.
func TestSecretsAreNowhere(t *testing.T) {
	var heard sync.Map
	upstream := httptest.NewServer(tellTale(&heard))
	defer upstream.Close()
	traces := &screen{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(traces, r.Body) }))
	defer collector.Close()
	data, env := t.TempDir(), []string{"EDDA_SECRET_PAY=" + payToken, "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL}
	c := devWith(t, env, data, freeAddr(t), freeAddr(t), write(t, t.TempDir(), "small.yaml", secretSaga+secretEffects(upstream.URL)))
	_, js := client(t, c.nats)
	begin(t, js, "A")
	until(t, "it has begun", func() bool { return len(c.instances("small")) == 1 })
	until(t, "all four have settled", func() bool {
		state, _ := json.Marshal(c.describe("small", "A").Instance.State)
		return strings.Count(string(state), `"attempts"`) == 3 && strings.Contains(string(state), `"fine"`)
	})
	shown := show(t, c)
	if code := c.terminate(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.err)
	}
	shown["log"], shown["traces"] = c.out.String()+c.err.String(), traces.String()
	readFiles(t, data, shown)
	for _, path := range []string{"/fine", "/declined", "/down", "/broken"} {
		parent, ok := heard.Load(path)
		if !ok {
			t.Fatalf("%s was not told the secret: this test shows nothing", path)
		}
		trace, err := hex.DecodeString(strings.Split(parent.(string)+"--", "-")[1])
		if err != nil || len(trace) == 0 || !strings.Contains(shown["traces"], string(trace)) {
			t.Errorf("the trace of %s, %q, was not exported", path, parent)
		}
	}
	grep(t, shown)
}

// show asks for everything that can be asked for.
func show(t *testing.T, c *child) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range []string{"/metrics", "/info", "/health", "/v1/instances", "/v1/instances/small/A", "/v1/instances/small/A/history", "/v1/deadletters"} {
		body, _ := c.fetch(path)
		out[path] = string(body)
	}
	for _, args := range [][]string{{"instance", "describe", "small", "A"}, {"instance", "history", "small", "A"}, {"deadletter", "list"}} {
		out[strings.Join(args, " ")], _ = c.cli(args...)
	}
	return out
}

func readFiles(t *testing.T, dir string, into map[string]string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		into[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func grep(t *testing.T, shown map[string]string) {
	t.Helper()
	encoded, err := json.Marshal(payToken)
	if err != nil {
		t.Fatal(err)
	}
	forms := [][]byte{[]byte(payToken), []byte(url.QueryEscape(payToken)), []byte(url.PathEscape(payToken)), bytes.Trim(encoded, `"`),
		[]byte(base64.StdEncoding.EncodeToString([]byte(payToken))), []byte("tr0ub4dor")}
	replaced := 0
	for where, text := range shown {
		for _, form := range forms {
			if i := strings.Index(text, string(form)); i >= 0 {
				t.Errorf("%s shows the secret as %q: …%q…", where, form, text[max(0, i-60):min(len(text), i+60)])
			}
		}
		replaced += strings.Count(text, "[secret PAY]")
	}
	if replaced == 0 {
		t.Error("nowhere stands what the secret was replaced by: this test shows nothing")
	}
}
