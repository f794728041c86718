package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"edda"
	"edda/internal/jsonvalue"
)

// commandBody is an aggregate command on the wire.
type commandBody struct {
	Tenant        string          `json:"tenant_id"`
	ID            string          `json:"command_id"`
	AggregateID   string          `json:"aggregate_id"`
	AggregateType string          `json:"aggregate_type"`
	Payload       string          `json:"payload_json"` // JSON in a string
	Metadata      commandMetadata `json:"metadata"`
}

type commandMetadata struct {
	Correlation string `json:"correlation_id"`
	Trace       string `json:"trace_id"`
	Causation   string `json:"causation_id"`
	// Saga and Key are the instance, and Step is the action's id: what a rejection names.
	Saga string `json:"saga"`
	Key  string `json:"key"`
	Step string `json:"step,omitempty"`
}

// AggregateType is the Type of a command's "Type.Name".
func AggregateType(w edda.Work) string {
	kind, _, _ := strings.Cut(w.Name, ".")
	return kind
}

// CommandBody encodes an aggregate command for the gateway.
func CommandBody(w edda.Work) ([]byte, error) {
	payload, err := CommandPayload(&w)
	if err != nil {
		return nil, err
	}
	return jsonvalue.Encode(commandBody{
		Tenant: w.From.Tenant, ID: w.ID, AggregateID: w.To, AggregateType: AggregateType(w), Payload: string(payload),
		Metadata: commandMetadata{w.Correlation, w.Trace, w.Causation, w.From.Saga, w.From.Correlation, w.Step},
	})
}

// CommandPayload encodes the payload_json of an aggregate command, for the gateway and for the stream:
// {command: Name, …with}, with sorted names. A with that is no object is the field value, and null
// is none.
func CommandPayload(w *edda.Work) ([]byte, error) {
	var fields map[string]json.RawMessage
	with := bytes.TrimSpace(w.Payload)
	var err error
	switch {
	case len(with) > 0 && with[0] == '{':
		err = jsonvalue.Unmarshal(with, &fields)
	case len(with) > 0 && !json.Valid(with):
		err = errors.New("its with is no JSON")
	case len(with) > 0 && string(with) != "null":
		fields = map[string]json.RawMessage{"value": with}
	}
	if err != nil {
		return nil, fmt.Errorf("command %.80q: %w", w.Name, err)
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	_, name, found := strings.Cut(w.Name, ".")
	if !found {
		name = w.Name
	}
	// This overwrites a field of that name, because it chooses what the service does.
	if fields["command"], err = jsonvalue.AppendText(nil, name); err != nil {
		return nil, err
	}
	return jsonvalue.Marshal(&fields)
}
