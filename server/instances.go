package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/saga"
	"edda/store"
)

// Store reads committed state. [store.DB] is one. Its methods are safe for concurrent use.
type Store interface {
	// Cell loads the cell of one key. A missing cell is empty.
	Cell(k edda.Key) (edda.Cell, error)
	// Instances lists instances in key order.
	Instances(q store.Query) ([]edda.Instance, error)
	// HistoryFrom lists the transitions of one key, newest first, from the place that an
	// earlier call returned. An invalid place is a Permanent error.
	HistoryFrom(k edda.Key, place string, limit int) (records []store.Record, next string, err error)
	// HeldKeys lists the keys that a poison event holds, in key order.
	HeldKeys(tenant, saga string, after edda.Key, limit int) ([]store.WaitingKey, error)
	// ParkedKeys lists the keys with parked events, in key order.
	ParkedKeys(tenant, saga string, after edda.Key, limit int) ([]store.WaitingKey, error)
	// AuditsOf lists a tenant's audit entries, newest first. next is the place of the
	// next page, empty on the last. An invalid place is a Permanent error.
	AuditsOf(q store.AuditQuery) (_ []store.Audit, next string, _ error)
}

// historyShown is how many transitions a description includes.
const historyShown = 50

// TenantInput names the tenant of a call.
type TenantInput struct {
	Tenant string `header:"x-tenant-id" doc:"whose instances are meant" maxLength:"256"`
}

// KeyInput names one instance.
type KeyInput struct {
	TenantInput
	Saga string `path:"saga" doc:"name of the saga" example:"order"`
	Key  string `path:"key" doc:"correlation key, any text, path-escaped" example:"O1"`
}

// InstanceSummary is an instance in a list.
type InstanceSummary struct {
	Tenant  string      `json:"tenant,omitempty"`
	Saga    string      `json:"saga"`
	Key     string      `json:"key"`
	Status  edda.Status `json:"status"`
	Reason  string      `json:"reason,omitempty"`
	Version int         `json:"version"`
	// VersionName names the version for people, as in /info.
	VersionName string    `json:"version_name"`
	Generation  int       `json:"generation"`
	Started     time.Time `json:"started"`
	Updated     time.Time `json:"updated"`
	Ended       time.Time `json:"ended,omitzero"`
	Held        string    `json:"held,omitempty"`
	Incidents   int       `json:"incidents,omitempty"`
}

// InstanceList is one page of instances.
type InstanceList struct {
	Instances []InstanceSummary `json:"instances"`
	// Next is the after of the next page; empty on the last.
	Next string `json:"next,omitempty"`
	// Behind lists the selected sagas that are behind the streams.
	Behind []SagaBehind `json:"behind,omitempty"`
}

// InstanceView is everything about one key.
type InstanceView struct {
	Instance *edda.Instance `json:"instance"` // null if events wait for an instance that has not started
	Parked   []edda.Entry   `json:"parked,omitempty"`
	Held     []edda.Entry   `json:"held,omitempty"`
	// VersionName names the instance's version for people, as in /info.
	VersionName string         `json:"version_name,omitempty"`
	Waits       []string       `json:"waits"`   // what it waits for, in words
	History     []store.Record `json:"history"` // newest first
}

// HistoryView is a page of the history of one key.
type HistoryView struct {
	History []store.Record `json:"history"` // newest first
	// Next is the after of the next page; empty on the last.
	Next string `json:"next,omitempty"`
}

type listInput struct {
	TenantInput
	Saga   string `query:"saga" doc:"only this saga"`
	Status string `query:"status" enum:"running,undoing,stuck,done,failed,undone,held" doc:"only this status; held: those that a poison event holds, whatever their status"`
	Limit  int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	After  string `query:"after" doc:"next of the page before"`
}

type historyInput struct {
	KeyInput
	Limit int    `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	After string `query:"after" doc:"next of the page before"`
}

func (s *Server) instances() {
	huma.Get(s.api, "/v1/instances", s.list, summary("List instances", "instances"))
	huma.Get(s.api, "/v1/instances/{saga}/{key}", s.describe, summary("Show one instance", "instances"))
	huma.Get(s.api, "/v1/instances/{saga}/{key}/history", s.history, summary("List the events of an instance and their fates, newest first", "instances"))
}

func (s *Server) list(_ context.Context, in *listInput) (*body[InstanceList], error) {
	q, err := s.query(in)
	if err != nil {
		return nil, err
	}
	if q.Status == statusHeld {
		out, err := s.heldInstances(q)
		if err != nil {
			return nil, err
		}
		return &body[InstanceList]{out}, nil
	}
	found, err := s.options.Store.Instances(q)
	if err != nil {
		return nil, s.internal("list instances", err)
	}
	out := InstanceList{Instances: []InstanceSummary{}}
	for _, i := range found {
		out.Instances = append(out.Instances, s.summarise(i))
	}
	if out.Next, err = s.next(q, found); err != nil {
		return nil, s.internal("list instances", err)
	}
	for _, b := range s.options.Process.SagasBehind(q.Tenant) {
		if q.Saga == "" || q.Saga == b.Saga {
			out.Behind = append(out.Behind, b)
		}
	}
	return &body[InstanceList]{out}, nil
}

// statusHeld selects held keys in place of a status. A held instance also has a status.
const statusHeld edda.Status = "held"

// next returns the cursor of the next page; empty on the last page. A page may be short
// and not the last, because the store bounds its bytes.
func (s *Server) next(q store.Query, found []edda.Instance) (string, error) {
	if len(found) == 0 {
		return "", nil
	}
	last := found[len(found)-1].Key
	if len(found) < q.Limit {
		q.After, q.Limit = last, 1
		more, err := s.options.Store.Instances(q)
		if err != nil || len(more) == 0 {
			return "", err
		}
	}
	return cursor(last), nil
}

func (s *Server) query(in *listInput) (store.Query, error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return store.Query{}, err
	}
	after, err := readCursor(in.After)
	if err != nil {
		return store.Query{}, huma.Error422UnprocessableEntity("after: want what next said on the page before")
	}
	if in.After != "" {
		after.Tenant = tenant
	}
	return store.Query{Tenant: tenant, Saga: in.Saga, Status: edda.Status(in.Status), After: after, Limit: in.Limit}, nil
}

// cursor encodes a key for a query parameter. It is opaque to clients.
func cursor(k edda.Key) string {
	text, _ := json.Marshal([]string{k.Saga, k.Correlation}) // strings always marshal
	return base64.RawURLEncoding.EncodeToString(text)
}

func readCursor(text string) (edda.Key, error) {
	if text == "" {
		return edda.Key{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return edda.Key{}, fmt.Errorf("decode cursor: %w", err)
	}
	var parts []string
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) != 2 {
		return edda.Key{}, fmt.Errorf("decode cursor: %w", edda.Permanent)
	}
	return edda.Key{Saga: parts[0], Correlation: parts[1]}, nil
}

func (s *Server) summarise(i edda.Instance) InstanceSummary {
	return InstanceSummary{
		Tenant: i.Key.Tenant, Saga: i.Key.Saga, Key: i.Key.Correlation, Status: i.Status, Reason: i.Reason,
		Version: i.Version, Generation: i.Generation, Started: i.Started, Updated: i.Updated, Ended: i.Ended,
		Held: i.Held, Incidents: len(i.Incidents),
		VersionName: s.options.Process.VersionName(i.Key.Saga, i.Version, i.Hash),
	}
}

func (s *Server) describe(_ context.Context, in *KeyInput) (*body[InstanceView], error) {
	cell, err := s.cell(in)
	if err != nil {
		return nil, err
	}
	history, _, err := s.options.Store.HistoryFrom(cell.Key, "", historyShown)
	if err != nil {
		return nil, s.internal("read history", err)
	}
	view := InstanceView{
		Instance: cell.Instance, Parked: cell.Parked, Held: cell.Held,
		Waits: orEmpty(saga.Why(cell)), History: orEmpty(history),
	}
	if i := cell.Instance; i != nil {
		view.VersionName = s.options.Process.VersionName(i.Key.Saga, i.Version, i.Hash)
	}
	return &body[InstanceView]{view}, nil
}

func (s *Server) history(_ context.Context, in *historyInput) (*body[HistoryView], error) {
	k, err := s.key(&in.KeyInput)
	if err != nil {
		return nil, err
	}
	records, next, err := s.options.Store.HistoryFrom(k, in.After, in.Limit)
	if errors.Is(err, edda.Permanent) {
		return nil, huma.Error422UnprocessableEntity("after: want what next said on the page before")
	}
	if err != nil {
		return nil, s.internal("read history", err)
	}
	if len(records) == 0 {
		return nil, missing(k)
	}
	return &body[HistoryView]{HistoryView{records, next}}, nil
}

// orEmpty replaces nil by an empty list, which is never null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// tenant returns the tenant of a call.
func (s *Server) tenant(said string) (string, error) {
	switch {
	case s.options.NoTenancy && said != "":
		return "", huma.Error422UnprocessableEntity("x-tenant-id: there are no tenants here; leave it out (--tenant, EDDA_TENANT)")
	case s.options.NoTenancy:
		return "", nil
	case said != "":
		return said, nil
	case s.options.Tenant != "":
		return s.options.Tenant, nil
	}
	return "", huma.Error422UnprocessableEntity(unnamedTenant)
}

func (s *Server) key(in *KeyInput) (edda.Key, error) {
	tenant, err := s.tenant(in.Tenant)
	return edda.Key{Tenant: tenant, Saga: in.Saga, Correlation: in.Key}, err
}

// cell loads the cell of a call; 404 if it is empty.
func (s *Server) cell(in *KeyInput) (edda.Cell, error) {
	k, err := s.key(in)
	if err != nil {
		return edda.Cell{}, err
	}
	cell, err := s.options.Store.Cell(k)
	if err != nil {
		return edda.Cell{}, s.internal("load instance", err)
	}
	if cell.Instance == nil && len(cell.Parked) == 0 && len(cell.Held) == 0 {
		return edda.Cell{}, missing(k)
	}
	cell.Key = k
	return cell, nil
}

func missing(k edda.Key) error {
	return huma.NewError(http.StatusNotFound, fmt.Sprintf("no instance of %s with the key %q for the tenant %q", k.Saga, k.Correlation, k.Tenant))
}
