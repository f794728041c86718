package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"edda"
)

// DeadLetters is the quarantine. Its methods may be called concurrently.
type DeadLetters interface {
	// DeadLetters lists up to limit dead letters after an id, oldest first.
	DeadLetters(after string, limit int) ([]edda.DeadLetter, error)
	// DeadLetter finds one.
	DeadLetter(id string) (edda.DeadLetter, bool, error)
}

// scanned bounds the dead letters of other tenants that one call passes over.
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
}

type deadInput struct {
	TenantInput
	ID string `path:"id"`
}

func (s *Server) deadLetters() {
	huma.Get(s.api, "/v1/deadletters", s.listDead, summary("List dead letters, oldest first", "dead letters"))
	huma.Get(s.api, "/v1/deadletters/{id}", s.describeDead, summary("One dead letter", "dead letters"))
}

func (s *Server) listDead(_ context.Context, in *deadListInput) (*body[DeadLetterList], error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	out := DeadLetterList{DeadLetters: []edda.DeadLetter{}}
	after := in.After
	for seen := 0; seen < scanned; {
		page, err := s.options.DeadLetters.DeadLetters(after, in.Limit)
		if err != nil {
			return nil, s.internal("list dead letters", err)
		}
		for _, d := range page {
			after = d.ID
			if tenantOf(d) != tenant {
				continue
			}
			if out.DeadLetters = append(out.DeadLetters, d); len(out.DeadLetters) == in.Limit {
				out.Next = after
				return &body[DeadLetterList]{out}, nil
			}
		}
		if seen += len(page); len(page) < in.Limit {
			return &body[DeadLetterList]{out}, nil
		}
	}
	out.Next = after
	return &body[DeadLetterList]{out}, nil
}

func (s *Server) describeDead(_ context.Context, in *deadInput) (*body[edda.DeadLetter], error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	d, found, err := s.options.DeadLetters.DeadLetter(in.ID)
	if err != nil {
		return nil, s.internal("load dead letter", err)
	}
	if !found || tenantOf(d) != tenant {
		return nil, huma.Error404NotFound("no dead letter " + in.ID)
	}
	return &body[edda.DeadLetter]{d}, nil
}

// tenantOf is whose dead letter it is.
func tenantOf(d edda.DeadLetter) string {
	if d.Key.Tenant != "" {
		return d.Key.Tenant
	}
	return d.Event.Tenant
}
