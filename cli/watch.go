package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long files must stay unchanged before they are read, because editors write a
// file in several steps.
const settle = 200 * time.Millisecond

// watch watches manifests for changes from its creation on. run also reports changes that
// happened before it.
type watch struct {
	notify *fsnotify.Watcher
	failed error // why it cannot watch; run returns it
}

func newWatch(paths []string) *watch {
	n, err := fsnotify.NewWatcher()
	if err != nil {
		return &watch{failed: fmt.Errorf("watch manifests: %w", err)}
	}
	w := &watch{notify: n}
	for _, p := range paths {
		if err := watchFolders(n, p); err != nil {
			w.failed = errors.Join(w.failed, fmt.Errorf("watch %s: %w", p, err))
		}
	}
	return w
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close() // it was only used for reading
	}
}

// run calls changed after manifests changed, until ctx ends.
func (w *watch) run(ctx context.Context, changed func()) error {
	if w.failed != nil {
		return w.failed
	}
	quiet := time.NewTimer(settle)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.notify.Events:
			if manifestFile(e.Name) && !e.Op.Has(fsnotify.Chmod) {
				quiet.Reset(settle)
			}
		case err := <-w.notify.Errors:
			return fmt.Errorf("watch manifests: %w", err)
		case <-quiet.C:
			changed()
		}
	}
}

func manifestFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// watchFolders watches the folder of a file, because editors replace files. For a folder it
// also watches the subfolders.
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
