package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/oklog/ulid/v2"

	"edda"
	"edda/engine"
	"edda/internal/jsonvalue"
)

// Inbox publishes messages for instances to the streams. Its methods are safe for
// concurrent use.
type Inbox interface {
	// Send publishes a signal, an answer or an operator command. It returns the outcome
	// when that is committed. If ctx ends first, it returns ctx's error, and the
	// message may still be applied. If the stream already has a message with this id,
	// it returns ErrDuplicate at once, because no outcome would ever come.
	Send(ctx context.Context, message edda.Event) (engine.EventResult, error)
	// Publish stores an event in its stream.
	Publish(ctx context.Context, event edda.Event) (Stored, error)
}

// ErrDuplicate says that a message with this id was sent before.
var ErrDuplicate = edda.Classify(edda.Permanent, "a message with this id was sent before")

// Stored is the position of an event in its stream.
type Stored struct {
	Stream    string `json:"stream"`
	Subject   string `json:"subject"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate,omitempty"` // the stream already had it
}

// ActView is the outcome of a command.
type ActView struct {
	ID      string        `json:"id"` // of the message
	Fate    edda.Fate     `json:"fate"`
	Outputs []edda.Output `json:"outputs"`
	Status  edda.Status   `json:"status,omitempty"` // of the instance, afterwards
}

// Operator names the caller and the reason, for the audit.
type Operator struct {
	By  string `header:"x-edda-by" doc:"who acts, for the audit" maxLength:"200"`
	Why string `header:"x-edda-why" doc:"why, for the audit; the operator's verbs and acts on dead letters need it" maxLength:"1000"`
}

// reasoned refuses a command without a reason, because the audit must explain it later.
func (a Operator) reasoned(what string) error {
	if strings.TrimSpace(a.Why) == "" {
		return huma.Error422UnprocessableEntity(what + " needs a reason, which goes to the audit: give it in the header x-edda-why, or with --why TEXT")
	}
	return nil
}

// ActInput is the common input of commands on an instance.
type ActInput struct {
	KeyInput
	ID string `header:"idempotency-key" doc:"id of the message: the same one is applied once" maxLength:"200"`
	Operator
	Trace string `header:"traceparent" maxLength:"200"`
}

type signalInput struct {
	ActInput
	Name string           `path:"name" doc:"name of the signal"`
	Body *json.RawMessage `doc:"its payload, any JSON"`
}

type answerInput struct {
	ActInput
	Ask  string `path:"ask" doc:"id of the ask"`
	Body struct {
		Choice  string          `json:"choice" minLength:"1"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}
}

type stepInput struct {
	ActInput
	Step string           `path:"step" doc:"a step, or its undo: ship, charge.undo, hold[0]"`
	Body *json.RawMessage `doc:"retry: an input instead of the one before"`
}

func (s *Server) commands() {
	const base = "/v1/instances/{saga}/{key}/"
	huma.Post(s.api, base+"signal/{name}", s.signal, summary("Send a signal", "acts"))
	huma.Post(s.api, base+"answer/{ask}", s.answer, summary("Answer an ask", "acts"))
	for verb, text := range map[string]string{
		edda.VerbCancel:    "Fail it as cancelled, and undo",
		edda.VerbTerminate: "End it now; nothing is undone",
	} {
		huma.Post(s.api, base+verb, func(ctx context.Context, in *ActInput) (*body[ActView], error) {
			return s.command(ctx, in, edda.Event{Kind: edda.KindOperator, Type: verb})
		}, summary(text, "acts"))
	}
	for verb, text := range map[string]string{
		edda.VerbRetry: "Call a failed step or undo again",
		edda.VerbSkip:  "Go on without a failed step or undo",
	} {
		huma.Post(s.api, base+verb+"/{step}", func(ctx context.Context, in *stepInput) (*body[ActView], error) {
			return s.command(ctx, &in.ActInput, edda.Event{Kind: edda.KindOperator, Type: verb, Step: in.Step, Payload: optional(in.Body)})
		}, summary(text, "acts"))
	}
}

func (s *Server) signal(ctx context.Context, in *signalInput) (*body[ActView], error) {
	return s.command(ctx, &in.ActInput, edda.Event{Kind: edda.KindSignal, Type: in.Name, Payload: optional(in.Body)})
}

// optional returns an optional body; nil without one.
func optional(body *json.RawMessage) json.RawMessage {
	if body == nil {
		return nil
	}
	return *body
}

func (s *Server) answer(ctx context.Context, in *answerInput) (*body[ActView], error) {
	return s.command(ctx, &in.ActInput, edda.Event{Kind: edda.KindAnswer, Type: in.Body.Choice, Step: in.Ask, Payload: in.Body.Payload})
}

// command sends a message to an existing instance and answers with the outcome.
func (s *Server) command(ctx context.Context, in *ActInput, ev edda.Event) (*body[ActView], error) {
	if ev.Kind == edda.KindOperator {
		if err := in.reasoned(join(ev.Type, ev.Step)); err != nil {
			return nil, err
		}
	}
	cell, err := s.cell(&in.KeyInput)
	if err != nil {
		return nil, err
	}
	if _, err := jsonvalue.Decode(ev.Payload); err != nil {
		return nil, huma.Error422UnprocessableEntity("the payload cannot be taken: " + err.Error())
	}
	ev.ID, ev.Key, ev.Tenant, ev.Trace = in.ID, cell.Key, cell.Key.Tenant, in.Trace
	ev.By, ev.Why = cmp.Or(in.By, "unknown"), in.Why
	if ev.ID == "" {
		ev.ID = ulid.Make().String()
	}
	if taken(cell, ev.ID) {
		return nil, duplicate(ev)
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.CommitWait)
	defer cancel()
	o, err := s.options.Inbox.Send(ctx, ev)
	if err != nil {
		return nil, s.unsent(ev, err)
	}
	if o.Status == "" && cell.Instance != nil {
		o.Status = cell.Instance.Status // the status did not change
	}
	return view(ev, o)
}

// taken tells whether the instance has applied the message. JetStream may drop it as a
// duplicate, and then no outcome would ever come.
func taken(cell edda.Cell, id string) bool {
	return cell.Instance != nil && slices.Contains(cell.Instance.Recent, id)
}

// unsent distinguishes a commit that took too long from a message that was not published.
func (s *Server) unsent(ev edda.Event, err error) error {
	switch {
	case errors.Is(err, ErrDuplicate):
		return duplicate(ev)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error504GatewayTimeout(fmt.Sprintf("message %s was not committed within %s; it may still be: look for it in the history, or send it again with the header idempotency-key: %s", ev.ID, s.options.CommitWait, ev.ID))
	case errors.Is(err, edda.Permanent):
		return huma.Error422UnprocessableEntity(err.Error())
	}
	return huma.Error503ServiceUnavailable(fmt.Sprintf("message %s could not be sent: %v; send it again with the header idempotency-key: %s", ev.ID, err, ev.ID))
}

// view answers with the fate. A refusal becomes an HTTP problem.
func view(ev edda.Event, o engine.EventResult) (*body[ActView], error) {
	switch {
	case o.Fate == edda.FateDead && o.Dead != nil && o.Dead.Reason == edda.DeadNoInstance:
		return nil, missing(ev.Key)
	case o.Fate == edda.FateDead:
		return nil, dead(o.Dead)
	case ignored(o):
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("nothing in saga %s takes %s", ev.Key.Saga, what(ev)))
	case o.Fate == edda.FateDuplicate:
		return nil, duplicate(ev)
	case o.Fate == edda.FateLate:
		return nil, huma.Error409Conflict(fmt.Sprintf("too late: the instance does not take %s (any more)", what(ev)))
	}
	for _, out := range o.Outputs {
		if out.Word == "refused" {
			return nil, huma.Error409Conflict("refused: " + because(out.Name, out.Reason))
		}
	}
	return &body[ActView]{ActView{ID: ev.ID, Fate: o.Fate, Outputs: orEmpty(o.Outputs), Status: o.Status}}, nil
}

// ignored tells whether no handler took the message.
func ignored(o engine.EventResult) bool {
	return o.Fate == edda.FateIgnored || len(o.Outputs) == 1 && o.Outputs[0].Word == "ignored"
}

// duplicate answers a message that was sent before, applied or not.
func duplicate(ev edda.Event) error {
	return huma.Error409Conflict(fmt.Sprintf("duplicate: message %s was sent before and is applied once; the history of the instance tells what became of it", ev.ID))
}

func dead(d *edda.DeadLetter) error {
	if d == nil {
		return huma.Error422UnprocessableEntity("it cannot be applied")
	}
	return huma.Error422UnprocessableEntity(fmt.Sprintf("it cannot be applied (%s): %s; see dead letter %s", d.Reason, d.Error, d.ID))
}

// what describes a message for people.
func what(ev edda.Event) string {
	switch ev.Kind {
	case edda.KindAnswer:
		return "the ask " + ev.Step
	case edda.KindSignal:
		return "the signal " + ev.Type
	}
	return "the verb " + join(ev.Type, ev.Step)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

// because joins what was refused and why.
func because(what, why string) string {
	if what == "" || why == "" {
		return what + why
	}
	return what + ": " + why
}
