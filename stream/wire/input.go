package wire

import (
	"encoding/json"
	"slices"

	"edda"
)

// inputKind is the kind of a workflow message.
type inputKind string

const (
	inputSignal   inputKind = "signal" // also the default
	inputAnswer   inputKind = "answer"
	inputOperator inputKind = "operator"
	inputStart    inputKind = "start"
	inputCancel   inputKind = "cancel"
	inputEnd      inputKind = "end"
)

// byParent is the actor when a parent saga cancels its child.
const byParent = "parent"

// input is a message for one instance.
type input struct {
	SignalID  text            `json:"signal_id"`
	TenantID  text            `json:"tenant_id,omitempty"`
	Kind      inputKind       `json:"kind,omitempty"`
	Name      text            `json:"name,omitempty"`
	Payload   json.RawMessage `json:"payload"`
	Timestamp timestamp       `json:"timestamp,omitzero"`
	Metadata  metadata        `json:"metadata"`
}

func (c Codec) input(ev edda.Event, s Subject, m Message) (edda.Event, error) {
	var in input
	if err := unmarshal(m.Data, &in); err != nil {
		return ev, err
	}
	if err := c.sameTenant(in.TenantID, s); err != nil {
		return ev, err
	}
	key, err := bodyID(s, in.Metadata.Key, "metadata.key")
	if err != nil {
		return ev, err
	}
	ev.Key.Correlation = key
	ev.ID, ev.Timestamp, ev.Payload = orElse(in.SignalID, ev.ID), in.Timestamp.Time, payload(in.Payload)
	return in.fill(m.withMetadata(ev, in.Metadata))
}

// fill sets the fields that depend on the kind.
func (in input) fill(ev edda.Event) (edda.Event, error) {
	ev.Type = string(in.Name)
	switch in.Kind {
	case "", inputSignal:
		ev.Kind = edda.KindSignal
		ev.By, ev.Why = string(in.Metadata.By), string(in.Metadata.Why)
		return ev, in.named()
	case inputAnswer:
		ev.Kind = edda.KindAnswer
		return in.byPerson(ev)
	case inputOperator:
		ev.Kind = edda.KindOperator
		return in.byPerson(ev)
	}
	return in.fromSaga(ev)
}

func (in input) byPerson(ev edda.Event) (edda.Event, error) {
	ev.Step, ev.By, ev.Why = string(in.Metadata.Step), string(in.Metadata.By), string(in.Metadata.Why)
	if ev.Kind == edda.KindAnswer && ev.Step == "" {
		return ev, refuse(edda.DeadUndecodable, "the answer has no metadata.step")
	}
	if ev.Kind == edda.KindOperator && in.Name != "" && !slices.Contains(verbs, ev.Type) {
		return ev, refuse(edda.DeadUndecodable, "%.40q is not a verb", ev.Type)
	}
	return ev, in.named()
}

// fromSaga sets the fields of a message from another saga.
func (in input) fromSaga(ev edda.Event) (edda.Event, error) {
	ev.CommandID = string(in.Metadata.CommandID)
	switch in.Kind {
	case inputStart:
		ev.Kind = edda.KindStart
		if ev.CommandID == "" {
			ev.CommandID = ev.ID
		}
		ev.Parent = edda.Key{Tenant: ev.Tenant, Saga: string(in.Metadata.ParentSaga), Correlation: string(in.Metadata.ParentKey)}
		return ev, nil
	case inputCancel:
		ev.Kind, ev.Type, ev.By = edda.KindOperator, edda.VerbCancel, byParent
		return ev, nil
	case inputEnd:
		ev.Kind, ev.Type, ev.Step = edda.KindResult, "", string(in.Metadata.Step)
		if ev.CommandID == "" {
			return ev, refuse(edda.DeadUndecodable, "the end has no metadata.command_id")
		}
		var err error
		ev.Outcome, err = outcome(in.Metadata.Outcome)
		return ev, err
	}
	return ev, refuse(edda.DeadUndecodable, "%.40q is not a kind of workflow message", string(in.Kind))
}

func (in input) named() error {
	if in.Name == "" {
		return refuse(edda.DeadNoType, "the body has no name")
	}
	return nil
}

var verbs = []string{
	edda.VerbCancel, edda.VerbTerminate, edda.VerbRetry, edda.VerbSkip,
	edda.VerbResolve, edda.VerbRedrive, edda.VerbDrop,
}
