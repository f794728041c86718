package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"edda"
	"edda/engine"
	"edda/saga"
	"edda/store"
)

const (
	// viewKeys bounds the keys built from one snapshot, because the store cannot reuse freed pages
	// while a snapshot is open.
	viewKeys = 256
	// maxTries bounds how often a key is built again because it took an input in the meantime. A
	// busy key needs far fewer.
	maxTries = 100
	// maxExchanges bounds the exchanges in flight: enough for one commit to hold many, few enough
	// to leave room for live processing.
	maxExchanges = 64
	// scanKeys bounds the keys listed at once.
	scanKeys = 4096
)

// errStopping says that the engine accepts no more exchanges. The replay resumes after the next
// start.
var errStopping = errors.New("the engine stops")

// attempt is one execution of a replay. It writes nothing before it has built everything.
type attempt struct {
	*Replayer
	report  *Report
	builder *builder
	expired map[edda.Key]bool
	fresh   []edda.Key // keys that the store has no record of
	changed []edda.Key // to be exchanged
}

func (r *Replayer) attempt(ctx context.Context, report *Report) error {
	v, err := newVersions(r.programs, report.Saga)
	if err != nil {
		return err
	}
	a := &attempt{Replayer: r, report: report, expired: map[edda.Key]bool{}, builder: &builder{
		plan: report.Replay, versions: v, extras: extras{}, id: report.ID, at: report.Begun,
	}}
	r.note(report, func(s *Summary) { *s = Summary{} })
	for _, phase := range []struct {
		name string
		do   func(context.Context) error
	}{{PhaseCount, a.count}, {PhaseStreams, a.collect}, {PhaseBuild, a.buildAll}, {PhaseExchange, a.exchangeAll}} {
		r.note(report, func(s *Summary) { s.Phase = phase.name })
		r.options.Reached(phase.name)
		if err := phase.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// keys calls visit with every key of the saga. Up to viewKeys calls share a snapshot.
func (a *attempt) keys(ctx context.Context, visit func(*store.View, edda.Key) error) error {
	after := edda.Key{}
	for {
		page, err := a.page(after)
		if err != nil || len(page) == 0 {
			return err
		}
		if err := a.inViews(ctx, page, visit); err != nil {
			return err
		}
		after = page[len(page)-1]
	}
}

func (a *attempt) page(after edda.Key) (page []edda.Key, err error) {
	v, err := a.db.View()
	if err != nil {
		return nil, err
	}
	defer v.Close()
	err = v.Keys(a.report.Tenant, a.report.Saga, after, func(k edda.Key) bool {
		if a.report.Correlation == "" || k.Correlation == a.report.Correlation {
			page = append(page, k)
		}
		return len(page) < scanKeys
	})
	return page, err
}

func (a *attempt) inViews(ctx context.Context, keys []edda.Key, visit func(*store.View, edda.Key) error) error {
	for len(keys) > 0 {
		n := min(len(keys), viewKeys)
		if err := a.inView(ctx, keys[:n], visit); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

func (a *attempt) inView(ctx context.Context, keys []edda.Key, visit func(*store.View, edda.Key) error) error {
	v, err := a.db.View()
	if err != nil {
		return err
	}
	defer v.Close()
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(v, k); err != nil {
			return err
		}
	}
	return nil
}

// count counts the keys and the events to do, and finds the keys whose history has expired.
func (a *attempt) count(ctx context.Context) error {
	return a.keys(ctx, func(v *store.View, k edda.Key) error {
		n, whole, err := v.HistorySize(k)
		if err != nil {
			return err
		}
		if !whole {
			a.expired[k] = true
		}
		a.note(a.report, func(s *Summary) {
			s.KeysTotal++
			s.EventsTotal += n
			s.Expired = len(a.expired)
		})
		return nil
	})
}

// collect reads the events that the streams hold and history does not, up to the positions of live
// processing.
func (a *attempt) collect(ctx context.Context) error {
	upto, err := a.db.PositionsOf(a.report.Tenant, a.report.Saga)
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	c := &collector{b: a.builder, db: a.db, shard: a.options.Shard, expired: a.expired, forgotten: map[edda.Key]bool{}, found: a.builder.extras, route: a.builder.versions.set}
	if pin := a.builder.pin(); pin != (saga.Pin{}) {
		d, err := a.builder.versions.decide(pin)
		if err != nil {
			return err
		}
		c.route = d.(decider).set
	}
	if err := c.renew(); err != nil {
		return err
	}
	defer func() { c.view.Close() }()
	first, err := a.streams.Each(ctx, a.report.Tenant, upto, c.visit)
	if err != nil {
		return fmt.Errorf("read the streams: %w", err)
	}
	c.found.sort()
	missing := gaps(first)
	a.builder.whole, a.builder.counted = len(missing) == 0, a.expired
	return a.noteFound(c, missing)
}

// noteFound records in the summary what the streams gave, and lists the keys without a record.
func (a *attempt) noteFound(c *collector, gaps []string) error {
	for k := range c.found {
		_, known, err := c.view.Known(k)
		if err != nil {
			return err
		}
		if !known {
			a.fresh = append(a.fresh, k)
		}
	}
	a.note(a.report, func(s *Summary) {
		s.Extra = c.n
		s.KeysTotal += len(a.fresh)
		s.EventsTotal += c.n
		if len(a.expired) > 0 {
			s.Notes = append(s.Notes, expiredNote(len(a.expired), len(gaps) == 0))
			s.Notes = append(s.Notes, gaps...)
		}
		if n := len(c.forgotten); n > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("the streams have events of %d keys of which nothing is recorded (any more): history was removed here, so these are left alone", n))
		}
	})
	return nil
}

func expiredNote(keys int, whole bool) string {
	if whole {
		return fmt.Sprintf("the history of %d keys has expired: they are built from the streams alone", keys)
	}
	return fmt.Sprintf("the history of %d keys has expired, and the streams do not hold all of what came: these stay as they are", keys)
}

// buildAll builds and compares every key. It keeps only the list of the keys to exchange.
func (a *attempt) buildAll(ctx context.Context) error {
	build := func(v *store.View, k edda.Key) error {
		o, err := a.builder.build(v, k)
		if err != nil {
			return err
		}
		return a.noteBuilt(o)
	}
	if err := a.keys(ctx, build); err != nil {
		return err
	}
	return a.inViews(ctx, a.fresh, build)
}

// noteBuilt records the outcome of one key.
func (a *attempt) noteBuilt(o *built) error {
	if a.builder.exchanges(o) {
		a.changed = append(a.changed, o.key)
	}
	var found []Difference
	var err error
	if !o.skipped && !o.unbuilt && !o.same {
		found, err = Compare(o.was, o.next, maxDifferencesOfKey)
	}
	events := o.rows + len(a.builder.extras[o.key])
	a.metrics.events.Add(float64(events))
	a.note(a.report, func(s *Summary) { s.addKey(o, events, found) })
	return err
}

func (s *Summary) addKey(o *built, events int, found []Difference) {
	s.KeysDone++
	s.EventsDone += events
	switch {
	case o.skipped:
		return
	case o.unbuilt:
		s.addUnbuilt(o)
		return
	case o.same:
		s.Same++
		s.countBefore(o)
	default:
		s.Changed++
	}
	s.Differences = append(s.Differences, found[:min(len(found), MaxShown-len(s.Differences))]...)
	s.addWork(o)
}

func (s *Summary) countBefore(o *built) {
	if o.marked {
		s.Before++
	}
}

func (s *Summary) addUnbuilt(o *built) {
	s.Unbuilt++
	if len(s.Notes) < maxNotes {
		s.Notes = append(s.Notes, fmt.Sprintf("%s stays as it is: %s", o.key.Correlation, o.why))
	}
}

// addWork compares the work that came out with the work that went out.
func (s *Summary) addWork(o *built) {
	all, gone := o.allWork(), len(o.emitted)
	s.AllWork += len(all)
	for _, w := range all {
		if o.emitted[w.ID] {
			gone--
		}
		if !o.isNew(w) {
			continue
		}
		s.NewWork++
		if len(s.Work) < MaxShown {
			s.Work = append(s.Work, WorkItem{ID: w.ID, Kind: w.Kind, Name: w.Name, Step: w.Step, Key: o.key.Correlation})
		}
	}
	s.GoneWork += max(gone, 0)
}

// exchangeAll exchanges the changed keys, many at once, so that the engine commits them together.
// It builds a key again that took an input after it was built.
func (a *attempt) exchangeAll(ctx context.Context) error {
	if a.report.DryRun {
		return nil
	}
	left := a.changed
	for range maxTries {
		var err error
		// gofail: var replayRound struct{}
		if left, err = a.exchangeRound(ctx, left); err != nil || len(left) == 0 {
			return err
		}
	}
	return edda.Classify(edda.Temporary, "%s takes in something all the time: it could not be exchanged %d times", left[0], maxTries)
}

// roomEvery is the interval between two looks at a full outbox.
const roomEvery = 100 * time.Millisecond

// room waits until the outbox has room, if this replay sends work.
func (a *attempt) room(ctx context.Context) error {
	if a.report.Emit == EmitNone {
		return nil
	}
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for !a.options.Room() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// exchangeRound tries each key once, and returns those that it did not exchange.
func (a *attempt) exchangeRound(ctx context.Context, keys []edda.Key) ([]edda.Key, error) {
	var mu sync.Mutex // guards left
	var left []edda.Key
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxExchanges)
	var err error
	for _, k := range keys {
		a.options.Reached("exchange of " + k.Correlation)
		if err = a.room(ctx); err != nil {
			break
		}
		var o *built
		if o, err = a.ready(ctx, k); err != nil {
			break
		}
		if o == nil {
			continue
		}
		a.options.Reached("built " + k.Correlation)
		// gofail: var replayBuilt struct{}
		g.Go(func() error {
			done, err := a.put(ctx, o)
			if err == nil && !done {
				mu.Lock()
				left = append(left, k)
				mu.Unlock()
			}
			return err
		})
	}
	if first := g.Wait(); first != nil {
		err = first // the error in err follows from the first one
	}
	return left, err
}

// stillRuns fails if a reload has removed the version that the replay applies.
func (a *attempt) stillRuns() error {
	a.builder.versions.set = a.programs.Set()
	if pin := a.builder.pin(); pin != (saga.Pin{}) && !a.builder.versions.loaded(pin) {
		return edda.Classify(edda.Permanent, "version %d of saga %s does not run here any more: load its manifest and replay again", pin.Version, a.report.Saga)
	}
	return nil
}

// ready builds the key on top of every input it has taken by now; nil when there is no difference
// to exchange any more.
func (a *attempt) ready(ctx context.Context, k edda.Key) (*built, error) {
	if err := a.stillRuns(); err != nil {
		return nil, err
	}
	o, err := a.rebuilt(ctx, k)
	if err != nil || !a.builder.exchanges(o) {
		return nil, err
	}
	return o, nil
}

// put exchanges a key, and reports false if the key has changed since it was built.
func (a *attempt) put(ctx context.Context, o *built) (bool, error) {
	next, changed, err := a.builder.transitions(o)
	if err != nil {
		return false, err
	}
	done := false
	err = a.engine.Exchange(ctx, o.key, func(now edda.Cell) (edda.Cell, []edda.Transition) {
		same, err := Same(now, o.was)
		if done = same && err == nil; !done {
			return now, nil
		}
		return next, changed
	})
	if errors.Is(err, engine.ErrDraining) || errors.Is(err, engine.ErrStopped) {
		return false, errStopping
	}
	if err != nil {
		return false, err
	}
	// gofail: var replayExchanged struct{}
	if done {
		a.exchanged(o)
	}
	return done, nil
}

func (a *attempt) rebuilt(ctx context.Context, k edda.Key) (o *built, err error) {
	err = a.inView(ctx, []edda.Key{k}, func(v *store.View, k edda.Key) error {
		o, err = a.builder.build(v, k)
		return err
	})
	return o, err
}

func (a *attempt) exchanged(o *built) {
	sent := a.builder.sent(o, o.allWork())
	ids := map[string]bool{}
	for _, w := range sent {
		ids[w.ID] = true
	}
	a.metrics.sent.Add(float64(len(sent)))
	a.note(a.report, func(s *Summary) {
		s.Exchanged++
		s.Sent += len(sent)
		for i := range s.Work {
			s.Work[i].Sent = s.Work[i].Sent || ids[s.Work[i].ID]
		}
	})
}
