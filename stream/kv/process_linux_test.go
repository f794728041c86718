package kv

import (
	"bufio"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// TestAProcessIsAliveUntilItHasEnded: a running process, a zombie, and one that was reaped.
func TestAProcessIsAliveUntilItHasEnded(t *testing.T) {
	me := thisProcess()
	if me == (processID{}) || !me.alive() {
		t.Fatalf("this process does not live: %+v", me)
	}
	other := me
	other.Started--
	if other.alive() {
		t.Error("a process that had this one's number before lives")
	}
	cmd := exec.Command("/bin/sh", "-c", "echo; read line")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	started, _, err := startOf(strconv.Itoa(cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	its := processID{Boot: me.Boot, Space: me.Space, PID: cmd.Process.Pid, Started: started}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if !its.alive() {
			t.Errorf("after %v it does not live", s)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, lines) // until it has closed its end
	for its.alive() {                 // it exits soon
	}
	if err := cmd.Wait(); err == nil {
		t.Error("read found a line")
	}
	if its.alive() {
		t.Error("it is gone and lives")
	}
}
