package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// run is one run of a script.
type run struct {
	host        *Host
	script      Script
	interpreter []string
	claim       *claim
	mark        mark
	folder      string
	log         *RotatedLog // nil after a write that failed
	room        *sandboxed  // nil without a sandbox
	cgroup      *cgroup     // nil where the host has no cgroups
	record      record

	cmd    *exec.Cmd
	pid    int
	stdout stream
	stderr stream
	lines  sync.Mutex // held by line
	once   sync.Once
	why    verdict       // the first reason to end the run
	full   chan struct{} // closed when an output exceeds its limit
	fill   sync.Once
}

// begin creates everything that a run needs before its process starts.
func (h *Host) begin(s Script, interpreter []string) (*run, error) {
	c, err := h.claim(s.Context)
	if err != nil {
		return nil, err
	}
	r := &run{host: h, script: s, interpreter: interpreter, claim: c, mark: c.Mark, folder: c.Folder, full: make(chan struct{})}
	if err := r.openLog(); err != nil {
		return nil, errors.Join(err, c.release())
	}
	r.record = h.record("begin", c.name(), s)
	if err := h.audit(r.record); err != nil {
		return nil, errors.Join(err, r.log.Close(), c.release())
	}
	if h.cgroups != nil {
		if r.cgroup, err = h.cgroups.open(r.mark, h.options.Limits.wall()); err != nil {
			err = fmt.Errorf("make cgroup: %w", err)
			return nil, errors.Join(err, r.close(RunResult{}, err))
		}
	}
	m, limit := newMask(s, h.options.Secrets), h.options.Limits.Output
	r.stdout = stream{name: "stdout", limit: limit, mask: m, line: r.line, full: r.overflow}
	r.stderr = stream{name: "stderr", limit: limit, mask: m, line: r.line, full: r.overflow}
	return r, nil
}

func (r *run) openLog() error {
	folder, name := filepath.Split(r.host.logPath(r.script.Context, r.script.ID))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("folder of logs: %w", err)
	}
	if most := r.host.options.Limits.LogFiles; most > 0 {
		entries, err := os.ReadDir(folder)
		if len(entries) > most {
			err = r.host.prune(folder, time.Now())
		}
		if err != nil {
			return fmt.Errorf("folder of logs: %w", err)
		}
	}
	root, err := os.OpenRoot(folder)
	if err == nil {
		r.log, err = OpenLog(root, name, r.host.options.Limits.logs())
	}
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	return nil
}

// overflow is called when an output exceeds its limit.
func (r *run) overflow() { r.fill.Do(func() { close(r.full) }) }

// line passes on one line of either output: to the log and to the script's Logs. A full disk
// loses the log, not the run.
func (r *run) line(stream, line string) {
	r.lines.Lock()
	defer r.lines.Unlock()
	if r.log != nil {
		if err := r.log.Write(time.Now().UTC().Format(time.RFC3339Nano) + " " + stream + " " + line + "\n"); err != nil {
			r.host.options.Log.Warn("log of a script lost", zap.String("id", r.script.ID), zap.Error(err))
			_ = r.log.Close()
			r.log = nil
		}
	}
	if r.script.Logs != nil {
		r.script.Logs(stream, line)
	}
}

// close removes everything that begin made, and records the end.
func (r *run) close(out RunResult, failed error) error {
	rec := r.record
	rec.Time, rec.Event, rec.PID, rec.Millis = time.Now().UTC(), "end", r.pid, out.Took.Milliseconds()
	rec.Exit, rec.Reason = &out.Code, out.Reason
	if failed != nil {
		rec.Exit, rec.Reason = nil, "not begun"
	}
	err := r.host.audit(rec)
	if r.log != nil {
		err = errors.Join(err, r.log.Close())
	}
	if r.cgroup != nil {
		err = errors.Join(err, r.cgroup.remove())
	}
	return errors.Join(err, r.claim.release())
}

// onThread runs the process on a thread of its own. The kernel kills the process when the
// thread that started it ends (Pdeathsig), which must be when the runner dies. The thread
// of a sandbox stays in its namespaces, and ends with the goroutine.
func (r *run) onThread(ctx context.Context) (out RunResult, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		s := r.host.options.Sandbox
		if s == nil {
			defer runtime.UnlockOSThread()
		} else if r.room, err = s.enter(r.host.options.Limits, r.host.cgroups != nil); err != nil {
			err = fmt.Errorf("sandbox: %w", err)
			return
		} else {
			defer r.room.close()
		}
		out, err = r.run(ctx)
	}()
	<-done
	return out, err
}

// run starts the process, and returns when all processes of the run have ended.
func (r *run) run(ctx context.Context) (RunResult, error) {
	p, err := r.start()
	if err != nil {
		return RunResult{}, fmt.Errorf("start %s: %w", r.interpreter[0], err)
	}
	var readers sync.WaitGroup
	readers.Go(func() {
		_, _ = io.WriteString(p.stdin[1], r.script.Source) // an interpreter need not read all of it
		_ = p.stdin[1].Close()
	})
	readers.Go(func() { r.stdout.read(p.stdout[0]) })
	readers.Go(func() { r.stderr.read(p.stderr[0]) })
	exited, guarded := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(guarded)
		r.guard(ctx, exited)
	}()
	// Leave the interpreter unreaped, so that no other process gets its id while the other
	// processes of the run are ended.
	for errors.Is(unix.Waitid(unix.P_PID, r.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	close(exited)
	<-guarded
	r.endAll()
	failed := r.cmd.Wait()
	// A process outside the run may hold a pipe open: it got it over a socket.
	until := time.Now().Add(drainWithin)
	_ = errors.Join(p.stdin[1].SetDeadline(time.Now()), p.stdout[0].SetDeadline(until), p.stderr[0].SetDeadline(until))
	readers.Wait()
	return r.verdict(failed), nil
}

// drainWithin bounds the reading of the pipes after the last process of a run has ended,
// when they already hold all output.
const drainWithin = 2 * time.Second

// pipes are the script's three streams, each with its reading end [0] and writing end [1].
type pipes struct {
	stdin, stdout, stderr [2]*os.File
}

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, ends := range []*[2]*os.File{&p.stdin, &p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeChild()
			p.closeOurs()
			return nil, err
		}
		*ends = [2]*os.File{r, w}
	}
	return p, nil
}

// Closing a nil file is harmless, and nothing was written yet.
func (p *pipes) closeChild() { _, _, _ = p.stdin[0].Close(), p.stdout[1].Close(), p.stderr[1].Close() }
func (p *pipes) closeOurs()  { _, _, _ = p.stdin[1].Close(), p.stdout[0].Close(), p.stderr[0].Close() }

// start starts the interpreter, and limits and marks it before it gets the script.
func (r *run) start() (*pipes, error) {
	p, err := newPipes()
	if err != nil {
		return nil, err
	}
	r.cmd = r.command(p)
	err = r.cmd.Start()
	p.closeChild()
	if err != nil {
		p.closeOurs()
		return nil, err
	}
	r.pid = r.cmd.Process.Pid
	if r.host.options.Sandbox == nil {
		err = r.limit()
	} else { // the sandbox's own thread may not set marks
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread becomes the script's user, and ends with the goroutine
			done <- r.limit()
		}()
		err = <-done
	}
	if err != nil {
		p.closeOurs()
		return nil, errors.Join(err, r.cmd.Process.Kill(), ended(r.cmd.Wait()))
	}
	return p, nil
}

// limit puts the process into the run's cgroup, marks it, and sets its limits.
func (r *run) limit() error {
	if r.cgroup != nil {
		if err := r.cgroup.add(r.pid); err != nil {
			return err
		}
	}
	if s := r.host.options.Sandbox; s != nil {
		if err := s.own(); err != nil {
			return err
		}
	}
	if err := r.mark.put(r.pid); err != nil {
		return err
	}
	return r.host.options.Limits.put(r.pid)
}

func (r *run) command(p *pipes) *exec.Cmd {
	cmd := exec.Command(r.interpreter[0], r.interpreter[1:]...)
	cmd.Dir = r.folder
	if r.room != nil {
		cmd.Dir = sandboxHome
	}
	cmd.Env = r.script.environment(cmd.Dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin[0], p.stdout[1], p.stderr[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if s := r.host.options.Sandbox; s != nil {
		s.confine(cmd)
	}
	return cmd
}

// guard ends the run at its timeout, its limits and the end of ctx. It returns when the run
// has ended.
func (r *run) guard(ctx context.Context, exited <-chan struct{}) {
	timeout := r.script.Timeout
	if timeout == 0 {
		timeout = r.host.options.Limits.Timeout
	}
	late := make(<-chan time.Time)
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for look := 1; ; look++ {
		select {
		case <-exited:
			return
		case <-ctx.Done():
			r.ask(verdict{reason: stopReason(ctx)}, exited)
			return
		case <-late:
			r.ask(verdict{Timeout, "ran longer than " + timeout.String()}, exited)
			return
		case <-r.full:
			r.blame(r.tooMuchOutput())
			r.endAll()
			return
		case <-tick.C:
			if v, bad := r.excess(look); bad {
				r.blame(v)
				r.endAll()
				return
			}
		}
	}
}

// ask sends SIGTERM to every process, and kills those that have not ended after the grace.
// Processes that outlive the interpreter have the rest of the grace, too.
func (r *run) ask(v verdict, exited <-chan struct{}) {
	r.blame(v)
	r.mark.signalAll(r.pid, unix.SIGTERM)
	if !r.mark.on(r.pid) { // the script changed its mark
		_ = unix.Kill(-r.pid, unix.SIGTERM)
	}
	until := time.Now().Add(max(0, r.host.options.Limits.Grace))
	tick := time.NewTicker(lookEvery / 5)
	defer tick.Stop()
	for time.Now().Before(until) {
		<-tick.C
		select {
		case <-exited:
			if len(r.mark.processes(r.pid)) == 0 {
				return
			}
		default:
		}
	}
	r.endAll()
}

func (r *run) blame(v verdict) { r.once.Do(func() { r.why = v }) }

// endAll kills all processes of the run.
func (r *run) endAll() {
	if r.room != nil {
		r.room.end()
	}
	_ = unix.Kill(-r.pid, unix.SIGKILL) // reaches a script that changed its mark; it is not reaped yet
	if err := r.mark.kill(r.pid); err != nil {
		r.host.options.Log.Error("processes of a script did not end", zap.String("id", r.script.ID), zap.Int("pid", r.pid), zap.Error(err))
	}
}

// verdict decides the outcome from how the process ended.
func (r *run) verdict(failed error) RunResult {
	v, code := r.why, r.cmd.ProcessState.ExitCode()
	if v.reason == "" {
		select {
		case <-r.full: // a script that ends before guard sees this has exceeded the limit as well
			v = r.tooMuchOutput()
		default:
			if failed != nil {
				v = r.judge(failed)
			}
		}
	}
	return r.host.outcome(r.script, code, r.stdout.text(), v)
}

func (r *run) tooMuchOutput() verdict {
	return verdict{OutputLimit, fmt.Sprintf("more than %d bytes", r.host.options.Limits.Output)}
}

func (r *run) judge(failed error) verdict {
	var exit *exec.ExitError
	if !errors.As(failed, &exit) {
		return verdict{"exit", failed.Error()}
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	l := r.host.options.Limits
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGXFSZ:
		return verdict{FileSizeLimit, fmt.Sprintf("a file of more than %d bytes", l.FileSize)}
	case status.Signaled() && status.Signal() == syscall.SIGXCPU, over(exit.SystemTime()+exit.UserTime(), l.CPU):
		return tooMuchCPU(l)
	case over(peak(exit), l.Memory), r.cgroup != nil && r.cgroup.killed():
		return tooMuchMemory(l) // the kernel refused more before guard looked
	case status.Signaled():
		return verdict{"signal " + unix.SignalName(status.Signal()), r.stderr.last()}
	}
	return verdict{fmt.Sprintf("exit %d", status.ExitStatus()), r.stderr.last()}
}

// peak is the most memory that the process held, or 0 where that is unknown, because the
// kernel includes the memory of this process at the start.
func peak(exit *exec.ExitError) int64 {
	var own unix.Rusage
	its, ok := exit.SysUsage().(*syscall.Rusage)
	if !ok || unix.Getrusage(unix.RUSAGE_SELF, &own) != nil || its.Maxrss <= own.Maxrss {
		return 0
	}
	return its.Maxrss << 10
}

// ended drops the exit status of a process that the caller killed.
func ended(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
