package server

import (
	"context"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/store"
)

// WaitingKey is one key with held or parked events.
type WaitingKey struct {
	Tenant string `json:"tenant,omitempty"`
	Saga   string `json:"saga"`
	Key    string `json:"key"`
	Events int    `json:"events"` // including the poison event of a held key
	// First is the poison event, or the first parked event, with its time.
	First HeldBehind `json:"first"`
	// DeadLetter holds the key because of Error.
	DeadLetter string    `json:"dead_letter,omitempty"`
	Error      string    `json:"error,omitempty"`
	Expires    time.Time `json:"expires,omitzero"` // of the first parked event
	Waits      string    `json:"waits"`            // what it waits for, in words
}

// WaitingList is one page of waiting keys.
type WaitingList struct {
	Keys []WaitingKey `json:"keys"`
	Next string       `json:"next,omitempty"` // the after of the next page; empty on the last
}

// AuditList is a page of audit entries.
type AuditList struct {
	Audits []store.Audit `json:"audits"`         // newest first; a page may be short or empty although there are more
	More   bool          `json:"more,omitempty"` // there may be older ones
	Next   string        `json:"next,omitempty"` // the after of the next page; empty on the last
}

type waitingInput struct {
	TenantInput
	Saga  string `query:"saga" doc:"only this saga"`
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	After string `query:"after" doc:"next of the page before"`
}

type auditInput struct {
	TenantInput
	Process bool      `query:"process" doc:"instead of a tenant's acts those on the whole process, such as gc, backup, doctor and compact; for callers of all tenants"`
	Since   time.Time `query:"since" doc:"only acts since then, RFC 3339"`
	Limit   int       `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	After   string    `query:"after" doc:"next of the page before"`
}

func (s *Server) records() {
	huma.Get(s.api, "/v1/held", s.held, summary("List keys that a poison event holds", "instances"))
	huma.Get(s.api, "/v1/parked", s.parked, summary("List keys whose events wait for their instance to begin", "instances"))
	huma.Get(s.api, "/v1/audit", s.audit, summary("List operator commands, with their reasons", "audit"))
}

func (s *Server) held(_ context.Context, in *waitingInput) (*body[WaitingList], error) {
	return s.waiting(in, s.options.Store.HeldKeys)
}

func (s *Server) parked(_ context.Context, in *waitingInput) (*body[WaitingList], error) {
	return s.waiting(in, s.options.Store.ParkedKeys)
}

func (s *Server) waiting(in *waitingInput, list func(string, string, edda.Key, int) ([]store.WaitingKey, error)) (*body[WaitingList], error) {
	q, err := s.query(&listInput{TenantInput: in.TenantInput, Saga: in.Saga, Limit: in.Limit, After: in.After})
	if err != nil {
		return nil, err
	}
	found, err := list(q.Tenant, q.Saga, q.After, q.Limit)
	if err != nil {
		return nil, s.internal("list what waits", err)
	}
	out := WaitingList{Keys: []WaitingKey{}}
	for _, w := range found {
		key, err := s.waitingKey(w)
		if err != nil {
			return nil, err
		}
		out.Keys = append(out.Keys, key)
	}
	if len(found) == in.Limit {
		out.Next = cursor(found[len(found)-1].Key)
	}
	return &body[WaitingList]{out}, nil
}

func (s *Server) waitingKey(w store.WaitingKey) (WaitingKey, error) {
	ev := w.First.Event
	out := WaitingKey{
		Tenant: w.Key.Tenant, Saga: w.Key.Saga, Key: w.Key.Correlation, Events: w.Events, DeadLetter: w.First.DeadLetter, Expires: w.First.Expires,
		First: HeldBehind{N: w.First.N, ID: ev.ID, Kind: ev.Kind, Type: ev.Type, Step: ev.Step, Time: ev.Time},
	}
	if out.DeadLetter == "" {
		out.Waits = "an event that starts it, until " + edda.FormatTime(w.First.Expires)
		return out, nil
	}
	out.Waits = "an operator: redrive or skip dead letter " + out.DeadLetter
	d, found, err := s.options.DeadLetters.DeadLetter(out.DeadLetter)
	if err != nil {
		return out, s.internal("load dead letter", err)
	}
	if found {
		out.Error = d.Error
	}
	return out, nil
}

func (s *Server) audit(ctx context.Context, in *auditInput) (*body[AuditList], error) {
	tenant, err := s.audited(ctx, in)
	if err != nil {
		return nil, err
	}
	found, next, err := s.options.Store.AuditsOf(store.AuditQuery{Tenant: tenant, Since: in.Since, After: in.After, Limit: in.Limit})
	switch {
	case errors.Is(err, edda.Permanent):
		return nil, huma.Error422UnprocessableEntity("after: " + err.Error())
	case err != nil:
		return nil, s.internal("read the audit", err)
	}
	return &body[AuditList]{AuditList{Audits: orEmpty(found), More: next != "", Next: next}}, nil
}

// audited returns the tenant whose audit is requested; empty for the audit of the whole
// process.
func (s *Server) audited(ctx context.Context, in *auditInput) (string, error) {
	if in.Process {
		return "", everywhere(ctx)
	}
	tenant, err := s.tenant(in.Tenant)
	if err != nil && !s.options.NoTenancy {
		err = huma.Error422UnprocessableEntity(unnamedAudit)
	}
	return tenant, err
}

// heldInstances lists held keys as instances. A key without an instance has no status.
func (s *Server) heldInstances(q store.Query) (InstanceList, error) {
	found, err := s.options.Store.HeldKeys(q.Tenant, q.Saga, q.After, q.Limit)
	if err != nil {
		return InstanceList{}, s.internal("list held keys", err)
	}
	out := InstanceList{Instances: []InstanceSummary{}}
	for _, w := range found {
		cell, err := s.options.Store.Cell(w.Key)
		if err != nil {
			return out, s.internal("load instance", err)
		}
		one := InstanceSummary{Tenant: w.Key.Tenant, Saga: w.Key.Saga, Key: w.Key.Correlation, Held: w.First.DeadLetter}
		if cell.Instance != nil {
			one = s.summarise(*cell.Instance)
		}
		out.Instances = append(out.Instances, one)
	}
	if len(found) == q.Limit {
		out.Next = cursor(found[len(found)-1].Key)
	}
	return out, nil
}
