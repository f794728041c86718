package main

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

// errNoWork is what a redrive gets of a letter that does not hold the work.
var errNoWork = edda.Classify(edda.Permanent, "the dead letter does not hold the work that was refused: it can only be dropped")

// Redeliver sends what a dead letter of no instance was made of once more, and
// removes the letter. One call at a time looks at a letter and removes it, so
// that two at once send it once; after a crash in between the letter is still
// there, and the message keeps its id.
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

// ReadBack fills in what a dead letter lacks, from its message in its stream.
func (p *process) ReadBack(ctx context.Context, d edda.DeadLetter) (edda.DeadLetter, error) {
	l := p.pipeline.Load()
	if l == nil {
		return d, errNoPipeline
	}
	return l.publisher.ReadBack(ctx, d)
}

// workAgain puts refused work back into the outbox, in the change that removes
// its letter. Its destination has never taken it: it keeps its id.
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

// Drop removes a dead letter that holds nothing.
func (p *process) Drop(ctx context.Context, d edda.DeadLetter, by store.Audit) error {
	p.deadLetters.Lock()
	defer p.deadLetters.Unlock()
	if err := p.there(d); err != nil {
		return err
	}
	return p.resolve(ctx, edda.Transition{Resolved: []string{d.ID}}, d, by, "dropped")
}

// Note writes an act on many letters into the audit; each has its own entry, too.
func (p *process) Note(ctx context.Context, by store.Audit) error {
	return p.db.Commit(ctx, store.Change{Audits: []store.Audit{by}})
}

// there tells whether the letter still is what the caller saw.
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

// resolve commits the act: the letter goes, the audit stays, with what became of
// its event. It does not end with
// the call that asked for it: what was sent must not be sent again.
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
