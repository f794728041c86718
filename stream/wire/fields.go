package wire

import "edda/internal/jsonvalue"

// Each Fields method lists the fields in the order of their declaration, for jsonvalue.

func (e *envelope) Fields(c *jsonvalue.Coder) {
	c.Text("event_id", (*string)(&e.EventID))
	c.TextIf("tenant_id", (*string)(&e.TenantID))
	c.Text("aggregate_type", (*string)(&e.AggregateType))
	c.Text("aggregate_id", (*string)(&e.AggregateID))
	c.Text("event_type", (*string)(&e.EventType))
	c.Int("version", &e.Version)
	c.UTCIf("timestamp", &e.Timestamp.Time)
	c.JSON("payload", &e.Payload)
	c.Struct("metadata", &e.Metadata)
	c.TextIf("specversion", (*string)(&e.SpecVersion))
}

func (m *metadata) Fields(c *jsonvalue.Coder) {
	c.TextIf("correlation_id", (*string)(&m.Correlation))
	c.TextIf("trace_id", (*string)(&m.Trace))
	c.TextIf("causation_id", (*string)(&m.Causation))
	c.TextIf("saga", (*string)(&m.Saga))
	c.TextIf("key", (*string)(&m.Key))
	c.TextIf("step", (*string)(&m.Step))
	c.IntIf("attempt", &m.Attempt)
	c.TimeIf("not_after", &m.NotAfter)
	c.TextIf("idempotency_key", (*string)(&m.IdempotencyKey))
	c.JSONIf("effect_version", &m.EffectVersion)
	c.TextIf("priority", (*string)(&m.Priority))
	c.TextIf("command_id", (*string)(&m.CommandID))
	c.TextIf("outcome", (*string)(&m.Outcome))
	c.TextIf("parent_saga", (*string)(&m.ParentSaga))
	c.TextIf("parent_key", (*string)(&m.ParentKey))
	c.TextIf("by", (*string)(&m.By))
	c.TextIf("why", (*string)(&m.Why))
}

func (m *command) Fields(c *jsonvalue.Coder) {
	c.TextIf("tenant_id", (*string)(&m.TenantID))
	c.Text("command_id", (*string)(&m.CommandID))
	c.Text("effect_name", (*string)(&m.EffectName))
	c.TrueIf("revoke", &m.Revoke)
	c.JSON("payload", &m.Payload)
	c.TimeIf("timestamp", &m.Timestamp)
	c.JSON("metadata", &m.Metadata)
}

func (r *result) Fields(c *jsonvalue.Coder) {
	c.TextIf("tenant_id", (*string)(&r.TenantID))
	c.Text("command_id", (*string)(&r.CommandID))
	c.Text("effect_name", (*string)(&r.EffectName))
	c.Text("result_type", (*string)(&r.ResultType))
	c.JSON("payload", &r.Payload)
	c.UTCIf("timestamp", &r.Timestamp.Time)
	c.IntIf("attempts", &r.Attempts)
	c.JSONIf("metadata", &r.Metadata)
}

func (e *cloudEvent) Fields(c *jsonvalue.Coder) {
	c.Text("specversion", (*string)(&e.SpecVersion))
	c.Text("type", (*string)(&e.Type))
	c.Text("source", (*string)(&e.Source))
	c.Text("id", (*string)(&e.ID))
	c.TextIf("subject", (*string)(&e.Subject))
	c.UTCIf("time", &e.Time.Time)
	c.TextIf("tenantid", (*string)(&e.TenantID))
	c.TextIf("aggregatetype", (*string)(&e.AggregateType))
	c.TextIf("aggregateid", (*string)(&e.AggregateID))
	c.TextIf("correlationid", (*string)(&e.CorrelationID))
	c.TextIf("causationid", (*string)(&e.CausationID))
	c.TextIf("traceparent", (*string)(&e.Traceparent))
	c.TextIf("eddaby", (*string)(&e.By))
	c.TextIf("eddawhy", (*string)(&e.Why))
	c.TextIf("eddasaga", (*string)(&e.Saga))
	c.TextIf("eddakey", (*string)(&e.Key))
	c.TextIf("eddastep", (*string)(&e.Step))
	c.TextIf("datacontenttype", (*string)(&e.ContentType))
	c.JSONIf("data", &e.Data)
}

func (in *input) Fields(c *jsonvalue.Coder) {
	c.Text("signal_id", (*string)(&in.SignalID))
	c.TextIf("tenant_id", (*string)(&in.TenantID))
	c.TextIf("kind", (*string)(&in.Kind))
	c.TextIf("name", (*string)(&in.Name))
	c.JSON("payload", &in.Payload)
	c.UTCIf("timestamp", &in.Timestamp.Time)
	c.Struct("metadata", &in.Metadata)
}

func (a *aggregateCommand) Fields(c *jsonvalue.Coder) {
	c.TextIf("tenant_id", &a.TenantID)
	c.Text("command_id", &a.CommandID)
	c.Text("aggregate_id", &a.AggregateID)
	c.Text("aggregate_type", &a.AggregateType)
	c.Text("payload_json", &a.PayloadJSON)
	c.Struct("metadata", &a.Metadata)
}
