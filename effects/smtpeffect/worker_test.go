package smtpeffect

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"edda"
	"edda/effects"
	"edda/effects/effecttest"
	"edda/manifests"
)

// post is a source and a publisher of channels.
type post struct {
	in  chan effects.Command
	out chan effects.Result
}

func (p post) Fetch(ctx context.Context, _ string, _ int, _ time.Duration) ([]effects.Delivery, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-p.in:
		return []effects.Delivery{&effecttest.FakeDelivery{C: c}}, nil
	}
}

func (p post) PublishResult(_ context.Context, r effects.Result) error {
	p.out <- r
	return nil
}

// work runs a worker with a real store and this provider until the test ends.
func work(t *testing.T, manifest string, secrets map[string]string) post {
	t.Helper()
	e, problems := compile(t, manifest)
	if e == nil {
		t.Fatal(problems)
	}
	p := post{make(chan effects.Command), make(chan effects.Result, 10)}
	effecttest.StartWorker(t, effects.Options{
		Source: p, Publisher: p, Providers: map[string]effects.Provider{"smtp": provider(t)},
		Secrets: effects.Secrets{Environ: func(name string) (string, bool) {
			v, found := secrets[strings.TrimPrefix(name, "EDDA_SECRET_")]
			return v, found
		}},
	}, e)
	return p
}

// example is the embedded manifest, with this office as its mail server.
func (o *office) example(t *testing.T) string {
	t.Helper()
	b, err := fs.ReadFile(manifests.Examples(), "effect-smtp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, here := string(b), "server: "+o.address+"\n  tls: {ca: =secret.MAIL_CA}\n"
	out := strings.Replace(text, "server: mail.example:587\n", here, 1)
	if out == text {
		t.Fatal("the example has another server")
	}
	return strings.Replace(out, "10s..10m", "1ms..5ms", 1)
}

func (o *office) secrets() map[string]string {
	return map[string]string{"MAIL_CA": o.ca, "MAIL_USER": "ann", "MAIL_PASSWORD": "s3cret"}
}

const invoice = `{"customer":"<Ann> & Böb","email":"ann@home.example","number":"I-7","file":"JVBERi0="}`

func TestTheExampleSendsItsMail(t *testing.T) {
	o := open(t, how{security: securityStartTLS, mechanisms: []string{"PLAIN"}})
	p := work(t, o.example(t), o.secrets())
	p.in <- effects.Command{Tenant: "acme", ID: "c1", Effect: "mail_invoice", Payload: json.RawMessage(invoice)}
	r := <-p.out
	if r.Outcome != edda.Succeeded || string(r.Payload) != `{"message_id":"<c1.acme@shop.example>"}` || r.Attempts != 1 {
		t.Fatalf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
	got := read(t, o.got()[0])
	if got.from != "billing@shop.example" || fmt.Sprint(got.to) != "[ann@home.example archive@shop.example]" || fmt.Sprint(o.authed) != "[PLAIN ann]" {
		t.Errorf("from %s to %s as %s", got.from, got.to, o.authed)
	}
	if got.header("Subject") != "Your invoice I-7" || got.header("X-Invoice") != "I-7" || got.header("Bcc") != "" {
		t.Errorf("header %v", got.Header)
	}
	if text := got.part("text/plain"); text != "Dear <Ann> & Böb,\n\nyour invoice I-7 is attached.\n" {
		t.Errorf("text %q", text)
	}
	if html := got.part("text/html"); !strings.HasPrefix(html, "<p>Dear &lt;Ann&gt; &amp; Böb,</p>") {
		t.Errorf("html %q", html)
	}
	if got.part("I-7.pdf") != "%PDF-" {
		t.Errorf("parts %q", got.parts)
	}
}

func TestATemporaryRefusalIsTriedAgainWithTheSameMessageID(t *testing.T) {
	o := open(t, how{security: securityStartTLS, mechanisms: []string{"PLAIN"}})
	o.greylisted = 3 // of two recipients a call
	p := work(t, o.example(t), o.secrets())
	p.in <- effects.Command{Tenant: "acme", ID: "c1", Effect: "mail_invoice", IdempotencyKey: "k1", Payload: json.RawMessage(invoice)}
	if r := <-p.out; r.Outcome != edda.Succeeded || r.Attempts != 3 || o.seen("<k1.acme@shop.example>") != 1 {
		t.Errorf("result %s %s after %d calls", r.Outcome, r.Payload, r.Attempts)
	}
}

// TestARefusalAfterAnUnknownAttemptIsNoFailure: the first mail was taken and
// its reply lost; that the second is refused does not mean that nobody got it.
func TestARefusalAfterAnUnknownAttemptIsNoFailure(t *testing.T) {
	for reply, want := range map[string]edda.Outcome{drop: edda.TimedOut, permanent: edda.Failed} {
		o := open(t, how{security: securityStartTLS, mechanisms: []string{"PLAIN"}})
		o.after(reply, &smtp.SMTPError{Code: 550, Message: "no such user"})
		p := work(t, o.example(t), o.secrets())
		p.in <- effects.Command{Tenant: "acme", ID: "c1", Effect: "mail_invoice", Payload: json.RawMessage(invoice)}
		r := <-p.out
		if r.Outcome != want || !strings.Contains(string(r.Payload), `"code":"55`) {
			t.Errorf("%s: result %s %s", reply, r.Outcome, r.Payload)
		}
		if strings.Contains(string(r.Payload), "s3cret") {
			t.Errorf("the password is in %s", r.Payload)
		}
	}
}
