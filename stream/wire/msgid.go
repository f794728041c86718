package wire

import (
	"strings"

	"github.com/nats-io/nats.go"
)

// A stream drops a message whose Nats-Msg-Id it has seen within its window for
// duplicates, whatever its subject. All tenants share the streams, and callers choose
// ids. So the ids that Edda publishes under are qualified:
//
//	acme 0192….result                       derived by Edda, for tenant acme
//	tenant.acme.aggregate.Order.O1 order-7  chosen by a caller, for this subject
//	~F3K2… 0192….result                     either, where somebody else had its id
//
// The first word tells whose id it is. No tenant's name and no subject has a space, no
// escaped tenant has a dot, and the third kind cannot be foreseen. Programs that publish
// to NATS by themselves choose their headers, so a duplicate is looked at all the same.

// freshMark begins the first word of an id that nobody can have foreseen.
const freshMark = "~"

// freshLen is the mark and a text of crypto/rand.Text.
const freshLen = len(freshMark) + 26

// derivedID is the Nats-Msg-Id of what Edda publishes for a tenant under an id that it
// derived.
func derivedID(tenant, id string) string { return escape(tenant) + " " + headerID(id) }

// chosenID is the Nats-Msg-Id of what a caller sends to a subject under an id of his.
func chosenID(subject, id string) string { return subject + " " + headerID(id) }

// freshID is a Nats-Msg-Id that nobody has taken, where nobody could foresee the text.
func freshID(text, id string) string { return freshMark + text + " " + headerID(id) }

// headerID writes an id so that different ids are different headers: what would end a
// header, and the space at an end, which is cut off there, are written as %XX.
func headerID(id string) string {
	plain := func(i int) bool {
		c := id[i]
		return c > ' ' && c != 0x7f && c != '%' || c == ' ' && i < len(id)-1
	}
	for i := range len(id) {
		if plain(i) {
			continue
		}
		b := append(make([]byte, 0, len(id)+8), id[:i]...)
		for ; i < len(id); i++ {
			if plain(i) {
				b = append(b, id[i])
			} else {
				b = append(b, '%', hexDigits[id[i]>>4], hexDigits[id[i]&15])
			}
		}
		return string(b)
	}
	return id
}

// ID is the id of a message whose body has none: the Nats-Msg-Id as its publisher knows
// it, without what qualifies it, else its place in the stream.
func (g Grammar) ID(m Message) string {
	written := m.header(headerMsgID)
	if written == "" {
		return m.place()
	}
	first, id, found := strings.Cut(written, " ")
	if !found {
		return written
	}
	s, err := g.Parse(m.Subject)
	if first == m.Subject || err == nil && first == escape(s.Tenant) || strings.HasPrefix(first, freshMark) && len(first) == freshLen {
		return unescape(id)
	}
	return written
}

// Rename gives the message a Nats-Msg-Id that nobody has taken. The text is of crypto/rand.
func (g Grammar) Rename(m *nats.Msg, text string) {
	m.Header[headerMsgID] = []string{freshID(text, g.ID(Message{Subject: m.Subject, Header: m.Header}))}
}
