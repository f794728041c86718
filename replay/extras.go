package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"edda"
	"edda/saga"
	"edda/store"
)

// Streams gives a replay the events that the streams still hold.
type Streams interface {
	// Each calls visit with every event of the tenant at or before the positions, in the order of
	// each stream. It returns the first sequence that each stream held. It is not called
	// concurrently.
	Each(ctx context.Context, tenant string, upto []edda.Checkpoint, visit func(edda.Event) error) (first map[string]uint64, err error)
}

// maxExtras bounds the events in memory that history does not have, about a kilobyte each.
const maxExtras = 100_000

// extras are the events of the streams that history does not have, by key, in the order in which
// they were stored. A result that was handed over inside its process stands where it was applied,
// even if its echo was stored much later.
type extras map[edda.Key][]edda.Event

// collector finds extras. Where the version that a key ran on takes an event that history does not
// have, live processing has seen and dropped the event: it stays dropped.
type collector struct {
	b       *builder
	db      *store.DB
	shard   edda.Shard
	view    *store.View
	looked  int // events looked up in the current view
	route   *saga.Set
	expired map[edda.Key]bool
	found   extras
	// forgotten has the keys without a record in a store that has removed expired history. The
	// replay leaves them alone.
	forgotten map[edda.Key]bool
	n         int
}

// viewEvents bounds the events looked up in one snapshot: see viewKeys.
const viewEvents = 4096

// renew opens a new snapshot. It has every record that the last one had.
func (c *collector) renew() (err error) {
	if c.view != nil {
		c.view.Close()
	}
	c.looked = 0
	view, err := c.db.View()
	if err == nil {
		c.view = view
	}
	return err
}

func (c *collector) visit(ev edda.Event) error {
	if c.looked++; c.looked > viewEvents {
		if err := c.renew(); err != nil {
			return err
		}
	}
	if ev.Malformed != "" || !c.inScope(ev) {
		return nil
	}
	for _, t := range c.route.Route(ev) {
		if t.Dead != nil || t.Key.Saga != c.b.plan.Saga || t.Key.Tenant != c.b.plan.Tenant || c.b.plan.Correlation != "" && t.Key.Correlation != c.b.plan.Correlation || !c.shard.Has(t.Key) {
			continue
		}
		if err := c.addIfNew(t.Key, ev); err != nil {
			return err
		}
	}
	return nil
}

// inScope reports whether the replay starts at or before the event. Once the history of a key has
// expired, all events count.
func (c *collector) inScope(ev edda.Event) bool {
	return len(c.expired) > 0 || c.b.plan.FromSeq == 0 && c.b.plan.FromTime.IsZero() || c.b.after(ev)
}

func (c *collector) addIfNew(k edda.Key, ev edda.Event) error {
	if c.expired[k] {
		return c.add(k, ev)
	}
	version, known, err := c.view.Known(k)
	switch {
	case err != nil:
		return err
	case known && c.b.pin() == saga.Pin{}:
		return nil
	case !known:
		return c.addUnknown(k, ev)
	}
	if met, err := c.seen(k, ev, version); met || err != nil {
		return err
	}
	return c.add(k, ev)
}

// addUnknown collects events of keys without a record, from the first event that may start an
// instance: a signal before it was refused when it came. If history was removed, such events may
// belong to an instance that ended long ago. It must not start again, so they are not collected.
func (c *collector) addUnknown(k edda.Key, ev edda.Event) error {
	if c.view.HistoryDropped() {
		if len(c.forgotten) < maxExtras {
			c.forgotten[k] = true
		}
		return nil
	}
	if len(c.found[k]) == 0 && ev.Kind != edda.KindEvent && ev.Kind != edda.KindStart {
		return nil
	}
	return c.add(k, ev)
}

// seen reports whether live processing has seen the event for the key.
func (c *collector) seen(k edda.Key, ev edda.Event, version int) (bool, error) {
	if ev.Kind != edda.KindEvent || version == 0 {
		return true, nil
	}
	d, err := c.b.versions.decide(saga.Pin{Version: version})
	if err != nil {
		return true, nil // the version is not kept, so we cannot tell
	}
	if set, ok := d.(decider); ok && slices.ContainsFunc(set.set.Route(ev), func(t saga.Target) bool { return t.Key == k && t.Dead == nil }) {
		return true, nil
	}
	rows, _, err := c.view.History(k, maxRows)
	return slices.ContainsFunc(rows, func(r store.Record) bool {
		return r.Event.Stream == ev.Stream && r.Event.Seq == ev.Seq && r.Event.Member == ev.Member || r.Event.ID == ev.ID
	}), err
}

func (c *collector) add(k edda.Key, ev edda.Event) error {
	if c.n++; c.n > maxExtras {
		return edda.Classify(edda.Permanent, "the streams hold more than %d events that history does not have: begin later, or replay one key", maxExtras)
	}
	c.found[k] = append(c.found[k], ev.Taken())
	return nil
}

// sort orders the events of each key as they were stored.
func (e extras) sort() {
	for _, list := range e {
		sortStored(list)
	}
}

func sortStored(list []edda.Event) {
	slices.SortStableFunc(list, func(a, b edda.Event) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Member, b.Member))
	})
}

// addHandedOver adds the results in a key's records that came from no stream: their echoes may be
// behind the position. If an echo was read, the record replaces it, because the record says when
// the result was applied.
func (e extras) addHandedOver(k edda.Key, rows []store.Record) {
	taken := map[string]bool{}
	for _, r := range rows {
		if ev := r.Event; ev.Kind == edda.KindResult && ev.Stream == "" && !taken[ev.ID] {
			taken[ev.ID] = true
			e[k] = append(slices.DeleteFunc(e[k], func(x edda.Event) bool { return x.ID == ev.ID }), ev)
		}
	}
	if len(taken) > 0 {
		sortStored(e[k])
	}
}

// gaps describes what each stream does not hold any more.
func gaps(first map[string]uint64) []string {
	var out []string
	for name, seq := range first {
		if seq > 1 {
			out = append(out, fmt.Sprintf("stream %s begins at sequence %d: events before it have expired or were removed, or no source reads them", name, seq))
		}
	}
	slices.Sort(out)
	return out
}
