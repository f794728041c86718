package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/harness"
	"edda/stream"
	"edda/stream/kv"
)

// alone is W4.
func (r *run) alone() error { return r.backlog("W4", "events from a full stream", 0) }

// crowded is W5.
func (r *run) crowded() error {
	return r.backlog("W5", fmt.Sprintf("%d others in the file", r.Others), r.Others)
}

// backlog starts the server on a stream that is full of events, and measures it
// until their commands are in their stream.
func (r *run) backlog(name, phase string, others int) (err error) {
	dir, err := r.folder(name)
	if err != nil {
		return err
	}
	s, err := r.newServer(dir, "one.yaml")
	if err != nil {
		return err
	}
	if others > 0 {
		if err := r.crowd(filepath.Join(s.Data, "store"), !r.chosen("W6")); err != nil {
			return err
		}
	}
	waiting, err := r.publishEvents(filepath.Join(s.Data, "nats"))
	if err != nil {
		return err
	}
	if err := s.StartReady(r.ctx, startFor); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	res, err := r.work(s, name, phase, others)
	if err != nil {
		return errors.Join(err, tail(s))
	}
	res.traffic.Waiting, res.traffic.WaitBytes = waiting.Messages, waiting.Bytes
	r.add(res)
	if err := r.writing(res); err != nil {
		return err
	}
	if others == 0 {
		r.uncrowded = res.Rate
	} else if r.uncrowded > 0 {
		res.floor("W4, without the others", r.uncrowded, nil)
	}
	return nil
}

// publishEvents fills the streams of a server that does not run yet: an event for
// each of as many keys, in no order, which lie between those of other instances.
func (r *run) publishEvents(dir string) (t traffic, err error) {
	e, err := kv.StartEmbedded(r.ctx, kv.EmbeddedOptions{Dir: dir})
	if err != nil {
		return t, err
	}
	defer e.Close()
	nc, js, err := kv.Connect(kv.Connection{Server: e.Server()})
	if err != nil {
		return t, err
	}
	defer nc.Close()
	if _, err := stream.EnsureStreams(r.ctx, js, stream.StreamOptions{}); err != nil {
		return t, err
	}
	shuffled := rand.New(rand.NewPCG(1, 2)).Perm(r.Events)
	for _, i := range shuffled {
		key := fmt.Sprintf("%sE%d", otherKey(i*max(r.Others/r.Events, 1)), i)
		if err := harness.Publish(js, "Order", key, "OrderPlaced", order(key, false)); err != nil {
			return t, err
		}
	}
	if err := harness.Stored(r.ctx, js); err != nil {
		return t, err
	}
	return streams(r.ctx, js), nil
}

// work measures the server from when it is ready, and the rate from the first
// command to the last by the times at which the server stored them.
func (r *run) work(s *server, name, phase string, others int) (*Result, error) {
	m, err := r.measure(s, nil, name)
	if err != nil {
		return nil, err
	}
	c, err := harness.Connect(s.NATS)
	if err != nil {
		return nil, m.drop(err)
	}
	defer c.Close()
	before := commandsIn(r.ctx, c.JS)
	if err := r.allCommands(c.JS); err != nil {
		return nil, m.drop(err)
	}
	costs, err := m.end(max(r.Events-before, 1))
	if err != nil {
		return nil, err
	}
	if err := s.settled(r.ctx, r.Events+others, "one", "running"); err != nil {
		return nil, err
	}
	after, err := s.Counters(r.ctx)
	if err != nil {
		return nil, err
	}
	costs.count(r.Events, nil, after) // since the start: some was done before it was ready
	res := &Result{Workload: name, Phase: phase, Unit: "events", Count: r.Events, Costs: costs}
	res.Rate, res.traffic, err = commandRate(r.ctx, c.JS, r.Events)
	return res, err
}

func commandsIn(ctx context.Context, js jetstream.JetStream) int {
	s, err := js.Stream(ctx, commandStream)
	if err != nil {
		return 0
	}
	return int(s.CachedInfo().State.Msgs)
}

const commandStream = "WORKFLOW_COMMANDS"

// allCommands waits until every event's command is in the stream.
func (r *run) allCommands(js jetstream.JetStream) error {
	most, last := 0, time.Now()
	return harness.Poll(r.ctx, fmt.Sprintf("%d commands to be published", r.Events), func() error {
		n := commandsIn(r.ctx, js)
		if n > most {
			most, last = n, time.Now()
		}
		if n >= r.Events {
			return nil
		}
		err := fmt.Errorf("%d are", n)
		if time.Since(last) > idleFor {
			return harness.Fatal(err)
		}
		return err
	})
}

// commandRate is how many commands were stored in a second; they must be n, each
// for a key of its own.
func commandRate(ctx context.Context, js jetstream.JetStream, n int) (float64, traffic, error) {
	s, err := js.Stream(ctx, commandStream)
	if err != nil {
		return 0, traffic{}, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter("tenant.default.command.>"))
	if err != nil {
		return 0, traffic{}, err
	}
	state := info.State
	if err := onceEach(state.Subjects, n); err != nil {
		return 0, traffic{}, err
	}
	first, err := s.GetMsg(ctx, state.FirstSeq)
	if err != nil {
		return 0, traffic{}, err
	}
	last, err := s.GetMsg(ctx, state.LastSeq)
	if err != nil {
		return 0, traffic{}, err
	}
	return perSecond(int(state.Msgs)-1, last.Time.Sub(first.Time)), traffic{Messages: int(state.Msgs), Bytes: int(state.Bytes)}, nil
}

// onceEach returns an error unless there are n subjects with one message each. A
// command's subject ends with its aggregate's id, which is the event's key.
func onceEach(subjects map[string]uint64, n int) error {
	again := 0
	for _, times := range subjects {
		if times != 1 {
			again++
		}
	}
	if len(subjects) != n || again > 0 {
		return fmt.Errorf("commands were sent for %d keys, for %d of them more than once; want one for each of %d", len(subjects), again, n)
	}
	return nil
}
