package stream

import (
	"encoding/json"

	"edda"
	"edda/internal/fields"
)

// result is the outcome of an effect command or of a rejected aggregate command.
type result struct {
	TenantID   text            `json:"tenant_id,omitempty"`
	CommandID  text            `json:"command_id"`
	EffectName text            `json:"effect_name"`
	ResultType text            `json:"result_type"`
	Payload    json.RawMessage `json:"payload"`
	Timestamp  moment          `json:"timestamp,omitzero"`
	Attempts   int             `json:"attempts,omitempty"`
	// Metadata is the command's, echoed; a foreign worker may leave it out.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// CommandEffect is the effect under which a rejected aggregate command is answered.
const CommandEffect = "command"

// ResultID is the message id of a command's result, and so the trigger id of
// the transition that applies it.
func ResultID(commandID string) string { return commandID + ".result" }

func (c Codec) result(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	var r result
	if err := unmarshal(m.Data, &r); err != nil {
		return ev, err
	}
	if err := c.sameTenant(r.TenantID, s); err != nil {
		return ev, err
	}
	id, err := commandID(s, r.CommandID)
	if err != nil {
		return ev, err
	}
	md, err := readMetadata(r.Metadata)
	if err != nil {
		return ev, err
	}
	if md.Saga != "" && md.Key != "" {
		ev.Key.Saga, ev.Key.Correlation = string(md.Saga), string(md.Key)
	}
	ev.Type = s.Name
	ev.CommandID, ev.Step, ev.Attempts = id, string(md.Step), r.Attempts
	ev.Timestamp, ev.Payload = r.Timestamp.Time, payload(r.Payload)
	ev.Outcome, err = outcome(r.ResultType)
	return m.carry(ev, md), err
}

// commandID is the subject's; the body may repeat but not change it.
func commandID(s Subject, body text) (string, error) {
	id, err := bodyID(s, body, "command_id")
	if err == nil && body != "" && string(body) != id {
		err = refuse(edda.DeadUndecodable, "the body says command %.80q, the subject %.80q", body, id)
	}
	return id, err
}

func readMetadata(raw json.RawMessage) (metadata, error) {
	var md metadata
	if len(raw) == 0 {
		return md, nil
	}
	if err := fields.Decode(raw, &md); err != nil {
		return md, refuse(edda.DeadUndecodable, "metadata: %v", err)
	}
	return md, nil
}

func outcome(t text) (edda.Outcome, error) {
	switch o := edda.Outcome(t); o {
	case edda.Succeeded, edda.Failed, edda.TimedOut:
		return o, nil
	}
	return "", refuse(edda.DeadUndecodable, "outcome %.40q is none of Succeeded, Failed, TimedOut", string(t))
}
