// Package msgout is the outbox's destination in Redis. It does the work that sagas and flows
// have committed: it sends messages on msg_out and writes the states of flows to their
// objects. The relay delivers at least once. A repeated step changes nothing, because
// Redis recognises it: a message by its command id, a dispatch by its attempt.
//
// It is the only package in which the engine and the Hero systems meet.
package msgout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"edda"
	"edda/hero"
	"edda/hero/flow"
	"edda/hero/redisdb"
	"edda/outbox"
)

// deliverParallel bounds the concurrent deliveries. Each takes a few round trips, for an
// instance of its own.
const deliverParallel = 8

// Reports tells flows of jobs that cannot be sent. [flowsaga.Client] implements it.
type Reports interface {
	Report(ctx context.Context, r hero.Report) error
}

// Destination writes to Redis. Its methods may be called concurrently.
type Destination struct {
	db      *redisdb.DB
	reports Reports
}

// New makes the destination. It writes nothing yet. reports is needed for flows only.
func New(db *redisdb.DB, reports Reports) *Destination {
	return &Destination{db: db, reports: reports}
}

// Route returns the outbox lane of messages and flows.
func (d *Destination) Route() outbox.Route {
	return outbox.Route{Name: "redis", Kinds: []edda.WorkKind{edda.WorkMessage}, Destination: d, Batch: 1, Parallel: deliverParallel}
}

// Deliver writes each item. An error of Redis that may pass is Temporary.
func (d *Destination) Deliver(ctx context.Context, batch []edda.Work) []error {
	errs := make([]error, len(batch))
	for i, w := range batch {
		errs[i] = d.deliver(ctx, w)
	}
	return errs
}

func (d *Destination) deliver(ctx context.Context, w edda.Work) error {
	if w.From.Saga != flow.Saga {
		return d.send(ctx, w)
	}
	var b flow.Batch
	if err := json.Unmarshal(w.Payload, &b); err != nil {
		return &outbox.Rejection{Code: "malformed", Message: "acts of a flow: " + err.Error()}
	}
	return d.advance(ctx, b)
}

// send writes a message that a saga emitted, once for its command id. It rejects a payload
// that is no message, which becomes a dead letter.
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

// read decodes a message of a manifest and fills in its defaults.
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

// notUnderstood returns the unknown fields of the message, its jobs and nodes.
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

// valid checks the words of a message, and that one of type job has a job or a flow.
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
