package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// splitting is the end of the name of a folder that does not have all halves yet.
const splitting = ".splitting"

// ClusterSplit is what came of a split.
type ClusterSplit struct {
	Shards int    `json:"shards"`
	Data   string `json:"data"` // the folder of their stores
}

// SplitCluster writes the stores of twice as many shards into a new folder. The stores in the data folder stay as they are.
// They must have left their cluster, so that they are the newest and nothing writes them any more.
func SplitCluster(ctx context.Context, s Settings, log *zap.Logger, to string) (out ClusterSplit, err error) {
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		return out, edda.Classify(edda.Permanent, "folder %s is there already: name a new one for the stores", to)
	}
	n, err := s.shardsIn()
	if err != nil {
		return out, err
	}
	var from []Settings
	n = max(n, 1)
	for i := range n {
		from = append(from, s.ofShard(edda.Shard{Index: i, Of: n}))
	}
	to = filepath.Clean(to)
	whole := to + splitting
	if err := os.RemoveAll(whole); err != nil { // of a command that was cut off
		return out, err
	}
	for i, one := range from {
		halves := [2]string{}
		for half := range halves {
			halves[half] = filepath.Join(whole, shardFolder+strconv.Itoa(i+half*n), s.storeFolder())
		}
		if err := one.split(ctx, log, edda.Shard{Index: i, Of: n}, halves); err != nil {
			return out, errors.Join(err, os.RemoveAll(whole))
		}
	}
	if err := syncFolders(whole); err != nil {
		return out, err
	}
	if err := os.Rename(whole, to); err != nil {
		return out, err
	}
	return ClusterSplit{2 * n, to}, store.SyncDir(filepath.Dir(to))
}

// syncFolders makes the names in a folder and in those below it durable.
func syncFolders(top string) error {
	return filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return store.SyncDir(path)
	})
}

// split writes the two halves of a store.
func (s Settings) split(ctx context.Context, log *zap.Logger, is edda.Shard, to [2]string) error {
	if err := ownStore(s.storeDir()); err != nil {
		return err
	}
	if !store.Exists(s.storeDir()) {
		return edda.Classify(edda.Permanent, "there is no store in %s", s.storeDir())
	}
	return s.withStore(ctx, func(db *store.DB) error {
		restored, err := db.Restored()
		has := db.Share()
		switch {
		case err != nil:
			return err
		case restored:
			return edda.Classify(edda.Permanent, "the store in folder %s was restored and has not caught up with its streams: run it alone until its log says that it has", s.storeDir())
		case has.Whole() != is.Whole() || !is.Whole() && has.Shard != is:
			return edda.Classify(edda.Permanent, "the store in folder %s has %s: the folders must have all shards, each under its number", s.storeDir(), has)
		case has.Whole() && s.Cluster.Name == "":
			return edda.Classify(edda.Permanent, "name the cluster of the shards with --cluster")
		}
		log.Info("splitting a store", zap.String("folder", s.storeDir()))
		if err := db.Split(ctx, s.Cluster.Name, to, func(rows int) { log.Info("splitting a store", zap.Int("rows", rows)) }); err != nil {
			return fmt.Errorf("split the store in %s: %w", s.storeDir(), err)
		}
		return nil
	})
}
