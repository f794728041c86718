package wire

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/internal/jsonvalue"
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

// freshMark begins the first word of an unpredictable id.
const freshMark = "~"

// freshLen is the length of the mark and a crypto/rand.Text.
const freshLen = len(freshMark) + 26

// derivedID returns the Nats-Msg-Id of a message that Edda publishes for a tenant under a derived
// id.
func derivedID(tenant, id string) string { return escape(tenant) + " " + headerID(id) }

// chosenID returns the Nats-Msg-Id of a message that a caller publishes to a subject under an id of
// its choice.
func chosenID(subject, id string) string { return subject + " " + headerID(id) }

// freshID returns an unused Nats-Msg-Id. The text must be unpredictable.
func freshID(text, id string) string { return freshMark + text + " " + headerID(id) }

// headerID escapes an id injectively for a header. It writes %XX for control characters, '%', and a
// space at the end, which NATS would cut off.
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

// ID returns the id of a message whose body has none: its Nats-Msg-Id without the qualifying word,
// or else its place in the stream. A member of a batch has its place in the batch behind that.
func (g Grammar) ID(m Message) string {
	written := m.header(headerMsgID)
	if written == "" {
		return m.place()
	}
	first, id, found := strings.Cut(written, " ")
	if !found {
		return m.member(written)
	}
	s, err := g.Parse(m.Subject)
	if first == m.Subject || err == nil && first == escape(s.Tenant) || strings.HasPrefix(first, freshMark) && len(first) == freshLen {
		return m.member(unescape(id))
	}
	return m.member(written)
}

// Rename sets an unused Nats-Msg-Id. The text must be a crypto/rand.Text.
func (g Grammar) Rename(m *nats.Msg, text string) {
	m.Header[headerMsgID] = []string{freshID(text, g.ID(Message{Subject: m.Subject, Header: m.Header}))}
}

// Copy returns the message to publish it again, without the headers of NATS. An echo becomes a
// result, because sagas do not read new echoes.
func (g Grammar) Copy(m Message) *nats.Msg {
	header := nats.Header{}
	for name, values := range m.Header {
		if !strings.HasPrefix(name, "Nats-") {
			header[name] = values
		}
	}
	subject := m.Subject
	if s, err := g.Parse(subject); err == nil && s.Family == FamilyEcho {
		subject = strings.TrimSuffix(subject, echoToken)
	}
	return &nats.Msg{Subject: subject, Header: header, Data: m.Data}
}

// Fresh gives a message a new id. An effect command also gets a new command id, because its old one
// was answered as failed. Its result will have the new id.
func (c Codec) Fresh(m *nats.Msg, id string) (*nats.Msg, error) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	s, err := c.Parse(m.Subject)
	if err != nil { // such as an id with an unescaped dot
		return nil, edda.Classify(edda.Permanent, "%w: it would die again: publish the event to the right subject, and drop this dead letter", err)
	}
	m.Header[headerMsgID] = []string{derivedID(s.Tenant, id)}
	if s.Family != FamilyEffect {
		return m, nil
	}
	s.ID, s.Short = id, false
	if m.Subject, err = c.Build(s); err != nil {
		return nil, edda.Classify(edda.Permanent, "subject of the command: %w", err)
	}
	var body map[string]json.RawMessage
	if jsonvalue.Unmarshal(m.Data, &body) != nil || body["command_id"] == nil {
		return m, nil
	}
	body["command_id"], err = encode(id)
	if err == nil {
		m.Data, err = encode(&body)
	}
	return m, err
}
