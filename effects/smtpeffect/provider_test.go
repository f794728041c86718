package smtpeffect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
)

// patience bounds what should end at once.
const patience = 10 * time.Second

func call(key string, config map[string]any) effects.Call {
	return effects.Call{Effect: "mail", ID: "id-" + key, Key: key, Tenant: "acme", Config: config}
}

func TestSuite(t *testing.T) {
	o, hanging := open(t, how{security: securityStartTLS}), open(t, how{security: securityTLS})
	hanging.breaks(".", stall)
	nobody := o.mailTo(securityStartTLS, map[string]any{"server": nobody(t)})
	effecttest.Run(t, effecttest.Fixture{
		Provider:    provider(t),
		Accepted:    o.mailTo(securityStartTLS, nil),
		Hangs:       hanging.mailTo(securityTLS, nil),
		Unreachable: nobody,
		Impossible:  o.mailTo(securityStartTLS, map[string]any{"subject": "a\r\nBcc: evil@evil.example"}),
		Seen: func(key string) int {
			id := messageID(call(key, nil), "shop.example")
			return o.seen(id) + hanging.seen(id)
		},
	})
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// credentials are those that the office knows.
func credentials() map[string]any { return map[string]any{"username": "ann", "password": "s3cret"} }

// TestStages breaks the conversation at every stage in every way.
func TestStages(t *testing.T) {
	for _, security := range []string{securityNone, securityTLS, securityStartTLS} {
		stages := []string{"connect", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", "."}
		if security == securityStartTLS {
			stages = []string{"connect", "EHLO", "STARTTLS"} // what follows is encrypted
		}
		for _, stage := range stages {
			for _, what := range []string{temporary, permanent, drop, stall} {
				t.Run(strings.Join([]string{security, stage, what}, " "), func(t *testing.T) { breakAt(t, security, stage, what) })
			}
		}
	}
}

func breakAt(t *testing.T, security, stage, what string) {
	o := open(t, how{security: security, mechanisms: []string{"PLAIN"}})
	o.breaks(stage, what)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-o.stalled:
			cancel()
		case <-ctx.Done():
		}
	}()
	began := time.Now()
	r, err := provider(t).Call(ctx, call("k", o.mailTo(security, credentials())))
	if took := time.Since(began); took > patience {
		t.Errorf("took %s", took)
	}
	if what == temporary || what == permanent {
		answered(t, r, err, stage, what)
	} else {
		broken(t, err, stage)
	}
	if n := len(o.got()); n > 0 && (stage != "." || what == temporary || what == permanent) {
		t.Errorf("the server took %d mails", n)
	}
}

// answered checks what a refusal becomes.
func answered(t *testing.T, r effects.Response, err error, stage, what string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	status, again := 554, false
	if what == temporary {
		status, again = 451, true
	}
	if r.Status != status || r.Retry != again || !r.Refused || r.Unknown || !r.Apart {
		t.Errorf("%+v", r)
	}
	body := r.Body.(map[string]any)
	if body["code"] != status || !strings.HasPrefix(fmt.Sprint(body["message_id"]), "<k.acme@") {
		t.Errorf("body %v", body)
	}
	if text := fmt.Sprint(body["message"]); stage != "AUTH" && !strings.Contains(text, what[10:]) {
		t.Errorf("message %q", text)
	}
	if body["enhanced"] != strings.Fields(what)[1] {
		t.Errorf("enhanced %v", body["enhanced"])
	}
}

// broken checks what a conversation without an answer becomes.
func broken(t *testing.T, err error, stage string) {
	t.Helper()
	if err == nil || errors.Is(err, edda.Permanent) || errors.Is(err, effects.ErrNotSent) != (stage != ".") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "s3cret") {
		t.Errorf("the error shows the password: %v", err)
	}
}

// TestHalfAMailIsNoMail: what was sent of a message when its call ended must
// not become a mail, also when the server goes on reading.
func TestHalfAMailIsNoMail(t *testing.T) {
	for _, what := range []string{drop, stall} {
		o := open(t, how{prepare: func(s *smtp.Server) { s.MaxMessageBytes = 20 << 20 }})
		o.breaks("body", what)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			select {
			case <-o.stalled:
			case <-t.Context().Done():
			}
			if what == stall {
				cancel()
			}
		}()
		big := []any{map[string]any{"name": "big", "content": strings.Repeat("x", 3<<20)}}
		_, err := provider(t).Call(ctx, call("k", o.mailTo(securityNone, map[string]any{"attachments": big})))
		cancel()
		broken(t, err, "body")
		close(o.resume)
		o.ended(t)
		if n := len(o.got()); n != 0 {
			t.Errorf("%s: the server took half a mail", what)
		}
	}
}

// TestACallThatEndsBeforeTheLastLineSendsNoMail: all of the message is written
// then, and nothing may follow it.
func TestACallThatEndsBeforeTheLastLineSendsNoMail(t *testing.T) {
	o := open(t, how{})
	l, err := emailOf(call("k", o.mailTo(securityNone, map[string]any{"text": strings.Repeat("long ", 5000)})), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s, err := provider(t).connect(t.Context(), server{address: o.address, security: securityNone, hello: "shop.example", hide: strings.NewReplacer()})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.client.Hello("shop.example"), s.envelope(l)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.data(ctx, l)
	broken(t, err, "body")
	s.end(replied(err))
	o.ended(t)
	if n := len(o.got()); n != 0 {
		t.Error("the mail was sent")
	}
}

// ended waits until the server is done with a session.
func (o *office) ended(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		o.mu.Lock()
		n := o.sessions
		o.mu.Unlock()
		if n > 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the session does not end")
}

func TestOneRefusedRecipientRefusesTheMail(t *testing.T) {
	no := &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	later := &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 2, 0}, Message: "greylisted"}
	tests := []struct {
		name    string
		rejects map[string]*smtp.SMTPError
		status  int
		retry   bool
		message string
	}{
		{"for good", map[string]*smtp.SMTPError{"b@x.example": no}, 550, false, "1 of 3 recipients refused: no such user"},
		{"for now", map[string]*smtp.SMTPError{"c@x.example": later}, 450, true, "1 of 3 recipients refused: greylisted"},
		{"for now and for good", map[string]*smtp.SMTPError{"a@x.example": later, "c@x.example": no}, 550, false, "2 of 3 recipients refused: no such user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := open(t, how{})
			o.rejects = tt.rejects
			config := o.mailTo(securityNone, map[string]any{"to": []any{"a@x.example"}, "cc": "b@x.example", "bcc": []any{"c@x.example", "a@x.example"}})
			r, err := provider(t).Call(t.Context(), call("k", config))
			if err != nil || r.Status != tt.status || r.Retry != tt.retry || !r.Refused {
				t.Fatalf("%+v %v", r, err)
			}
			body := r.Body.(map[string]any)
			if body["message"] != tt.message || len(body["rejected"].([]any)) != len(tt.rejects) {
				t.Errorf("body %v", body)
			}
			for _, v := range body["rejected"].([]any) {
				one := v.(map[string]any)
				if want := tt.rejects[fmt.Sprint(one["address"])]; want == nil || one["code"] != want.Code || one["message"] != want.Message {
					t.Errorf("rejected %v", one)
				}
			}
			if said := o.commands(); said != "EHLO MAIL RCPT RCPT RCPT RSET QUIT" || len(o.got()) != 0 {
				t.Errorf("said %s, %d mails", said, len(o.got()))
			}
		})
	}
}

func TestTheServerThatGoesAwayAmongRecipients(t *testing.T) {
	o := open(t, how{})
	o.rejects = map[string]*smtp.SMTPError{"a@x.example": {Code: 421, Message: "closing"}}
	r, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, map[string]any{"to": []any{"a@x.example", "b@x.example"}})))
	if err != nil || r.Status != 421 || !r.Retry || strings.Count(o.commands(), "RCPT") != 1 {
		t.Errorf("%+v %v after %s", r, err, o.commands())
	}
}

// TestAnyReplyOfTheTwoHundredsTakesTheMail: RFC 5321 has clients look at the first digit.
func TestAnyReplyOfTheTwoHundredsTakesTheMail(t *testing.T) {
	for reply, unknown := range map[string]bool{"250 ok": false, "251 2.1.5 forwarded": false, "354 go on": true, "what?": true, "999 x": true} {
		r, err := provider(t).Call(t.Context(), call("k", scripted(t, reply).mailTo(securityNone, nil)))
		if unknown && (err == nil || errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent)) {
			t.Errorf("%s: %+v %v", reply, r, err)
		}
		if !unknown && (err != nil || r.Status/100 != 2 || r.Retry || r.Refused || r.Unknown) {
			t.Errorf("%s: %+v %v", reply, r, err)
		}
	}
}

// scripted is a server that says 250 to everything and reply to a mail.
func scripted(t *testing.T, reply string) *office {
	return script(t, func(command string) string {
		switch command {
		case "":
			return "220 hello"
		case "DATA":
			return "354 go"
		case ".":
			return reply
		default:
			return "250 ok"
		}
	})
}

func TestRepliesThatMeanNothing(t *testing.T) {
	for _, at := range []string{"", "EHLO", "MAIL", "RCPT", "DATA"} {
		for _, reply := range []string{"what?", "354 go", "999 x", strings.Repeat("2", 9000)} {
			o := script(t, func(command string) string {
				switch command {
				case at, strings.Replace(at, "EHLO", "HELO", 1):
					return reply
				case "":
					return "220 hello"
				default:
					return "250 ok"
				}
			})
			if at == "DATA" && reply == "354 go" {
				continue
			}
			_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, nil)))
			if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || len(fmt.Sprint(err)) > 2*maxText {
				t.Errorf("%.20s at %q: %.200v", reply, at, err)
			}
		}
	}
}

// endless is a server that never stops talking.
type endless struct{ net.Conn }

func (endless) Read(p []byte) (int, error) { return copy(p, strings.Repeat("250-more\r\n", 1000)), nil }

func TestAServerThatNeverStopsTalkingIsCutOff(t *testing.T) {
	b := &bounded{Conn: endless{}, left: maxReplies}
	got, err := io.ReadAll(b)
	if err == nil || len(got) != maxReplies {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	o := script(t, func(command string) string {
		if command == "EHLO" {
			return strings.Repeat("250-more\r\n", 2*maxReplies/10) + "250 at last"
		}
		return map[string]string{"": "220 hi", "DATA": "354 go"}[command] + "250 ok"
	})
	_, err = provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, nil)))
	repairable(t, err, "does not stop talking")
}

func TestForbiddenServers(t *testing.T) {
	guard, err := dial.New(dial.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := open(t, how{})
	_, err = New(Options{Guard: guard}).Call(t.Context(), call("k", o.mailTo(securityNone, nil)))
	if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "effects.allow") {
		t.Errorf("error %v", err)
	}
}

func TestTheServersSizeIsRespected(t *testing.T) {
	o := open(t, how{prepare: func(s *smtp.Server) { s.MaxMessageBytes = 1000 }})
	_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityNone, map[string]any{"text": strings.Repeat("x", 2000)})))
	if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "the server takes 1000") {
		t.Errorf("error %v", err)
	}
}
