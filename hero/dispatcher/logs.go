package dispatcher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"edda"
	"edda/hero/script"
)

const (
	// maxLogFile is when a job's log is rotated unless said: with one older part a flood
	// costs at most twice as much.
	maxLogFile = 16 << 20
	// maxLogRead bounds what Logs returns: the end is what one looks for.
	maxLogRead = 4 << 20
)

// logFolder is the only folder that log paths may lie in; empty for none.
type logFolder string

// within turns a job's log_path into a name within the folder.
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

// check refuses a path that could never be written; without a folder of its own
// a client leaves that to the worker, which has one.
func (f logFolder) check(path string) error {
	if path == "" || f == "" {
		return nil
	}
	_, err := f.within(path)
	return err
}

// read reads the end of a log.
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
	file, err := regular(root, name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return "", edda.Classify(edda.Permanent, "there is no log %s in %s yet: either the job has written nothing, or its worker keeps logs elsewhere", name, f)
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > maxLogRead {
		if _, err := file.Seek(-maxLogRead, io.SeekEnd); err != nil {
			return "", fmt.Errorf("read log %s: %w", name, err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, maxLogRead))
	if err != nil {
		return "", fmt.Errorf("read log %s: %w", name, err)
	}
	return string(text), nil
}

// regular opens a plain file. The root keeps links from leading out of the folder,
// and NONBLOCK keeps a pipe without a reader from blocking the worker.
func regular(root *os.Root, name string, how int) (*os.File, error) {
	file, err := root.OpenFile(name, how|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "log %s: %w", name, err)
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(edda.Classify(edda.Permanent, "log %s is no plain file", name), file.Close())
	}
	return file, nil
}

// jobLog is the open log of one running job. Its lines come from two streams.
type jobLog struct {
	root   *os.Root
	name   string
	bounds script.LogBounds

	mu   sync.Mutex // guards what follows
	file *os.File
	size int64
}

// open opens the log of a job for appending; nil where the job has none.
func (f logFolder) open(path string) (*jobLog, error) {
	if path == "" {
		return nil, nil
	}
	name, err := f.within(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, edda.Classify(edda.Permanent, "log folder: %w", err)
	}
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "log folder: %w", err)
	}
	l := &jobLog{root: root, name: name, bounds: logBounds(script.LogBounds{})}
	if err := l.reopen(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return l, nil
}

func (l *jobLog) reopen() error {
	if dir := filepath.Dir(l.name); dir != "." {
		if err := l.root.MkdirAll(dir, 0o700); err != nil {
			return edda.Classify(edda.Permanent, "log %s: %w", l.name, err)
		}
	}
	file, err := script.OpenLog(l.root, l.name)
	if err != nil {
		return edda.Classify(edda.Permanent, "log %s: %w", l.name, err)
	}
	l.file, l.size = file, 0
	if info, err := file.Stat(); err == nil {
		l.size = info.Size()
	}
	return nil
}

// Line appends a line. A log that cannot be written (a full disk) must not fail
// the job: the line is lost.
func (l *jobLog) Line(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bounds.Size > 0 && l.size > l.bounds.Size {
		l.rotate()
	}
	if l.file == nil {
		return
	}
	n, _ := io.WriteString(l.file, text+"\n")
	l.size += int64(n)
}

func (l *jobLog) rotate() {
	_ = l.file.Close()
	l.file = nil
	if l.bounds.Rotate(l.root, l.name) == nil {
		_ = l.reopen()
	}
}

// Close closes it; the scripts that write are gone by then.
func (l *jobLog) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	_ = l.root.Close()
}
