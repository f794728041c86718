package outbox

import (
	"encoding/json"
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
}

// AggregateType is the Type of a command's "Type.Name".
func AggregateType(w edda.Work) string {
	kind, _, _ := strings.Cut(w.Name, ".")
	return kind
}

// CommandBody encodes an aggregate command, for the gateway and for a stream alike. Its
// payload_json is {command: Name, …with}. A with that is no object stands under "value".
func CommandBody(w edda.Work) ([]byte, error) {
	payload, err := commandPayload(w)
	if err != nil {
		return nil, fmt.Errorf("command %s: %w", w.ID, err)
	}
	return jsonvalue.Encode(commandBody{
		Tenant: w.From.Tenant, ID: w.ID, AggregateID: w.To, AggregateType: AggregateType(w), Payload: string(payload),
		Metadata: commandMetadata{w.Correlation, w.Trace, w.Causation},
	})
}

func commandPayload(w edda.Work) (json.RawMessage, error) {
	with, err := jsonvalue.Decode(w.Payload)
	if err != nil {
		return nil, err
	}
	fields, isObject := with.(map[string]any)
	if !isObject {
		fields = map[string]any{}
		if with != nil {
			fields["value"] = with
		}
	}
	if _, name, found := strings.Cut(w.Name, "."); found {
		fields["command"] = name // overwrites a field of that name, because it chooses what the service does
	} else {
		fields["command"] = w.Name
	}
	return jsonvalue.Encode(fields)
}
