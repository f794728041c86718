package replay

import (
	"encoding/json"
	"slices"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/saga"
	"edda/store"
)

// What is sent of the work that comes out.
const (
	EmitNone = "none" // nothing
	EmitNew  = "new"  // what never went out by the records
	EmitAll  = "all"  // everything, under the ids that it had
)

// The states of a replay.
const (
	StateRunning = "running"
	StateDone    = "done"
	StateFailed  = "failed"
)

// The phases of one that runs.
const (
	PhaseWaiting  = "waiting" // for those before it
	PhaseCount    = "count"
	PhaseStreams  = "streams"
	PhaseBuild    = "build"
	PhaseExchange = "exchange"
)

// aggregateEvents is the stream that a sequence is of unless another is named.
const aggregateEvents = "AGGREGATE_EVENTS"

// Request is what somebody wants replayed.
type Request struct {
	Tenant  string
	Saga    string
	Key     string // of one instance; all when empty
	Stream  string // of FromSeq
	FromSeq uint64
	// FromTime and FromSeq choose the instances that took something in from there
	// on; each of them is built from its own beginning.
	FromTime time.Time
	Emit     string
	Version  int  // to apply instead of each generation's own
	Newest   bool // to apply the version that starts now
	DryRun   bool
	By       string
	Reason   string
}

func (r *Request) validate() error {
	if r.Emit == "" {
		r.Emit = EmitNone
	}
	if r.Stream == "" && r.FromSeq > 0 {
		r.Stream = aggregateEvents
	}
	switch {
	case r.Saga == "":
		return edda.Classify(edda.Permanent, "name the saga to replay")
	case !slices.Contains([]string{EmitNone, EmitNew, EmitAll}, r.Emit):
		return edda.Classify(edda.Permanent, "emit %q: want none, new or all", r.Emit)
	case r.FromSeq > 0 && !r.FromTime.IsZero():
		return edda.Classify(edda.Permanent, "give a sequence or a time to begin from, not both")
	case r.Stream != "" && r.FromSeq == 0:
		return edda.Classify(edda.Permanent, "stream %s: name the sequence in it to begin from, too", r.Stream)
	case r.Version != 0 && r.Newest:
		return edda.Classify(edda.Permanent, "give a version or newest, not both")
	case r.Version < 0:
		return edda.Classify(edda.Permanent, "version %d: versions count from 1", r.Version)
	}
	return nil
}

// plan is the request as it is recorded.
func (r Request) plan(id string, pin saga.Pin, now time.Time) store.Replay {
	return store.Replay{
		ID: id, Tenant: r.Tenant, Saga: r.Saga, Correlation: r.Key, Stream: r.Stream, FromSeq: r.FromSeq, FromTime: r.FromTime.UTC(),
		Emit: r.Emit, Version: pin.Version, Hash: pin.Hash, By: r.By, Reason: r.Reason, Begun: now.UTC(), State: StateRunning,
	}
}

// Summary is what came of a replay, or has come so far.
type Summary struct {
	Phase string `json:"phase,omitempty"` // while it runs
	// Keys are the instances, and keys that something is only parked for; Events
	// the rows of history and the events of the streams.
	KeysTotal   int `json:"keys_total"`
	KeysDone    int `json:"keys_done"`
	EventsTotal int `json:"events_total"`
	EventsDone  int `json:"events_done"`
	// Same is how many came out as they are stored, Changed how many did not, and
	// Exchanged how many of those were put in place.
	Same      int `json:"same"`
	Changed   int `json:"changed"`
	Exchanged int `json:"exchanged"`
	// Before is how many of the same ones this replay had exchanged before a restart;
	// what it sent with them is not counted again.
	Before int `json:"exchanged_before,omitempty"`
	// Extra counts events of the streams that history does not have.
	Extra int `json:"extra_events"`
	// Expired counts keys whose history is not whole: they are built from the
	// streams alone. Unbuilt counts those that could not be built so; they stay.
	Expired int `json:"expired"`
	Unbuilt int `json:"unbuilt"`
	// NewWork is what came out and never went out by the records; GoneWork what went
	// out and does not come out any more; AllWork everything that came out. Sent is
	// what this replay sent.
	NewWork  int `json:"new_work"`
	GoneWork int `json:"gone_work"`
	AllWork  int `json:"all_work"`
	Sent     int `json:"sent"`
	// Differences and Work are the first of many.
	Differences []Difference `json:"differences,omitempty"`
	Work        []WorkItem   `json:"work,omitempty"`
	Notes       []string     `json:"notes,omitempty"`
}

// WorkItem is one new piece of work.
type WorkItem struct {
	ID   string        `json:"id"`
	Kind edda.WorkKind `json:"kind"`
	Name string        `json:"name,omitempty"`
	Step string        `json:"step,omitempty"`
	Key  string        `json:"key"`
	Sent bool          `json:"sent,omitempty"`
}

const (
	// MaxShown bounds the differences and the pieces of work that are kept to be
	// shown, and maxDifferencesOfKey and maxNotes likewise.
	MaxShown            = 1000
	maxDifferencesOfKey = 50
	maxNotes            = 20
	// storedDifferences are kept in the store's row, whose change set is bounded.
	storedDifferences = 50
)

// stored is the summary as the row keeps it: short.
func (s Summary) stored() (json.RawMessage, error) {
	s.Differences = s.Differences[:min(len(s.Differences), storedDifferences)]
	s.Work = s.Work[:min(len(s.Work), storedDifferences)]
	return jsonvalue.Encode(s)
}

// Report is one replay: its plan and how far it has come.
type Report struct {
	store.Replay
	DryRun   bool    `json:"dry_run,omitempty"`
	Progress Summary `json:"progress"`
}
