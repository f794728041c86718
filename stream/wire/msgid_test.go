package wire

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestIDsOnTheWireAreReadBack(t *testing.T) {
	const subject = "tenant.acme.effect_result.charge.c"
	for _, id := range []string{"c.result", "a b", " a", "a ", "", "100%", "%20", "a\r\nb\x00", "é", "~x y", strings.Repeat("x", 500)} {
		for name, header := range map[string]string{"derived": derivedID("acme", id), "chosen": chosenID(subject, id), "fresh": freshID(rand.Text(), id)} {
			if strings.ContainsAny(header, "\r\n\x00") || strings.HasSuffix(header, " ") && id != "" {
				t.Errorf("%s: %q is no header", name, header)
			}
			if got := (Grammar{}).ID(Message{Subject: subject, Header: nats.Header{headerMsgID: {header}}}); got != id {
				t.Errorf("%s: %q came back as %q", name, id, got)
			}
		}
	}
	for header, want := range map[string]string{ // those of others, and of an older Edda
		"c.result": "c.result", "bob c.result": "bob c.result", "a b c": "a b c", "~short x": "~short x", "100%25": "100%25",
	} {
		if got := (Grammar{}).ID(Message{Subject: subject, Header: nats.Header{headerMsgID: {header}}}); got != want {
			t.Errorf("%q is read as %q", header, got)
		}
	}
}

func TestDifferentIDsAreDifferentHeaders(t *testing.T) {
	seen := map[string]string{}
	for _, tenant := range []string{"", "a", "a b", "a.b", "tenant", "%-"} {
		for _, id := range []string{"", "x", " x", "x ", "x\n", "x_", "x%0A", "b x"} {
			for _, header := range []string{derivedID(tenant, id), chosenID("tenant."+escape(tenant)+".workflow.s.k", id)} {
				if was, is := seen[header]; is {
					t.Errorf("%q is the header of %s and of %q %q", header, was, tenant, id)
				}
				seen[header] = tenant + " " + id
			}
		}
	}
}
