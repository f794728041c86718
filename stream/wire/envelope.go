package wire

import (
	"encoding/json"
	"errors"

	"edda"
)

// envelope is an aggregate event or a workflow fact.
type envelope struct {
	EventID       text            `json:"event_id"`
	TenantID      text            `json:"tenant_id,omitempty"`
	AggregateType text            `json:"aggregate_type"`
	AggregateID   text            `json:"aggregate_id"`
	EventType     text            `json:"event_type"`
	Version       int             `json:"version"`
	Timestamp     timestamp       `json:"timestamp,omitzero"`
	Payload       json.RawMessage `json:"payload"`
	Metadata      metadata        `json:"metadata"`
	// SpecVersion is set in a CloudEvent only.
	SpecVersion text `json:"specversion,omitempty"`
}

// Event decodes an input of the sagas. A batch must be split into its [Codec.Members]. If the message cannot
// be an input, Malformed and Error are set, the address is the subject's, and the payload is the beginning of
// the body as a JSON string.
func (c Codec) Event(m Message) edda.Event {
	if mapping := c.Mappings[m.Stream]; mapping != nil {
		return mapping.event(c, m)
	}
	base := edda.Event{
		Kind: edda.KindEvent, ID: c.ID(m), Time: m.Time.UTC(), Stream: m.Stream, Seq: m.Seq, Member: m.Member,
	}
	s, err := c.Parse(m.Subject)
	if err != nil {
		base.Tenant = s.Tenant
		return malformed(base, m, refuse(edda.DeadUndecodable, "%v", err))
	}
	base = addressed(base, s)
	if len(m.Data) > c.maxPayload() {
		return malformed(base, m, refuse(edda.DeadTooLarge, "the body has %d bytes, allowed are %d", len(m.Data), c.maxPayload()))
	}
	ev, err := c.decode(base, s, m)
	if err != nil {
		return malformed(base, m, err)
	}
	return ev
}

// addressed sets the fields that the subject gives.
func addressed(ev edda.Event, s Subject) edda.Event {
	ev.Tenant = s.Tenant
	switch s.Family {
	case FamilyWorkflow:
		ev.Kind = edda.KindSignal
		ev.Key = edda.Key{Tenant: s.Tenant, Saga: s.Name, Correlation: s.ID}
	case FamilyResult, FamilyEcho:
		ev.Kind = edda.KindResult
		ev.Key = edda.Key{Tenant: s.Tenant}
		ev.CommandID = s.ID
	default:
		ev.AggregateType, ev.AggregateID = s.Name, s.ID
	}
	return ev
}

func (c Codec) decode(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	switch s.Family {
	case FamilyAggregate, FamilyFact:
		if isCloudEvent(m) {
			return c.cloudEvent(ev, s, m)
		}
		return c.native(ev, s, m)
	case FamilyWorkflow:
		return c.input(ev, s, m)
	case FamilyResult, FamilyEcho:
		return c.result(ev, s, m)
	}
	return ev, refuse(edda.DeadUndecodable, "a %s is not an input of a saga", s.Family)
}

func (c Codec) native(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	var e envelope
	if err := unmarshal(m.Data, &e); err != nil {
		return ev, err
	}
	if e.SpecVersion != "" && e.EventType == "" {
		return c.cloudEvent(ev, s, m)
	}
	if err := c.sameTenant(e.TenantID, s); err != nil {
		return ev, err
	}
	if e.EventType == "" {
		return ev, refuse(edda.DeadNoType, `the body has no event_type: want {"event_type": …, "payload": …} or a CloudEvent; see docs/NATS.md`)
	}
	aggregate, err := bodyID(s, e.AggregateID, "aggregate_id")
	if err != nil {
		return ev, err
	}
	ev.AggregateType, ev.AggregateID = orElse(e.AggregateType, s.Name), orElse(e.AggregateID, aggregate)
	ev.ID, ev.Type, ev.Version = orElse(e.EventID, ev.ID), string(e.EventType), e.Version
	ev.Timestamp, ev.Payload = e.Timestamp.Time, payload(e.Payload)
	ev.By, ev.Why = string(e.Metadata.By), string(e.Metadata.Why)
	return m.withMetadata(ev, e.Metadata), nil
}

// withMetadata sets the metadata that every kind of message carries.
func (m Message) withMetadata(ev edda.Event, md metadata) edda.Event {
	ev.Correlation, ev.Causation = string(md.Correlation), string(md.Causation)
	ev.Trace = m.trace(md)
	return ev
}

// sameTenant compares the body's tenant with the subject's, which is the authority. Without tenancy
// the subject has none.
func (c Codec) sameTenant(body text, s Subject) error {
	if c.NoTenancy || body == "" || string(body) == s.Tenant {
		return nil
	}
	from := "subject"
	if s.Family == "" { // a stream of others
		from = "source"
	}
	return refuse(edda.DeadTenant, "the body says tenant %.80q, the %s %.80q", body, from, s.Tenant)
}

// bodyID returns the subject's id. If the subject has only a hash of the id, the body must have the
// id.
func bodyID(s Subject, body text, field string) (string, error) {
	if !s.Short {
		return s.ID, nil
	}
	if body == "" {
		return "", refuse(edda.DeadUndecodable, "the subject has a shortened id, and the body no %s", field)
	}
	if !s.Is(string(body)) {
		return "", refuse(edda.DeadUndecodable, "%s %.40q is not the one that the subject was shortened from", field, body)
	}
	return string(body), nil
}

func orElse(body text, otherwise string) string {
	if body != "" {
		return string(body)
	}
	return otherwise
}

func malformed(ev edda.Event, m Message, err error) edda.Event {
	ev.Malformed, ev.Error = edda.DeadUndecodable, "subject "+m.Subject+": "+err.Error()
	var r *refusal
	if errors.As(err, &r) {
		ev.Malformed = r.reason
	}
	ev.Payload, ev.Subject = Excerpt(m.Data), m.Subject
	ev.Trace = m.trace(metadata{})
	return ev
}
