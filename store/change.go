package store

import (
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
)

// Change is a change set: all that one commit writes, as a plain value. What it points to never
// changes.
type Change struct {
	// Whole says that one input caused all of it, such as an event that released many held ones. Then
	// it may be larger than [MaxChange].
	Whole bool
	// Transitions are written in order: instances, history, outbox rows, queues, dead letters, due rows.
	Transitions []edda.Transition
	// Encoded are the transitions, claims and work of an [Encoder], written before the other lists.
	Encoded     []Encoded
	Checkpoints []edda.Checkpoint
	// Positions are a saga's own positions, where they differ from the shared ones. DropPositions
	// are those of sagas that have caught up.
	Positions     []SagaPosition
	DropPositions []SagaPosition
	// Begun replaces the list of [DB.Begun]; nil leaves it.
	Begun *[]Beginning
	// Delivered are outbox rows to remove, because they were delivered.
	Delivered []ulid.ULID
	// Sent are rows that were sent again. [DB.Sent] passes them as rows of this commit, too.
	Sent []Row
	// Marks replace those of their streams in [DB.Marks]. A mark at sequence 0 removes it.
	Marks  []edda.Mark
	Claims []edda.Claim
	// Unclaimed replaces the list of [DB.Unclaimed]; nil leaves it.
	Unclaimed *[]string
	Schedules []edda.ScheduleState
	Manifests []edda.Manifest
	// Deployed replaces [DB.Deployed] and its files; nil leaves them. One without a revision removes them.
	Deployed *Deployment
	// Work goes out before the work of the transitions. It is in no history.
	Work []edda.Work
	// Dead are dead letters of no key.
	Dead []edda.DeadLetter
	// Disarm are stale rows of the due index to remove; Arm are rows to add.
	Disarm []Due
	Arm    []Due
	Audits []Audit
	// Remove is what a [Sweep] found.
	Remove Removal
	// Replays are the plans and the progress of replays. DropReplays are ids of replays to remove.
	Replays     []Replay
	DropReplays []string
}

// AllTenants is the tenant of a position for every tenant without one of its own.
const AllTenants = "*"

// SagaPosition is one saga's own position in one stream.
type SagaPosition struct {
	Tenant, Saga string
	edda.Checkpoint
}

// Due is a row of the due index: the key has a timer at the time.
type Due struct {
	Time time.Time
	Key  edda.Key
}

// Row is a row of the outbox.
type Row struct {
	ID   ulid.ULID // monotonic in commit order
	Work edda.Work
}

// Audit is an entry of the audit log: one act of an operator.
type Audit struct {
	ID     string    `json:"id,omitempty"` // the entry's place in the log; set when it is read
	Time   time.Time `json:"time"`
	By     string    `json:"by"`
	Verb   string    `json:"verb"`
	Key    edda.Key  `json:"key,omitzero"`
	Reason string    `json:"reason,omitempty"` // as the operator gave it
	Detail string    `json:"detail,omitempty"`
}

// About how many bytes the names and small fields of a value take as JSON.
const (
	sizeEvent  = 300
	sizeWork   = 350
	sizeReplay = 700
	sizeSmall  = 100 // of an output, a timer, an entry, a row
)

// Size is about how many bytes the change writes. It encodes nothing, so that a batch can be
// closed before the sum of [TransitionSize] exceeds [MaxChange].
func (c Change) Size() int {
	n := 0
	for i := range c.Encoded {
		n += c.Encoded[i].size
	}
	for i := range c.Transitions {
		n += TransitionSize(&c.Transitions[i])
	}
	for i := range c.Dead {
		n += deadSize(&c.Dead[i])
	}
	for _, cl := range c.Claims {
		n += 2*sizeSmall + len(cl.Result)
	}
	for i := range c.Work {
		n += sizeWork + len(c.Work[i].Payload)
	}
	for i := range c.Sent {
		n += sizeWork + len(c.Sent[i].Work.Payload)
	}
	for _, m := range c.Manifests {
		n += sizeSmall + len(m.Text)
	}
	if c.Deployed != nil {
		for _, f := range c.Deployed.Files {
			n += sizeSmall + len(f.Content)*4/3 // base64
		}
	}
	for _, a := range c.Audits {
		n += 2*sizeSmall + len(a.Detail) + len(a.Reason)
	}
	removed := &c.Remove
	for i := range c.Replays {
		n += sizeReplay + len(c.Replays[i].Reason) + len(c.Replays[i].Error) + len(c.Replays[i].Summary)
	}
	rows := len(c.DropReplays) + len(removed.Instances) + len(removed.Forgotten) + len(removed.DeadLetters) + len(c.Checkpoints) + len(c.Positions) + len(c.DropPositions) + len(c.Schedules) + len(c.Delivered) + len(c.Marks) + len(c.Arm) + len(c.Disarm)
	return n + rows*sizeSmall
}

// TransitionSize is one transition's part in [Change.Size].
func TransitionSize(t *edda.Transition) int {
	n := eventSize(&t.Event) // in the history
	if t.Instance != nil {
		n += t.Instance.Size() + len(t.Instance.State)
	}
	for i := range t.Outputs {
		n += sizeSmall + len(t.Outputs[i].With)
	}
	for i := range t.Work {
		n += sizeWork + len(t.Work[i].Payload)
	}
	for i := range t.Parts {
		n += sizeSmall + len(t.Parts[i].Data)
	}
	for _, entry := range []*edda.Entry{t.Park, t.Hold} {
		if entry != nil {
			n += sizeSmall + eventSize(&entry.Event)
		}
	}
	if t.Dead != nil {
		n += deadSize(t.Dead)
	}
	return n + sizeSmall*(len(t.Arm)+len(t.Disarm))
}

func eventSize(e *edda.Event) int { return sizeEvent + len(e.Payload) + len(e.Error) }

func deadSize(d *edda.DeadLetter) int {
	const base64 = 4.0 / 3
	return sizeSmall + eventSize(&d.Event) + len(d.Error) + len(d.Source) + len(d.Inputs) + int(base64*float64(len(d.Raw)))
}
