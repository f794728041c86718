package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"edda"
	"edda/engine"
)

// Process is the process of the server. Its methods are safe for concurrent use and
// return at once.
type Process interface {
	// Status returns the current status.
	Status(ctx context.Context) ProcessStatus
	// Info describes what the process runs.
	Info(ctx context.Context) (Info, error)
	// Drain begins the staged stop and returns its progress. Later calls only return
	// the progress. The audit names the first caller.
	Drain(ctx context.Context, who Operator) Drain
	// Reload compiles every manifest again and installs them. If one has an error or a
	// failing test, nothing changes and all problems are returned. The audit names
	// the caller and the result.
	Reload(ctx context.Context, q ReloadOrder) (Reload, error)
	// Deploy makes files the next revision of a cluster's manifests. It is a Reload of them, which all nodes run from
	// then on. ErrNoCluster is the error of a process that is in no cluster.
	Deploy(ctx context.Context, q DeployOrder) (Deployed, error)
	// Deployed returns the revision that runs, or ErrNoCluster.
	Deployed() (Revision, error)
	// VersionName names a version of a saga for people.
	VersionName(saga string, version int, hash string) string
	// SagasBehind lists the sagas that are behind the streams for a tenant.
	SagasBehind(tenant string) []SagaBehind
}

// ReloadOrder is the request of a reload.
type ReloadOrder struct {
	Operator
	SkipTests bool `query:"skip_tests" doc:"take the manifests in although tests of theirs fail; needs a reason"`
}

// ProcessStatus is the status of a process. An empty text means no problem.
type ProcessStatus struct {
	Stuck      string                     `json:"-"` // why it is not live
	NotReady   string                     `json:"-"` // why it takes no work
	Components map[string]ComponentStatus `json:"components"`
}

// ComponentStatus is the status of one component.
type ComponentStatus struct {
	State   string `json:"state" enum:"up,down"`
	Problem string `json:"problem,omitempty"`
}

// Info describes what a process runs.
type Info struct {
	Build     Build            `json:"build"`
	Roles     []string         `json:"roles"`
	StoreID   string           `json:"store_id,omitempty"`
	Started   time.Time        `json:"started"`
	Sagas     []SagaInfo       `json:"sagas"`
	Effects   []EffectInfo     `json:"effects"`
	Streams   []StreamInfo     `json:"streams"`
	Consumers []string         `json:"consumers"`
	Positions []StreamPosition `json:"positions"`
	Durable   []string         `json:"durability,omitempty"` // which messages the streams may lose, in words
	Behind    []SagaBehind     `json:"behind,omitempty"`
	// Unheard lists the types of events that no saga hears, the most frequent first.
	Unheard []engine.Unheard `json:"unheard,omitempty"`
}

// SagaBehind is a saga that is behind the streams: it catches up, or it waits.
type SagaBehind struct {
	Tenant string `json:"tenant" doc:"* where it is behind for every tenant without an entry of its own"`
	Saga   string `json:"saga"`
	Done   uint64 `json:"done" doc:"messages that it has passed"`
	Left   uint64 `json:"left" doc:"messages, others' included, up to the last that it may have to take in"`
	Paused string `json:"paused,omitempty" doc:"the destination that has no room for more of its work"`
	// Problem says why it makes no progress now.
	Problem string `json:"problem,omitempty"`
}

// SagaInfo is one version of a saga that the process runs.
type SagaInfo struct {
	Saga    string `json:"saga"`
	Version int    `json:"version"`
	// VersionName is the version for people: 3, or 3+dev.1f0c33aa in edda dev, where
	// the text of a version may change.
	VersionName string `json:"version_name"`
	Hash        string `json:"hash"`
	Newest      bool   `json:"newest"`
	Open        int    `json:"open"` // unfinished instances
}

// EffectInfo is one effect that the process serves.
type EffectInfo struct {
	Effect   string `json:"effect"`
	Version  int    `json:"version"`
	Hash     string `json:"hash"`
	Provider string `json:"provider"`
}

// StreamInfo is the state of one stream.
type StreamInfo struct {
	Stream   string `json:"stream"`
	Source   string `json:"source,omitempty" doc:"the source that reads a stream of others"`
	Messages uint64 `json:"messages"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Replicas int    `json:"replicas"`
}

// StreamPosition is the checkpoint of a saga in a stream.
type StreamPosition struct {
	Tenant string `json:"tenant,omitempty"`
	Saga   string `json:"saga,omitempty"` // empty: the checkpoint that sagas share
	edda.Checkpoint
}

// Drain is the progress of a staged stop.
type Drain struct {
	Draining bool     `json:"draining"`
	Stage    string   `json:"stage,omitempty"`
	Stopped  []string `json:"stopped,omitempty"`
	Waiting  []string `json:"waiting,omitempty"`
	Outbox   int      `json:"outbox"` // rows that wait in the outbox
}

// Reload is the result of a reload, or why it changed nothing.
type Reload struct {
	Sagas    []SagaInfo   `json:"sagas"`
	Effects  []EffectInfo `json:"effects"`
	Problems []Problem    `json:"problems,omitempty"`
	Tenants  []string     `json:"tenants" doc:"that are served from now on, in order; none: all"`
	Node     string       `json:"node,omitempty" doc:"of a cluster: the one that answers"`
	// Kept says which file of callers (tokens, certificates) could not be reloaded, and
	// why. The previous one stays in use; the manifests are reloaded all the same.
	Kept string `json:"-"`
}

// Problem is one error or warning in a manifest.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Warning bool   `json:"warning,omitempty"`
	Message string `json:"message"`
}

// Failed tells whether the problems include an error: nothing was installed.
func (r Reload) Failed() bool { return failed(r.Problems) }

func failed(ps []Problem) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// detailed converts problems for an error's answer.
func detailed(ps []Problem) (out []error) {
	for _, p := range ps {
		out = append(out, &huma.ErrorDetail{Location: p.place(), Message: p.Message})
	}
	return out
}

// mux registers routes.
type mux interface {
	Handle(pattern string, h http.Handler)
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
}

// probes registers the probes. They bypass huma, because they must work when little else
// does.
func (s *Server) probes(mux mux) {
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) {
		probe(w, s.status(r.Context()).Stuck)
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		probe(w, s.status(r.Context()).NotReady)
	})
	mux.HandleFunc("GET /health", s.health)
	if s.options.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.options.Metrics, promhttp.HandlerOpts{}))
	}
}

// probesAlone returns the handler of ProbeAddr. It accepts any host name, because probes
// give a foreign page nothing to abuse.
func (s *Server) probesAlone() http.Handler {
	mux := http.NewServeMux()
	s.probes(mux)
	mux.HandleFunc("/", notFoundHere)
	return s.recovered(limited(mux))
}

func notFoundHere(w http.ResponseWriter, _ *http.Request) {
	problem(w, http.StatusNotFound, "this address answers /health, /live, /ready and /metrics, and nothing else")
}

func probe(w http.ResponseWriter, wrong string) {
	if wrong != "" {
		problem(w, http.StatusServiceUnavailable, wrong)
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	components := s.status(r.Context()).Components
	status, code := "up", http.StatusOK
	for _, c := range components {
		if c.State != "up" {
			status, code = "down", http.StatusServiceUnavailable
		}
	}
	answer(w, code, map[string]any{"status": status, "components": components})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error here means that the client has disconnected
}

type body[T any] struct{ Body T }

func (s *Server) process() {
	huma.Get(s.api, "/info", func(ctx context.Context, _ *struct{}) (*body[Info], error) {
		info, err := s.options.Process.Info(ctx)
		if err != nil {
			return nil, s.internal("info", err)
		}
		return &body[Info]{info}, nil
	}, summary("Show the state of this process", "process"))
	s.drain(func(ctx context.Context, who Operator) Drain { return s.options.Process.Drain(ctx, who) })
	huma.Post(s.api, "/admin/reload", s.reload, summary("Reload the manifests", "process"))
}

// drain registers the route that stops the process which is asked.
func (s *Server) drain(do func(context.Context, Operator) Drain) {
	huma.Post(s.api, "/admin/drain", func(ctx context.Context, who *Operator) (*body[Drain], error) {
		return &body[Drain]{do(ctx, *who)}, nil
	}, summary("Drain this process; call again for the progress", "process"))
}

func (s *Server) reload(ctx context.Context, q *ReloadOrder) (*body[Reload], error) {
	if q.SkipTests {
		if err := q.reasoned("a reload without tests"); err != nil {
			return nil, err
		}
	}
	r, err := s.options.Process.Reload(ctx, *q)
	if err != nil {
		return nil, s.internal("reload", err)
	}
	details := detailed(r.Problems)
	switch {
	case !r.Failed() && r.Kept == "":
		return &body[Reload]{r}, nil
	case !r.Failed():
		return nil, huma.Error422UnprocessableEntity(r.Kept+"; the manifests are reloaded", details...)
	case r.Kept != "":
		details = append(details, &huma.ErrorDetail{Message: r.Kept})
	}
	return nil, huma.Error422UnprocessableEntity("the manifests have errors; nothing changed", details...)
}

// place returns the position of the problem; empty without a file.
func (p Problem) place() string {
	if p.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// summary sets the summary and the tag of an operation in the documentation.
func summary(text, tag string) func(*huma.Operation) {
	return func(o *huma.Operation) {
		o.Summary, o.Tags = text, []string{tag}
		o.MaxBodyBytes = maxBody
	}
}

// internal logs an internal error. The caller only learns that there was one.
func (s *Server) internal(doing string, err error) error {
	s.options.Log.Error("request failed", zap.String("doing", doing), zap.Error(err))
	return huma.Error500InternalServerError(doing + " failed; the log of the server says why")
}
