package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/saga"
	"edda/store"
)

// maxRows bounds the history rows of one key in memory.
const maxRows = 200_000

// builder builds keys again as one plan says. It is not safe for concurrent use.
type builder struct {
	plan     store.Replay
	versions *versions
	extras   extras
	// whole says that the streams still hold every event that ever came. counted has the keys
	// whose history had expired when collect looked for their events.
	whole   bool
	counted map[edda.Key]bool
	id      string
	at      time.Time
}

// built is the outcome of one key.
type built struct {
	key     edda.Key
	rows    int
	skipped bool // took no input at or after the start of the replay
	marked  bool // this replay exchanged it before a crash: it sends nothing again
	expired bool // its history is incomplete
	unbuilt bool // the remaining records are not enough to build it
	why     string
	was     edda.Cell
	// base is what history gives. next is base with the events that history does not have applied;
	// tail has their transitions.
	base, next edda.Cell
	tail       []edda.Transition
	pin        saga.Pin
	dead       []edda.DeadLetter
	// work came out of history, in order; emitted has the ids of the work that went out then.
	work    []edda.Work
	emitted map[string]bool
	same    bool
}

func (b *builder) pin() saga.Pin { return saga.Pin{Version: b.plan.Version, Hash: b.plan.Hash} }

// build builds one key from one snapshot.
func (b *builder) build(v *store.View, k edda.Key) (*built, error) {
	out := &built{key: k, emitted: map[string]bool{}}
	var err error
	if out.was, err = v.Cell(k); err != nil {
		return nil, err
	}
	rows, whole, err := v.History(k, maxRows)
	if err != nil {
		return nil, err
	}
	out.rows, out.expired = len(rows), !whole
	for _, r := range rows {
		for _, id := range r.Work {
			out.emitted[id] = true
		}
		out.marked = out.marked || r.Event.Type == edda.VerbReplay && r.Event.ID == b.id
	}
	if out.skipped = !b.wants(k, rows); out.skipped {
		return out, nil
	}
	err = b.fill(out, rows)
	if errors.Is(err, saga.ErrNoVersion) {
		out.unbuilt, out.why = true, err.Error()
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("build %s again: %w", k, err)
	}
	return out, b.compare(out)
}

// wants reports whether the key took an input at or after the start of the replay.
func (b *builder) wants(k edda.Key, rows []store.Record) bool {
	if b.plan.Correlation != "" && k.Correlation != b.plan.Correlation {
		return false
	}
	if b.plan.FromSeq == 0 && b.plan.FromTime.IsZero() || len(b.extras[k]) > 0 {
		return true
	}
	return slices.ContainsFunc(rows, func(r store.Record) bool { return b.after(r.Event) })
}

// after reports whether an event is at or after the start of the replay.
func (b *builder) after(ev edda.Event) bool {
	if b.plan.FromSeq > 0 {
		return ev.Stream == b.plan.Stream && ev.Seq >= b.plan.FromSeq
	}
	return !ev.Time.Before(b.plan.FromTime)
}

func (b *builder) fill(out *built, rows []store.Record) error {
	r := saga.Rebuilt{Cell: edda.Cell{Key: out.key}, Pin: b.pin()}
	var err error
	switch {
	case out.expired && (!b.whole || !b.counted[out.key]):
		out.unbuilt = true // without the removed results the instance would look as if they never came
		return nil
	case out.expired:
		b.extras.addHandedOver(out.key, rows)
		err = b.buildFromStreams(out)
	default:
		r, err = b.rebuilder(out.was).Rebuild(out.key, historyOf(rows))
		out.base, out.work, out.dead = r.Cell, r.Work, r.Dead
	}
	if err != nil {
		return err
	}
	out.pin = r.Pin
	out.base = saga.Adopt(out.base, out.was, b.pin() != saga.Pin{})
	out.next = out.base
	if !out.expired && len(b.extras[out.key]) > 0 {
		out.next, out.tail, err = b.applyExtras(out.rearmed())
	}
	return err
}

// buildFromStreams builds a key from the streams alone. The key stays as it is if they do not hold
// the input that started it any more.
func (b *builder) buildFromStreams(out *built) error {
	cell, trs, err := b.applyExtras(edda.Cell{Key: out.key})
	if err != nil {
		return err
	}
	out.base = cell
	for i := range trs {
		out.work = append(out.work, trs[i].Work...)
		if trs[i].Dead != nil {
			out.dead = append(out.dead, *trs[i].Dead)
		}
	}
	out.unbuilt = cell.Instance == nil || out.was.Instance != nil && cell.Instance.Generation != out.was.Instance.Generation
	return nil
}

func (b *builder) applyExtras(cell edda.Cell) (edda.Cell, []edda.Transition, error) {
	d, numbers, err := b.current()
	if err != nil {
		return cell, nil, err
	}
	next, tail := saga.Continue(cell, d, numbers, b.extras[cell.Key])
	return next, effective(tail), nil
}

// effective returns the tail, or nil if every event in it is dropped again, as when it came.
func effective(tail []edda.Transition) []edda.Transition {
	for i := range tail {
		if t := &tail[i]; t.Fate != "" && t.Fate != edda.FateIgnored || t.Instance != nil || len(t.Unpark) > 0 || len(t.Release) > 0 {
			return tail
		}
	}
	return nil
}

// current returns the decider, and its versions, for the events that history does not have.
func (b *builder) current() (saga.Decider, []int, error) {
	if pin := b.pin(); pin != (saga.Pin{}) {
		d, err := b.versions.decide(pin)
		return d, []int{pin.Version}, err
	}
	var numbers []int
	for _, p := range b.versions.set.Programs() {
		if p.Saga() == b.plan.Saga {
			numbers = append(numbers, p.Version())
		}
	}
	return decider{b.versions.set}, numbers, nil
}

// rebuilder decides with the text of the stored instance where history records only the number of
// its version.
func (b *builder) rebuilder(was edda.Cell) saga.Rebuilder {
	return saga.Rebuilder{
		Repin: b.pin(), Newest: b.versions.newest(), Known: b.versions.known(),
		Decide: func(pins ...saga.Pin) (saga.Decider, error) {
			for i := range pins {
				if in := was.Instance; in != nil && pins[i].Hash == "" && pins[i].Version == in.Version {
					pins[i].Hash = in.Hash
				}
			}
			return b.versions.decide(pins...)
		},
	}
}

func historyOf(rows []store.Record) []saga.Past {
	out := make([]saga.Past, len(rows))
	for i, r := range rows {
		out[i] = saga.Past{Event: r.Event, Fate: r.Fate, Outputs: r.Outputs, Version: r.Version}
	}
	return out
}

// compare decides whether the built key may replace the stored one and differs from it. A replay
// neither removes an instance nor leaves one on a version that does not run.
func (b *builder) compare(o *built) (err error) {
	switch {
	case o.unbuilt:
		o.why = "its history has expired, and what is left in the streams does not give it again"
	case o.was.Instance != nil && o.next.Instance == nil:
		o.why = "it would not begin"
	case b.pin() == saga.Pin{} && !b.runs(o.next.Instance):
		o.why = fmt.Sprintf("it would go on with version %d, which does not run here", o.next.Instance.Version)
	}
	if o.unbuilt = o.why != ""; o.unbuilt {
		return nil
	}
	o.same, err = Same(o.was, o.next)
	o.same = o.same && len(o.tail) == 0
	return err
}

// runs reports whether the current set has the version of an instance that still runs.
func (b *builder) runs(in *edda.Instance) bool {
	return in == nil || in.Status.Finished() || b.versions.loaded(saga.Pin{Version: in.Version})
}

// rearmed returns the cell that history gives, with the timers of the due index that it needs.
func (o *built) rearmed() edda.Cell {
	cell, _, _ := saga.Rearm(o.base)
	return cell
}

// allWork returns all the work that came out, in order.
func (o *built) allWork() []edda.Work {
	all := slices.Clone(o.work)
	for i := range o.tail {
		all = append(all, o.tail[i].Work...)
	}
	return all
}

// isNew reports whether work never went out by the records. With expired history that is unknown,
// and the work does not count as new.
func (o *built) isNew(w edda.Work) bool { return !o.expired && !o.emitted[w.ID] }

// sends reports whether a piece of work goes out.
func (b *builder) sends(o *built, w edda.Work) bool {
	switch b.plan.Emit {
	case EmitAll:
		return !o.marked
	case EmitNew:
		return !o.marked && o.isNew(w)
	}
	return false
}

func (b *builder) sent(o *built, list []edda.Work) []edda.Work {
	var out []edda.Work
	for _, w := range list {
		if b.sends(o, w) {
			out = append(out, w)
		}
	}
	return out
}

// exchanges reports whether the key must be written.
func (b *builder) exchanges(o *built) bool {
	return !o.skipped && !o.unbuilt && (!o.same || len(b.sent(o, o.allWork())) > 0)
}

// transitions returns the transitions that replace the stored cell with the built one: the mark,
// the queues, then the events that history does not have.
func (b *builder) transitions(o *built) (edda.Cell, []edda.Transition, error) {
	mark, err := saga.Mark(o.key, b.id, b.at, b.plan.By, o.pin)
	if err != nil {
		return o.was, nil, err
	}
	first := edda.Transition{
		Key: o.key, Event: mark, Fate: edda.FateHandled, Work: b.sent(o, o.work),
		Outputs: []edda.Output{{Word: saga.Marked, Name: b.plan.Saga, Reason: b.plan.Reason}},
	}
	if o.same {
		return o.was, []edda.Transition{first}, nil
	}
	cell, arm, disarm := saga.Rearm(o.base)
	first.Instance, first.Arm, first.Disarm = cell.Instance, arm, disarm
	o.release(&first)
	out := append([]edda.Transition{first}, o.queues()...)
	for _, t := range o.tail {
		t.Work = b.sent(o, t.Work)
		out = append(out, t)
	}
	if len(o.tail) == 0 {
		return cell, out, nil
	}
	return o.next, out, nil
}

// release removes the stored queues. It resolves the dead letter of a hold that is gone, and adds
// the dead letter of a new hold.
func (o *built) release(t *edda.Transition) {
	for _, e := range o.was.Parked {
		t.Unpark = append(t.Unpark, e.N)
	}
	for _, e := range o.was.Held {
		t.Release = append(t.Release, e.N)
	}
	held, holds := letterOf(o.was), letterOf(o.base)
	if held == holds {
		return
	}
	if held != "" {
		t.Resolved = []string{held}
	}
	for i := range o.dead {
		if holds != "" && o.dead[i].ID == holds {
			t.Dead = &o.dead[i]
		}
	}
}

func letterOf(c edda.Cell) string {
	if len(c.Held) == 0 {
		return ""
	}
	return c.Held[0].DeadLetter
}

// queues puts parked and held events back, one transition each. They have no fate, so they leave
// no history.
func (o *built) queues() []edda.Transition {
	var out []edda.Transition
	for i := range o.base.Parked {
		out = append(out, edda.Transition{Key: o.key, Park: &o.base.Parked[i], Arm: []time.Time{o.base.Parked[i].Expires}})
	}
	for i := range o.base.Held {
		out = append(out, edda.Transition{Key: o.key, Hold: &o.base.Held[i]})
	}
	return out
}
