package main

import (
	"context"

	"edda"
	"edda/replay"
	"edda/saga"
	"edda/server"
	"edda/stream"
)

// replays builds what replays: the engine exchanges, the streams are read beside it.
func (p *process) replays(l *pipeline) *replay.Replayer {
	return replay.New(p.db, l.engine, stream.NewPast(l.js, l.codec), usedPrograms{p}, replay.Options{
		Log: p.log.Named("replay"), Registry: p.metrics, Room: func() bool {
			rows, _ := p.db.OutboxSize() // of all destinations: a replay is in no hurry
			return rows < p.settings.Outbox.Max
		},
	})
}

// usedPrograms are the sagas that run and those that are kept.
type usedPrograms struct{ p *process }

func (u usedPrograms) Set() *saga.Set {
	u.p.reloading.Lock()
	defer u.p.reloading.Unlock()
	return u.p.set
}

func (u usedPrograms) Kept() ([]edda.Manifest, error)                 { return u.p.db.Manifests() }
func (u usedPrograms) Compile(m edda.Manifest) (*saga.Program, error) { return recompile(m) }

// replaysServed is what the server reaches replays by; nil where there are no sagas.
func (p *process) replaysServed() server.Replays {
	if !p.settings.sagas() {
		return nil
	}
	return replayEndpoint{p}
}

// replayEndpoint is open once there is a line.
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
