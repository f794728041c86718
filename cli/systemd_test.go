package cli

import (
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// manager is the end of systemd of a NOTIFY_SOCKET. Like systemd it reads at once: a full socket would stop the process.
type manager struct {
	path string
	told chan string // the states
}

func newManager(t *testing.T) manager {
	t.Helper()
	m := manager{filepath.Join(t.TempDir(), "notify"), make(chan string, 10_000)}
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			m.told <- string(buf[:n])
		}
	})
	t.Cleanup(func() {
		_ = c.Close()
		reading.Wait()
	})
	return m
}

// until returns the states up to the first one with a prefix.
func (m manager) until(t *testing.T, prefix string) string {
	t.Helper()
	var all []string
	for deadline := time.After(patience); ; {
		select {
		case state := <-m.told:
			if all = append(all, state); strings.HasPrefix(state, prefix) {
				return strings.Join(all, "\n")
			}
		case <-deadline:
			t.Fatalf("no %s; it was told %q", prefix, all)
		}
	}
}

func TestSystemdIsToldOfStartReloadAndStop(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"loan.yaml": loanSaga})
	m := newManager(t)
	a := startApartWith(t, nil, []string{"NOTIFY_SOCKET=" + m.path, "WATCHDOG_USEC=200000"}, dir, "--data", t.TempDir(), "--log", "info")
	if before := m.until(t, "READY=1"); strings.Contains(before, "STOPPING") {
		t.Errorf("before the start ended: %s", before)
	}
	m.until(t, "WATCHDOG=1")
	a.hangUp(t)
	if text := m.until(t, "RELOADING=1"); !strings.Contains(text, "MONOTONIC_USEC=") {
		t.Errorf("Type=notify-reload needs the time: %s", text)
	}
	if text := m.until(t, "READY=1"); !strings.HasSuffix(text, "STATUS=running") {
		t.Errorf("after the reload: %s", text)
	}
	write(t, filepath.Join(dir, "broken.yaml"), "saga: broken\n")
	a.hangUp(t)
	m.until(t, "RELOADING=1")
	if text := m.until(t, "READY=1"); !strings.Contains(text, "not taken in") {
		t.Errorf("after a refused reload: %s", text)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.until(t, "STOPPING=1")
	if err := a.lasting(t); err != nil {
		t.Errorf("the stop: %v\n%s", err, a.err)
	}
}
