package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"edda"
	"edda/replay"
)

// Replays rebuilds instances from their history and the streams. Its methods are safe for
// concurrent use.
type Replays interface {
	// Begin records a replay, which then runs in the background. A Permanent error is
	// a mistake in the request.
	Begin(ctx context.Context, q replay.Request) (replay.Report, error)
	// Reports lists the recorded replays, newest first.
	Reports() ([]replay.Report, error)
}

type replayInput struct {
	TenantInput
	Operator
	Body ReplayOrder
}

// ReplayOrder is the request of a replay.
type ReplayOrder struct {
	ID       string    `json:"id,omitempty" maxLength:"26" doc:"a ULID: a call that is repeated with it begins no second replay; made when left out"`
	Saga     string    `json:"saga" minLength:"1"`
	Key      string    `json:"key,omitempty" doc:"of one instance; all when left out"`
	Stream   string    `json:"stream,omitempty" doc:"of from_seq; AGGREGATE_EVENTS when left out"`
	FromSeq  uint64    `json:"from_seq,omitempty" doc:"instances that took in an event of this sequence or a later one"`
	FromTime time.Time `json:"from_time,omitzero" doc:"instances that took something in then or later"`
	Emit     string    `json:"emit,omitempty" enum:"none,new,all" doc:"what is sent of the work that comes out; none when left out"`
	Version  int       `json:"version,omitempty" minimum:"0" doc:"apply this version, instead of the one that each generation ran on"`
	Newest   bool      `json:"newest,omitempty" doc:"apply the newest version"`
	DryRun   bool      `json:"dry_run,omitempty" doc:"compare, and change nothing"`
	Shards   int       `json:"shards,omitempty" minimum:"0" doc:"of a cluster, set by the node that begins the replay in each of them"`
}

type replaysInput struct {
	TenantInput
	ID string `query:"id" doc:"one replay, with its differences and its new work"`
}

// ReplayList is the replays of a tenant, newest first.
type ReplayList struct {
	Replays []replay.Report `json:"replays"`
}

func (s *Server) replays() {
	huma.Post(s.api, "/admin/replay", s.beginReplay, summary("Replay instances: rebuild them from their recorded events", "process"))
	huma.Get(s.api, "/admin/replay", s.listReplays, summary("List replays and their progress", "process"))
}

var errNoReplays = huma.NewError(http.StatusNotFound, "this process has no sagas: ask one with the role saga or combined")

func (s *Server) beginReplay(ctx context.Context, in *replayInput) (*body[replay.Report], error) {
	if s.options.Replays == nil {
		return nil, errNoReplays
	}
	o := in.Body
	if !o.DryRun { // a dry run changes nothing
		if err := in.reasoned(edda.VerbReplay); err != nil {
			return nil, err
		}
	}
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	report, err := s.options.Replays.Begin(ctx, replay.Request{
		ID: o.ID, Shards: o.Shards, Tenant: tenant, Saga: o.Saga, Key: o.Key, Stream: o.Stream, FromSeq: o.FromSeq, FromTime: o.FromTime, Emit: o.Emit,
		Version: o.Version, Newest: o.Newest, DryRun: o.DryRun, By: in.By, Reason: in.Why,
	})
	return s.begun(report, err)
}

func (s *Server) begun(report replay.Report, err error) (*body[replay.Report], error) {
	if err != nil {
		return nil, s.replayFailed("begin the replay", err)
	}
	return &body[replay.Report]{report}, nil
}

// replayFailed distinguishes a mistake in the request from a temporary error, such as a
// process that is not connected to NATS yet.
func (s *Server) replayFailed(doing string, err error) error {
	switch {
	case errors.Is(err, edda.Permanent):
		return huma.Error422UnprocessableEntity(err.Error())
	case errors.Is(err, edda.Temporary):
		return huma.Error503ServiceUnavailable(err.Error())
	}
	return s.internal(doing, err)
}

func (s *Server) listReplays(_ context.Context, in *replaysInput) (*body[ReplayList], error) {
	if s.options.Replays == nil {
		return nil, errNoReplays
	}
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	all, err := s.options.Replays.Reports()
	if err != nil {
		return nil, s.replayFailed("list the replays", err)
	}
	out := ReplayList{Replays: []replay.Report{}}
	for _, r := range all {
		if r.Tenant != tenant || in.ID != "" && r.ID != in.ID {
			continue
		}
		r.Replay.Summary = nil // drop the stored summary, because the report has its own
		if in.ID == "" {
			r.Progress.Differences, r.Progress.Work = nil, nil
		}
		out.Replays = append(out.Replays, r)
	}
	if in.ID != "" && len(out.Replays) == 0 {
		return nil, huma.NewError(http.StatusNotFound, "no replay "+in.ID+" is remembered for this tenant")
	}
	return &body[ReplayList]{out}, nil
}
