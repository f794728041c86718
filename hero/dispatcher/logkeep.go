package dispatcher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero/script"
)

const (
	// logIndex is the folder, in that of the logs, that has a file for each log that a
	// worker wrote, with its name. Nothing else in the folder of logs is ever removed:
	// the folder may hold files of others.
	logIndex = ".edda-logs"
	// keepLogsEvery is how often the age of the logs is looked at.
	keepLogsEvery = 10 * time.Minute
)

// logBounds fills the defaults of a worker.
func logBounds(b script.LogBounds) script.LogBounds {
	return script.LogBounds{
		Size: cmp.Or(b.Size, maxLogFile), Rotations: cmp.Or(b.Rotations, script.DefaultLogRotations),
		Files: cmp.Or(b.Files, script.DefaultLogFiles), Age: cmp.Or(b.Age, script.DefaultLogAge),
	}
}

// logKeeper opens the logs of a worker's jobs and bounds them by number and age. Several
// processes may share a folder.
type logKeeper struct {
	folder logFolder
	bounds script.LogBounds
	log    *zap.Logger
	now    func() time.Time
}

func newLogKeeper(dir string, b script.LogBounds, log *zap.Logger) *logKeeper {
	return &logKeeper{folder: logFolder(dir), bounds: logBounds(b), log: log, now: time.Now}
}

// open opens the log of a job, and notes that it is ours; nil where the job has none.
func (k *logKeeper) open(path string) (*jobLog, error) {
	l, err := k.folder.open(path)
	if l == nil || err != nil {
		return l, err
	}
	l.bounds = k.bounds
	fresh, err := note(l.root, l.name)
	if err != nil {
		l.Close()
		return nil, edda.Classify(edda.Permanent, "note log %s: %w", l.name, err)
	}
	if fresh && k.crowded() {
		k.keep()
	}
	return l, nil
}

// note writes down that the log is ours; it tells whether that is new.
func note(root *os.Root, name string) (fresh bool, err error) {
	if err := root.Mkdir(logIndex, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	sum := sha256.Sum256([]byte(name))
	at := filepath.Join(logIndex, hex.EncodeToString(sum[:16]))
	if info, err := root.Lstat(at); err == nil && info.Size() == int64(len(name)) {
		return false, nil
	}
	return true, root.WriteFile(at, []byte(name), 0o600)
}

// crowded tells whether there are more logs than may be kept.
func (k *logKeeper) crowded() bool {
	entries, err := os.ReadDir(filepath.Join(string(k.folder), logIndex))
	return err == nil && k.bounds.Files > 0 && len(entries) > k.bounds.Files
}

// run keeps the bounds, now and at times, until ctx ends.
func (k *logKeeper) run(ctx context.Context) {
	tick := time.NewTicker(keepLogsEvery)
	defer tick.Stop()
	for {
		k.keep()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keep removes what is too old or too much, and says so.
func (k *logKeeper) keep() {
	removed, err := k.prune()
	if len(removed) > 0 {
		k.log.Info("old logs of jobs removed", zap.String("folder", string(k.folder)), zap.Int("files", len(removed)), zap.String("oldest", removed[0]))
	}
	if err != nil {
		k.log.Warn("old logs of jobs were not removed", zap.String("folder", string(k.folder)), zap.Error(err))
	}
}

func (k *logKeeper) prune() (removed []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(k.folder), logIndex))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no job wrote one
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(string(k.folder))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var names []string
	parts := map[string][]string{} // by the file that notes them
	for _, e := range entries {
		at := filepath.Join(logIndex, e.Name())
		text, err := root.ReadFile(at)
		if err != nil {
			continue // another process forgot it
		}
		name, err := k.folder.within(string(text))
		if err != nil {
			continue // no worker of ours wrote that
		}
		parts[at] = partsOf(root, name)
		names = append(names, parts[at]...)
	}
	removed, err = k.bounds.Prune(root, names, k.now())
	for at, all := range parts {
		if len(all) == 0 || !someThere(root, all) {
			err = errors.Join(err, ignored(root.Remove(at)))
		}
	}
	return removed, err
}

// partsOf are the log and its older parts that are there.
func partsOf(root *os.Root, name string) (out []string) {
	for n := range script.MaxRotations + 1 {
		part := script.PartOf(name, n)
		if _, err := root.Lstat(part); err == nil {
			out = append(out, part)
		} else if n > 0 {
			break
		}
	}
	return out
}

func someThere(root *os.Root, names []string) bool {
	for _, name := range names {
		if _, err := root.Lstat(name); err == nil {
			return true
		}
	}
	return false
}

// ignored is nil for a file that another process removed.
func ignored(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
