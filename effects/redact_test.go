package effects

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
)

// TestSecretsStayInside: whatever the other side says again, in whatever form,
// no result, no log line and no entry of the ledger holds a secret.
func TestSecretsStayInside(t *testing.T) {
	const value = "hunter2/+\"\\x\nsecond-line"
	secret := func(name string) (string, bool) { return value, name == "EDDA_SECRET_PAY" }
	echoes := map[string]any{
		"plain": value, "url": url.QueryEscape(value), "path": url.PathEscape(value), "base64": base64.StdEncoding.EncodeToString([]byte(value)),
		"line": "said second-line", value: "a name", "deep": []any{map[string]any{"a": "x" + value + "y"}}, "n": json.Number("1"),
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
				newJob(w, w.entrance("charge").admission).handle(noEnd(t), new(cmd("c1")))
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
		for i, v := range []string{"first", "second"} {
			value = v
			newJob(w, w.entrance("charge").admission).handle(noEnd(t), new(cmd(fmt.Sprint("c", i))))
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
