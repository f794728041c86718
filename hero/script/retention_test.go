package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edda/internal/testkit"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// written creates a file that was last written that long ago.
func written(t *testing.T, folder, name string, ago time.Duration) {
	t.Helper()
	path := filepath.Join(folder, name)
	testkit.Must(t, os.WriteFile(path, []byte(name), 0o600))
	at := time.Now().Add(-ago)
	testkit.Must(t, os.Chtimes(path, at, at))
}

func namesIn(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	testkit.Must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestLogsOfJobsAreKeptForEver(t *testing.T) {
	const day = 24 * time.Hour
	ages := map[string]time.Duration{"a.log": 3 * day, "b.log": 2 * day, "c.log": time.Hour, "c.log.1": 40 * day, "d.log": 0, "e.log": time.Minute}
	for name, c := range map[string]struct {
		bounds LogBounds
		gone   string
	}{
		"by age":          {LogBounds{Files: -1, Age: 50 * time.Hour}, "[c.log.1 a.log]"},
		"by number":       {LogBounds{Files: 3, Age: -1}, "[c.log.1 a.log b.log]"},
		"by both":         {LogBounds{Files: 5, Age: 30 * time.Minute}, "[c.log.1 a.log b.log c.log]"},
		"without a bound": {LogBounds{Files: -1, Age: -1}, "[]"},
		"all of them":     {LogBounds{Files: 6, Age: 90 * day}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var names []string
			for file, ago := range ages {
				written(t, dir, file, ago)
				names = append(names, file)
			}
			root, err := os.OpenRoot(dir)
			testkit.Must(t, err)
			defer root.Close()
			removed, err := c.bounds.Prune(root, append(names, "never.log"), time.Now())
			if err != nil || fmt.Sprint(removed) != c.gone {
				t.Errorf("removed %v, want %s; %v", removed, c.gone, err)
			}
			if left := namesIn(t, dir); len(left) != len(ages)-len(removed) {
				t.Errorf("left %v", left)
			}
		})
	}
}

// An open log stays, however old. Everything that is not a regular file stays, too.
func TestALogThatIsWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	written(t, dir, "open.log", 90*time.Hour)
	written(t, dir, "target", 90*time.Hour)
	testkit.Must(t, os.Symlink("target", filepath.Join(dir, "link.log")))
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "folder.log"), 0o700))
	root, err := os.OpenRoot(dir)
	testkit.Must(t, err)
	defer root.Close()
	f, err := openFile(root, "open.log")
	testkit.Must(t, err)
	prune := func() []string {
		t.Helper()
		removed, err := LogBounds{Age: time.Hour}.Prune(root, []string{"open.log", "link.log", "folder.log"}, time.Now())
		testkit.Must(t, err)
		return removed
	}
	if removed := prune(); len(removed) > 0 {
		t.Errorf("removed %v", removed)
	}
	testkit.Must(t, f.Close())
	if removed := prune(); fmt.Sprint(removed) != "[open.log]" {
		t.Errorf("removed %v", removed)
	}
	if linked, err := openFile(root, "link.log"); err != nil || linked.Close() != nil {
		t.Error(err)
	}
}

// A flood of lines leaves as many rotated parts as are kept, and no more.
func TestALogHasMoreOlderPartsThanAreKept(t *testing.T) {
	t.Parallel()
	for parts, want := range map[int]string{3: "[job_x.log job_x.log.1 job_x.log.2 job_x.log.3]", -1: "[job_x.log]"} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			h := newHost(t, func(o *Options) { o.Limits.LogSize, o.Limits.LogRotations = 4000, parts })
			runPython(t, h, Script{ID: "job/x", Source: "for i in range(2000): print('line', i)"})
			if got := namesIn(t, filepath.Join(h.contextFolder(""), "logs")); fmt.Sprint(got) != want {
				t.Errorf("%v", got)
			}
			log, err := h.Log("", "job/x", 1<<20)
			if err != nil || !strings.HasSuffix(log, "line 1999\n") {
				t.Errorf("%d bytes, %v", len(log), err)
			}
		})
	}
}

// KeepLogs removes old logs of contexts without runs, and logs that it did.
func TestLogsOfAContextWhereNothingRunsAreKeptForEver(t *testing.T) {
	core, said := observer.New(zap.InfoLevel)
	h := newHost(t, func(o *Options) { o.Log, o.Limits.LogAge = zap.New(core), time.Hour })
	folder := filepath.Join(h.contextFolder("7"), "logs")
	testkit.Must(t, os.MkdirAll(folder, 0o700))
	written(t, folder, "old.log", 2*time.Hour)
	written(t, folder, "young.log", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.KeepLogs(ctx) }()
	for until := time.Now().Add(20 * time.Second); !slices.Equal(namesIn(t, folder), []string{"young.log"}); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("left %v", namesIn(t, folder))
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := said.FilterMessage("old logs of scripts removed").FilterField(zap.String("oldest", "old.log")).Len(); n != 1 {
		t.Errorf("said %d times: %v", n, said.All())
	}
}

func TestBoundsOfLogsThatMakeNoSenseAreTaken(t *testing.T) {
	for _, l := range []Limits{{LogAge: time.Second}, {LogRotations: MaxRotations + 1}} {
		if _, err := New(Options{Dir: t.TempDir(), Limits: l}); err == nil {
			t.Errorf("%+v", l)
		}
	}
}
