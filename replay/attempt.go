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
	// viewKeys is how many keys are built from one snapshot: the store cannot give
	// back the pages of what was removed while one is open.
	viewKeys = 256
	// maxTries bounds how often a key is built again because it took something in
	// meanwhile: far more than a busy one needs.
	maxTries = 100
	// maxExchanges is how many keys wait for their commit at once: enough for one
	// commit to take many, few enough to leave live processing its room.
	maxExchanges = 64
	// scanKeys bounds the keys that are listed at once.
	scanKeys = 4096
)

// errStopping says that the engine takes no more: the replay goes on after the
// next start.
var errStopping = errors.New("the engine stops")

// attempt is one replay under way. Nothing is written before everything was built.
type attempt struct {
	*Replayer
	report  *Report
	builder *builder
	expired map[edda.Key]bool
	fresh   []edda.Key // keys that only the streams know
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

// keys calls visit with every key of the saga, and a snapshot for a few at a time.
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

// count finds out how much there is to do, and which keys have lost history.
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

// collect reads what the streams hold and history does not, up to what live
// processing has applied.
func (a *attempt) collect(ctx context.Context) error {
	upto, err := a.db.PositionsOf(a.report.Tenant, a.report.Saga)
	if err != nil {
		return fmt.Errorf("read the positions: %w", err)
	}
	c := &collector{b: a.builder, db: a.db, expired: a.expired, forgotten: map[edda.Key]bool{}, found: a.builder.extras, route: a.builder.versions.set}
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
	first, err := a.streams.Each(ctx, a.report.Tenant, upto, c.take)
	if err != nil {
		return fmt.Errorf("read the streams: %w", err)
	}
	c.found.sort()
	missing := gaps(first)
	a.builder.whole, a.builder.counted = len(missing) == 0, a.expired
	return a.found(c, missing)
}

// found notes what the streams gave, and which keys nothing was recorded of.
func (a *attempt) found(c *collector, gaps []string) error {
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

// buildAll builds everything and compares it; it keeps only which keys to exchange.
func (a *attempt) buildAll(ctx context.Context) error {
	build := func(v *store.View, k edda.Key) error {
		o, err := a.builder.build(v, k)
		if err != nil {
			return err
		}
		return a.compared(o)
	}
	if err := a.keys(ctx, build); err != nil {
		return err
	}
	return a.inViews(ctx, a.fresh, build)
}

// compared notes what came of one key.
func (a *attempt) compared(o *built) error {
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
	a.note(a.report, func(s *Summary) { s.take(o, events, found) })
	return err
}

func (s *Summary) take(o *built, events int, found []Difference) {
	s.KeysDone++
	s.EventsDone += events
	switch {
	case o.skipped:
		return
	case o.unbuilt:
		s.unbuilt(o)
		return
	case o.same:
		s.Same++
		s.before(o)
	default:
		s.Changed++
	}
	s.Differences = append(s.Differences, found[:min(len(found), MaxShown-len(s.Differences))]...)
	s.takeWork(o)
}

func (s *Summary) before(o *built) {
	if o.marked {
		s.Before++
	}
}

func (s *Summary) unbuilt(o *built) {
	s.Unbuilt++
	if len(s.Notes) < maxNotes {
		s.Notes = append(s.Notes, fmt.Sprintf("%s stays as it is: %s", o.key.Correlation, o.why))
	}
}

// takeWork compares what comes out with what went out.
func (s *Summary) takeWork(o *built) {
	all, gone := o.everything(), len(o.emitted)
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

// exchangeAll puts what is to be changed in place, many keys at once, so that the
// engine commits them together. Those that took something in between being built
// and being exchanged are built again.
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

// roomEvery is how often a full outbox is looked at.
const roomEvery = 100 * time.Millisecond

// room waits until the outbox takes more, where this replay sends work.
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

// exchangeRound tries each key once, and tells which were not exchanged.
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
		err = first // what came after it follows from it
	}
	return left, err
}

// stillRuns looks whether a reload has taken away the version that is applied.
func (a *attempt) stillRuns() error {
	a.builder.versions.set = a.programs.Set()
	if pin := a.builder.pin(); pin != (saga.Pin{}) && !a.builder.versions.loaded(pin) {
		return edda.Classify(edda.Permanent, "version %d of saga %s does not run here any more: load its manifest and replay again", pin.Version, a.report.Saga)
	}
	return nil
}

// ready builds the key on top of all it has taken by now; nil where there is
// nothing left to exchange.
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

// put exchanges a key, unless it is another by now than the one that was built on.
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
	sent := a.builder.sent(o, o.everything())
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
