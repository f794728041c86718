package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// RotatedLog is an open log file. When it exceeds its bound it becomes <name>.1, that <name>.2,
// and so on. Its methods must not be called concurrently.
type RotatedLog struct {
	root   *os.Root
	name   string
	bounds LogBounds
	file   *os.File // nil after a rotation that failed
	size   int64
}

// OpenLog opens the log of that name in root for appending, and makes the folders above
// it. The log owns root: Close closes it, and so does OpenLog when it fails. Prune does
// not remove an open log.
func OpenLog(root *os.Root, name string, bounds LogBounds) (*RotatedLog, error) {
	l := &RotatedLog{root: root, name: name, bounds: bounds}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return l, nil
}

func (l *RotatedLog) open() error {
	if dir := filepath.Dir(l.name); dir != "." {
		if err := l.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	file, err := openFile(l.root, l.name)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.size = file, info.Size()
	return nil
}

// Write appends text. An error loses the text, and after a rotation that failed all that
// follows.
func (l *RotatedLog) Write(text string) error {
	if l.file != nil && over(l.size, l.bounds.Size) {
		err := errors.Join(l.file.Close(), l.bounds.Rotate(l.root, l.name))
		l.file = nil
		if err == nil {
			err = l.open()
		}
		if err != nil {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	if l.file == nil {
		return fmt.Errorf("write log: %w", os.ErrClosed)
	}
	n, err := io.WriteString(l.file, text)
	l.size += int64(n)
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}

// Close closes the log and its root.
func (l *RotatedLog) Close() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.root.Close())
}

// openFile opens a regular file for appending, and locks it against Prune.
func openFile(root *os.Root, name string) (*os.File, error) {
	for {
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no plain file", name)
		}
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if now, err := root.Stat(name); err == nil && os.SameFile(now, info) {
			return f, nil
		}
		_ = f.Close() // Prune removed it before the lock was held
	}
}

const (
	logSuffix = ".log"
	// maxName bounds the name of a log; ids are the callers'.
	maxName = 120
)

// logPath returns the path of an id's log.
func (h *Host) logPath(context, id string) string {
	return filepath.Join(h.contextFolder(context), "logs", logName(id)+logSuffix)
}

// logName turns an id into the name of a file.
func logName(id string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, id)
	if name == "" {
		return "unnamed"
	}
	return name[:min(len(name), maxName)]
}

// Log returns the end of an id's log: at most that many bytes, from the beginning of a
// line. It is empty for an id that never ran here.
func (h *Host) Log(context, id string, most int64) (string, error) {
	if context != "" && !contextName.MatchString(context) {
		return "", fmt.Errorf("%.40q cannot be a context's folder", context)
	}
	path := h.logPath(context, id)
	older, err := tail(PartOf(path, 1), most)
	if err != nil {
		return "", err
	}
	newer, err := tail(path, most)
	if err != nil {
		return "", err
	}
	text := older + newer
	if int64(len(text)) > most {
		_, text, _ = strings.Cut(text[int64(len(text))-most:], "\n")
	}
	return text, nil
}

// tail reads the end of a file; empty where there is no file.
func tail(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	from := max(0, info.Size()-most-1) // one more, to see whether a line begins there
	b, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return "", fmt.Errorf("read log: %w", err)
	}
	return string(b), nil
}

// keepLogsEvery is the interval between two checks of the age of all logs.
const keepLogsEvery = 10 * time.Minute

// KeepLogs prunes the logs of every context, now and every ten minutes, until ctx ends.
func (h *Host) KeepLogs(ctx context.Context) error {
	tick := time.NewTicker(keepLogsEvery)
	defer tick.Stop()
	for {
		if err := h.pruneAll(time.Now()); err != nil {
			h.options.Log.Warn("old logs of scripts were not removed", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (h *Host) pruneAll(now time.Time) error {
	folders, err := filepath.Glob(filepath.Join(h.options.Dir, "contexts", "*", "logs"))
	for _, folder := range folders {
		err = errors.Join(err, h.prune(folder, now))
	}
	return err
}

// prune removes logs of a folder by age and number, and logs that it did.
func (h *Host) prune(folder string, now time.Time) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	removed, err := h.options.Limits.logs().Prune(root, names, now)
	if len(removed) > 0 {
		h.options.Log.Info("old logs of scripts removed", zap.String("folder", folder), zap.Int("files", len(removed)), zap.String("oldest", removed[0]))
	}
	return err
}
