package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/hero"
	"edda/hero/redisdb"
)

// Bounds of a job's log in Redis. The runner's file has all lines.
const (
	logEvery = 500 * time.Millisecond
	// logLines bounds the lines in Redis, and those that wait to be written.
	logLines = hero.MaxLogs
	// logLine bounds one line, in bytes.
	logLine = 2 << 10
	// logFor is the expiry of the list.
	logFor = 7 * 24 * time.Hour
	// messageLines bounds the lines of one job in its message's log, because each append
	// writes that log anew.
	messageLines = 200
)

// LogKey is the list of a job's last lines, "<stream> <line>", oldest first.
func LogKey(job string) string { return "edda:log:" + job }

// logs writes a job's lines to Redis as they come, in batches.
type logs struct {
	l       *contextLoop
	w       redisdb.RunnerJob
	sent    int // lines in the message's log
	work    context.Context
	begun   sync.Once // starts run at the first line
	ended   chan struct{}
	writing sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	lines   []hero.Log
	dropped int
}

func (l *contextLoop) logs(work context.Context, w redisdb.RunnerJob) *logs {
	return &logs{l: l, w: w, work: work, ended: make(chan struct{})}
}

// line adds a line. It never waits for Redis.
func (g *logs) line(stream, text string) {
	g.begun.Do(func() { g.writing.Go(func() { g.run(g.work) }) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.lines) == logLines {
		g.lines = g.lines[1:]
		g.dropped++
	}
	if len(text) > logLine {
		text = text[:logLine]
	}
	g.lines = append(g.lines, hero.Log{Time: uint32(time.Now().Unix()), Level: levelOf(stream), Source: fmt.Sprint("runner ", g.l.r.id, streamOf, stream), Text: text})
}

// streamOf separates the runner and the stream in a line's source.
const streamOf = ", "

func levelOf(stream string) string {
	if stream == "stderr" {
		return "warn"
	}
	return "info"
}

// close waits until the remaining lines are written.
func (g *logs) close() {
	close(g.ended)
	g.writing.Wait()
}

func (g *logs) run(work context.Context) {
	tick := time.NewTicker(logEvery)
	defer tick.Stop()
	for more := true; more; {
		select {
		case <-tick.C:
		case <-g.ended:
			more = false
		}
		if err := g.flush(work); err != nil && work.Err() == nil {
			g.l.logging.Failed(err, zap.String("job", g.w.Key()))
		}
	}
}

// flush writes the collected lines. Lines that Redis does not take are only in the file.
func (g *logs) flush(ctx context.Context) error {
	g.mu.Lock()
	lines, dropped := g.lines, g.dropped
	g.lines, g.dropped = nil, 0
	g.mu.Unlock()
	if len(lines) == 0 {
		return nil
	}
	if dropped > 0 {
		lines[0].Text = fmt.Sprintf("(%d lines left out) %s", dropped, lines[0].Text)
	}
	err := errors.Join(g.toJob(ctx, lines), g.toMessage(ctx, lines))
	if err == nil {
		g.l.logging.Worked()
	}
	return err
}

func (g *logs) toJob(ctx context.Context, lines []hero.Log) error {
	words := make([]any, len(lines))
	for i, line := range lines {
		_, stream, _ := strings.Cut(line.Source, streamOf)
		words[i] = stream + " " + line.Text
	}
	key := LogKey(g.w.Key())
	p := g.l.Redis.TxPipeline()
	p.RPush(ctx, key, words...)
	p.LTrim(ctx, key, -logLines, -1)
	p.Expire(ctx, key, logFor)
	_, err := p.Exec(ctx)
	return err
}

// toMessage adds lines to the log of the job's message.
func (g *logs) toMessage(ctx context.Context, lines []hero.Log) error {
	if _, _, err := hero.ParseMessageKey(g.w.MessageKey); err != nil || g.sent >= messageLines {
		return nil
	}
	lines = lines[:min(len(lines), messageLines-g.sent)]
	g.sent += len(lines)
	err := g.l.DB.AppendLog(ctx, g.l.Context, g.w.MessageKey, lines...)
	if errors.Is(err, redisdb.ErrNotFound) || errors.Is(err, edda.Permanent) {
		return nil // the message was deleted or is broken
	}
	return err
}
