package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"edda"
	"edda/effects"
	"edda/internal/jsonvalue"
	"edda/outbox"
)

// traceparentLen is the length of a W3C traceparent of version 00. Other trace ids are in the
// metadata only.
const traceparentLen = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// Work encodes a piece of work. An error is an *outbox.Rejection: the work can never be encoded.
func (c Codec) Work(w edda.Work) (*nats.Msg, error) {
	return newMessage(func(d *Draft) error { return c.WriteWork(d, &w) })
}

// WriteWork is Work into a draft.
func (c Codec) WriteWork(d *Draft, w *edda.Work) error {
	switch w.Kind {
	case edda.WorkEffect, edda.WorkRevoke:
		return c.workEffect(d, w)
	case edda.WorkCommand:
		return c.workCommand(d, w)
	case edda.WorkFact:
		return c.workFact(d, w)
	case edda.WorkStart, edda.WorkCancel, edda.WorkEnd:
		return c.workInput(d, w)
	case edda.WorkResult:
		// gofail: var copyRead struct{}
		s := Subject{Tenant: w.From.Tenant, Family: FamilyEcho, Name: w.Name, ID: w.CommandID}
		err := c.message(d, s, w.ID, w.Trace, w.Payload)
		d.takenAt(w.Time)
		return err
	}
	return reject("kind", fmt.Errorf("work of kind %q does not go to JetStream", w.Kind))
}

func reject(code string, err error) error {
	return &outbox.Rejection{Code: code, Message: err.Error()}
}

// message encodes a piece of work. A json.RawMessage body is used as it is.
func (c Codec) message(d *Draft, s Subject, id, trace string, body any) (err error) {
	if d.Subject, d.Data, err = c.build(d, s, body); err != nil {
		return err
	}
	clear(d.Header)
	if id != "" {
		d.id[0] = derivedID(s.Tenant, id)
		d.Header[headerMsgID] = d.id[:]
	}
	if isTraceparent(trace) {
		d.set(headerTraceparent, &d.trace, trace)
	}
	return nil
}

// carries returns an error if no message can have the subject and the body.
func (c Codec) carries(s Subject, body []byte) error {
	if _, err := c.Build(s); err != nil {
		return reject("subject", err)
	}
	return c.fits(body)
}

// fits checks the size of a body.
func (c Codec) fits(body []byte) error {
	if len(body) > c.maxPayload() {
		return reject("too-large", fmt.Errorf("the message has %d bytes, allowed are %d", len(body), c.maxPayload()))
	}
	return nil
}

// build encodes the subject and the body, and checks the size.
func (c Codec) build(d *Draft, s Subject, body any) (subject string, data []byte, err error) {
	if subject, err = c.Build(s); err != nil {
		return "", nil, reject("subject", err)
	}
	if data, err = d.body(body); err != nil {
		return "", nil, reject("payload", err)
	}
	if err = c.fits(data); err != nil {
		return "", nil, err
	}
	return subject, data, nil
}

// isTraceparent reports whether a trace id goes into a header.
func isTraceparent(trace string) bool {
	return len(trace) == traceparentLen && strings.Count(trace, "-") == 3
}

// headerText replaces control characters, which could end a header.
func headerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}

// encode encodes *v, or a value without a Fields method.
func encode(v any) ([]byte, error) {
	data, err := jsonvalue.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode body: %w", err)
	}
	return data, nil
}

// workMetadata returns the metadata of every piece of work.
func workMetadata(w *edda.Work) metadata {
	return metadata{Correlation: text(w.Correlation), Trace: text(w.Trace), Causation: text(w.Causation)}
}

func (c Codec) workEffect(d *Draft, w *edda.Work) error {
	id, revoke := w.ID, w.Kind == edda.WorkRevoke
	if revoke {
		id = w.CommandID
	}
	md, err := effectMetadata(w)
	if err != nil {
		return reject("metadata", err)
	}
	s := Subject{Tenant: w.From.Tenant, Family: FamilyEffect, Name: w.Name, ID: id}
	return c.message(d, s, w.ID, w.Trace, &command{
		TenantID: text(w.From.Tenant), CommandID: text(id), EffectName: text(w.Name), Revoke: revoke,
		Payload: w.Payload, Timestamp: w.Time, Metadata: md,
	})
}

func effectMetadata(w *edda.Work) (json.RawMessage, error) {
	md := workMetadata(w)
	md.Saga, md.Key = text(w.From.Saga), text(w.From.Correlation)
	md.Step, md.Attempt, md.NotAfter = text(w.Step), w.Attempt, w.NotAfter
	md.IdempotencyKey = text(w.IdempotencyKey)
	if w.EffectVersion != 0 {
		md.EffectVersion = strconv.AppendInt(nil, int64(w.EffectVersion), 10)
	}
	if w.High {
		md.Priority = priorityHigh
	}
	return encode(&md)
}

// aggregateCommand is also the gateway's format; payload_json is JSON in a string.
type aggregateCommand struct {
	TenantID      string   `json:"tenant_id,omitempty"`
	CommandID     string   `json:"command_id"`
	AggregateID   string   `json:"aggregate_id"`
	AggregateType string   `json:"aggregate_type"`
	PayloadJSON   string   `json:"payload_json"`
	Metadata      metadata `json:"metadata"`
}

func (c Codec) workCommand(d *Draft, w *edda.Work) error {
	aggregate, _, found := strings.Cut(w.Name, ".")
	if !found {
		return reject("name", fmt.Errorf("command %.80q is not of the form Type.Name", w.Name))
	}
	inner, err := outbox.CommandPayload(w)
	if err != nil {
		return reject("payload", err)
	}
	s := Subject{Tenant: w.From.Tenant, Family: FamilyCommand, Name: aggregate, ID: w.To}
	if slices.Contains(c.AsCloudEvents, OutgoingCommands) {
		return c.workAsCloudEvent(d, s, w, w.Name)
	}
	d.command = aggregateCommand{
		TenantID: w.From.Tenant, CommandID: w.ID, AggregateID: w.To, AggregateType: aggregate,
		PayloadJSON: string(inner), Metadata: commandMetadata(w),
	}
	return c.message(d, s, w.ID, w.Trace, &d.command)
}

// commandMetadata returns the metadata of an aggregate command. A rejection repeats it.
func commandMetadata(w *edda.Work) metadata {
	md := workMetadata(w)
	md.Saga, md.Key, md.Step = text(w.From.Saga), text(w.From.Correlation), text(w.Step)
	return md
}

// factVersion is the version of every fact, because manifests do not number them.
const factVersion = 1

func (c Codec) workFact(d *Draft, w *edda.Work) error {
	s := Subject{Tenant: w.From.Tenant, Family: FamilyFact, Name: w.From.Saga, ID: w.From.Correlation}
	if slices.Contains(c.AsCloudEvents, OutgoingFacts) {
		return c.workAsCloudEvent(d, s, w, w.From.Saga+"."+w.Name)
	}
	d.event = envelope{
		EventID: text(w.ID), TenantID: text(w.From.Tenant),
		AggregateType: text(w.From.Saga), AggregateID: text(w.From.Correlation),
		EventType: text(w.Name), Version: factVersion, Timestamp: timestamp{w.Time},
		Payload: w.Payload, Metadata: workMetadata(w),
	}
	return c.message(d, s, w.ID, w.Trace, &d.event)
}

func (c Codec) workInput(d *Draft, w *edda.Work) error {
	md := workMetadata(w)
	md.Key, md.Step = text(w.Target.Correlation), text(w.Step)
	in := input{
		SignalID: text(w.ID), TenantID: text(w.Target.Tenant), Payload: w.Payload, Timestamp: timestamp{w.Time},
	}
	switch w.Kind {
	case edda.WorkStart:
		in.Kind, in.Name = inputStart, text(w.Event)
		md.CommandID, md.ParentSaga, md.ParentKey = text(w.ID), text(w.From.Saga), text(w.From.Correlation)
	case edda.WorkCancel:
		in.Kind, md.CommandID = inputCancel, text(w.CommandID)
	case edda.WorkEnd:
		in.Kind, md.CommandID, md.Outcome = inputEnd, text(w.CommandID), text(w.Outcome)
	}
	in.Metadata = md
	s := Subject{Tenant: w.Target.Tenant, Family: FamilyWorkflow, Name: w.Target.Saga, ID: w.Target.Correlation}
	return c.message(d, s, w.ID, w.Trace, &in)
}

// Input encodes an event of a person or a program: an aggregate event, a signal, an answer or an
// operator's verb.
func (c Codec) Input(ev edda.Event) (*nats.Msg, error) {
	return newMessage(func(d *Draft) error { return c.writeInput(d, &ev) })
}

func (c Codec) writeInput(d *Draft, ev *edda.Event) error {
	if err := c.inputMessage(d, ev); err != nil {
		return err
	}
	if ev.ID != "" {
		d.id[0] = chosenID(d.Subject, ev.ID)
	}
	return nil
}

func (c Codec) inputMessage(d *Draft, ev *edda.Event) error {
	md := metadata{Correlation: text(ev.Correlation), Trace: text(ev.Trace), Causation: text(ev.Causation), By: text(ev.By), Why: text(ev.Why)}
	if ev.Kind == edda.KindEvent {
		s := Subject{Tenant: ev.Tenant, Family: FamilyAggregate, Name: ev.AggregateType, ID: ev.AggregateID}
		if ev.FullType != "" {
			return c.eventAsCloudEvent(d, s, ev)
		}
		d.event = envelope{
			EventID: text(ev.ID), TenantID: text(ev.Tenant), AggregateType: text(ev.AggregateType),
			AggregateID: text(ev.AggregateID), EventType: text(ev.Type), Version: ev.Version,
			Timestamp: timestamp{ev.Timestamp}, Payload: ev.Payload, Metadata: md,
		}
		return c.message(d, s, ev.ID, ev.Trace, &d.event)
	}
	kind, ok := inputKinds(ev.Kind)
	if !ok {
		return errors.New("an event of kind " + string(ev.Kind) + " cannot be sent in")
	}
	md.Key, md.Step = text(ev.Key.Correlation), text(ev.Step)
	s := Subject{Tenant: ev.Key.Tenant, Family: FamilyWorkflow, Name: ev.Key.Saga, ID: ev.Key.Correlation}
	return c.message(d, s, ev.ID, ev.Trace, &input{
		SignalID: text(ev.ID), TenantID: text(ev.Key.Tenant), Kind: kind, Name: text(ev.Type),
		Payload: ev.Payload, Timestamp: timestamp{ev.Timestamp}, Metadata: md,
	})
}

func inputKinds(k edda.Kind) (inputKind, bool) {
	switch k {
	case edda.KindSignal:
		return inputSignal, true
	case edda.KindAnswer:
		return inputAnswer, true
	case edda.KindOperator:
		return inputOperator, true
	}
	return "", false
}

// Result encodes the result of an effect command.
func (c Codec) Result(r effects.Result) (*nats.Msg, error) {
	return newMessage(func(d *Draft) error {
		d.result = resultOf(r)
		err := c.message(d, resultSubject(r), ResultID(r.CommandID), r.Trace, &d.result)
		d.takenAt(r.Taken)
		return err
	})
}

func resultSubject(r effects.Result) Subject {
	return Subject{Tenant: r.Tenant, Family: FamilyResult, Name: r.Effect, ID: r.CommandID}
}

func resultOf(r effects.Result) result {
	return result{
		TenantID: text(r.Tenant), CommandID: text(r.CommandID), EffectName: text(r.Effect),
		ResultType: text(r.Outcome), Payload: r.Payload, Timestamp: timestamp{r.Time},
		Attempts: r.Attempts, Metadata: r.Metadata,
	}
}

// resultBody encodes the body of a result's message.
func resultBody(r effects.Result) (json.RawMessage, error) {
	body := resultOf(r)
	data, err := encode(&body)
	if err != nil {
		return nil, reject("payload", err)
	}
	return data, nil
}

// Draft is a message and reusable memory for it. A window writes all its messages into one draft,
// because the client copies what it publishes. A message is valid until the next is written.
type Draft struct {
	nats.Msg
	room             []byte    // for bodies
	id, trace, taken [1]string // header values
	event            envelope
	command          aggregateCommand
	result           result
	coder            jsonvalue.Coder
}

func NewDraft() *Draft { return &Draft{Msg: nats.Msg{Header: nats.Header{}}} }

// newMessage encodes one message into a draft of its own.
func newMessage(write func(*Draft) error) (*nats.Msg, error) {
	d := NewDraft()
	if err := write(d); err != nil {
		return nil, err
	}
	return &d.Msg, nil
}

// body encodes *v. It returns a json.RawMessage as it is.
func (d *Draft) body(v any) (data []byte, err error) {
	if data, is := v.(json.RawMessage); is {
		return data, nil
	}
	d.room, err = d.coder.Append(d.room[:0], v)
	return d.room, err
}

// set writes a header into memory of the draft.
func (d *Draft) set(name string, place *[1]string, value string) {
	place[0] = headerText(value)
	d.Header[name] = place[:]
}
