package replay

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/internal/jsonvalue"
	"edda/saga"
	"edda/store"
)

// What a replay sends of the work that comes out.
const (
	EmitNone = "none" // nothing
	EmitNew  = "new"  // work that never went out by the records
	EmitAll  = "all"  // all work, under the ids that it had
)

// The states of a replay.
const (
	StateRunning = "running"
	StateDone    = "done"
	StateFailed  = "failed"
)

// The phases of a running replay.
const (
	PhaseWaiting  = "waiting" // for the replays before it
	PhaseCount    = "count"
	PhaseStreams  = "streams"
	PhaseBuild    = "build"
	PhaseExchange = "exchange"
)

// aggregateEvents is the stream of a sequence if the request names none.
const aggregateEvents = "AGGREGATE_EVENTS"

// Request says what an operator wants to replay.
type Request struct {
	ID      string // a ULID that names the replay; empty: Begin makes one
	Tenant  string
	Saga    string
	Key     string // of one instance; all when empty
	Stream  string // the stream of FromSeq
	FromSeq uint64
	// FromTime and FromSeq choose the instances that took an input there or later. Each of them is
	// built from its own start.
	FromTime time.Time
	Emit     string
	Version  int  // to apply instead of the version of each generation
	Newest   bool // apply the version that new instances start with
	DryRun   bool
	By       string
	Reason   string
	Shards   int // of a cluster, if the replay is begun in each
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
	if r.ID == "" {
		r.ID = ulid.Make().String()
	} else if _, err := ulid.ParseStrict(r.ID); err != nil {
		return edda.Classify(edda.Permanent, "id %.40q: want a ULID, or none", r.ID)
	}
	return nil
}

// plan returns the request as the store records it.
func (r Request) plan(pin saga.Pin, now time.Time) store.Replay {
	return store.Replay{
		ID: r.ID, Tenant: r.Tenant, Saga: r.Saga, Correlation: r.Key, Stream: r.Stream, FromSeq: r.FromSeq, FromTime: r.FromTime.UTC(),
		Emit: r.Emit, Version: pin.Version, Hash: pin.Hash, By: r.By, Reason: r.Reason, Shards: r.Shards, Begun: now.UTC(), State: StateRunning,
	}
}

// Summary is the outcome of a replay, or its progress so far.
type Summary struct {
	Phase string `json:"phase,omitempty"` // while the replay runs
	// Keys are the instances, and the keys that only have parked events. Events are the rows of
	// history and the events of the streams.
	KeysTotal   int `json:"keys_total"`
	KeysDone    int `json:"keys_done"`
	EventsTotal int `json:"events_total"`
	EventsDone  int `json:"events_done"`
	// Same counts the keys that came out as stored, Changed those that did not, and Exchanged
	// those of the changed ones that were replaced.
	Same      int `json:"same"`
	Changed   int `json:"changed"`
	Exchanged int `json:"exchanged"`
	// Before counts those of the same keys that this replay exchanged before a restart. Sent does
	// not include what it sent with them.
	Before int `json:"exchanged_before,omitempty"`
	// Extra counts events of the streams that history does not have.
	Extra int `json:"extra_events"`
	// Expired counts keys whose history is incomplete: they are built from the streams alone.
	// Unbuilt counts those that could not be built and stay as they are.
	Expired int `json:"expired"`
	Unbuilt int `json:"unbuilt"`
	// NewWork counts work that came out and never went out by the records. GoneWork counts work
	// that went out and does not come out any more. AllWork counts all work that came out. Sent
	// counts what this replay sent.
	NewWork  int `json:"new_work"`
	GoneWork int `json:"gone_work"`
	AllWork  int `json:"all_work"`
	Sent     int `json:"sent"`
	// Differences and Work have the first entries, up to MaxShown each.
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
	// MaxShown bounds the differences and the pieces of work in a summary. maxDifferencesOfKey and
	// maxNotes bound the rest of it.
	MaxShown            = 1000
	maxDifferencesOfKey = 50
	maxNotes            = 20
	// storedDifferences bounds both in the store's row, because a change set is bounded.
	storedDifferences = 50
)

// stored encodes the summary for the row, shortened to storedDifferences.
func (s Summary) stored() (json.RawMessage, error) {
	s.Differences = s.Differences[:min(len(s.Differences), storedDifferences)]
	s.Work = s.Work[:min(len(s.Work), storedDifferences)]
	return jsonvalue.Encode(s)
}

// Report is one replay: its plan and its progress.
type Report struct {
	store.Replay
	DryRun   bool    `json:"dry_run,omitempty"`
	Progress Summary `json:"progress"`
}
