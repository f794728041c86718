package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"

	"edda"
	"edda/store"
	"edda/stream/carry"
	"edda/stream/kv"
	"edda/stream/wire"
)

// The store of edda dev knows its place in the streams of the NATS server in its folder. Both go into a cluster and come
// back together: the streams are copied with the numbers of their messages, so each event is handled once.

// devStreams is the folder of the streams of edda dev.
func (c Config) devStreams() string { return filepath.Join(c.Data, "nats") }

func (c Config) hasDevStreams() bool {
	info, err := os.Stat(c.devStreams())
	return err == nil && info.IsDir()
}

// MockedMark is the file in a data folder of edda dev whose effects --mock has answered.
const MockedMark = "mocked"

// mayTakeFolder refuses a data folder whose store would begin a cluster with invented results, or without its streams.
func (c Config) mayTakeFolder(withStreams bool) error {
	if _, err := os.Stat(filepath.Join(c.Data, MockedMark)); err == nil {
		return edda.Classify(edda.Permanent, "the effects in %s were answered by edda dev --mock, so its instances have invented results: begin the cluster with another folder", c.Data)
	}
	if c.hasDevStreams() && !withStreams {
		return edda.Classify(edda.Permanent, "this is a folder of edda dev: add --from-dev, which copies its streams; if the store does not use them, move %s away", c.devStreams())
	}
	return nil
}

// InitClusterFromDev is [InitCluster] with the folder of an edda dev that has stopped. It copies its streams to the
// NATS of the cluster.
func InitClusterFromDev(ctx context.Context, s Settings, log *zap.Logger) (b ClusterBegun, err error) {
	if err := s.mayTakeFolder(true); err != nil {
		return b, err
	}
	if !s.hasDevStreams() {
		return b, edda.Classify(edda.Permanent, "folder %s has no streams of edda dev: name the folder that edda dev --data had (.edda by default)", s.Data)
	}
	if err := withStay(ctx, s, log, func(t *stay) error { return t.mayInit(ctx) }); err != nil {
		return b, err
	}
	if err := s.betweenServers(ctx, log, true); err != nil {
		return b, err
	}
	return initStores(ctx, s, log)
}

// betweenServers copies the streams of the store from the server in the data folder to the configured one, or back, and
// notes in the store that these are its streams from now on.
func (s Settings) betweenServers(ctx context.Context, log *zap.Logger, out bool) error {
	return s.withStore(ctx, func(db *store.DB) error {
		if err := s.allSent(db); err != nil {
			return err
		}
		inside, err := kv.StartEmbedded(ctx, kv.EmbeddedOptions{Dir: s.devStreams(), MaxPayload: devPayload, Log: log.Named("nats")})
		if err != nil {
			return err
		}
		defer inside.Close()
		own, from, err := kv.Connect(kv.Connection{Server: inside.Server(), Log: log.Named("nats")})
		if err != nil {
			return err
		}
		defer hangUp(own)
		c := s.Connection().FromEnv(s.Env)
		c.Log = log.Named("nats")
		other, to, err := kv.Connect(c)
		if err != nil {
			return err
		}
		defer hangUp(other)
		var names []string
		replicas := leastReplicas
		if out {
			names, err = everyStream(ctx, from)
		} else {
			names, err = storeStreams(ctx, db, to)
			from, to, replicas = to, from, 1
		}
		if err != nil {
			return err
		}
		created := map[string]time.Time{}
		for _, name := range names {
			info, err := carry.Stream(ctx, from, to, carry.Options{Stream: name, Replicas: replicas})
			if err != nil {
				return err
			}
			created[name] = info.Created
			log.Info("the stream is copied", zap.String("stream", name), zap.Uint64("messages", info.State.Msgs))
		}
		return adoptStreams(ctx, db, created)
	})
}

// allSent refuses a store with work that may have been sent. The new server does not compare ids with those of copied
// messages, so nothing may be published again.
func (s Settings) allSent(db *store.DB) error {
	if n := db.Outboxed(s.published()...) - db.Outboxed(edda.WorkEffect); n > 0 {
		return edda.Classify(edda.Permanent, "the outbox has %d rows of work that may have been sent: start the process again, and stop it in order (Ctrl-C, SIGTERM) when they are out", n)
	}
	return nil
}

// withStore opens the store in the data folder for a command. No process may hold it.
func (s Settings) withStore(ctx context.Context, do func(*store.DB) error) error {
	o, err := s.StoreOptions()
	if err != nil {
		return err
	}
	db, err := store.Open(s.storeDir(), o)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- db.Run(running) }()
	err = do(db)
	stop()
	return errors.Join(err, <-ended, db.Close())
}

// everyStream lists the streams of a server, but for the bucket of leases: that of a process which has stopped.
func everyStream(ctx context.Context, js jetstream.JetStream) (names []string, err error) {
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		if name != "KV_"+kv.LeaseBucket {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, list.Err()
}

// storeStreams lists the streams that a store knows, and those of every process, as far as they are there.
func storeStreams(ctx context.Context, db *store.DB, js jetstream.JetStream) (names []string, err error) {
	held, err := db.Checkpoints()
	if err != nil {
		return nil, err
	}
	own, err := db.Positions()
	if err != nil {
		return nil, err
	}
	wanted := []string{wire.AggregateEvents, wire.WorkflowEvents, wire.WorkflowCommands, "KV_" + kv.OwnersBucket}
	for _, c := range held {
		wanted = append(wanted, c.Stream)
	}
	for _, p := range own {
		wanted = append(wanted, p.Stream)
	}
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		_, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return nil, fmt.Errorf("look at stream %s: %w", name, err)
		default:
			names = append(names, name)
		}
	}
	return names, nil
}

// adoptStreams notes when the streams of a store were created, by which it recognises them.
func adoptStreams(ctx context.Context, db *store.DB, created map[string]time.Time) error {
	held, err := db.Checkpoints()
	if err != nil {
		return err
	}
	own, err := db.Positions()
	if err != nil {
		return err
	}
	c := store.Change{Checkpoints: held, Positions: own}
	for i := range held {
		if at, ok := created[held[i].Stream]; ok {
			held[i].Created = at
		}
	}
	for i := range own {
		if at, ok := created[own[i].Stream]; ok {
			own[i].Created = at
		}
	}
	names := slices.Sorted(maps.Keys(created))
	c.Audits = []store.Audit{{Time: time.Now().UTC(), By: "edda", Verb: "carry", Detail: "the streams were copied to another NATS: " + strings.Join(names, ", ")}}
	if err := db.Commit(ctx, c); err != nil {
		return fmt.Errorf("note the streams in the store: %w", err)
	}
	return nil
}
