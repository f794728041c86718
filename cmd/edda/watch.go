package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must be left alone before they are read: editors
// write a file in several steps.
const settle = 200 * time.Millisecond

// watch calls changed after manifests at the paths changed, until ctx ends.
func watch(ctx context.Context, paths []string, changed func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch manifests: %w", err)
	}
	defer w.Close()
	for _, p := range paths {
		if err := watchFolders(w, p); err != nil {
			return fmt.Errorf("watch %s: %w", p, err)
		}
	}
	quiet := time.NewTimer(settle)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.Events:
			if manifestFile(e.Name) && !e.Op.Has(fsnotify.Chmod) {
				quiet.Reset(settle)
			}
		case err := <-w.Errors:
			return fmt.Errorf("watch manifests: %w", err)
		case <-quiet.C:
			changed()
		}
	}
}

func manifestFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// watchFolders watches the folder of a file, since editors replace files; of a
// folder also those in it.
func watchFolders(w *fsnotify.Watcher, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return w.Add(filepath.Dir(path))
	}
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name != path && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		return w.Add(name)
	})
}
