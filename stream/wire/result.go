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
	// Metadata is a copy of the command's; another worker may leave it out.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// CommandEffect is the effect name in the result of a rejected aggregate command.
const CommandEffect = "command"

// ResultID returns the message id of a command's result. It is also the trigger id of the
// transition that applies it.
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

// takenAt sets the header of a result that was handed over inside the process: when the sagas
// applied it. Most results have none.
func (d *Draft) takenAt(at time.Time) {
	if !at.IsZero() {
		d.set(headerTaken, &d.taken, at.UTC().Format(time.RFC3339Nano))
	}
}

// Taken returns the time that [Draft.takenAt] wrote, to the nanosecond. The ids of the work that
// follows from the result are derived from it.
//
// A time is accepted if it is possible: not before 1970, because ids cannot express that, and not
// after the message was stored, allowing for a server clock that is [engine.MaxSkew] behind. A
// producer that may publish results can write any such time and gains nothing: it may give any
// answer at any time already. A past time makes nothing earlier, because a saga's now never goes
// back. A future time could be had by publishing later. Ids depend on more than the time, so the
// producer cannot choose them.
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

// commandID returns the subject's command id. The body may repeat it, but must not contradict it.
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

// Rejected returns the result of work that a destination has refused for good.
func Rejected(w edda.Work, r outbox.Rejection) (effects.Result, error) {
	w, outcome := asCommand(w)
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

// asCommand turns a child's end into the parent's command, because the parent gets the result. A
// success that cannot be sent is TimedOut for the parent: it does not know the outcome.
func asCommand(w edda.Work) (edda.Work, edda.Outcome) {
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
