package effects

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
	"edda/internal/jsonvalue"
)

// TestSecretsStayInside: whatever the other side says again, in whatever form,
// no result, no log line and no entry of the ledger holds a secret.
func TestSecretsStayInside(t *testing.T) {
	const value = "hunter2/+\"\\x\nsecond-line"
	secret := func(name string) (string, bool) { return value, name == "EDDA_SECRET_PAY" }
	echoes := map[string]any{
		"plain": value, "url": url.QueryEscape(value), "path": url.PathEscape(value), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
		"line": "said second-line", "hex": hex.EncodeToString([]byte(value)), "HEX": fmt.Sprintf("%X", value), "html": html.EscapeString(value), "lower": strings.ToLower(url.QueryEscape(value)),
		"twice": inJSON(inJSON(value, true), true), value: "a name", "deep": []any{map[string]any{"a": "x" + value + "y"}}, "n": json.Number("1"),
	}
	answers := map[string]func() (Response, error){
		"a success": func() (Response, error) { return Response{Status: 200, Body: echoes}, nil },
		"a failure": func() (Response, error) {
			echoes["code"], echoes["message"] = value, value
			return Response{Status: 402, Body: echoes}, nil
		},
		"an error": func() (Response, error) {
			return Response{}, edda.Classify(edda.Permanent, "dial %s: %w", value, errors.New(value))
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := build(t)
				h.stop()
				core, logs := observer.New(zap.DebugLevel)
				o := h.options()
				o.Log, o.Secrets = zap.New(core), Secrets{Environ: secret}
				w, err := newWorker(h.db, o, compile(t, strings.Replace(charge, "result: {id: =body.id}", "result: =body", 1)))
				if err != nil {
					t.Fatal(err)
				}
				h.bank.answers(func(context.Context, int, Call) (Response, error) { return answer() })
				handle(t, w, new(cmd("c1")))
				claim, _, err := h.db.Claim("acme", "c1")
				text := fmt.Sprintf("%s %s %v", h.one(t).Payload, claim.Result, logs.All())
				for _, form := range append(spellings(value), "hunter2") {
					if err != nil || strings.Contains(text, form) {
						t.Fatalf("%q is in %s %v", form, text, err)
					}
				}
				if !strings.Contains(text, "[secret PAY]") {
					t.Errorf("nothing was replaced in %s", text)
				}
			})
		})
	}
}

func TestRedactorLeavesTheRestAlone(t *testing.T) {
	r := newRedactor(map[string]any{"A": "abcd", "B": "abcdef", "SHORT": "x", "EMPTY": ""})
	for text, want := range map[string]string{"x abcdef abcd x": "x [secret B] [secret A] x", "": "", "abc": "abc"} {
		if got := r.text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := (redactor{}).text("abcd"); got != "abcd" {
		t.Errorf("without secrets: %q", got)
	}
}

// TestASecretIsKnownHoweverItIsWritten, within other text and alone.
func TestASecretIsKnownHoweverItIsWritten(t *testing.T) {
	const value = `Pä<s>'&"w/+\ 9`
	r := newRedactor(map[string]any{"PW": value, "PIN": "20261123", "LONG": "18446744073709551615"})
	for name, text := range map[string]string{
		"hex": hex.EncodeToString([]byte(value)), "upper hex": fmt.Sprintf("%X", value), "hex within": hex.EncodeToString([]byte("user:" + value + "!")),
		"html": html.EscapeString(value), "html of PHP": "Pä&lt;s&gt;&#039;&amp;&quot;w/+\\ 9", "html of Python": "Pä&lt;s&gt;&#x27;&amp;&quot;w/+\\ 9", "html of Java": "Pä&lt;s&gt;&#39;&amp;&quot;w/+\\ 9", "html of XML": "Pä&lt;s&gt;&apos;&amp;&quot;w/+\\ 9",
		"html without quotes": "Pä&lt;s&gt;'&amp;\"w/+\\ 9", "query": url.QueryEscape(value), "lower query": "P%c3%a4%3cs%3e%27%26%22w%2f%2b%5c+9", "lower path": "P%c3%a4%3cs%3e%27&%22w%2f+%5c%209",
		"JSON": inJSON(value, true), "JSON twice": inJSON(inJSON(value, true), true), "JSON twice, plain": inJSON(inJSON(value, false), false), "JSON twice, mixed": inJSON(inJSON(value, false), true),
	} {
		if got := r.text("a " + text + " b"); !strings.HasPrefix(got, "a ") || !strings.Contains(got, "[secret PW]") || strings.Contains(got, text) {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	given := map[string]any{"pin": 20261123, "long": json.Number("18446744073709551615"), "n": 2026, "m": json.Number("1e999")}
	if got, _ := jsonvalue.Encode(r.value(given)); string(got) != `{"long":"[secret LONG]","m":1e999,"n":2026,"pin":"[secret PIN]"}` {
		t.Errorf("%s", got)
	}
}

// TestASecretIsReadAgain: a file that was rotated is seen without a restart.
func TestASecretIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := build(t)
		h.stop()
		value := "first"
		o := h.options()
		o.Secrets = Secrets{Environ: func(string) (string, bool) { return value, true }}
		w, err := newWorker(h.db, o, compile(t, charge))
		if err != nil {
			t.Fatal(err)
		}
		h.bank.answers(func(_ context.Context, _ int, c Call) (Response, error) {
			return Response{Status: 200, Body: map[string]any{"id": c.Config["headers"].(map[string]any)["Authorization"]}}, nil
		})
		for i, v := range []string{"first", "second", "second"} {
			value = v
			handle(t, w, new(cmd(fmt.Sprint("c", i))))
			if got := string(h.got()[i].Payload); got != `{"id":"[secret PAY]"}` {
				t.Errorf("%s: the result is %s", v, got)
			}
			if got := h.bank.all()[i].Config["headers"].(map[string]any)["Authorization"]; got != v {
				t.Errorf("called with %v, want %s", got, v)
			}
		}
	})
}

// TestRedactorSeesWithinBase64: as in a header Authorization: Basic that the
// other side says again.
func TestRedactorSeesWithinBase64(t *testing.T) {
	const value = "hunter2/\xff\xfe+~?"
	r := newRedactor(map[string]any{"PW": value})
	for _, user := range []string{"", "a", "ab", "abc", "shop"} {
		for _, after := range []string{"", "x", "xy", "xyz"} {
			for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
				text := encoding.EncodeToString([]byte(user + ":" + value + after))
				if got := r.text("Basic " + text + " end"); !strings.Contains(got, "[secret PW]") || strings.Contains(got, text[6:18]) {
					t.Errorf("%q before and %q after: %q became %q", user, after, text, got)
				}
			}
		}
	}
}
