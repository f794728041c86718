package dispatcher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero/script"
)

const (
	// maxLogFile is the default size at which a log is rotated. With one older part a log
	// takes at most twice as much.
	maxLogFile = 16 << 20
	// maxLogRead bounds what Logs returns: the end of the log.
	maxLogRead = 4 << 20
	// logIndex is a folder in the folder of logs. It has one file, with a log's name, for
	// each log that a worker wrote. Prune removes no other file, because the folder of
	// logs may hold files of other programs.
	logIndex = ".edda-logs"
	// keepLogsEvery is the interval between two removals of old logs.
	keepLogsEvery = 10 * time.Minute
)

// logFolder is the folder that contains all logs; empty means that there are no logs.
type logFolder string

// within turns a job's log_path into a name relative to the folder. A path outside the
// folder is an error.
func (f logFolder) within(path string) (string, error) {
	if f == "" {
		return "", edda.Classify(edda.Permanent, "log_path %q: there is no log folder here: name one with --log-dir", bounded(path))
	}
	if strings.ContainsRune(path, 0) {
		return "", edda.Classify(edda.Permanent, "log_path %q holds a zero byte", bounded(path))
	}
	name := path
	if filepath.IsAbs(path) {
		folder, err := filepath.Abs(string(f))
		if err != nil {
			return "", fmt.Errorf("log folder %s: %w", f, err)
		}
		if name, err = filepath.Rel(folder, path); err != nil {
			return "", outside(path, f)
		}
	}
	if name = filepath.Clean(name); !filepath.IsLocal(name) || name == "." {
		return "", outside(path, f)
	}
	if first, _, _ := strings.Cut(name, string(filepath.Separator)); first == logIndex {
		return "", edda.Classify(edda.Permanent, "log_path %q lies in %s, where the worker notes which logs it wrote", bounded(path), logIndex)
	}
	return name, nil
}

func outside(path string, f logFolder) error {
	return edda.Classify(edda.Permanent, "log_path %q does not lie in the log folder %s", bounded(path), f)
}

// check refuses a path that no worker can write. A client without a log folder does not
// check: its worker does.
func (f logFolder) check(path string) error {
	if path == "" || f == "" {
		return nil
	}
	_, err := f.within(path)
	return err
}

// read returns the last maxLogRead bytes of a log.
func (f logFolder) read(path string) (string, error) {
	name, err := f.within(path)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return "", edda.Classify(edda.Permanent, "log folder %s: %w: name the worker's with --log-dir", f, err)
	}
	defer root.Close()
	// The root keeps links from leading out of the folder. NONBLOCK keeps a pipe without a
	// writer from blocking.
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", edda.Classify(edda.Permanent, "there is no log %s in %s yet: either the job has written nothing, or its worker keeps logs elsewhere", name, f)
	}
	if err != nil {
		return "", edda.Classify(edda.Permanent, "log %s: %w", name, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return "", edda.Classify(edda.Permanent, "log %s is no plain file", name)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-maxLogRead), maxLogRead))
	}
	if err != nil {
		return "", fmt.Errorf("read log %s: %w", name, err)
	}
	return string(text), nil
}

// jobLog is the open log of one running job. Its methods may be called concurrently: a
// script writes two streams. A nil jobLog writes nothing.
type jobLog struct {
	mu  sync.Mutex // guards log
	log *script.RotatedLog
}

// Line appends a line. A log that cannot be written (a full disk) loses the line; the job
// goes on.
func (l *jobLog) Line(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.log.Write(text + "\n")
}

// Close closes the log, after the last Line.
func (l *jobLog) Close() {
	if l != nil {
		_ = l.log.Close()
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
	b = script.LogBounds{
		Size: cmp.Or(b.Size, maxLogFile), Rotations: cmp.Or(b.Rotations, script.DefaultLogRotations),
		Files: cmp.Or(b.Files, script.DefaultLogFiles), Age: cmp.Or(b.Age, script.DefaultLogAge),
	}
	return &logKeeper{folder: logFolder(dir), bounds: b, log: log, now: time.Now}
}

// open opens the log of a job for appending and notes that a worker wrote it. A job
// without a log_path has none: nil.
func (k *logKeeper) open(path string) (*jobLog, error) {
	if path == "" {
		return nil, nil
	}
	name, err := k.folder.within(path)
	if err != nil {
		return nil, err
	}
	err = os.MkdirAll(string(k.folder), 0o700)
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(string(k.folder))
	}
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "log folder: %w", err)
	}
	log, err := script.OpenLog(root, name, k.bounds)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "log %s: %w", name, err)
	}
	fresh, err := note(root, name)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "note log %s: %w", name, errors.Join(err, log.Close()))
	}
	if fresh && k.bounds.Files > 0 {
		if entries, err := os.ReadDir(filepath.Join(string(k.folder), logIndex)); err == nil && len(entries) > k.bounds.Files {
			k.keep()
		}
	}
	return &jobLog{log: log}, nil
}

// note adds the log to the index; fresh reports that it was not there.
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

// run removes old logs at once and at intervals, until ctx ends.
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

// keep removes logs that are too old or too many, and logs what it removed.
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
		return nil, nil // no job wrote a log
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
	logs := map[string]string{} // by their file in the index
	for _, e := range entries {
		at := filepath.Join(logIndex, e.Name())
		text, err := root.ReadFile(at)
		if err != nil {
			continue // another process removed it from the index
		}
		name, err := k.folder.within(string(text))
		if err != nil {
			continue // no worker of Edda wrote that entry
		}
		logs[at] = name
		names = append(names, partsOf(root, name)...)
	}
	removed, err = k.bounds.Prune(root, names, k.now())
	for at, name := range logs {
		if len(partsOf(root, name)) > 0 {
			continue
		}
		if failed := root.Remove(at); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return removed, err
}

// partsOf lists the existing files of a log: the log and its older parts.
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
