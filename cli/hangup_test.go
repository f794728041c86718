package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// apart is an edda dev in a process of its own.
type apart struct {
	*running
	cmd   *exec.Cmd
	ended chan error
}

func startApart(t *testing.T, in *os.File, args ...string) *apart {
	t.Helper()
	return startApartWith(t, in, nil, args...)
}

// startApartWith starts it with more variables.
func startApartWith(t *testing.T, in *os.File, env []string, args ...string) *apart {
	t.Helper()
	a := &apart{running: &running{out: newScreen(), err: newScreen()}, ended: make(chan error, 1)}
	a.cmd = exec.Command("edda", append([]string{"dev", "--addr", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, args...)...)
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.err
	a.cmd.Env = append(os.Environ(), env...)
	if in != nil {
		a.cmd.Stdin = in
		a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.ended <- a.cmd.Wait()
		fmt.Fprintln(a.out, "(ended)")
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it may have ended
		<-ended
	})
	m := a.out.wait(t, `\(ended\)|api +http://(\S+) (?s:.*)nats +(\S+)(?s:.*)Ctrl-C`)
	if a.addr, a.nats = m[1], m[2]; a.addr == "" {
		t.Fatalf("it ended: %s", a.err)
	}
	return a
}

func (a *apart) hangUp(t *testing.T) {
	t.Helper()
	if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// lasting waits for the end of the process.
func (a *apart) lasting(t *testing.T) error {
	t.Helper()
	select {
	case err := <-a.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("it did not end: %s%s", a.out, a.err)
		return nil
	}
}

func TestSIGHUPEndsTheProcess(t *testing.T) {
	dir := folder(t, map[string]string{".keep": "", "loan.yaml": loanSaga})
	hidden := filepath.Join(t.TempDir(), "loan.yaml") // edda dev watches the link's folder alone
	write(t, hidden, loanSaga)
	if err := os.Remove(filepath.Join(dir, "loan.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(hidden, filepath.Join(dir, "loan.yaml")); err != nil {
		t.Fatal(err)
	}
	a := startApart(t, nil, dir, "--data", t.TempDir(), "--log", "info")
	write(t, hidden, strings.Replace(loanSaga, "saga: loan", "saga: loan\nversion: 2", 1))
	a.hangUp(t)
	a.until(t, "SIGHUP", "audit", "list", "--process")
	if _, out := a.edda(t, "audit", "list", "--process"); !strings.Contains(out, "taken in: saga loan version 2+") {
		t.Errorf("the audit says\n%s", out)
	}
	write(t, hidden, strings.Replace(loanSaga, "saga: loan", "saga: loan\nversion: 3", 1)+failingTest)
	a.hangUp(t)
	a.err.wait(t, `SIGHUP: a problem in the manifests.*nobody may approve`)
	a.err.wait(t, `SIGHUP: the manifests were not reloaded; what ran before runs on`)
	if _, out := a.edda(t, "audit", "list", "--process"); !strings.Contains(out, "refused: 2 errors") {
		t.Errorf("the audit says\n%s", out)
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := a.lasting(t); err != nil {
		t.Errorf("a stop after SIGHUP: %v\n%s", err, a.err)
	}
}

// TestAClosedTerminalLeavesAnEddaBehind: a SIGHUP that says that the terminal is
// gone is a stop in order, not a reload that nobody asked for.
func TestAClosedTerminalLeavesAnEddaBehind(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	a := startApart(t, slave, folder(t, map[string]string{"loan.yaml": loanSaga}), "--data", t.TempDir())
	a.hangUp(t) // the terminal is still there: a reload
	a.until(t, "SIGHUP", "audit", "list", "--process")
	if err := master.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.lasting(t); err != nil {
		t.Errorf("it did not stop in order: %v\n%s", err, a.err)
	}
	if !strings.Contains(a.err.String(), "the terminal is gone: stopping") {
		t.Errorf("it says\n%s", a.err)
	}
}

// TestALogThatWasCutOffIsInNoAudit: what a disk that lied took away is said at the
// start, and stays said.
func TestALogThatWasCutOffIsInNoAudit(t *testing.T) {
	dir, data := folder(t, map[string]string{"loan.yaml": loanSaga}), t.TempDir()
	a := startApart(t, nil, dir, "--data", data)
	for i := range 5 {
		a.edda(t, "send", "Loan.LoanAsked", "--id", fmt.Sprint("L", i), "--data", fmt.Sprintf(`{"id":"L%d"}`, i))
	}
	a.until(t, "L4", "instance", "list")
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.lasting(t) // it was killed
	log, err := filepath.Glob(filepath.Join(data, "*", "edda.db-log-0"))
	if err != nil || len(log) != 1 {
		t.Fatal(log, err)
	}
	text, err := os.ReadFile(log[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(log[0], int64(len(strings.TrimRight(string(text), "\x00"))-40)); err != nil {
		t.Fatal(err)
	}
	code, out, _ := shell(t, nil, "doctor", "--data", data)
	if code != exitFailed || !strings.Contains(out, "ends in the middle of what was written") {
		t.Errorf("the doctor: %d %s", code, out)
	}
	again := startApart(t, nil, dir, "--data", data)
	again.err.wait(t, "edda.db-log-0 ends in the middle of what was written")
	again.until(t, "ends in the middle of what was written", "audit", "list", "--process")
	if _, out := again.edda(t, "doctor", "--addr", again.addr); !strings.Contains(out, " 0 findings ") {
		t.Errorf("the doctor afterwards: %s", out)
	}
}
