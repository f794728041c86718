package engine

import (
	"crypto/sha256"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/saga"
)

// maxStack bounds the stack of a panic in a dead letter. Its topmost calls tell where.
const maxStack = 4 << 10

// poisoned turns an input that panicked into a dead letter that holds the key, as a failed
// expression does.
func poisoned(cell edda.Cell, k edda.Key, it *item, cause any) (edda.Cell, []edda.Transition) {
	cell.Key = k
	if it.isRow() {
		return poisonedRow(cell, it, cause)
	}
	dead := deadLetter(k, it.event, cause)
	t := edda.Transition{
		Key: k, Event: it.event, Fate: edda.FateDead, Dead: dead,
		Outputs: []edda.Output{{Word: "dead", Name: it.event.Type, Reason: edda.DeadPoison}},
	}
	if len(cell.Held) == 0 && it.event.Kind != edda.KindOperator {
		cell = hold(cell, it.event, &t)
	}
	return cell, []edda.Transition{t}
}

// hold makes the event the first one held for the key.
func hold(cell edda.Cell, ev edda.Event, t *edda.Transition) edda.Cell {
	t.Hold = &edda.Entry{N: 1, Event: ev, DeadLetter: t.Dead.ID}
	cell.Held = append(slices.Clip(cell.Held), *t.Hold)
	return changeInstance(cell, t, func(in *edda.Instance) { in.Held = t.Dead.ID })
}

// poisonedRow removes the due row, which would panic again for ever. The key's next event arms
// its timers again.
func poisonedRow(cell edda.Cell, it *item, cause any) (edda.Cell, []edda.Transition) {
	row := it.due.row
	ev := edda.Event{
		Kind: edda.KindTimer, ID: "due:" + row.Key.Correlation + ":" + edda.FormatTime(row.Time),
		Tenant: row.Key.Tenant, Key: row.Key, Time: row.Time,
	}
	t := edda.Transition{
		Key: row.Key, Event: ev, Fate: edda.FateDead, Dead: deadLetter(row.Key, ev, cause),
		Outputs: []edda.Output{{Word: "dead", Reason: edda.DeadPoison}},
		Disarm:  []time.Time{row.Time},
	}
	cell = changeInstance(cell, &t, func(in *edda.Instance) { in.Armed = time.Time{} })
	return cell, []edda.Transition{t}
}

// changeInstance replaces the instance by a changed copy, if there is one.
func changeInstance(cell edda.Cell, t *edda.Transition, change func(*edda.Instance)) edda.Cell {
	if cell.Instance == nil {
		return cell
	}
	in := *cell.Instance
	in.Revision++
	change(&in)
	cell.Instance, t.Instance = &in, &in
	return cell
}

// misrouted is the target of an event whose routing panicked: a dead letter.
func misrouted(ev edda.Event, cause any) []saga.Target {
	k := edda.Key{Tenant: ev.Tenant}
	return []saga.Target{{Key: k, Dead: deadLetter(k, ev, cause)}}
}

func deadLetter(k edda.Key, ev edda.Event, cause any) *edda.DeadLetter {
	text := fmt.Sprintf("panic: %v\n%s", cause, debug.Stack())
	return &edda.DeadLetter{
		ID: deadID(k, ev), Reason: edda.DeadPoison, Key: k, Event: ev, Time: ev.Time,
		Error: clip(text, maxStack),
	}
}

const (
	// maxName bounds the names in the dead letter of a spoiled item, because a longer one may be
	// why the store refuses it.
	maxName = 256
	// maxRaw bounds the payload in that dead letter.
	maxRaw = 64 << 10
)

// spoiledTarget is the target of an item whose transitions the store can never write, for
// example because its key is too long: a dead letter of values that the store can write.
func spoiledTarget(it *item) []saga.Target {
	ev := it.event
	if it.isRow() {
		ev.Time, ev.Tenant = it.due.time, it.due.row.Key.Tenant
	}
	k := edda.Key{Tenant: ev.Tenant}
	return []saga.Target{{Key: k, Dead: &edda.DeadLetter{
		ID: deadID(k, ev), Reason: edda.DeadPoison, Key: k, Time: ev.Time,
		Event: edda.Event{
			Kind: ev.Kind, ID: clip(ev.ID, maxName), Tenant: ev.Tenant, Type: clip(ev.Type, maxName),
			Time: ev.Time, Stream: ev.Stream, Seq: ev.Seq, Member: ev.Member,
		},
		Error: clip(it.spoiled.Error(), maxStack),
		Raw:   ev.Payload[:min(len(ev.Payload), maxRaw)],
	}}}
}

// clip truncates text to at most n bytes of whole characters.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// deadID derives the id of a dead letter, ordered by time, so that another evaluation gives the
// same id.
func deadID(k edda.Key, ev edda.Event) string {
	h := sha256.New()
	for _, part := range []string{k.Tenant, k.Saga, k.Correlation, ev.ID, ev.Stream} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	var id ulid.ULID
	copy(id[6:], h.Sum(nil))
	if ms := ev.Time.UnixMilli(); ms > 0 {
		_ = id.SetTime(uint64(ms)) // fails only after the year 10889
	}
	return id.String()
}
