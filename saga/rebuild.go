package saga

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"edda"
	"edda/internal/jsonvalue"
)

// Past is one row of a key's history, with the fields that rebuilding needs.
type Past struct {
	Event   edda.Event
	Fate    edda.Fate
	Outputs []edda.Output
	Version int // of the instance after the row; 0 if it did not change
}

// Pin identifies one text of one version of a saga. Without a hash it means any text of the
// version.
type Pin struct {
	Version int    `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"`
}

// Decider applies events and wakes cells; [Set] is one.
type Decider interface {
	Apply(cell edda.Cell, t Target, ev edda.Event) (edda.Cell, []edda.Transition)
	Wake(cell edda.Cell, row, horizon time.Time) (edda.Cell, []edda.Transition)
}

// Rebuilder builds a cell again from its history: the recorded inputs, in the order in which they
// were applied. The parked and held events that they released follow by themselves, as they did
// then.
type Rebuilder struct {
	// Decide returns a decider with these versions loaded. It is called often with the same
	// versions.
	Decide func(pins ...Pin) (Decider, error)
	// Repin replaces the version that history ran on; zero keeps the one of each generation.
	Repin Pin
	// Newest decides about events of a key that never had an instance. Known lists the versions that
	// may have decided about them at the time.
	Newest Pin
	Known  []Pin
}

// Rebuilt is a rebuilt cell.
type Rebuilt struct {
	Cell edda.Cell
	// Work and Dead are all work and all dead letters of the transitions.
	Work []edda.Work
	Dead []edda.DeadLetter
	// Pin is the version that was applied throughout, or zero. The replay's mark must record it.
	Pin Pin
}

// maxWakes bounds the wakes of a cell for one moment, because a timer that arms itself for now
// would never end.
const maxWakes = 64

// Rebuild applies the rows, oldest first. If the last replay of the key recorded that it had
// applied another version, that version is applied up to there, unless Repin asks for another one.
func (b Rebuilder) Rebuild(k edda.Key, rows []Past) (Rebuilt, error) {
	return b.rebuild(k, rows, map[int]edda.Cell{})
}

// rebuild implements [Rebuilder.Rebuild]; marks has the cells at the marks so far.
func (b Rebuilder) rebuild(k edda.Key, rows []Past, marks map[int]edda.Cell) (Rebuilt, error) {
	r := rebuild{Rebuilder: b, Rebuilt: Rebuilt{Cell: edda.Cell{Key: k}, Pin: b.Repin}, marks: marks}
	marked, pin, err := lastMark(rows)
	if b.Repin != (Pin{}) {
		marked, pin, err = len(rows), b.Repin, nil
	}
	if err != nil {
		return r.Rebuilt, err
	}
	r.Pin = pin
	if err := r.all(rows[:marked], pin); err != nil {
		return r.Rebuilt, err
	}
	err = r.all(rows[marked:], Pin{})
	return r.Rebuilt, err
}

// rebuild is the state of one rebuild.
type rebuild struct {
	Rebuilder
	Rebuilt
	marks map[int]edda.Cell // by number of rows; for [original]
}

// Mark makes the event that records a replay of a key. Rebuilding skips its history row.
func Mark(k edda.Key, id string, at time.Time, by string, pin Pin) (edda.Event, error) {
	payload, err := jsonvalue.Encode(pin)
	return edda.Event{
		Kind: edda.KindOperator, Type: edda.VerbReplay, ID: id, Tenant: k.Tenant, Key: k, Time: clockMillis(at), By: by, Payload: payload,
	}, err
}

// Marked is the output word of a mark's transition. It distinguishes a mark from an operator's
// command with the same verb.
const Marked = "replayed"

func isMark(row Past) bool {
	return row.Event.Kind == edda.KindOperator && row.Event.Type == edda.VerbReplay && len(row.Outputs) > 0 && row.Outputs[0].Word == Marked
}

// lastMark returns the number of rows up to the last mark, and its pin.
func lastMark(rows []Past) (n int, pin Pin, err error) {
	for i := len(rows) - 1; i >= 0; i-- {
		if isMark(rows[i]) {
			return i + 1, pin, json.Unmarshal(rows[i].Event.Payload, &pin)
		}
	}
	return 0, pin, nil
}

func (r *rebuild) all(rows []Past, pin Pin) error {
	if pin != (Pin{}) {
		return r.allRepinned(rows, pin)
	}
	versions := versionsOf(rows)
	for i, row := range rows {
		if isMark(row) || isFollowUp(row) {
			continue
		}
		if err := r.reapply(rows[i:i+1+followUps(rows[i+1:])], versions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *rebuild) allRepinned(rows []Past, pin Pin) error {
	d, err := r.Decide(pin)
	if err != nil {
		return err
	}
	versions, then := versionsOf(rows), r.newOriginal()
	for i, row := range rows {
		switch {
		case isMark(row) && i+1 < len(rows): // the last row may be the mark being built
			then.marked(rows[:i+1])
		case !isMark(row) && !isFollowUp(row):
			r.applyRepinned(d, row, pin, then.Cell)
			then.step(rows[i:i+1+followUps(rows[i+1:])], versions[i])
		}
	}
	return nil
}

// versionsOf returns for each row the version that decided: the instance's own, or that of the
// next instance before there is one, or 0 if none ever came. An input's releases may have started
// a generation on a newer version, which is then needed for the input.
func versionsOf(rows []Past) []int {
	out := make([]int, len(rows))
	last := 0
	for i, row := range rows {
		last = cmp.Or(row.Version, last)
		out[i] = last
	}
	next := 0
	for i := len(rows) - 1; i >= 0; i-- {
		next = cmp.Or(rows[i].Version, next)
		out[i] = cmp.Or(out[i], next)
	}
	released := 0
	for i := len(rows) - 1; i >= 0; i-- {
		if isFollowUp(rows[i]) {
			released = max(released, rows[i].Version)
			continue
		}
		out[i], released = max(out[i], released), 0
	}
	return out
}

// isFollowUp reports whether a row is an event that an input released, by its outputs or by its
// event. An expiry of a released event that was parked again is an input all the same.
func isFollowUp(row Past) bool {
	if isExpiry(row) {
		return false
	}
	return row.Event.Redriven || len(row.Outputs) > 0 && row.Outputs[0].Word == "unparked"
}

// followUps counts the leading rows that the input before them released.
func followUps(rows []Past) int {
	n := slices.IndexFunc(rows, func(row Past) bool { return !isFollowUp(row) })
	if n < 0 {
		return len(rows)
	}
	return n
}

// isExpiry reports whether a row is the expiry of a parked event, and not its parking.
func isExpiry(row Past) bool { return isDead(row, edda.DeadUnmatched) }

// isDead reports whether the event of a row became a dead letter for a reason.
func isDead(row Past, reason string) bool {
	return row.Fate == edda.FateDead && slices.ContainsFunc(row.Outputs, func(o edda.Output) bool {
		return o.Word == "dead" && o.Reason == reason
	})
}

// isFailedWake reports whether a timer event records a wake that panicked. It names no timer.
func isFailedWake(ev edda.Event) bool { return ev.Kind == edda.KindTimer && ev.Timer == "" }

// reapply applies one input as history says that it was applied. rows holds the input and the events
// that it released.
func (r *rebuild) reapply(rows []Past, version int) error {
	row := rows[0]
	d, pins, err := r.decider(version)
	switch {
	case err != nil:
		return err
	case isExpiry(row):
		r.expire(d, row.Event.ID)
		return nil
	case isFailedWake(row.Event): // it only counts as a revision
		if r.Cell.Instance != nil {
			r.Cell.Instance = clone(r.Cell.Instance)
			r.Cell.Instance.Revision++
		}
		return nil
	}
	r.Cell = dueAsRecorded(r.Cell, row)
	cell, trs := d.Apply(r.Cell, target(r.Cell.Key, pins, row), row.Event)
	if r.Cell.Instance == nil && row.Version == 0 && !decided(trs, rows) {
		if cell, trs, err = r.withKnownVersion(cell, trs, rows); err != nil {
			return err
		}
	}
	r.take(cell, trs)
	return nil
}

// decider returns a decider with the version that decided a row and the instance's own. They differ
// where a generation begins on a newer version.
func (r *rebuild) decider(version int) (Decider, []Pin, error) {
	pins := []Pin{{Version: version}}
	if version == 0 {
		pins = []Pin{r.Newest}
	}
	if in := r.Cell.Instance; in != nil {
		own := Pin{in.Version, in.Hash}
		if own.Version == pins[0].Version {
			pins = pins[:0]
		}
		pins = append(pins, own)
	}
	d, err := r.Decide(pins...)
	return d, pins, err
}

// target returns where an input of history goes. Only the row knows whether the tenant could park no
// more events.
func target(k edda.Key, pins []Pin, row Past) Target {
	t := Target{Key: k, Crowded: isDead(row, edda.DeadFull)}
	for _, p := range pins {
		t.Versions = append(t.Versions, p.Version)
	}
	return t
}

// decided reports whether the transitions end as history says: the input, and the events that it
// released. An operator's redrive is handled whether the event died again or not.
func decided(trs []edda.Transition, rows []Past) bool {
	kept := slices.DeleteFunc(slices.Clone(trs), func(t edda.Transition) bool { return t.Fate == "" || t.Fate == edda.FateIgnored })
	return slices.EqualFunc(kept, rows, func(t edda.Transition, row Past) bool { return t.Fate == row.Fate })
}

// withKnownVersion applies an event without an instance under the version that gives it the fate in
// history. A later version may apply what was poison then.
func (r *rebuild) withKnownVersion(cell edda.Cell, trs []edda.Transition, rows []Past) (edda.Cell, []edda.Transition, error) {
	for _, pin := range r.Known {
		d, err := r.Decide(pin)
		if err != nil {
			return cell, trs, err
		}
		if c, ts := d.Apply(r.Cell, target(r.Cell.Key, []Pin{pin}, rows[0]), rows[0].Event); decided(ts, rows) {
			return c, ts, nil
		}
	}
	return cell, trs, nil
}

// expire makes one parked event expire. Each event that expired before it has a row of its own.
func (r *rebuild) expire(d Decider, event string) {
	for _, e := range r.Cell.Parked {
		if e.Event.ID == event {
			r.take(d.Wake(r.Cell, time.Time{}, e.Expires))
			return
		}
	}
}

// applyRepinned applies one input with another version than history did. Timers that only this
// version has fire before a later input. A timer that both versions have fires at its row of
// history, however late: elsewhere, the inputs between would be decided differently.
func (r *rebuild) applyRepinned(d Decider, row Past, pin Pin, then edda.Cell) {
	switch {
	case isFailedWake(row.Event):
	case row.Event.Kind == edda.KindTimer:
		r.due(d, row, pin, then)
	case isExpiry(row):
		r.expire(d, row.Event.ID)
	default:
		r.fire(d, firingHorizon(r.Cell, then, row.Event.Time.Add(-1)))
		r.take(d.Apply(r.Cell, target(r.Cell.Key, []Pin{pin}, row), row.Event))
	}
}

// due fires the timer that history fired at this row, and the timers due by then that history lacks.
func (r *rebuild) due(d Decider, row Past, pin Pin, then edda.Cell) {
	if sameTimer(r.Cell, then, row.Event.Type) {
		r.Cell, then = dueAsRecorded(r.Cell, row), dueAsRecorded(then, row)
	}
	r.fire(d, firingHorizon(r.Cell, then, row.Event.Time))
	if ev, still := r.sameDue(row.Event, then); still {
		r.take(d.Apply(r.Cell, target(r.Cell.Key, []Pin{pin}, row), ev))
		r.fire(d, firingHorizon(r.Cell, then, row.Event.Time))
	}
}

// fire wakes the cell for everything that is due.
func (r *rebuild) fire(d Decider, horizon time.Time) {
	for range maxWakes {
		cell, trs := d.Wake(r.Cell, time.Time{}, horizon)
		r.take(cell, trs)
		if !fired(trs) {
			return
		}
	}
}

// fired reports whether a wake applied an event.
func fired(trs []edda.Transition) bool {
	return slices.ContainsFunc(trs, func(t edda.Transition) bool { return t.Fate != "" })
}

func (r *rebuild) take(cell edda.Cell, trs []edda.Transition) {
	r.Cell = cell
	for i := range trs {
		r.Work = append(r.Work, trs[i].Work...)
		if trs[i].Dead != nil {
			r.Dead = append(r.Dead, *trs[i].Dead)
		}
	}
}

// Continue applies events to a cell that its history lacks, in order and as live processing does:
// timers that are due before an event fire before it. It returns the transitions to commit.
func Continue(cell edda.Cell, d Decider, versions []int, events []edda.Event) (edda.Cell, []edda.Transition) {
	var out []edda.Transition
	for _, ev := range events {
		for range maxWakes {
			next, trs := d.Wake(cell, time.Time{}, ev.Time.Add(-1))
			if !fired(trs) {
				break
			}
			cell, out = next, append(out, trs...)
		}
		next, trs := d.Apply(cell, Target{Key: cell.Key, Versions: versions}, ev)
		cell, out = next, append(out, trs...)
	}
	return cell, out
}

// Adopt takes from the stored cell what history does not record. These are the next wake, which
// may be too early but never too late, how far a repeating timer has skipped missed times, and the
// due time of a timer's round, which zone data of another release gave. If the version stays, the
// expiries of parked events are taken as well.
func Adopt(built, stored edda.Cell, repinned bool) edda.Cell {
	if !repinned {
		built.Parked = slices.Clone(built.Parked)
		for i := range built.Parked {
			for _, e := range stored.Parked {
				if p := &built.Parked[i]; e.N == p.N && e.Event.ID == p.Event.ID {
					p.Expires = e.Expires
				}
			}
		}
	}
	if built.Instance == nil {
		return built
	}
	built.Instance = clone(built.Instance)
	built.Instance.Armed = time.Time{} // rebuilding makes no row of the due index
	if stored.Instance == nil {
		return built
	}
	built.Instance.Armed = stored.Instance.Armed
	if built.Instance.Generation == stored.Instance.Generation {
		adoptDues(built.Instance.Timers, stored.Instance.Timers)
	}
	return built
}

// adoptDues moves a repeating timer to where the stored one had skipped to, and gives a round of the
// calendar the due time that is stored.
func adoptDues(built, stored []edda.Timer) {
	for i := range built {
		t := &built[i]
		for _, s := range stored {
			if s.Name != t.Name || s.Order != t.Order || !repeats(t) || !sameSeries(&s, t) {
				continue
			}
			if t.Catchup == "none" && skipped(t, &s) || sameRound(t, &s) {
				t.Due, t.Calendar = s.Due, s.Calendar
			}
		}
	}
}

// skipped reports whether a timer of the same series is occurrences further on.
func skipped(from, to *edda.Timer) bool {
	if from.Calendar != nil {
		return to.Calendar.N > from.Calendar.N
	}
	further := to.Due.Sub(from.Due)
	return further > 0 && further%from.Every == 0
}

// sameRound reports whether two timers of a series wait for the same occurrence of the calendar.
func sameRound(a, b *edda.Timer) bool { return a.Calendar != nil && a.Calendar.N == b.Calendar.N }

// Rearm decides when an exchanged cell is woken. It moves the instance's due row only if that
// would come too late.
func Rearm(cell edda.Cell) (_ edda.Cell, arm, disarm []time.Time) {
	in := cell.Instance
	if in == nil || len(cell.Held) > 0 {
		return cell, nil, nil
	}
	first, ok := earliest(in, time.Time{})
	if !ok || !in.Armed.IsZero() && !first.at.Before(in.Armed) {
		return cell, nil, nil
	}
	cell.Instance = clone(in)
	cell.Instance.Armed = first.at
	if !in.Armed.IsZero() {
		disarm = append(disarm, in.Armed)
	}
	return cell, append(arm, first.at), disarm
}

// ErrNoVersion says that a version that decided history is not stored any more.
var ErrNoVersion = errors.New("the version is not kept")
