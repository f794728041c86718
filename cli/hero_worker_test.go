package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda/internal/realservers"
)

// heroWorkerAt runs edda hero worker until the test ends, and returns the Redis that it
// is at and the address of its metrics.
func heroWorkerAt(t *testing.T, flags ...string) (redis, metrics string) {
	t.Helper()
	server, err := realservers.Redis(realservers.RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	metrics = l.Addr().String()
	_ = l.Close()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	term := &terminal{in: strings.NewReader(""), out: &out, err: &errs, env: []string{"HOME=" + t.TempDir()}}
	args := append([]string{"hero", "worker", "--worker", "w", "--redis-addr", server.Address(), "--interpreter", "/usr/bin/python3 -",
		"--log-dir", t.TempDir(), "--dir", t.TempDir(), "--metrics", metrics}, flags...)
	go func() { ended <- term.run(ctx, args) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the worker's exit code is %d: %s", code, errs.String())
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server.Address(), metrics
}

// job runs a script by the worker and returns all that its client says.
func job(t *testing.T, redis, script string, flags ...string) string {
	t.Helper()
	var out bytes.Buffer
	term := &terminal{in: strings.NewReader(""), out: &out, err: &out, env: []string{"HOME=" + t.TempDir()}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	term.run(ctx, append([]string{"hero", "job", "run", "--worker", "w", "--redis-addr", redis, "--log-dir", t.TempDir(), "--script", script}, flags...))
	return out.String()
}

func TestTheDispatchersWorkerHasTheSandboxAndTheLimitsOfTheRunner(t *testing.T) {
	flags := []string{"--memory", "67108864", "--output", "1000", "--secrets", "CITY"}
	if os.Geteuid() == 0 {
		flags = append(flags, "--sandbox")
	}
	redis, metrics := heroWorkerAt(t, flags...)
	if said := job(t, redis, "x = bytearray(100 << 20); x[::4096] = b'x' * (100 << 8)\nimport time; time.sleep(5)"); !strings.Contains(said, "memory limit") {
		t.Errorf("of memory: %s", said)
	}
	if said := job(t, redis, "print('x' * 5000)"); !strings.Contains(said, "output limit") {
		t.Errorf("of output: %s", said)
	}
	if said := job(t, redis, "import os; print('in', os.environ['CITY'])", "--env", "CITY=Ghent"); !strings.Contains(said, "in ***") {
		t.Errorf("secrets: %s", said)
	}
	if said := job(t, redis, "import os; print(os.getuid())"); os.Geteuid() == 0 && strings.TrimSpace(said) != "65534" {
		t.Errorf("the sandbox: %s", said)
	}
	r, err := http.Get("http://" + metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines", "edda_hero_dispatcher_jobs_completed_total", "edda_http_connections"} {
		if !strings.Contains(string(page), "\n"+name) {
			t.Errorf("%s is not on the page of metrics: %v", name, err)
		}
	}
}

func TestTheDispatchersWorkerRefusesNegativeBounds(t *testing.T) {
	for _, flag := range []string{"--memory=-1", "--cpu=-1s", "--disk=-1", "--processes=-1", "--output=-1"} {
		var out bytes.Buffer
		term := &terminal{in: strings.NewReader(""), out: &out, err: &out, env: []string{"HOME=" + t.TempDir()}}
		if code := term.run(t.Context(), []string{"hero", "worker", "--worker", "w", flag}); code == 0 || !strings.Contains(out.String(), "not negative") {
			t.Errorf("%s: %d %s", flag, code, out.String())
		}
	}
}

// The logs of a worker's jobs are bounded as its flags say, in both of its folders.
func TestTheLogsOfAWorkersJobsGrowForEver(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	redis, _ := heroWorkerAt(t, "--log-dir", logs, "--dir", dir, "--log-files", "2", "--log-size", "100", "--log-rotations", "-1")
	for i := range 8 {
		if said := job(t, redis, "for i in range(20): print('line', i)", "--id", fmt.Sprint("job-", i), "--log", fmt.Sprint(i, ".log")); !strings.Contains(said, "line 19") {
			t.Fatalf("job %d: %s", i, said)
		}
	}
	for pattern, most := range map[string]int{filepath.Join(logs, "*.log*"): 3, filepath.Join(dir, "contexts", "none", "logs", "*"): 3} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 || len(files) > most {
			t.Errorf("%s: %q, %v", pattern, files, err)
		}
		for _, f := range files {
			if info, err := os.Stat(f); err != nil || info.Size() > 200 || strings.HasSuffix(f, ".1") {
				t.Errorf("%s: %v, %v", f, info, err)
			}
		}
	}
	for _, flags := range [][]string{{"--log-age", "1s"}, {"--log-rotations", "101"}} {
		var out bytes.Buffer
		term := &terminal{in: strings.NewReader(""), out: &out, err: &out, env: []string{"HOME=" + t.TempDir()}}
		if code := term.run(t.Context(), append([]string{"hero", "worker", "--worker", "w", "--redis-addr", redis}, flags...)); code != 2 || !strings.Contains(out.String(), "log ") {
			t.Errorf("%v: exit code %d: %s", flags, code, out.String())
		}
	}
}
