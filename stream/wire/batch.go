package wire

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"edda"
)

// MaxMembers bounds the CloudEvents of a batch over NATS. All of them are in memory at once, and the
// buffer of a stream has room for two such batches.
const MaxMembers = 1000

// Members splits a batch of CloudEvents into messages in structured mode, in its order. It returns nil
// if the message is no batch, or cannot be split: then its event is malformed and says why.
func (c Codec) Members(m Message) []Message {
	if !m.batch() || m.Member > 0 || len(m.Data) > c.maxPayload() || !c.holdsEvents(m) {
		return nil
	}
	list, err := m.members(MaxMembers)
	if err != nil || len(list) == 0 {
		return nil
	}
	header := nats.Header{}
	for name, values := range m.Header {
		if !strings.EqualFold(name, headerContentType) {
			header[name] = values
		}
	}
	header[headerContentType] = []string{event.ApplicationCloudEventsJSON}
	out := make([]Message, len(list))
	for i, data := range list {
		out[i] = m
		out[i].Header, out[i].Data, out[i].Member = header, data, i+1
	}
	return out
}

// Split returns the Members of a batch, and otherwise the message itself.
func (c Codec) Split(m Message) []Message {
	if members := c.Members(m); members != nil {
		return members
	}
	return []Message{m}
}

// holdsEvents reports whether the message's subject is one of events.
func (c Codec) holdsEvents(m Message) bool {
	if c.Mappings[m.Stream] != nil {
		return true
	}
	s, err := c.Parse(m.Subject)
	return err == nil && (s.Family == FamilyAggregate || s.Family == FamilyFact)
}

// members returns the CloudEvents of a batch, and an error if there are more than most.
func (m Message) members(most int) ([]json.RawMessage, error) {
	if t := m.header(headerContentType); !isJSON(t) {
		return nil, refuse(edda.DeadUndecodable, "a batch of type %.80q is not JSON: send %s", t, event.ApplicationCloudEventsBatchJSON)
	}
	var list []json.RawMessage
	err := json.Unmarshal(m.Data, &list)
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return nil, refuse(edda.DeadUndecodable, "the batch is not a list of CloudEvents: its body is a JSON %s", other.Value)
	}
	if err != nil {
		return nil, refuse(edda.DeadUndecodable, "the batch is not a list of CloudEvents: %v", err)
	}
	if list == nil {
		return nil, refuse(edda.DeadUndecodable, "the batch is null: want a list of CloudEvents")
	}
	if len(list) > most {
		return nil, refuse(edda.DeadTooLarge, "the batch has %d CloudEvents, allowed are %d: send smaller ones", len(list), most)
	}
	return list, nil
}

// unsplit says why a batch has no Members.
func (m Message) unsplit() error {
	if _, err := m.members(MaxMembers); err != nil {
		return err
	}
	return refuse(edda.DeadUndecodable, "the batch has no CloudEvents: drop this dead letter, and publish batches only with events")
}
