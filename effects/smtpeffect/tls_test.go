package smtpeffect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"edda"
	"edda/effects"
)

// repairable checks the error of what an operator has to repair: nothing was
// sent, and it is worth trying again.
func repairable(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestThereIsNoFallingBackToPlainText(t *testing.T) {
	o := open(t, how{mechanisms: []string{"PLAIN"}})
	for _, security := range []any{securityStartTLS, nil} {
		config := o.mailTo(securityStartTLS, credentials())
		if config["security"] = security; security == nil {
			delete(config, "security")
		}
		_, err := provider(t).Call(t.Context(), call("k", config))
		repairable(t, err, "offers no STARTTLS")
	}
	_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityTLS, credentials())))
	repairable(t, err, "tls: ")
	for _, word := range []string{"AUTH", "MAIL"} {
		if strings.Contains(o.commands(), word) {
			t.Errorf("the server heard %s", o.commands())
		}
	}
}

func TestCertificatesAreVerified(t *testing.T) {
	for _, security := range []string{securityStartTLS, securityTLS} {
		o, other := open(t, how{security: security}), open(t, how{})
		for want, tls := range map[string]map[string]any{
			"unknown authority": {}, "unknown authority ": {"ca": other.ca}, "valid for": {"ca": o.ca, "server_name": "mail.example"},
		} {
			_, err := provider(t).Call(t.Context(), call("k", o.mailTo(security, map[string]any{"tls": tls})))
			repairable(t, err, strings.TrimSpace(want))
		}
		r, err := provider(t).Call(t.Context(), call("k", o.mailTo(security, map[string]any{"tls": map[string]any{"ca": o.ca, "server_name": "localhost"}})))
		if err != nil || r.Status != 250 || len(o.got()) != 1 {
			t.Errorf("%s: %+v %v", security, r, err)
		}
	}
}

// TestAHandshakeThatStallsEndsWithItsCall: the other side takes the connection
// and says nothing.
func TestAHandshakeThatStallsEndsWithItsCall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, security := range securities() {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if c, err := l.Accept(); err == nil {
				defer c.Close()
				cancel()
				<-t.Context().Done()
			}
		}()
		config := (&office{address: l.Addr().String()}).mailTo(security, map[string]any{"tls": nil})
		_, err := provider(t).Call(ctx, call("k", config))
		repairable(t, err, "")
		cancel()
	}
}

// TestWhatIsSaidBeforeTLSDoesNotCount: lines that somebody has slipped in
// before the handshake are not taken for the server's.
func TestWhatIsSaidBeforeTLSDoesNotCount(t *testing.T) {
	o := script(t, func(command string) string {
		switch command {
		case "":
			return "220 hi"
		case "EHLO":
			return "250-hi\r\n250 STARTTLS"
		default:
			return "220 go\r\n250-hi\r\n250 AUTH PLAIN\r\n235 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n250 ok"
		}
	})
	_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityStartTLS, map[string]any{"tls": nil})))
	if !errors.Is(err, effects.ErrNotSent) {
		t.Errorf("error %v", err)
	}
}
