package wire

import (
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"

	"edda"
)

// MaxBatch bounds the CloudEvents of a batch over HTTP. They are stored one after the other, and the sender
// waits for all of them.
const MaxBatch = 256

// ContentTypes are the content types of CloudEvents over HTTP: of one, and of a batch. In binary
// mode the content type is that of the data.
func ContentTypes() []string {
	return []string{event.ApplicationCloudEventsJSON, event.ApplicationCloudEventsBatchJSON}
}

// Posted is the body of an HTTP request that has CloudEvents.
type Posted struct {
	// Events have one CloudEvent each.
	Events []Message
	// Batch is set for a batch, which may also have one CloudEvent or none.
	Batch bool
}

// IsPosted reports whether a request has CloudEvents, by its headers.
func IsPosted(header map[string][]string) bool { return isCloudEvent(Message{Header: header}) }

// ReadPosted splits the body of a request for which IsPosted is true.
func ReadPosted(header map[string][]string, body []byte) (Posted, error) {
	m := Message{Header: header, Data: body}
	if !m.batch() {
		return Posted{Events: []Message{m}}, nil
	}
	list, err := m.members(MaxBatch)
	if err != nil {
		return Posted{Batch: true}, err
	}
	one := nats.Header{headerContentType: {event.ApplicationCloudEventsJSON}}
	if t := m.header(headerTraceparent); t != "" {
		one[headerTraceparent] = []string{t}
	}
	posted := Posted{Events: make([]Message, len(list)), Batch: true}
	for i, data := range list {
		posted.Events[i] = Message{Header: one, Data: data}
	}
	return posted, nil
}

// PostedEvent decodes a CloudEvent that came over HTTP, where no subject has the aggregate. The type
// is then the word of the CloudEvent's type before the event, as in [edda.NamedEvent], and the id
// the CloudEvent's subject, or else its source. Who sent it is not the CloudEvent's to say.
func (c Codec) PostedEvent(tenant string, m Message) (edda.Event, error) {
	ce, err := readCloudEvent(m)
	if err != nil {
		return edda.Event{}, err
	}
	s := Subject{Tenant: tenant, Family: FamilyAggregate, Name: edda.NamedEvent(edda.TypeWithoutVersion(ce.Type())).AggregateType, ID: ce.Subject()}
	if s.ID == "" {
		s.ID = ce.Source()
	}
	ev, err := c.ofCloudEvent(edda.Event{Kind: edda.KindEvent, Tenant: tenant}, s, m, ce)
	if err != nil {
		return ev, err
	}
	ev.By, ev.Why = "", ""
	if ev.AggregateType == "" {
		return ev, refuse(edda.DeadNoType, "the type %.80q names no aggregate: put its name before the event, as in Order.OrderPlaced, or set aggregatetype", ce.Type())
	}
	return ev, nil
}
