package saga

import (
	"time"

	"edda"
	"edda/manifests"
)

// Program is one compiled version of one saga.
type Program struct{}

// Options bound what a saga may do. The zero value means the defaults.
type Options struct {
	MaxState   int // bytes of state, 256 KiB
	MaxActions int // in a transition, 1,000
}

// Compile turns a manifest into a program. All problems are returned at once;
// the program is nil when any of them is an error.
func Compile(m *manifests.Saga, o Options) (*Program, manifests.Problems) { return nil, nil }

// Saga, Version and Hash name the program.
func (p *Program) Saga() string { return "" }

// Version of the manifest.
func (p *Program) Version() int { return 0 }

// Hash of the manifest's text.
func (p *Program) Hash() string { return "" }

// Manifest is what the program was compiled from.
func (p *Program) Manifest() *manifests.Saga { return nil }

// Set is every program a process runs: the newest version of each saga and the
// older ones that unfinished instances still need. It is immutable and safe for
// concurrent use; a reload builds another.
type Set struct{}

// NewSet groups programs by saga; the highest version is the newest.
func NewSet(programs ...*Program) (*Set, error) { return &Set{}, nil }

// Programs lists all, newest version of each saga first.
func (s *Set) Programs() []*Program { return nil }

// Newest finds the newest version of a saga, or nil.
func (s *Set) Newest(saga string) *Program { return nil }

// Target is one key that an event goes to.
type Target struct {
	Key edda.Key
	// Versions of the saga that route the event here.
	Versions []int
	// Dead is set when the event can go nowhere (no key, malformed): the
	// transition to commit. Then there is no cell to load.
	Dead *edda.DeadLetter
}

// Route says where an event goes: one target for each saga and key. None means
// the event is ignored.
func (s *Set) Route(ev edda.Event) []Target { return nil }

// Apply gives one event to the cell of one target. It returns the cell
// afterwards and what changed, in order: parked or held events that the event
// released follow as transitions of their own. The cell given is not changed.
func (s *Set) Apply(cell edda.Cell, t Target, ev edda.Event) (edda.Cell, []edda.Transition) {
	return cell, nil
}

// Wake fires what is due in a cell at or before the horizon, in due order, one
// transition each, and settles the due row that woke it (its Disarm is in the
// last transition, or in a transition without a fate where nothing was due).
func (s *Set) Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition) {
	return cell, nil
}

// ScheduleSpec is one schedule of one saga's newest version.
type ScheduleSpec struct {
	Saga, Name string
	Tenants    []string // one empty tenant when unsaid
	Catchup    string   // last, all or none
}

// Schedules lists every schedule of the set.
func (s *Set) Schedules() []ScheduleSpec { return nil }

// NextSchedule is the first due time after t; zero when there is none.
func (s *Set) NextSchedule(saga, name string, t time.Time) time.Time { return time.Time{} }

// ScheduleEvent is the event of a schedule that came due; its id is derived.
func (s *Set) ScheduleEvent(saga, name, tenant string, due time.Time) edda.Event {
	return edda.Event{}
}

// Why says in a few words what an instance waits for: "step ship until 12:00", "held by dead letter …", "an operator: charge.undo failed".
func Why(cell edda.Cell) []string { return nil }
