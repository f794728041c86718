package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"edda"
)

// replicatedName is a file beside a store that is one of several copies. It says whose.
const replicatedName = FileName + ".replicated"

// ReplicatedOf returns what [MarkReplicated] wrote beside the store in a folder; nil if the store is no copy.
func ReplicatedOf(dir string) (of []byte, err error) {
	of, err = os.ReadFile(filepath.Join(dir, replicatedName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look whether the store is one of several copies: %w", err)
	}
	return of, nil
}

// MarkReplicated marks the store in a folder as one of several copies, until another is restored there.
func MarkReplicated(dir string, of []byte) error {
	path := filepath.Join(dir, replicatedName)
	err := markFile(dir, replicatedName+".new", of)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err == nil {
		err = SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("note that the store is one of several copies: %w", err)
	}
	return nil
}

// UnmarkReplicated makes the store in a folder one of its own.
func UnmarkReplicated(dir string) error {
	if err := os.Remove(filepath.Join(dir, replicatedName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that the store is no copy: %w", err)
	}
	return SyncDir(dir)
}

// Replicated returns an error if the store in a folder is one of several copies. A process that writes to it without
// shipping parts it from the other copies, and its node must copy the whole store anew.
func Replicated(dir string) error {
	of, err := ReplicatedOf(dir)
	if err != nil || of == nil {
		return err
	}
	return edda.Classify(edda.Permanent, "%s is one of the copies that a cluster keeps, and the others would lack what is written here: ask the node "+
		"that owns it with --addr, or take it out with edda cluster leave if the cluster has ended", filepath.Join(dir, FileName))
}
