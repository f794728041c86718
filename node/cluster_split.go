package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"edda"
	"edda/store"
)

// splitting ends the name of the folder that SplitCluster writes. The folder gets its real name when it is complete.
const splitting = ".splitting"

// unfinished returns the error of a folder that a split has not finished.
func unfinished(to string) error {
	return edda.Classify(edda.Permanent, "edda cluster split did not finish folder %s: when no split runs, remove %s and split again", to, to+splitting)
}

// splitDone refuses a data folder that a split has not finished. The folder itself is not there yet, and a new store
// would begin in it.
func (c Config) splitDone() error {
	data, err := filepath.Abs(c.Data)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	data = strings.TrimSuffix(data, splitting)
	if _, err := os.Stat(data + splitting); err != nil {
		return nil // no split writes it
	}
	return unfinished(data)
}

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
	if err := s.splitDone(); err != nil {
		return out, err
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
	partial := to + splitting
	// A folder that exists is never removed here, because another split may still write it. The folder above is not made,
	// because a power cut might take its name away, and the stores with it.
	if err := os.Mkdir(partial, 0o700); errors.Is(err, os.ErrExist) {
		return out, unfinished(to)
	} else if err != nil {
		return out, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	// gofail: var splitBegun struct{}
	for i, one := range from {
		halves := [2]string{}
		for half := range halves {
			halves[half] = filepath.Join(partial, shardFolder+strconv.Itoa(i+half*n), s.storeFolder())
		}
		if err := one.split(ctx, log, edda.Shard{Index: i, Of: n}, halves); err != nil {
			return out, err
		}
		// gofail: var splitStored struct{}
	}
	if err := syncFolders(partial); err != nil {
		return out, err
	}
	// gofail: var splitSynced struct{}
	if err := os.Rename(partial, to); err != nil {
		return out, err
	}
	// gofail: var splitRenamed struct{}
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
