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

// Maintenance cleans up, checks, copies and compacts the store. Its methods are safe for
// concurrent use. Each ends with its ctx or when the process stops. tell reports
// progress for people; its values may be dropped.
type Maintenance interface {
	// Collect removes expired rows. A dry run only counts them.
	Collect(ctx context.Context, q Collect, tell func(any)) (retention.Report, error)
	// Backup writes a copy of the store to the writer that start returns. With a
	// tenant it copies only that tenant's rows.
	Backup(ctx context.Context, who Operator, tenant string, start func(store.Backup) io.Writer) error
	// Doctor checks the whole store.
	Doctor(ctx context.Context, who Operator, tell func(any)) (Doctor, error)
	// Compact returns free space to the file system.
	Compact(ctx context.Context, who Operator, tell func(any)) (store.Compaction, error)
}

// Collect is the request of a clean-up.
type Collect struct {
	Operator
	DryRun     bool `query:"dry_run" doc:"only look"`
	TrustClock bool `query:"trust_clock" doc:"the date is right, although it is far ahead of the last clean-up"`
}

// Doctor is the result of a check of the store.
type Doctor struct {
	store.Meta
	Rows int `json:"rows"`
	// Findings lists the inconsistencies.
	Findings []string `json:"findings"`
	// Idle lists the first of IdleTotal instances that wait for nothing.
	Idle      []Idle     `json:"idle"`
	IdleTotal int        `json:"idle_total"`
	Size      store.Size `json:"size"`
}

// Idle is an instance without a timer or work. Only an event or an operator can move it.
type Idle struct {
	edda.Key
	Version int         `json:"version"`
	Status  edda.Status `json:"status"`
	Since   time.Time   `json:"since"`
}

// DoctorOf converts a check of the store into the API's result.
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

// Line is one line of a streamed answer: progress, and in the last line either the result
// or the problem.
type Line struct {
	Progress any    `json:"progress,omitempty"`
	Result   any    `json:"result,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

const (
	// stallWait is how long a client may read nothing of a streamed answer. It is
	// bounded, because a backup pins pages of the store.
	stallWait = 30 * time.Second
	// tellEvery is the least time between two progress lines.
	tellEvery = 250 * time.Millisecond
	// BackupBytes is the header with the size of a backup.
	BackupBytes = "Edda-Backup-Bytes"
	// BackupRows is the header with the number of a tenant's rows.
	BackupRows = "Edda-Backup-Rows"
)

func (s *Server) maintenance() {
	u := s.options.Maintenance
	if u == nil {
		return
	}
	huma.Post(s.api, "/admin/gc", func(_ context.Context, in *Collect) (*huma.StreamResponse, error) {
		return s.lines("clean up", func(ctx context.Context, tell func(any)) (any, error) { return u.Collect(ctx, *in, tell) }), nil
	}, summary("Remove expired rows; answers with a JSON line for each step, the last is the result", "store"))
	huma.Post(s.api, "/admin/doctor", func(_ context.Context, in *Operator) (*huma.StreamResponse, error) {
		return s.lines("check the store", func(ctx context.Context, tell func(any)) (any, error) { return u.Doctor(ctx, *in, tell) }), nil
	}, summary("Check the whole store; answers with JSON lines, the last is the result", "store"))
	huma.Post(s.api, "/admin/compact", func(_ context.Context, in *Operator) (*huma.StreamResponse, error) {
		return s.lines("compact the store", func(ctx context.Context, tell func(any)) (any, error) { return u.Compact(ctx, *in, tell) }), nil
	}, summary("Compact the store; answers with JSON lines, the last is the result", "store"))
	huma.Post(s.api, "/admin/backup", func(_ context.Context, in *Operator) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(hc huma.Context) { s.backup(hc, *in, "") }}, nil
	}, summary("Copy the store consistently; the last line has the checksum", "store"))
	huma.Post(s.api, "/v1/backup", s.tenantBackup, summary("Copy the rows of one tenant into a store of their own; the last line has the checksum", "store"))
}

type tenantBackupInput struct {
	TenantInput
	Operator
}

// tenantBackup copies the rows of one tenant.
func (s *Server) tenantBackup(_ context.Context, in *tenantBackupInput) (*huma.StreamResponse, error) {
	tenant, err := s.tenant(in.Tenant)
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		return nil, huma.Error422UnprocessableEntity("there are no tenants here: take a backup of the whole store, with edda backup or POST /admin/backup")
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) { s.backup(hc, in.Operator, tenant) }}, nil
}

// slowWriter moves the write deadline with every write. A long answer may take any time,
// as long as the client keeps reading.
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
		_ = p.c.Flush() // a disconnected client ends the request's context
	}
}

// lines streams the progress and the result of a long call as lines of JSON.
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

// backup streams the copy. After the first byte an error can only cut the answer short;
// the checksum at the end is then missing.
func (s *Server) backup(hc huma.Context, who Operator, tenant string) {
	w := newSlowWriter(hc)
	begun := false
	err := s.options.Maintenance.Backup(hc.Context(), who, tenant, func(b store.Backup) io.Writer {
		begun = true
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set(BackupBytes, strconv.FormatInt(b.Bytes, 10))
		w.Header().Set(BackupRows, strconv.Itoa(b.Rows))
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
