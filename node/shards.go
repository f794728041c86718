package node

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"edda"
	"edda/manifests"
	"edda/server"
	"edda/store"
	"edda/stream"
	"edda/stream/clusternodes"
)

// A cluster with several shards is several stores with a part of the keys each (ADR 0059). Each shard is what a cluster with
// one store is: it has a log, beats, an owner and copies of its own, and a folder in the data folder of each node. A node
// runs a stay of each shard, behind one server.

// shardFolder begins the names of the folders of shards.
const shardFolder = "shard-"

// ofShard are the settings for the store of one of several shards.
func (s Settings) ofShard(shard edda.Shard) Settings {
	if !shard.Whole() {
		s.share, s.Data = edda.Share{Cluster: s.Cluster.Name, Shard: shard}, filepath.Join(s.Data, shardFolder+strconv.Itoa(shard.Index))
	}
	return s
}

// shardFolders counts the folders of shards in the data folder, and returns the least number of shards that has them all; 0
// without any.
func (c Config) shardFolders() (there, of int, err error) {
	entries, err := os.ReadDir(c.Data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, fmt.Errorf("data folder: %w; choose another --data", err)
	}
	for _, e := range entries {
		i, err := strconv.Atoi(strings.TrimPrefix(e.Name(), shardFolder))
		if err == nil && i >= 0 && i < edda.MaxShards && e.Name() == shardFolder+strconv.Itoa(i) {
			there, of = there+1, max(of, 2, 1<<bits.Len(uint(i)))
		}
	}
	return there, of, nil
}

// assumedShards returns how many shards a node assumes until its cluster tells the number: that of the configuration, or
// else that of the folders in its data folder. A folder may be lost.
func (c Config) assumedShards() (int, error) {
	if c.Cluster.Shards > 0 {
		return c.Cluster.Shards, nil
	}
	_, of, err := c.shardFolders()
	return max(of, 1), err
}

// shardsIn is the number of shards whose stores are in the data folder; 0 for a folder without shards. Some of them alone are
// an error.
func (c Config) shardsIn() (int, error) {
	there, of, err := c.shardFolders()
	if err == nil && there != of {
		return 0, edda.Classify(edda.Permanent, "folder %s has the folders of %d shards, and must have all of a cluster: %s0 and so on, a power of two", c.Data, there, shardFolder)
	}
	return of, err
}

// noShards refuses the folder of several shards to a process that is alone: it would begin a new store beside them.
func (c Config) noShards() error {
	if store.Exists(c.storeDir()) {
		return nil
	}
	n, err := c.shardsIn()
	if err != nil || n == 0 {
		return err
	}
	return edda.Classify(edda.Permanent, "folder %s has the stores of %d shards: name their cluster with --cluster, or one of its folders with --data", c.Data, n)
}

// logName names the log of the store.
func (s Settings) logName() string { return fmt.Sprintf("%s_%d", s.Cluster.Name, s.share.Index) }

// commandShard has the instances whose commands the worker takes. Workers that share their ledger share the commands.
func (s Settings) commandShard() edda.Shard {
	if s.ledger() == ledgerShared {
		return edda.Shard{}
	}
	return s.share.Shard
}

// shardsError says that a cluster has another number of shards than this node has assumed.
type shardsError struct {
	cluster   string
	has, told int
}

func (e *shardsError) Error() string {
	return fmt.Sprintf("cluster %s has %d shards, and this node was told %d: the number is fixed when a cluster is founded, so leave cluster.shards (--shards) out",
		e.cluster, e.has, e.told)
}

// fits returns a shardsError if the cluster has another number of shards.
func (s Settings) fits(a clusternodes.Agreed) error {
	if has, told := max(a.Shards, 1), max(s.share.Of, 1); has != told {
		return edda.Classify(edda.Permanent, "%w", &shardsError{s.Cluster.Name, has, told})
	}
	return nil
}

// beginsWith returns where the shards of this cluster begin to read a stream. They begin one after the other, and events that
// come meanwhile are for all of them. nil for every other store.
func (p *process) beginsWith(js jetstream.JetStream) stream.Agree {
	if p.stay == nil || p.settings.share.Whole() {
		return nil
	}
	return func(ctx context.Context, now edda.Checkpoint) (edda.Checkpoint, error) {
		return clusternodes.Begin(ctx, js, p.settings.Cluster.Name, now)
	}
}

// streamsOf is the store for which this process creates streams: for several shards that of the first one. Empty in a
// process without sagas, which creates none.
func (p *process) streamsOf(ctx context.Context, js jetstream.JetStream) (string, error) {
	switch {
	case !p.settings.sagas():
		return "", nil
	case p.stay == nil || p.settings.share.Whole():
		return p.db.ID(), nil
	}
	first, _, err := clusternodes.AgreedOn(ctx, js, p.settings.Cluster.Name)
	return first.Store, err
}

// runCluster runs a node with as many shards as its cluster has. A node that has assumed another number learns the real one
// from the first shard that it joins. It copies a shard whose folder it has lost, as a new node does.
func runCluster(ctx context.Context, s Settings, h Hooks, sup *systemd) error {
	n, err := s.assumedShards()
	if err != nil {
		return err
	}
	for {
		run := runNode
		if n > 1 {
			run = func(ctx context.Context, s Settings, h Hooks, sup *systemd) error {
				return runShards(ctx, s, n, h, sup)
			}
		}
		err := run(ctx, s, h, sup)
		var other *shardsError
		if !errors.As(err, &other) || s.Cluster.Shards > 0 {
			return err
		}
		n = other.has
		h.Log.Info("the cluster has several shards", zap.Int("shards", n))
	}
}

// runShards runs the stays of all shards and their front. The end of one ends the node.
func runShards(ctx context.Context, s Settings, n int, h Hooks, sup *systemd) error {
	if store.Exists(s.storeDir()) {
		return configf("folder %s has a store with all keys, and the cluster has %d shards: name an empty --data", s.storeDir(), n)
	}
	for i := n - 1; i >= 0; i-- { // whatever a crash leaves of them says the same number
		if err := os.MkdirAll(s.ofShard(edda.Shard{Index: i, Of: n}).Data, 0o750); err != nil {
			return fmt.Errorf("data folder: %w; choose another --data", err)
		}
	}
	f, err := newFront(s, n, h.Log)
	if err != nil {
		return err
	}
	return runBehind(ctx, f, s, n, h, sup)
}

// runBehind runs the stays of all shards behind a front that listens. Its end ends them, too.
func runBehind(ctx context.Context, f *front, s Settings, n int, h Hooks, sup *systemd) error {
	nodes := make([]*clusterNode, n)
	g, running := errgroup.WithContext(ctx)
	defer context.AfterFunc(running, func() { tellEnd(sup, context.Cause(running)) })()
	for i, part := range newSystemdParts(sup, n) {
		hooks := h
		hooks.Log = h.Log.With(zap.Int("shard", i))
		if i > 0 {
			hooks.Problems = func(p manifests.Problems) { // the first shard shows warnings
				if p.Failed() {
					h.Problems(p)
				}
			}
		}
		settings := s.ofShard(edda.Shard{Index: i, Of: n})
		settings.front = f
		nodes[i] = newClusterNode(settings, hooks, part)
		g.Go(func() error {
			if err := nodes[i].run(running); err != nil {
				return fmt.Errorf("shard %d: %w", i, err)
			}
			return errShardEnded
		})
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var front sync.WaitGroup
	failed := make(chan error, 1)
	front.Go(func() { failed <- f.run(serving) }) // it answers while the shards stop
	g.Go(func() error {
		select {
		case <-running.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("server of all shards: %w", err)
		}
	})
	g.Go(func() error { return spread(running, nodes, h.Log) })
	err := g.Wait()
	stop()
	front.Wait()
	if errors.Is(err, errShardEnded) {
		return nil
	}
	return err
}

// tellEnd tells systemd that this node ends for a cause. It does not where the number of shards was wrong: the node goes on
// with another one, if it may.
func tellEnd(sup *systemd, cause error) {
	var other *shardsError
	if !errors.As(cause, &other) {
		sup.stopping()
	}
}

// errShardEnded ends the other shards of a node when one has ended in order, as after a drain.
var errShardEnded = errors.New("a shard of this node has ended")

// front is the server of a node with several shards, and what it knows of callers. The servers of the shards know callers
// by the same files, so a reload of one shard is one of the node.
type front struct {
	server *server.Front
	guards guards
	log    *zap.Logger
	tested testedRevision // by the shards of this node
}

// shared is the server that the servers of shards stand behind; nil for a process with one store.
func (f *front) shared() *server.Front {
	if f == nil {
		return nil
	}
	return f.server
}

// newFront makes the front and binds its addresses.
func newFront(s Settings, shards int, log *zap.Logger) (*front, error) {
	g, err := s.openGuards(log)
	if err != nil {
		return nil, &ConfigError{err}
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildGauge(s.Build))
	f, err := server.NewFront(server.Options{
		Addr: s.Addr, ProbeAddr: s.ProbeAddr, Build: s.Build, Log: log, Metrics: metrics, Register: metrics,
		Tokens: g.tokens, Certificates: g.certificates, TLSEnds: s.TLS.Elsewhere,
		Tenant: s.tenant(), NoTenancy: !s.Tenancy.Enabled,
	}, shards)
	if err != nil {
		return nil, &ConfigError{s.callersVariable(err)}
	}
	if err := s.listen(f.Server); err != nil {
		return nil, err
	}
	log.Info("listening", zap.String("addr", f.Addr()), zap.String("probe_addr", f.ProbeAddr()), zap.Int("shards", shards))
	return &front{server: f, guards: g, log: log}, nil
}

// run serves until ctx ends, and reads the files of callers again at a SIGHUP, also while all shards start again.
func (f *front) run(ctx context.Context) error {
	hungUp, release := hangups()
	defer release()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.server.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hungUp:
				if err := f.guards.reload(); err != nil {
					f.log.Error("reload the files of callers", zap.Error(err))
				}
			}
		}
	})
	return g.Wait()
}
