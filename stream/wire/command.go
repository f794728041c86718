package wire

import (
	"encoding/json"
	"errors"
	"time"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
)

// command is an effect command or its revocation.
type command struct {
	TenantID   text            `json:"tenant_id,omitempty"`
	CommandID  text            `json:"command_id"`
	EffectName text            `json:"effect_name"`
	Revoke     bool            `json:"revoke,omitempty"`
	Payload    json.RawMessage `json:"payload"`
	Timestamp  time.Time       `json:"timestamp,omitzero"`
	Metadata   json.RawMessage `json:"metadata"`
}

// Command decodes a message of an effect's subject. If it is no valid command, Malformed is set and
// the ids are those of the subject.
func (c Codec) Command(m Message) effects.Command {
	s, err := c.Parse(m.Subject)
	base := effects.Command{Tenant: s.Tenant, ID: s.ID, Effect: s.Name, Subject: m.Subject}
	if err == nil {
		var cmd effects.Command
		if cmd, err = c.command(base, s, m); err == nil {
			return cmd
		}
	}
	base.Malformed, base.Raw = err.Error(), m.Data[:min(len(m.Data), MaxRaw)]
	return base
}

func (c Codec) command(out effects.Command, s Subject, m Message) (effects.Command, error) {
	if s.Family != FamilyEffect {
		return out, errors.New("the subject is not an effect's")
	}
	if len(m.Data) > c.maxPayload() {
		return out, refuse(edda.DeadTooLarge, "the body has %d bytes, allowed are %d", len(m.Data), c.maxPayload())
	}
	var body command
	if err := unmarshal(m.Data, &body); err != nil {
		return out, err
	}
	if err := c.sameTenant(body.TenantID, s); err != nil {
		return out, err
	}
	id, err := commandID(s, body.CommandID)
	if err != nil {
		return out, err
	}
	if body.EffectName != "" && string(body.EffectName) != s.Name {
		return out, refuse(edda.DeadMalformed, "the body says effect %.40q, the subject %.40q", body.EffectName, s.Name)
	}
	md, err := readMetadata(body.Metadata)
	if err != nil {
		return out, err
	}
	if out.Version, err = effectVersion(md.EffectVersion); err != nil && !body.Revoke {
		return out, err
	}
	out.ID, out.Revoke = id, body.Revoke
	out.Payload, out.Metadata = payload(body.Payload), payload(body.Metadata)
	out.IdempotencyKey, out.NotAfter = string(md.IdempotencyKey), md.NotAfter
	out.Sent = body.Timestamp
	if out.Sent.IsZero() || !m.Time.IsZero() && m.Time.Before(out.Sent) {
		out.Sent = m.Time // the command is at least as old as its message
	}
	out.Trace, out.High = m.trace(md), md.Priority == priorityHigh
	return out, nil
}

// KeyOf returns the key of the instance that waits for a command, as its metadata name it.
func KeyOf(c effects.Command) edda.Key {
	md, _ := readMetadata(c.Metadata)
	return edda.Key{Tenant: c.Tenant, Saga: string(md.Saga), Correlation: string(md.Key)}
}

// effectVersion returns the effect version that the payload is written for; 0 if the producer gives
// none.
func effectVersion(raw json.RawMessage) (int, error) {
	v, err := jsonvalue.Decode(raw)
	if v == nil && err == nil {
		return 0, nil
	}
	version, whole := v.(int)
	if err != nil || !whole || version < 1 {
		return 0, refuse(edda.DeadMalformed, "metadata: effect_version %.40s is not a whole number from 1 up", raw)
	}
	return version, nil
}
