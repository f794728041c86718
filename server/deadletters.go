package server

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/store"
)

// DeadLetters stores the dead letters. Its methods are safe for concurrent use.
type DeadLetters interface {
	// DeadLetters lists up to limit dead letters after a place (see
	// [store.DeadPlace]), oldest first. An empty list is the end. An invalid place is
	// a Permanent error.
	DeadLetters(after string, limit int) ([]edda.DeadLetter, error)
	// DeadLetter finds a dead letter by its id.
	DeadLetter(id string) (edda.DeadLetter, bool, error)
	// Redeliver handles a dead letter without an instance. It sends a message to its
	// subject again, or refused work to its destination, with data as the new
	// payload if there is any. Then it removes the dead letter and returns the
	// target. ErrGone means that the dead letter no longer exists.
	Redeliver(ctx context.Context, d edda.DeadLetter, data json.RawMessage, by store.Audit) (string, error)
	// ReadBack reads the missing payload (Cut) of a dead letter from its stream. A
	// Permanent error means that the stream no longer has the message.
	ReadBack(ctx context.Context, d edda.DeadLetter) (edda.DeadLetter, error)
	// Drop removes a dead letter that holds no key. ErrGone means as above.
	Drop(ctx context.Context, d edda.DeadLetter, by store.Audit) error
	// Note writes the audit entry of a command on many dead letters.
	Note(ctx context.Context, by store.Audit) error
}

// ErrGone says that another call has redriven or dropped the dead letter.
var ErrGone = edda.Classify(edda.Permanent, "the dead letter is gone: somebody redrove or dropped it meanwhile")

// scanned bounds the dead letters of other tenants that one call skips.
const scanned = 10_000

// DeadLetterList is one page of dead letters.
type DeadLetterList struct {
	DeadLetters []edda.DeadLetter `json:"dead_letters"`
	Next        string            `json:"next,omitempty"` // the after of the next page; empty on the last
}

type deadListInput struct {
	TenantInput
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	After string `query:"after" doc:"next of the page before"`
	DeadFilter
}

// DeadFilter selects dead letters.
type DeadFilter struct {
	Reason deadReason `query:"reason" doc:"only those that died of this"`
	Saga   string     `query:"saga" doc:"only those of this saga"`
}

// deadReason is one of [edda.DeadReasons], or empty.
type deadReason string

// Schema lists the reasons.
func (deadReason) Schema(huma.Registry) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, reason := range edda.DeadReasons {
		s.Enum = append(s.Enum, reason)
	}
	s.PrecomputeMessages()
	return s
}

// wants tells whether the filter selects a dead letter of a tenant.
func (f DeadFilter) wants(d edda.DeadLetter, tenant string) bool {
	return d.Tenant() == tenant && (f.Reason == "" || string(f.Reason) == d.Reason) && (f.Saga == "" || f.Saga == d.Key.Saga)
}

// LetterInput names one dead letter.
type LetterInput struct {
	TenantInput
	ID string `path:"id"`
}

func (s *Server) deadLetters() {
	huma.Get(s.api, "/v1/deadletters", s.listDead, summary("List dead letters, oldest first", "dead letters"))
	huma.Get(s.api, "/v1/deadletters/{id}", s.describeDead, summary("Show one dead letter and the events held behind it", "dead letters"))
	s.deadLetterCommands()
	s.deadLetterPortions()
}

func (s *Server) listDead(_ context.Context, in *deadListInput) (*body[DeadLetterList], error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	out := DeadLetterList{DeadLetters: []edda.DeadLetter{}}
	after := in.After
	var last edda.DeadLetter
	for seen := 0; seen < 2*scanned; {
		page, err := s.options.DeadLetters.DeadLetters(after, in.Limit)
		switch {
		case errors.Is(err, edda.Permanent):
			return nil, huma.Error422UnprocessableEntity("after: " + err.Error())
		case err != nil:
			return nil, s.internal("list dead letters", err)
		}
		for _, d := range page {
			if seen++; elsewhere(seen, last, d) {
				out.Next = store.DeadPlace(edda.DeadLetter{Time: d.Time})
				return &body[DeadLetterList]{out}, nil
			}
			after, last = store.DeadPlace(d), d
			if !in.wants(d, tenant) {
				continue
			}
			if out.DeadLetters = append(out.DeadLetters, d); len(out.DeadLetters) == in.Limit {
				out.Next = after
				return &body[DeadLetterList]{out}, nil
			}
		}
		if len(page) == 0 {
			return &body[DeadLetterList]{out}, nil
		}
	}
	out.Next = after
	return &body[DeadLetterList]{out}, nil
}

// elsewhere tells whether the page ends before d, because the scan has skipped enough and
// d has a later time. The next place is then only a time. So it reveals nothing about
// a dead letter of another tenant.
func elsewhere(seen int, last, d edda.DeadLetter) bool {
	return seen > scanned && !d.Time.Equal(last.Time)
}

func (s *Server) describeDead(ctx context.Context, in *LetterInput) (*body[DeadLetterView], error) {
	d, err := s.deadLetter(in)
	if err != nil {
		return nil, err
	}
	holds, behind, err := s.holding(d)
	if err != nil {
		return nil, err
	}
	v := DeadLetterView{DeadLetter: d, Holds: holds, Behind: behind}
	if err := s.completed(ctx, &v); err != nil {
		return nil, err
	}
	v.Next = nextFor(d, holds, len(behind), v.Unread)
	return &body[DeadLetterView]{v}, nil
}

// deadLetter loads the dead letter of a call, and checks its tenant.
func (s *Server) deadLetter(in *LetterInput) (edda.DeadLetter, error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return edda.DeadLetter{}, err
	}
	d, found, err := s.options.DeadLetters.DeadLetter(in.ID)
	if err != nil {
		return d, s.internal("load dead letter", err)
	}
	if !found || d.Tenant() != tenant {
		return d, huma.Error404NotFound("no dead letter " + in.ID + ": it may have been redriven or dropped; edda audit list tells")
	}
	return d, nil
}
