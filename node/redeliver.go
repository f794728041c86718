package node

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/server"
	"edda/store"
)

// errNoWork refuses the redrive of refused work that the dead letter does not contain.
var errNoWork = edda.Classify(edda.Permanent, "the dead letter does not hold the work that was refused: it can only be dropped")

// Redeliver sends the message or the work of a dead letter without an instance again, and
// removes the dead letter. A mutex serializes the calls, so that two concurrent calls
// send it once. After a crash in between, the dead letter still exists, and the message
// id stays the same.
func (p *process) Redeliver(ctx context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error) {
	p.deadLetters.Lock()
	defer p.deadLetters.Unlock()
	if err := p.there(d); err != nil {
		return "", err
	}
	if d.Reason == edda.DeadRejected {
		return p.workAgain(ctx, d, data, by)
	}
	l := p.pipeline.Load()
	if l == nil {
		return "", errNoPipeline
	}
	sent, err := l.publisher.Resend(ctx, d, data, "redrive-"+d.ID+"-"+strconv.Itoa(d.Event.Redrives+1))
	if err != nil {
		return "", err
	}
	// gofail: var letterResent struct{}
	return sent.Subject, p.resolve(ctx, edda.Transition{Resolved: []string{d.ID}}, d, by, "sent to "+sent.Subject)
}

// ReadBack reads the missing payload of a dead letter from its stream.
func (p *process) ReadBack(ctx context.Context, d edda.DeadLetter) (edda.DeadLetter, error) {
	l := p.pipeline.Load()
	if l == nil {
		return d, errNoPipeline
	}
	return l.publisher.ReadBack(ctx, d)
}

// workAgain puts refused work back into the outbox. The same commit removes the dead
// letter. The work keeps its id, because its destination never accepted it.
func (p *process) workAgain(ctx context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error) {
	if d.Work == nil {
		return "", errNoWork
	}
	w := *d.Work
	if len(data) > 0 {
		w.Payload = data
	}
	return "outbox", p.resolve(ctx, edda.Transition{Key: w.From, Work: []edda.Work{w}, Resolved: []string{d.ID}}, d, by, "back in the outbox")
}

// Drop removes a dead letter that holds no key.
func (p *process) Drop(ctx context.Context, d edda.DeadLetter, by store.Audit) error {
	p.deadLetters.Lock()
	defer p.deadLetters.Unlock()
	if err := p.there(d); err != nil {
		return err
	}
	return p.resolve(ctx, edda.Transition{Resolved: []string{d.ID}}, d, by, "dropped")
}

// Note writes the audit entry of a command on many dead letters. Each has its own entry too.
func (p *process) Note(ctx context.Context, by store.Audit) error {
	return p.db.Commit(ctx, store.Change{Audits: []store.Audit{by}})
}

// there checks that the dead letter is still the one that the caller saw.
func (p *process) there(d edda.DeadLetter) error {
	now, found, err := p.db.DeadLetter(d.ID)
	switch {
	case err != nil:
		return err
	case !found || now.Event.Redrives != d.Event.Redrives:
		return server.ErrGone
	}
	return nil
}

// resolve removes the dead letter and writes the audit entry with its fate, in one commit.
// It ignores the end of ctx, because a message that was sent must not be sent again.
func (p *process) resolve(ctx context.Context, t edda.Transition, d edda.DeadLetter, by store.Audit, fate string) error {
	by.Time = time.Now().UTC()
	by.Detail += "; " + fate
	if t.Key == (edda.Key{}) {
		t.Key = by.Key
	}
	// gofail: var letterBeforeMark struct{}
	err := p.db.Commit(context.WithoutCancel(ctx), store.Change{Transitions: []edda.Transition{t}, Audits: []store.Audit{by}})
	// gofail: var letterMarked struct{}
	if err != nil {
		return errors.Join(errors.New("the dead letter could not be removed"), err)
	}
	p.quarantine.settled(by.Verb, d.Reason)
	p.log.Info("dead letter: an operator acted", zap.String("verb", by.Verb), zap.String("dead_letter", d.ID), zap.String("reason", d.Reason),
		zap.String("tenant", by.Key.Tenant), zap.String("saga", by.Key.Saga), zap.String("correlation", by.Key.Correlation),
		zap.String("by", by.By), zap.String("why", by.Reason), zap.String("fate", fate))
	return nil
}
