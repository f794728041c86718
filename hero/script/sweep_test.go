package script

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"edda/internal/testkit"
)

// asRunner makes the test binary a runner of one script, which the test kills.
const asRunner = "EDDA_TEST_RUNNER_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asRunner); dir != "" {
		h, err := New(Options{Dir: dir})
		if err == nil {
			_, err = h.Run(context.Background(), Script{ID: "x", Type: "python", Context: "7", Env: map[string]string{"PIDS": os.Getenv("PIDS")},
				Source: escape + "leave(True); leave(False)\nopen(os.environ['PIDS'] + '.all', 'w').write(str(os.getpid())); time.sleep(300)"})
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // the tests mostly wait for processes
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestProcessesOfAKilledRunnerAreSwept(t *testing.T) {
	h := newHost(t, nil)
	file := filepath.Join(t.TempDir(), "pids")
	runner := exec.Command(os.Args[0])
	runner.Env = append(os.Environ(), asRunner+"="+h.options.Dir, "PIDS="+file)
	runner.Stderr = os.Stderr
	testkit.Must(t, runner.Start())
	t.Cleanup(func() { _ = runner.Process.Kill(); _ = runner.Wait() })
	testkit.Until(t, 20*time.Second, "the script has left its processes", func() bool {
		b, err := os.ReadFile(file + ".all")
		return err == nil && len(b) > 0
	})
	strays, leader := pidsIn(t, file), pidsIn(t, file+".all")
	if n, err := h.Sweep(); n != 0 || err != nil || !alive(leader[0]) || !alive(strays[0]) {
		t.Fatalf("the run of a runner that lives: swept %d, %v", n, err)
	}
	testkit.Must(t, runner.Process.Kill())
	_ = runner.Wait()
	testkit.Until(t, 20*time.Second, "the interpreter ended with its runner", func() bool { return !alive(leader[0]) })
	if len(strays) != 2 || !alive(strays[0]) || !alive(strays[1]) {
		t.Fatalf("of %v some ended by themselves", strays)
	}
	if n, err := h.Sweep(); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if slices.ContainsFunc(strays, alive) {
		t.Errorf("of %v some live", strays)
	}
	if n, err := h.Sweep(); n != 0 || err != nil {
		t.Errorf("swept again %d, %v", n, err)
	}
}

func TestSweepOfClaimsThatCannotBeRead(t *testing.T) {
	h := newHost(t, nil)
	tests := []struct {
		name, note string
		age        time.Duration
		stays      bool
		wrong      bool
	}{
		{"just begun", "", 0, true, false},
		{"never written", "", 2 * emptyFor, false, false},
		{"of somebody else", `{"mark": 18014398509481984, "folder": "/etc"}`, 0, true, true},
		{"without a mark", `{"folder": "` + h.options.Dir + `/contexts/7/runs/run-1"}`, 0, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(h.options.Dir, "claims", "run-1")
			testkit.Must(t, os.WriteFile(path, []byte(tt.note), 0o600))
			defer os.Remove(path)
			testkit.Must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-tt.age)))
			n, err := h.Sweep()
			_, gone := os.Stat(path)
			if n != 0 || (err != nil) != tt.wrong || (gone == nil) != tt.stays {
				t.Errorf("%d, %v, %v", n, err, gone)
			}
		})
	}
}
