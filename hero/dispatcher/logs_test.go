package dispatcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/hero/script"
	"edda/internal/testkit"
)

func TestLogPathsStayInTheFolder(t *testing.T) {
	dir, secret := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	testkit.Must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for name, to := range map[string]string{"link": secret, "up": "..", "relative": "../" + filepath.Base(filepath.Dir(secret)) + "/secret"} {
		testkit.Must(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	testkit.Must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	f, k := logFolder(dir), newLogKeeper(dir, script.LogBounds{}, zap.NewNop())
	for _, path := range []string{
		"../x", "a/../../x", secret, "/etc/passwd", dir, dir + "/../x", ".", "", "link", "relative", "up/x", "pipe", "folder", "a\x00b", dir + "x/y",
	} {
		if l, err := k.open(path); path != "" && err == nil {
			t.Errorf("%q was opened: %+v", path, l)
		}
		if text, err := f.read(path); err == nil {
			t.Errorf("%q was read: %q", path, text)
		}
	}
	if text, _ := os.ReadFile(secret); string(text) != "secret" {
		t.Errorf("the secret is %q now", text)
	}
	for _, path := range []string{"a.log", "deep/er/b.log", filepath.Join(dir, "abs.log")} {
		l, err := k.open(path)
		testkit.Must(t, err)
		l.Line("one")
		l.Line("two")
		l.Close()
		if text, err := f.read(path); text != "one\ntwo\n" || err != nil {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if _, err := newLogKeeper("", script.LogBounds{}, zap.NewNop()).open("a.log"); err == nil || !strings.Contains(err.Error(), "--log-dir") {
		t.Errorf("without a folder: %v", err)
	}
	if _, err := f.read("never.log"); err == nil || !strings.Contains(err.Error(), "no log never.log") {
		t.Errorf("one that is not there: %v", err)
	}
}

func TestALogIsRotated(t *testing.T) {
	dir := t.TempDir()
	l, err := newLogKeeper(dir, script.LogBounds{}, zap.NewNop()).open("flood.log")
	testkit.Must(t, err)
	line := strings.Repeat("x", 1<<20)
	for range 40 {
		l.Line(line)
	}
	l.Close()
	entries, _ := os.ReadDir(dir)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == logIndex })
	var size int64
	for _, e := range entries {
		info, _ := e.Info()
		size += info.Size()
	}
	if len(entries) != 2 || size > 2*(maxLogFile+2<<20) || size < maxLogFile {
		t.Errorf("%d files of %d bytes", len(entries), size)
	}
	if text, err := logFolder(dir).read("flood.log.1"); err != nil || len(text) != maxLogRead {
		t.Errorf("read %d bytes, %v", len(text), err)
	}
}

func TestAJobWritesItsLog(t *testing.T) {
	dir := t.TempDir()
	b := newBench(t, Options{LogDir: dir})
	b.work("w", func(_ context.Context, _ Job, line func(string)) JobResult {
		line("hello")
		return JobResult{OK: true}
	}, WorkerOptions{LogDir: dir})
	j := b.dispatch(Job{LogPath: "x/y.log"})
	b.ended(j.ID)
	if text, err := b.client.Logs(b.ctx, j.ID); text != "hello\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	b.db.HSet(b.ctx, "hero:job:evil", "worker_id", "w", "script", "x", "status", "dispatched", "log_path", "../../etc/x", "retries", "3")
	b.db.LPush(b.ctx, "hero:work_queue:w", "evil")
	if got := b.ended("evil"); !strings.HasPrefix(got, "error invalid: log_path") {
		t.Error(got)
	}
	if _, err := b.client.Logs(b.ctx, "evil"); err == nil {
		t.Error("a log outside the folder is read")
	}
	none := b.dispatch(Job{})
	if _, err := b.client.Logs(b.ctx, none.ID); err == nil || !strings.Contains(err.Error(), "no log_path") {
		t.Error(err)
	}
}

// Logs of a worker's jobs are removed by number and by age. Other files in the folder stay.
func TestLogsOfAWorkersJobsAreKeptForEver(t *testing.T) {
	core, said := observer.New(zap.InfoLevel)
	dir := t.TempDir()
	k := newLogKeeper(dir, script.LogBounds{Size: 100, Rotations: 2, Files: 4, Age: time.Hour}, zap.New(core))
	write := func(name string, ago time.Duration, lines int) {
		t.Helper()
		l, err := k.open(name)
		testkit.Must(t, err)
		for range lines {
			l.Line(strings.Repeat("x", 60))
		}
		l.Close()
		for n := range 3 {
			at := time.Now().Add(-ago)
			_ = os.Chtimes(filepath.Join(dir, script.PartOf(name, n)), at, at.Add(-time.Duration(n)*time.Second)) // fails for missing parts
		}
	}
	there := func(want ...string) {
		t.Helper()
		var got []string
		_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, _ error) error {
			if name, _ := filepath.Rel(dir, path); !e.IsDir() && !strings.HasPrefix(name, logIndex) {
				got = append(got, name)
			}
			return nil
		})
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	theirs := filepath.Join(dir, "theirs.log")
	testkit.Must(t, os.WriteFile(theirs, nil, 0o600))
	testkit.Must(t, os.Chtimes(theirs, time.Unix(1, 0), time.Unix(1, 0)))
	write("old.log", 2*time.Hour, 1)
	write("deep/flood.log", 30*time.Minute, 9)
	write("young.log", time.Minute, 1)
	there("theirs.log", "old.log", "deep/flood.log", "deep/flood.log.1", "deep/flood.log.2", "young.log")
	k.keep()
	there("theirs.log", "deep/flood.log", "deep/flood.log.1", "deep/flood.log.2", "young.log")
	for i := range 5 { // the fifth name is more than four
		write(fmt.Sprint(i), time.Duration(10-i)*time.Second, 1)
	}
	k.keep()
	there("theirs.log", "1", "2", "3", "4")
	k.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	k.keep()
	there("theirs.log")
	if entries, err := os.ReadDir(filepath.Join(dir, logIndex)); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if n := said.FilterMessage("old logs of jobs removed").Len(); n < 3 {
		t.Errorf("said %v", said.All())
	}
	if _, err := k.open(logIndex + "/x"); err == nil {
		t.Error("a job writes where the logs are noted")
	}
}

// A job that begins a log over the bound prunes at once, not at the next interval.
func TestAFloodOfLogsWaitsForTheNextLook(t *testing.T) {
	dir := t.TempDir()
	k := newLogKeeper(dir, script.LogBounds{Files: 10}, zap.NewNop())
	for i := range 50 {
		l, err := k.open(fmt.Sprint(i))
		testkit.Must(t, err)
		l.Close()
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 12 {
		t.Errorf("%d files, %v", len(entries), err)
	}
}
