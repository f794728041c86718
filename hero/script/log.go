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
)

// logFile is the log of one id: what each of its runs wrote, with the time and
// the stream. When it is full it becomes <name>.1, and that <name>.2.
type logFile struct {
	root   *os.Root
	name   string
	bounds LogBounds
	f      *os.File
	size   int64
}

// openLog opens the log of that name in a folder.
func openLog(folder, name string, bounds LogBounds) (*logFile, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := &logFile{root: root, name: name, bounds: bounds}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return l, nil
}

func (l *logFile) open() error {
	f, err := OpenLog(l.root, l.name)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// line adds one.
func (l *logFile) line(stream, text string) error {
	n, err := fmt.Fprintf(l.f, "%s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, text)
	l.size += int64(n)
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	if !over(l.size, l.bounds.Size) {
		return nil
	}
	if err := errors.Join(l.f.Close(), l.bounds.Rotate(l.root, l.name)); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return l.open()
}

func (l *logFile) close() error { return errors.Join(l.f.Close(), l.root.Close()) }

const (
	logSuffix = ".log"
	// maxName bounds the name of a log; ids are the callers'.
	maxName = 120
)

// logPath is where the lines of an id go.
func (h *Host) logPath(context, id string) string {
	return filepath.Join(h.contextFolder(context), "logs", logName(id)+logSuffix)
}

// logName makes an id a file's name.
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

// Log is the end of what the runs of an id wrote: at most that many bytes, from
// the beginning of a line. An id that never ran here has none.
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
	return lastLines(older+newer, most), nil
}

func lastLines(text string, most int64) string {
	if int64(len(text)) <= most {
		return text
	}
	_, text, _ = strings.Cut(text[int64(len(text))-most:], "\n")
	return text
}

// tail is the end of a file, or nothing where there is none.
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

// keepLogsEvery is how often the age of all logs is looked at.
const keepLogsEvery = 10 * time.Minute

// KeepLogs removes what is too old or too much of the logs, now and at times, until ctx
// ends.
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

// pruneAll looks at the logs of every context.
func (h *Host) pruneAll(now time.Time) error {
	folders, err := filepath.Glob(filepath.Join(h.options.Dir, "contexts", "*", "logs"))
	for _, folder := range folders {
		err = errors.Join(err, h.prune(folder, now))
	}
	return err
}

// prune removes what is too old or too much of a folder of logs, and says so.
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

// crowded tells whether a folder has more logs than it may keep.
func (h *Host) crowded(folder string) (bool, error) {
	most := h.options.Limits.LogFiles
	if most <= 0 {
		return false, nil
	}
	entries, err := os.ReadDir(folder)
	return len(entries) > most, err
}
