package server

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"edda"
	"edda/internal/jsonvalue"
)

// EventBody is an event as a producer sends it.
type EventBody struct {
	ID            string          `json:"event_id,omitempty" doc:"made up when unsaid" maxLength:"200"`
	AggregateType string          `json:"aggregate_type" minLength:"1" example:"Order"`
	AggregateID   string          `json:"aggregate_id" minLength:"1" example:"O1"`
	Type          string          `json:"event_type" minLength:"1" example:"OrderPlaced"`
	Version       int             `json:"version,omitempty" minimum:"0"`
	Timestamp     time.Time       `json:"timestamp,omitzero" doc:"when it happened"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	Metadata      EventMetadata   `json:"metadata,omitempty"`
}

// EventMetadata is the metadata of an event.
type EventMetadata struct {
	Correlation string `json:"correlation_id,omitempty"`
	Causation   string `json:"causation_id,omitempty"`
	Trace       string `json:"trace_id,omitempty"`
}

// PublishedView is the id and the position of a published event.
type PublishedView struct {
	ID string `json:"event_id"`
	Stored
}

type eventInput struct {
	TenantInput
	Operator
	Trace string `header:"traceparent" maxLength:"200"`
	Body  EventBody
}

func (s *Server) events() {
	huma.Post(s.api, "/v1/events", s.publish, summary("Publish an event", "events"), s.acceptCloudEvents)
	s.routes.HandleFunc("OPTIONS /v1/events", allowWebhook)
}

func (s *Server) publish(ctx context.Context, in *eventInput) (*body[PublishedView], error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	ev := in.event(tenant)
	if _, err := jsonvalue.Decode(ev.Payload); err != nil {
		return nil, huma.Error422UnprocessableEntity("the payload cannot be taken: " + err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.CommitWait)
	defer cancel()
	stored, err := s.options.Inbox.Publish(ctx, ev)
	if err != nil {
		return nil, s.unsent(ev, err)
	}
	return &body[PublishedView]{PublishedView{ev.ID, stored}}, nil
}

func (in *eventInput) event(tenant string) edda.Event {
	b := in.Body
	ev := edda.Event{
		Kind: edda.KindEvent, ID: b.ID, Tenant: tenant, Type: b.Type, AggregateType: b.AggregateType,
		AggregateID: b.AggregateID, Version: b.Version, Timestamp: b.Timestamp, Payload: b.Payload,
		Correlation: b.Metadata.Correlation, Causation: b.Metadata.Causation, Trace: b.Metadata.Trace,
	}
	if ev.ID == "" {
		ev.ID = ulid.Make().String()
	}
	in.sign(&ev)
	if ev.Trace == "" {
		ev.Trace = in.Trace
	}
	return ev
}

// sign makes an event with a reason an operator's command. Services publish many events and give no
// reason.
func (a Operator) sign(ev *edda.Event) {
	if a.Why != "" {
		ev.By, ev.Why = cmp.Or(a.By, "unknown"), a.Why
	}
}
