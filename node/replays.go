package node

import (
	"context"

	"edda"
	"edda/node/versions"
	"edda/replay"
	"edda/saga"
	"edda/server"
	"edda/stream"
)

// replays makes the replayer. The engine exchanges instances; the replayer reads the
// streams through a reader of its own.
func (p *process) replays(l *pipeline) *replay.Replayer {
	return replay.New(p.db, l.engine, stream.NewPast(l.js, l.codec), usedPrograms{p}, replay.Options{
		Log: p.log.Named("replay"), Registry: p.metrics, Shard: p.settings.share.Shard, Room: func() bool {
			rows, _ := p.db.OutboxSize() // rows of all destinations, because a replay can wait
			return rows < p.settings.Outbox.Max
		},
	})
}

// usedPrograms gives the replayer the running sagas and the stored texts.
type usedPrograms struct{ p *process }

func (u usedPrograms) Set() *saga.Set {
	u.p.reloading.Lock()
	defer u.p.reloading.Unlock()
	return u.p.set
}

func (u usedPrograms) Kept() ([]edda.Manifest, error)                 { return u.p.db.Manifests() }
func (u usedPrograms) Compile(m edda.Manifest) (*saga.Program, error) { return versions.Recompile(m) }

// replaysServed returns the replays of the server; nil without sagas.
func (p *process) replaysServed() server.Replays {
	if !p.settings.sagas() {
		return nil
	}
	return replayEndpoint{p}
}

// replayEndpoint serves replays. It refuses calls until the pipeline is set.
type replayEndpoint struct{ p *process }

func (e replayEndpoint) Begin(ctx context.Context, q replay.Request) (replay.Report, error) {
	l := e.p.pipeline.Load()
	if l == nil || l.replayer == nil {
		return replay.Report{}, errNoPipeline
	}
	return l.replayer.Begin(ctx, q)
}

func (e replayEndpoint) Reports() ([]replay.Report, error) {
	l := e.p.pipeline.Load()
	if l == nil || l.replayer == nil {
		return nil, errNoPipeline
	}
	return l.replayer.Reports()
}
