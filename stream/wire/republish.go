package wire

import (
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/internal/jsonvalue"
)

// Copy returns the message to publish once more, without the headers of NATS. An echo
// becomes a result, because sagas do not read new echoes.
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

// Fresh gives a message an id under which nothing was done yet. An effect command
// is known by its command id, under which it was answered as failed: it gets a
// new one, and its result speaks of that.
func (c Codec) Fresh(m *nats.Msg, id string) (*nats.Msg, error) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	s, err := c.Parse(m.Subject)
	if err != nil { // a subject that is none of ours goes back there
		m.Header[headerMsgID] = []string{chosenID(m.Subject, id)}
		return m, nil
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
