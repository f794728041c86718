package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentEnv makes the test binary a parent that starts a subprocess and waits.
const parentEnv = "EDDA_CHILD_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "" {
		os.Exit(m.Run())
	}
	p := New("the child", os.DevNull, func() *exec.Cmd { return exec.Command("/bin/sh", "-c", "while :; do sleep 0.05; done") })
	if err := p.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(p.PID())
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// A killed demo leaves no process behind, and a killed test none that it has frozen.
func TestAChildEndsWithTheParentThatIsKilled(t *testing.T) {
	t.Run("running", func(t *testing.T) { endsWithItsParent(t, syscall.SIGCONT) })
	t.Run("frozen", func(t *testing.T) { endsWithItsParent(t, syscall.SIGSTOP) })
}

// endsWithItsParent sends a signal to a child before its parent is killed.
func endsWithItsParent(t *testing.T, before syscall.Signal) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil || !runs(pid) {
		t.Fatalf("child %d: %v", pid, err)
	}
	if err := errors.Join(syscall.Kill(pid, before), parent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Poll(ctx, "the child to end", func() error {
		if runs(pid) {
			return errors.New("it runs")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// runs tells whether a process exists and is no zombie, because its parent may reap
// it late.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
