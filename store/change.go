package store

import (
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

// Change is a change set: everything that one commit writes, as one plain
// value. It holds no pointer into anything that changes afterwards.
type Change struct {
	// Whole says that all of it comes of one input, such as an event and the
	// many held ones it released: it may be larger than [MaxChange]. It is not stored.
	Whole bool
	// Transitions are written in order: instances, outbox rows, parked, held
	// and dead letters, due rows, history.
	Transitions []edda.Transition
	// Encoded are transitions, claims and work that an [Encoder] has encoded, written in
	// order before those of the other lists.
	Encoded     []Encoded
	Checkpoints []edda.Checkpoint
	// Positions are where a saga's own position differs from the shared one;
	// DropPositions are those of sagas that have caught up with it.
	Positions     []Position
	DropPositions []Position
	// Begun, where it is not nil, is what [DB.Begun] says from now on.
	Begun *[]Beginning
	// Delivered are outbox rows that need no further delivery.
	Delivered []ulid.ULID
	// Sent are rows that were in the outbox and have been sent once more: [DB.Sent] passes
	// them as those of this commit, too.
	Sent []Row
	// Marks take the places of those of their streams in [DB.Marks]. One at sequence 0 removes it.
	Marks  []edda.Mark
	Claims []edda.Claim
	// Unclaimed, where it is not nil, is what [DB.Unclaimed] says from now on.
	Unclaimed *[]string
	Schedules []edda.Schedule
	Manifests []edda.Manifest
	// Work goes out before that of the transitions and is none of theirs: history
	// does not tell of it.
	Work []edda.Work
	// Dead are messages that belong to no key.
	Dead []edda.DeadLetter
	// Disarm are due rows that were looked at and are stale; Arm are rows to add.
	Disarm []Due
	Arm    []Due
	Audits []Audit
	// Remove is what has expired, as a [Sweep] finds it.
	Remove Removal
	// Replays are the plans of replays, or how far they have come; DropReplays are
	// the ids of those that are no longer of interest.
	Replays     []Replay
	DropReplays []string
}

// AllTenants stands for the tenant of a position: it is that of every tenant that has none
// of its own with that saga.
const AllTenants = "*"

// Position is one saga's own position in one stream.
type Position struct {
	Tenant, Saga string
	edda.Checkpoint
}

// Due is one row of the due index: look at this key at this time.
type Due struct {
	Time time.Time
	Key  edda.Key
}

// Row is one piece of work in the outbox.
type Row struct {
	ID   ulid.ULID // monotonic in commit order
	Work edda.Work
}

// Audit is one act of an operator.
type Audit struct {
	Time   time.Time `json:"time"`
	By     string    `json:"by"`
	Verb   string    `json:"verb"`
	Key    edda.Key  `json:"key,omitzero"`
	Reason string    `json:"reason,omitempty"` // as the operator gave it
	Detail string    `json:"detail,omitempty"`
}
