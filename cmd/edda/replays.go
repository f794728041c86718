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
func (p *process) replays(l *line) *replay.Replayer {
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
	return replayDoor{p}
}

// replayDoor is open once there is a line.
type replayDoor struct{ p *process }

func (d replayDoor) Begin(ctx context.Context, q replay.Request) (replay.Report, error) {
	l := d.p.line.Load()
	if l == nil || l.replayer == nil {
		return replay.Report{}, errNoLine
	}
	return l.replayer.Begin(ctx, q)
}

func (d replayDoor) Reports() ([]replay.Report, error) {
	l := d.p.line.Load()
	if l == nil || l.replayer == nil {
		return nil, errNoLine
	}
	return l.replayer.Reports()
}
