package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"go.uber.org/zap"

	"edda"
	"edda/retention"
	"edda/store"
)

// Upkeep keeps the store in shape. Its methods may be called concurrently; each
// ends with its ctx, or when the process stops. What they tell is for people, and
// may be dropped.
type Maintenance interface {
	// Collect removes what has expired, or only looks.
	Collect(ctx context.Context, q Collect, tell func(any)) (retention.Report, error)
	// Backup copies the store to the writer, which start makes of what it is; where
	// a tenant is named, that tenant's rows alone.
	Backup(ctx context.Context, who Actor, tenant string, start func(store.Backup) io.Writer) error
	// Doctor checks the whole store.
	Doctor(ctx context.Context, who Actor, tell func(any)) (Doctor, error)
	// Compact gives space back.
	Compact(ctx context.Context, who Actor, tell func(any)) (store.Compaction, error)
}

// Collect is what a clean-up is asked for.
type Collect struct {
	Actor
	DryRun     bool `query:"dry_run" doc:"only look"`
	TrustClock bool `query:"trust_clock" doc:"the date is right, although it is far ahead of the last clean-up"`
}

// Doctor is what a check of the store found.
type Doctor struct {
	store.Meta
	Rows int `json:"rows"`
	// Findings are what contradicts itself.
	Findings []string `json:"findings"`
	// Idle are instances that wait for nothing, the first of IdleTotal.
	Idle      []Idle     `json:"idle"`
	IdleTotal int        `json:"idle_total"`
	Size      store.Size `json:"size"`
}

// Idle is an instance that only an event or an operator can move.
type Idle struct {
	edda.Key
	Version int         `json:"version"`
	Status  edda.Status `json:"status"`
	Since   time.Time   `json:"since"`
}

// DoctorOf is a check's result for people and programs.
func DoctorOf(h store.Health, size store.Size) Doctor {
	d := Doctor{Meta: h.Meta, Rows: h.Rows, Findings: []string{}, Idle: []Idle{}, IdleTotal: h.IdleTotal, Size: size}
	for _, f := range h.Findings {
		d.Findings = append(d.Findings, f.Error())
	}
	for _, in := range h.Idle {
		d.Idle = append(d.Idle, Idle{Key: in.Key, Version: in.Version, Status: in.Status, Since: in.Updated})
	}
	return d
}

// Line is one line of a long answer: how far it has come, and at the end either
// what came of it or why nothing did.
type Line struct {
	Progress any    `json:"progress,omitempty"`
	Result   any    `json:"result,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

const (
	// stallWait is how long a client may take no byte of a long answer: a backup
	// holds pages of the store meanwhile.
	stallWait = 30 * time.Second
	// tellEvery is how often a long answer says how far it has come.
	tellEvery = 250 * time.Millisecond
	// BackupBytes is the header that says how long a backup will be.
	BackupBytes = "Edda-Backup-Bytes"
)

func (s *Server) maintenance() {
	u := s.options.Maintenance
	if u == nil {
		return
	}
	huma.Post(s.api, "/admin/gc", func(_ context.Context, in *Collect) (*huma.StreamResponse, error) {
		return s.lines("clean up", func(ctx context.Context, tell func(any)) (any, error) { return u.Collect(ctx, *in, tell) }), nil
	}, summary("Remove what has expired; one line of JSON after the other, the last is the result", "store"))
	huma.Post(s.api, "/admin/doctor", func(_ context.Context, in *Actor) (*huma.StreamResponse, error) {
		return s.lines("check the store", func(ctx context.Context, tell func(any)) (any, error) { return u.Doctor(ctx, *in, tell) }), nil
	}, summary("Check the whole store; lines of JSON", "store"))
	huma.Post(s.api, "/admin/compact", func(_ context.Context, in *Actor) (*huma.StreamResponse, error) {
		return s.lines("compact the store", func(ctx context.Context, tell func(any)) (any, error) { return u.Compact(ctx, *in, tell) }), nil
	}, summary("Give the store's free space back; lines of JSON", "store"))
	huma.Post(s.api, "/admin/backup", func(_ context.Context, in *Actor) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { s.backup(hc, *in, "") }}, nil
	}, summary("A consistent copy of the store, with its checksum in the last line", "store"))
	huma.Post(s.api, "/v1/backup", s.tenantBackup, summary("A store with what is the tenant's alone, with its checksum in the last line", "store"))
}

type tenantBackupInput struct {
	TenantInput
	Actor
}

// tenantBackup is of one tenant, also where there are several.
func (s *Server) tenantBackup(_ context.Context, in *tenantBackupInput) (*huma.StreamResponse, error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		return nil, huma.Error422UnprocessableEntity("there are no tenants here: take a backup of the whole store, with edda backup or POST /admin/backup")
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) { s.backup(hc, in.Actor, tenant) }}, nil
}

// slowWriter is an answer that may take as long as it moves.
type slowWriter struct {
	http.ResponseWriter
	c *http.ResponseController
}

func newSlowWriter(hc huma.Context) *slowWriter {
	_, w := humago.Unwrap(hc)
	return &slowWriter{w, http.NewResponseController(w)}
}

func (p *slowWriter) Write(b []byte) (int, error) {
	if err := p.c.SetWriteDeadline(time.Now().Add(stallWait)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.ResponseWriter.Write(b)
}

func (p *slowWriter) line(l Line) {
	if json.NewEncoder(p).Encode(l) == nil {
		_ = p.c.Flush() // a client that is gone ends the request's context
	}
}

// lines answers a call that takes long.
func (s *Server) lines(doing string, do func(context.Context, func(any)) (any, error)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		hc.SetHeader("Content-Type", "application/x-ndjson")
		w, told := newSlowWriter(hc), time.Now()
		w.line(Line{Progress: doing})
		result, err := do(hc.Context(), func(progress any) {
			if time.Since(told) >= tellEvery {
				told = time.Now()
				w.line(Line{Progress: progress})
			}
		})
		if err != nil {
			s.options.Log.Warn("request failed", zap.String("doing", doing), zap.Error(err))
			w.line(Line{Problem: err.Error()})
			return
		}
		w.line(Line{Result: result})
	}}
}

// backup streams the copy. An error after it has begun can only cut it off: the
// checksum at its end is missing then.
func (s *Server) backup(hc huma.Context, who Actor, tenant string) {
	w := newSlowWriter(hc)
	begun := false
	err := s.options.Maintenance.Backup(hc.Context(), who, tenant, func(b store.Backup) io.Writer {
		begun = true
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(BackupBytes, strconv.FormatInt(b.Bytes, 10))
		return w
	})
	switch {
	case err == nil:
	case begun:
		s.options.Log.Warn("a backup was cut off", zap.Error(err))
	default:
		problem(w, http.StatusConflict, err.Error())
	}
}
