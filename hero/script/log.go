package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// logFile is the log of one id: what each of its runs wrote, with the time and
// the stream. When it is full it becomes <name>.1, in the place of an older one.
type logFile struct {
	path string
	most int64
	f    *os.File
	size int64
}

func openLog(path string, most int64) (*logFile, error) {
	l := &logFile{path: path, most: most}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
	if !over(l.size, l.most) {
		return nil
	}
	if err := errors.Join(l.f.Close(), os.Rename(l.path, l.path+rotated)); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	return l.open()
}

func (l *logFile) close() error { return l.f.Close() }

const (
	logSuffix = ".log"
	rotated   = ".1"
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
	older, err := tail(path+rotated, most)
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

// prune removes a context's oldest logs, where there are too many.
func prune(folder string, most int) error {
	entries, err := os.ReadDir(folder)
	if err != nil || most <= 0 || len(entries) <= most {
		return err
	}
	type aged struct {
		name string
		at   time.Time
	}
	var all []aged
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			all = append(all, aged{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return a.at.Compare(b.at) })
	for _, old := range all[:max(0, len(all)-most)] {
		if err := os.Remove(filepath.Join(folder, old.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
