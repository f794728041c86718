package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/engine"
	"edda/manifests"
	"edda/outbox"
	"edda/saga"
	"edda/server"
	"edda/store"
	"edda/stream"
)

// beginning is the change that starts the sagas that the store has not seen.
type beginning struct {
	begun     *[]store.Beginning   // nil: no saga starts
	deployed  *store.Deployment    // nil: no revision comes with the sagas
	schedules []edda.ScheduleState // of a revision, that the store has not seen
	positions []store.SagaPosition // of the sagas that catch up
	said      []string             // texts about the sagas that catch up
}

// begin finds where the new sagas of a set begin:
//   - In a store without checkpoints they begin where reading begins.
//   - In a store of an earlier Edda version, which has no list, all have begun.
//   - Otherwise a saga with from: all catches up from the first stored message.
func (p *process) begin(ctx context.Context, l *pipeline, set *saga.Set, held []edda.Checkpoint) (b beginning, err error) {
	list, known, err := p.db.Begun()
	if err != nil {
		return b, fmt.Errorf("read which sagas have begun: %w", err)
	}
	now := time.Now().UTC()
	var all []stream.StreamStart
	for _, name := range unseen(set, list) {
		program := set.Newest(name)
		one := store.Beginning{Saga: name, Time: now}
		switch {
		case len(held) == 0:
			one.From = string(p.from())
		case known:
			one.From = program.Manifest().From
		}
		if one.From == string(stream.FromAll) && len(held) > 0 {
			if all == nil {
				if all, err = stream.Beginnings(ctx, l.js, l.codec); err != nil {
					return b, err
				}
			}
			one.At = b.behind(name, all)
		}
		list = append(list, one)
		b.begun = &list
	}
	if !known && b.begun == nil {
		b.begun = &list // record that the list is complete
	}
	return b, nil
}

// unseen lists the sagas of a set that are not in the list.
func unseen(set *saga.Set, list []store.Beginning) (names []string) {
	for _, program := range set.Programs() {
		name := program.Saga()
		if !slices.Contains(names, name) && !slices.ContainsFunc(list, func(b store.Beginning) bool { return b.Saga == name }) {
			names = append(names, name)
		}
	}
	return names
}

// behind sets the positions of a saga to the start of all streams, and returns them.
func (b *beginning) behind(name string, all []stream.StreamStart) (at []edda.Checkpoint) {
	var from []string
	for _, s := range all {
		at = append(at, s.Checkpoint)
		b.positions = append(b.positions, store.SagaPosition{Tenant: engine.AllTenants, Saga: name, Checkpoint: s.Checkpoint})
		if s.Messages > 0 {
			from = append(from, fmt.Sprintf("message %d of %s (%d messages)", s.Seq+1, s.Stream, s.Messages))
		}
	}
	if len(from) > 0 {
		b.said = append(b.said, fmt.Sprintf("saga %s: will be caught up from %s", name, strings.Join(from, " and ")))
	}
	return at
}

// change is the commit that must be durable before the sagas begin.
func (b *beginning) change() store.Change {
	return store.Change{Begun: b.begun, Positions: b.positions, Deployed: b.deployed, Schedules: b.schedules}
}

// problems returns the texts as warnings, because effects are called for old events.
func (b *beginning) problems() (out manifests.Problems) {
	for _, text := range b.said {
		out = append(out, manifests.Problem{Warning: true, Message: text})
	}
	return out
}

// tell logs the texts.
func (b *beginning) tell(log *zap.Logger) {
	for _, text := range b.said {
		log.Info(text)
	}
}

// catchesUp warns about each saga with from: all: a later addition catches up.
func (l loaded) catchesUp() (out manifests.Problems) {
	for _, m := range l.sagas() {
		if m.From == string(stream.FromAll) {
			out = append(out, manifests.Problem{File: m.File, Pos: m.Pos, Warning: true, Message: fmt.Sprintf(
				"saga %s has from: all: added to a process that has read its streams already, it is caught up from the first message that is stored, and its effects are called for old events", m.Name.Text)})
		}
	}
	return out
}

// catchingUp returns how the engine reads the backlog of sagas that are behind.
func (p *process) catchingUp(l *pipeline) engine.CatchUpOptions {
	return engine.CatchUpOptions{
		Streams: stream.EventStreams(l.codec), After: p.afterRestore(l),
		Open: func(ctx context.Context, pair engine.SagaTenant, from []edda.Checkpoint) (engine.Past, error) {
			if p.loadedSagas.Load().Newest(pair.Saga) == nil {
				return nil, edda.Classify(edda.Permanent, "saga %s is not loaded: it goes on where it was once it is", pair.Saga)
			}
			p.serving.RLock()
			tenants := p.tenants
			p.serving.RUnlock()
			past, err := stream.OpenCatchUp(ctx, l.js, pair, from, stream.SourceOptions{
				Codec: l.codec, Name: p.db.ID(), Tenants: tenants, Fence: l.fences.pass, Log: p.log.Named("catch-up"),
			})
			if err != nil {
				return nil, err
			}
			return past, nil
		},
	}
}

// destinations are those of the outbox's lanes.
func destinations(lanes []outbox.Route) (all []engine.DestinationKinds) {
	for _, l := range lanes {
		all = append(all, engine.DestinationKinds{Name: l.Name, Kinds: l.Kinds})
	}
	return all
}

// SagasBehind lists the sagas of a tenant that are behind the streams; of all tenants for
// [engine.AllTenants].
func (p *process) SagasBehind(tenant string) []server.SagaBehind {
	l := p.pipeline.Load()
	if l == nil || l.engine == nil {
		return nil
	}
	behind := l.engine.Info().Behind
	if len(behind) == 0 {
		return nil
	}
	begun, _, err := p.db.Begun()
	if err != nil {
		p.log.Warn("read where sagas have begun", zap.Error(err))
	}
	var out []server.SagaBehind
	for _, b := range behind {
		if tenant != engine.AllTenants && b.Tenant != tenant && b.Tenant != engine.AllTenants {
			continue
		}
		out = append(out, server.SagaBehind{
			Tenant: b.Tenant, Saga: b.Saga, Done: passed(b, begun), Left: b.Left, Paused: b.Paused, Problem: b.Problem,
		})
	}
	return out
}

// passed counts the messages that a saga has passed since it began, or since this process
// found it behind.
func passed(b engine.Behind, begun []store.Beginning) (n uint64) {
	from := b.From
	if i := slices.IndexFunc(begun, func(one store.Beginning) bool { return one.Saga == b.Saga && len(one.At) > 0 }); i >= 0 && b.Tenant == engine.AllTenants {
		from = begun[i].At
	}
	for _, at := range b.Done {
		for _, was := range from {
			if was.Stream == at.Stream && at.Seq > was.Seq {
				n += at.Seq - was.Seq
			}
		}
	}
	return n
}
