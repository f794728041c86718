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

// Streams are the inputs of sagas as the streams still hold them.
type Streams interface {
	// Each calls visit with every event of the tenant that is at or before the
	// positions, each stream's in its order, and tells of each stream which
	// sequence was the first that it held. It is called by one goroutine at a time.
	Each(ctx context.Context, tenant string, upto []edda.Checkpoint, visit func(edda.Event) error) (first map[string]uint64, err error)
}

// maxExtras bounds the events in memory that history does not have, about a
// kilobyte each.
const maxExtras = 100_000

// extras are the events of the streams that history does not have, by key and in
// the order in which they were stored; a result that was handed over within its process
// stands where it was taken, however much later its copy was stored.
type extras map[edda.Key][]edda.Event

// collector finds them. An event that history does not have was met by live
// processing all the same where the version that the key ran on takes it: it was
// dropped then, and stays dropped.
type collector struct {
	b       *builder
	db      *store.DB
	view    *store.View
	looked  int // events, with this view
	route   *saga.Set
	expired map[edda.Key]bool
	found   extras
	// forgotten are keys of which nothing is recorded, in a store that has removed
	// what had expired: they are left alone.
	forgotten map[edda.Key]bool
	n         int
}

// viewEvents is how many events are looked up in one snapshot: see viewKeys.
const viewEvents = 4096

// renew opens another snapshot. It knows no less than the one before.
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

func (c *collector) take(ev edda.Event) error {
	if c.looked++; c.looked > viewEvents {
		if err := c.renew(); err != nil {
			return err
		}
	}
	if ev.Malformed != "" || !c.in(ev) {
		return nil
	}
	for _, t := range c.route.Route(ev) {
		if t.Dead != nil || t.Key.Saga != c.b.plan.Saga || t.Key.Tenant != c.b.plan.Tenant || c.b.plan.Correlation != "" && t.Key.Correlation != c.b.plan.Correlation {
			continue
		}
		if err := c.consider(t.Key, ev); err != nil {
			return err
		}
	}
	return nil
}

// in tells whether the replay begins before the event; a key whose history has
// expired needs all there is.
func (c *collector) in(ev edda.Event) bool {
	return len(c.expired) > 0 || c.b.plan.FromSeq == 0 && c.b.plan.FromTime.IsZero() || c.b.after(ev)
}

func (c *collector) consider(k edda.Key, ev edda.Event) error {
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
		return c.unknown(k, ev)
	}
	if met, err := c.met(k, ev, version); met || err != nil {
		return err
	}
	return c.add(k, ev)
}

// unknown takes events for keys that nothing is recorded of, from the first that
// may begin something: a signal for nobody was refused when it came.
// Where history was removed they may be those of an instance that ended long ago,
// which must not begin anew.
func (c *collector) unknown(k edda.Key, ev edda.Event) error {
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

// met tells whether live processing has met the event for the key.
func (c *collector) met(k edda.Key, ev edda.Event, version int) (bool, error) {
	if ev.Kind != edda.KindEvent || version == 0 {
		return true, nil
	}
	d, err := c.b.versions.decide(saga.Pin{Version: version})
	if err != nil {
		return true, nil // it is not kept: nobody can tell any more
	}
	if set, ok := d.(decider); ok && slices.ContainsFunc(set.set.Route(ev), func(t saga.Target) bool { return t.Key == k && t.Dead == nil }) {
		return true, nil
	}
	rows, _, err := c.view.History(k, maxRows)
	return slices.ContainsFunc(rows, func(r store.Record) bool {
		return r.Event.Stream == ev.Stream && r.Event.Seq == ev.Seq || r.Event.ID == ev.ID
	}), err
}

func (c *collector) add(k edda.Key, ev edda.Event) error {
	if c.n++; c.n > maxExtras {
		return edda.Classify(edda.Permanent, "the streams hold more than %d events that history does not have: begin later, or replay one key", maxExtras)
	}
	c.found[k] = append(c.found[k], ev.Taken())
	return nil
}

// sort brings each key's events into their order.
func (e extras) sort() {
	for _, list := range e {
		sortStored(list)
	}
}

func sortStored(list []edda.Event) {
	slices.SortStableFunc(list, func(a, b edda.Event) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Stream, b.Stream), cmp.Compare(a.Seq, b.Seq))
	})
}

// handed adds the results that no stream gave, from what is left of a key's records:
// their copies may be further in their stream than the position is. Where a copy was
// read, the record stands for it: it says when the result was applied.
func (e extras) handed(k edda.Key, rows []store.Record) {
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

// gaps says of each stream what it does not hold any more.
func gaps(first map[string]uint64) []string {
	var out []string
	for name, seq := range first {
		if seq > 1 {
			out = append(out, fmt.Sprintf("stream %s begins at sequence %d: events before it have expired", name, seq))
		}
	}
	slices.Sort(out)
	return out
}
