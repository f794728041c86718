package msgout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
	"edda/outbox"
)

// send writes a message that a saga emitted, once for its command id. What can
// never be a message is rejected, and becomes a dead letter.
func (d *Destination) send(ctx context.Context, w edda.Work) error {
	m, err := read(w.Payload)
	if err != nil {
		return &outbox.Rejection{Code: "malformed", Message: err.Error()}
	}
	_, _, err = d.db.Send(ctx, m.ContextID, w.ID, m)
	if errors.Is(err, redisdb.ErrExists) {
		return &outbox.Rejection{Code: "exists", Message: err.Error()}
	}
	return err
}

// read decodes a message as a manifest gives it.
func read(payload json.RawMessage) (hero.Message, error) {
	var m hero.Message
	if err := json.Unmarshal(payload, &m); err != nil {
		return m, err
	}
	if unknown := notUnderstood(m); len(unknown) > 0 {
		return m, fmt.Errorf("the field %s is not understood: leave it out", unknown[0])
	}
	for name, id := range map[string]uint32{"context_id": m.ContextID, "caller_id": m.CallerID} {
		if id == 0 {
			return m, errors.New(name + " is missing: a message needs the context it is sent from and the actor who sends it")
		}
	}
	if m.MessageType == "" {
		m.MessageType = hero.MessageChat
		if len(m.Job) > 0 {
			m.MessageType = hero.MessageJob
		}
	}
	if m.MessageFormat == "" {
		m.MessageFormat = hero.FormatText
	}
	return m, valid(m)
}

// notUnderstood are the unknown fields of the message, its jobs and nodes.
func notUnderstood(m hero.Message) []string {
	out := m.Unknown
	for _, j := range m.Job {
		out = append(out, j.Unknown...)
	}
	for _, n := range m.Nodes {
		out = append(out, n.Unknown...)
	}
	return out
}

// valid checks the words of a message, and that it carries a job, or names a flow to run, where it says so.
func valid(m hero.Message) error {
	if _, err := hero.ParseMessageType(string(m.MessageType)); err != nil {
		return err
	}
	if _, err := hero.ParseMessageFormat(string(m.MessageFormat)); err != nil {
		return err
	}
	if m.MessageType == hero.MessageJob && len(m.Job)+len(m.Nodes) == 0 && m.FlowID == 0 {
		return errors.New("message_type job needs a job, or the flow_id of a flow to run")
	}
	return nil
}
