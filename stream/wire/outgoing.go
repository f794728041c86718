package wire

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"

	"edda"
)

// The kinds of work that may go out as CloudEvents; see [Codec.AsCloudEvents].
const (
	OutgoingFacts    = "facts"
	OutgoingCommands = "commands"
)

// Outgoing lists the kinds of work that may go out as CloudEvents.
func Outgoing() []string { return []string{OutgoingFacts, OutgoingCommands} }

// cloudEvent is a CloudEvent that Edda writes, in structured mode. The CloudEvents SDK would write
// extensions in no fixed order. A draft has no memory for one, because few drafts need it.
type cloudEvent struct {
	SpecVersion   text            `json:"specversion"`
	Type          text            `json:"type"`
	Source        text            `json:"source"`
	ID            text            `json:"id"`
	Subject       text            `json:"subject,omitempty"`
	Time          timestamp       `json:"time,omitzero"`
	TenantID      text            `json:"tenantid,omitempty"`
	AggregateType text            `json:"aggregatetype,omitempty"`
	AggregateID   text            `json:"aggregateid,omitempty"`
	CorrelationID text            `json:"correlationid,omitempty"`
	CausationID   text            `json:"causationid,omitempty"`
	Traceparent   text            `json:"traceparent,omitempty"`
	By            text            `json:"eddaby,omitempty"`
	Why           text            `json:"eddawhy,omitempty"`
	Saga          text            `json:"eddasaga,omitempty"` // of a command: what a rejection repeats
	Key           text            `json:"eddakey,omitempty"`
	Step          text            `json:"eddastep,omitempty"`
	ContentType   text            `json:"datacontenttype,omitempty"`
	Data          json.RawMessage `json:"data,omitempty"`
}

// set sets the version and the data. An extension must have a text, so empty ones are left out.
func (e *cloudEvent) set(data json.RawMessage) {
	e.SpecVersion = event.CloudEventsVersionV1
	if e.Data = data; len(data) > 0 {
		e.ContentType = event.ApplicationJSON
	}
}

// cloudEventMessage encodes a CloudEvent.
func (c Codec) cloudEventMessage(d *Draft, s Subject, id, trace string, e *cloudEvent) error {
	if err := c.message(d, s, id, trace, e); err != nil {
		return err
	}
	d.Header.Set(headerContentType, event.ApplicationCloudEventsJSON)
	return nil
}

// eventAsCloudEvent encodes an event with a full type.
func (c Codec) eventAsCloudEvent(d *Draft, s Subject, ev *edda.Event) error {
	source, id, ok := strings.Cut(ev.ID, " ")
	if !ok {
		source, id = ownSource, ev.ID
	}
	e := &cloudEvent{
		Type: text(ev.FullType), Source: text(source), ID: text(id), Time: timestamp{ev.Timestamp},
		TenantID: text(ev.Tenant), AggregateType: text(ev.AggregateType), AggregateID: text(ev.AggregateID),
		CorrelationID: text(ev.Correlation), CausationID: text(ev.Causation), Traceparent: text(ev.Trace), By: text(ev.By), Why: text(ev.Why),
	}
	e.set(ev.Payload)
	return c.cloudEventMessage(d, s, ev.ID, ev.Trace, e)
}

// workAsCloudEvent encodes a fact or an aggregate command. Its type is aggregate.name, and its
// source the saga.
func (c Codec) workAsCloudEvent(d *Draft, s Subject, w *edda.Work, kind string) error {
	e := &cloudEvent{
		Type: text(kind), Source: text(sagaSource(w.From.Saga)), ID: text(w.ID), Subject: text(s.ID), Time: timestamp{w.Time},
		TenantID: text(w.From.Tenant), AggregateType: text(s.Name), AggregateID: text(s.ID),
		CorrelationID: text(w.Correlation), CausationID: text(w.Causation), Traceparent: text(w.Trace),
	}
	if s.Family == FamilyCommand {
		e.Saga, e.Key, e.Step = text(w.From.Saga), text(w.From.Correlation), text(w.Step)
	}
	e.set(w.Payload)
	return c.cloudEventMessage(d, s, w.ID, w.Trace, e)
}

// sagaSources begins the source of a saga's CloudEvents.
const sagaSources = "/edda/sagas/"

// sagaSource is the source of a saga's CloudEvents.
func sagaSource(saga string) string { return sagaSources + url.PathEscape(saga) }
