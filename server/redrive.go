package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/engine"
	"edda/internal/jsonvalue"
	"edda/store"
)

// DeadLetterView is one dead letter with all that is known about it.
type DeadLetterView struct {
	edda.DeadLetter
	// Holds is set while the dead letter holds its key.
	Holds  bool         `json:"holds,omitempty"`
	Behind []HeldBehind `json:"behind,omitempty"`
	Next   []string     `json:"next"` // possible commands, in words
	// ReadFrom says where the missing payload (cut) was read; Unread says why it could
	// not be read.
	ReadFrom string `json:"read_from,omitempty"`
	Unread   string `json:"unread,omitempty"`
}

// HeldBehind is an event that waits behind a poison event, without its payload.
type HeldBehind struct {
	N    uint64    `json:"n"`
	ID   string    `json:"id"`
	Kind edda.Kind `json:"kind"`
	Type string    `json:"type,omitempty"`
	Step string    `json:"step,omitempty"`
	Time time.Time `json:"time"`
}

// LetterActView is the outcome of a command on a dead letter.
type LetterActView struct {
	DeadLetter string `json:"dead_letter"`
	// Fate is the fate of its event: handled, guarded, late, duplicate, parked or held.
	// It is sent if the event was sent to Where again, and dropped after a drop.
	Fate    string        `json:"fate"`
	Where   string        `json:"where,omitempty"`
	Behind  int           `json:"behind,omitempty"` // further events that were applied: held behind it, or parked
	Outputs []edda.Output `json:"outputs"`
	Status  edda.Status   `json:"status,omitempty"` // of the instance, afterwards
	// Next is the dead letter of a later event that holds the key now.
	Next string `json:"next,omitempty"`
}

type letterInput struct {
	LetterInput
	Operator
	Body *struct {
		Why  string          `json:"why,omitempty" doc:"as the header x-edda-why" maxLength:"1000"`
		Data json.RawMessage `json:"data,omitempty" doc:"redrive: what is applied instead of the event's payload; for a message that could not be read, its whole body"`
	}
}

func (in *letterInput) data() json.RawMessage {
	if in.Body == nil {
		return nil
	}
	return in.Body.Data
}

func (s *Server) deadLetterCommands() {
	const base = "/v1/deadletters/{id}/"
	huma.Post(s.api, base+edda.VerbRedrive, s.deadLetterCommand(edda.VerbRedrive, s.redrive), summary("Redrive a dead letter: apply its event again", "dead letters"))
	huma.Post(s.api, base+edda.VerbDrop, s.deadLetterCommand(edda.VerbDrop, s.drop), summary("Drop a dead letter: discard its event", "dead letters"))
	huma.Post(s.api, base+edda.VerbSkip, s.deadLetterCommand(edda.VerbSkip, s.skip), summary("Skip a poison event, and apply the events held behind it", "dead letters"))
}

// deadLetterCommand checks the input of a command on a dead letter and loads it.
func (s *Server) deadLetterCommand(verb string, do func(context.Context, *letterInput, edda.DeadLetter) (*body[LetterActView], error)) func(context.Context, *letterInput) (*body[LetterActView], error) {
	return func(ctx context.Context, in *letterInput) (*body[LetterActView], error) {
		if in.Body != nil && in.Body.Why != "" {
			in.Why = in.Body.Why
		}
		if err := in.reasoned(verb); err != nil {
			return nil, err
		}
		if _, err := jsonvalue.Decode(in.data()); err != nil {
			return nil, huma.Error422UnprocessableEntity("the data cannot be taken: " + err.Error())
		}
		d, err := s.deadLetter(&in.LetterInput)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, s.options.CommitWait)
		defer cancel()
		return do(ctx, in, d)
	}
}

// ofInstance tells whether a redrive applies the event to an instance. Otherwise a
// redrive sends it to its origin again.
func ofInstance(d edda.DeadLetter) bool {
	return d.Event.Malformed == "" && d.Key.Saga != "" && d.Reason != edda.DeadRejected && d.Reason != edda.DeadMalformed
}

// holding tells whether the dead letter holds its key, and lists the events behind it.
func (s *Server) holding(d edda.DeadLetter) (bool, []HeldBehind, error) {
	if !ofInstance(d) {
		return false, nil, nil
	}
	cell, err := s.options.Store.Cell(d.Key)
	if err != nil {
		return false, nil, s.internal("load instance", err)
	}
	if len(cell.Held) == 0 || cell.Held[0].DeadLetter != d.ID {
		return false, nil, nil
	}
	var out []HeldBehind
	for _, e := range cell.Held[1:] {
		out = append(out, HeldBehind{N: e.N, ID: e.Event.ID, Kind: e.Event.Kind, Type: e.Event.Type, Step: e.Event.Step, Time: e.Event.Time})
	}
	return true, out, nil
}

// nextFor lists the possible commands on a dead letter.
func nextFor(d edda.DeadLetter, holds bool, behind int, unread string) []string {
	redrive := "edda deadletter redrive " + d.ID + " --why TEXT"
	switch {
	case holds:
		return []string{
			fmt.Sprintf("mend the manifest and reload, then %s: its event is applied, then the %d behind it", redrive, behind),
			redrive + " --data '{…}': apply it with another payload",
			"edda deadletter skip " + d.ID + " --why TEXT: give it up, and apply those behind it (drop does the same here)",
		}
	case unread != "" && ofInstance(d):
		return []string{redrive + " --data '{…}': applied with the payload that you give, because " + unread, dropText(d)}
	case d.Reason == edda.DeadUnmatched:
		return []string{redrive + ": applied where the instance has begun since, else parked again", dropText(d)}
	case d.Reason == edda.DeadRejected:
		return []string{redrive + ": its destination is asked again; --data changes what it is sent", dropText(d)}
	case !ofInstance(d):
		return []string{redrive + " --data @FILE: sent again with this body, or without --data as it was: to where it came from, or read again by its source", dropText(d)}
	}
	return []string{redrive + ": applied again, after a mended manifest or with --data", dropText(d)}
}

func dropText(d edda.DeadLetter) string {
	return "edda deadletter drop " + d.ID + " --why TEXT: give it up for good"
}

func (in *letterInput) audit(verb string, d edda.DeadLetter) store.Audit {
	key := d.Key
	if key.Tenant == "" {
		key.Tenant = d.Tenant()
	}
	by := in.By
	if by == "" {
		by = "unknown"
	}
	detail := "dead letter " + d.ID + "; " + d.Reason + "; " + cite(d)
	if verb == edda.VerbRedrive && len(in.data()) > 0 {
		detail += "; " + engine.Edited
	}
	return store.Audit{By: by, Verb: verb, Key: key, Reason: in.Why, Detail: detail}
}

// cite names the refused work or the event of a dead letter.
func cite(d edda.DeadLetter) string {
	if w := d.Work; w != nil {
		return fmt.Sprintf("%s %s %s", w.Kind, w.Name, w.ID)
	}
	ev := d.Event
	if ev.Subject == "" {
		ev.Subject = d.Subject
	}
	return engine.Cite(ev)
}

func (s *Server) redrive(ctx context.Context, in *letterInput, d edda.DeadLetter) (*body[LetterActView], error) {
	switch {
	case !ofInstance(d):
		where, err := s.options.DeadLetters.Redeliver(ctx, d, in.data(), in.audit(edda.VerbRedrive, d))
		if err != nil {
			return nil, s.deadLetterFailed(d, err)
		}
		return &body[LetterActView]{LetterActView{DeadLetter: d.ID, Fate: "sent", Where: where, Outputs: []edda.Output{}}}, nil
	case d.Event.Kind == edda.KindOperator && (d.Event.Type == edda.VerbRedrive || d.Event.Type == edda.VerbDrop):
		return nil, huma.Error409Conflict("a " + d.Event.Type + " is not redriven: redrive the dead letter that it spoke of, and drop this one")
	}
	act := edda.Redrive{DeadLetter: d.ID, Data: in.data()}
	if err := s.complete(ctx, &act, d); err != nil {
		return nil, err
	}
	ev, o, err := s.verb(ctx, in, d, edda.VerbRedrive, act)
	if err != nil {
		return nil, err
	}
	return redriven(d, ev, o)
}

// complete reads a missing payload from the event's stream and adds it to the redrive. A
// dead letter that holds its key needs none, because the held event has the payload.
func (s *Server) complete(ctx context.Context, act *edda.Redrive, d edda.DeadLetter) error {
	if d.Cut == 0 || len(act.Data) > 0 {
		return nil
	}
	holds, _, err := s.holding(d)
	if err != nil || holds {
		return err
	}
	whole, err := s.options.DeadLetters.ReadBack(ctx, d)
	switch {
	case errors.Is(err, edda.Permanent):
		return huma.Error409Conflict(fmt.Sprintf("dead letter %s cannot be redriven as it was: its payload was left out here, and %v; give its payload with --data, or drop it", d.ID, err))
	case err != nil:
		return s.deadLetterFailed(d, err)
	}
	act.Data, act.ReadBack = whole.Event.Payload, true
	return nil
}

// readBackWait bounds how long a GET of a dead letter waits for a stream. The GET answers
// from the store even if NATS does not respond.
const readBackWait = 5 * time.Second

// completed adds the missing payload to the view, or the reason why it cannot.
func (s *Server) completed(ctx context.Context, v *DeadLetterView) error {
	if v.Cut == 0 {
		return nil
	}
	if v.Holds {
		cell, err := s.options.Store.Cell(v.Key)
		if err != nil {
			return s.internal("load instance", err)
		}
		if len(cell.Held) > 0 && cell.Held[0].DeadLetter == v.ID {
			v.Event.Payload, v.ReadFrom = cell.Held[0].Event.Payload, "the held event"
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readBackWait)
	defer cancel()
	whole, err := s.options.DeadLetters.ReadBack(ctx, v.DeadLetter)
	if err != nil {
		v.Unread = err.Error()
		return nil
	}
	v.Event.Payload, v.ReadFrom = whole.Event.Payload, v.Event.Place()
	return nil
}

func (s *Server) skip(ctx context.Context, in *letterInput, d edda.DeadLetter) (*body[LetterActView], error) {
	holds, _, err := s.holding(d)
	if err != nil {
		return nil, err
	}
	if !holds {
		return nil, huma.Error409Conflict("dead letter " + d.ID + " holds nothing back, so nothing waits to be applied without it: drop it, or redrive it")
	}
	return s.give(ctx, in, d, edda.VerbSkip)
}

func (s *Server) drop(ctx context.Context, in *letterInput, d edda.DeadLetter) (*body[LetterActView], error) {
	holds, _, err := s.holding(d)
	switch {
	case err != nil:
		return nil, err
	case holds:
		return s.give(ctx, in, d, edda.VerbDrop)
	}
	if err := s.options.DeadLetters.Drop(ctx, d, in.audit(edda.VerbDrop, d)); err != nil {
		return nil, s.deadLetterFailed(d, err)
	}
	return &body[LetterActView]{LetterActView{DeadLetter: d.ID, Fate: "dropped", Outputs: []edda.Output{}}}, nil
}

// give drops the event that holds a key.
func (s *Server) give(ctx context.Context, in *letterInput, d edda.DeadLetter, verb string) (*body[LetterActView], error) {
	ev, o, err := s.verb(ctx, in, d, verb, edda.Redrive{DeadLetter: d.ID, Data: in.data()})
	if err != nil {
		return nil, err
	}
	if _, err := view(ev, o); err != nil {
		return nil, err
	}
	out := LetterActView{DeadLetter: d.ID, Fate: "dropped", Behind: len(o.Released), Outputs: orEmpty(o.Outputs), Status: o.Status}
	out.Next = heldBy(d.ID, o.Released)
	return &body[LetterActView]{out}, nil
}

// verb sends a command on a dead letter through the stream. The message id is derived, so
// that two concurrent calls send one message.
func (s *Server) verb(ctx context.Context, in *letterInput, d edda.DeadLetter, verb string, act edda.Redrive) (edda.Event, engine.EventResult, error) {
	payload, err := json.Marshal(act)
	if err != nil {
		return edda.Event{}, engine.EventResult{}, s.internal("write the act", err)
	}
	ev := edda.Event{
		Kind: edda.KindOperator, Type: verb, ID: "deadletter/" + d.ID + "/" + verb + "/" + strconv.Itoa(d.Event.Redrives+1),
		Tenant: d.Tenant(), Key: d.Key, By: in.By, Why: in.Why, Payload: payload,
	}
	// gofail: var letterActed struct{}
	o, err := s.options.Inbox.Send(ctx, ev)
	// gofail: var letterTaken struct{}
	if errors.Is(err, ErrDuplicate) {
		return ev, o, huma.Error409Conflict("somebody did the same a moment ago: see what became of dead letter " + d.ID + ", and try again in half a minute if it is still there")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return ev, o, s.deadLetterFailed(d, err)
	}
	if err != nil {
		return ev, o, s.unsent(ev, err)
	}
	return ev, o, refused(o)
}

// refused returns the saga's refusal as an error; nil if it accepted.
func refused(o engine.EventResult) error {
	if o.Fate == edda.FateLate && len(o.Outputs) == 1 && o.Outputs[0].Word == "refused" {
		return huma.Error409Conflict("refused: " + o.Outputs[0].Reason)
	}
	return nil
}

// redriven answers with the outcome of the event of a dead letter.
func redriven(d edda.DeadLetter, ev edda.Event, o engine.EventResult) (*body[LetterActView], error) {
	if o.Fate == edda.FateDead && o.Dead != nil && o.Dead.ID == d.ID { // still no key
		return nil, deadAgain(o.Dead)
	}
	if o.Fate == edda.FateIgnored {
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("no saga that is loaded takes it: load %s with a handler for it, and redrive again", d.Key.Saga))
	}
	if o.Fate == edda.FateDuplicate {
		return nil, huma.Error409Conflict("it was redriven already: see the history of its instance")
	}
	if _, err := view(ev, o); err != nil {
		return nil, err
	}
	out := LetterActView{DeadLetter: d.ID, Fate: string(o.Fate), Outputs: orEmpty(o.Outputs), Status: o.Status}
	for _, r := range o.Released {
		if r.Event != d.Event.ID {
			out.Behind++
			continue
		}
		if out.Fate = string(r.Fate); r.Fate == edda.FateDead {
			return nil, deadAgain(r.Dead)
		}
	}
	out.Next = heldBy(d.ID, o.Released)
	return &body[LetterActView]{out}, nil
}

// heldBy returns the new dead letter that holds the key after a release; empty if none.
func heldBy(id string, released []engine.Released) string {
	for _, r := range released {
		if r.Dead != nil && r.Dead.ID != id && r.Dead.Reason == edda.DeadPoison {
			return r.Dead.ID
		}
	}
	return ""
}

func deadAgain(d *edda.DeadLetter) error {
	if d == nil {
		return huma.Error422UnprocessableEntity("it cannot be applied this time either")
	}
	return huma.Error422UnprocessableEntity(fmt.Sprintf("it cannot be applied this time either (%s): %s; see dead letter %s", d.Reason, d.Error, d.ID))
}

// deadLetterFailed distinguishes a dead letter that no longer exists from one that could
// not be sent.
func (s *Server) deadLetterFailed(d edda.DeadLetter, err error) error {
	switch {
	case errors.Is(err, ErrGone):
		return huma.Error409Conflict(err.Error())
	case errors.Is(err, edda.Permanent):
		return huma.Error422UnprocessableEntity(err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return huma.Error504GatewayTimeout("not done within " + s.options.CommitWait.String() + ", and it may still be: look whether dead letter " + d.ID + " is still there; the same act again is done once")
	}
	return huma.Error503ServiceUnavailable(fmt.Sprintf("dead letter %s stays: %v; try again", d.ID, err))
}
