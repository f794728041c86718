package wire

import (
	"encoding/json"
	"time"

	"edda"
	"edda/effects"
	"edda/engine"
	"edda/internal/jsonvalue"
	"edda/outbox"
)

// result is the outcome of an effect command or of a rejected aggregate command.
type result struct {
	TenantID   text            `json:"tenant_id,omitempty"`
	CommandID  text            `json:"command_id"`
	EffectName text            `json:"effect_name"`
	ResultType text            `json:"result_type"`
	Payload    json.RawMessage `json:"payload"`
	Timestamp  timestamp       `json:"timestamp,omitzero"`
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
	if ev.Outcome, err = outcome(r.ResultType); err != nil {
		return ev, err
	}
	if at, was := m.Taken(); was {
		ev.Time, ev.Stored = at, ev.Time
	}
	return m.withMetadata(ev, md), nil
}

// takenAt writes into a result when the sagas took it that was handed to them within
// their process. Most results are not.
func (d *Draft) takenAt(at time.Time) {
	if !at.IsZero() {
		d.set(headerTaken, &d.taken, at.UTC().Format(time.RFC3339Nano))
	}
}

// Taken is what [draft.takenAt] wrote, to the nanosecond: the ids of what the result sets off
// come of it, and what is called, under which key.
//
// It is believed where it can be so: from 1970, as ids can say no earlier time, to when
// the message was stored, by a clock that may be [engine.MaxSkew] behind the process's
// own. Whoever may publish results can write one, and gains nothing that he has not: he
// may answer every command as he likes, whenever he likes. A time in the past makes
// nothing earlier, since a saga's now does not go back behind what it has seen, and one
// in the future is what he gets by publishing a minute later. Ids are derived of more
// than the time, so he cannot choose them either.
func (m Message) Taken() (at time.Time, was bool) {
	text := m.header(headerTaken)
	if text == "" {
		return at, false
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Unix() < 0 || at.After(m.Time.Add(engine.MaxSkew)) {
		return time.Time{}, false
	}
	return at.UTC(), true
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
	if err := jsonvalue.Unmarshal(raw, &md); err != nil {
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

// Rejected is the result of work that a destination refused for good.
func Rejected(w edda.Work, r outbox.Rejection) (effects.Result, error) {
	w, outcome := asAsked(w)
	effect := w.Name
	if w.Kind == edda.WorkCommand {
		effect = CommandEffect
	}
	body, err := encode(rejected{Code: r.Code, Message: r.Message, Status: r.Status})
	if err != nil {
		return effects.Result{}, err
	}
	md, err := effectMetadata(&w)
	return effects.Result{
		Tenant: w.From.Tenant, CommandID: w.ID, Effect: effect, Outcome: outcome,
		Payload: body, Metadata: md, Time: w.Time, Trace: w.Trace,
	}, err
}

// asAsked is a child's end as if its parent had asked for it: it is the parent
// that hears, and a success that cannot be told is an outcome it does not know.
func asAsked(w edda.Work) (edda.Work, edda.Outcome) {
	if w.Kind != edda.WorkEnd {
		return w, edda.Failed
	}
	was := w.Outcome
	w.ID, w.From = w.CommandID, w.Target
	if was == edda.Failed {
		return w, was
	}
	return w, edda.TimedOut
}

// rejected is the payload of such a result.
type rejected struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Status  int    `json:"status,omitempty"`
}
