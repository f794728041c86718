package script

import (
	"context"
	"errors"
	"fmt"
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
	log         *Log
	room        *room   // of a sandboxed run
	cgroup      *cgroup // nil where there is none
	record      record

	cmd    *exec.Cmd
	pid    int
	stdout stream
	stderr stream
	once   sync.Once
	why    verdict       // why it is being ended; the first wins
	full   chan struct{} // closed when an output exceeds its limit
	fill   sync.Once
}

// begin makes what a run needs before its process.
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
			return nil, errors.Join(fmt.Errorf("make cgroup: %w", err), h.audit(r.unbegun()), r.log.Close(), c.release())
		}
	}
	r.outputs()
	return r, nil
}

// unbegun is the audit's last word on a run whose process was not started.
func (r *run) unbegun() record {
	rec := r.record
	rec.Time, rec.Event, rec.Reason = time.Now().UTC(), "end", "not begun"
	return rec
}

func (r *run) openLog() error {
	path := r.host.logPath(r.script.Context, r.script.ID)
	folder, name := filepath.Split(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("folder of logs: %w", err)
	}
	crowded, err := r.host.crowded(folder)
	if crowded {
		err = r.host.prune(folder, time.Now())
	}
	if err != nil {
		return fmt.Errorf("folder of logs: %w", err)
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

// outputs says where what the script writes goes.
func (r *run) outputs() {
	m := newMask(r.script, r.host.options.Secrets)
	lines := &tee{to: []func(stream, line string){r.logLine}}
	if r.script.Logs != nil {
		lines.to = append(lines.to, r.script.Logs)
	}
	full := func() { r.fill.Do(func() { close(r.full) }) }
	limit := r.host.options.Limits.Output
	r.stdout = stream{name: "stdout", limit: limit, mask: m, lines: lines.line, over: full}
	r.stderr = stream{name: "stderr", limit: limit, mask: m, lines: lines.line, over: full}
}

// logLine writes one to the log. A full disk loses the log, not the run.
func (r *run) logLine(stream, line string) {
	if r.log == nil {
		return
	}
	if err := r.log.Write(time.Now().UTC().Format(time.RFC3339Nano) + " " + stream + " " + line + "\n"); err != nil {
		r.host.options.Log.Warn("log of a script lost", zap.String("id", r.script.ID), zap.Error(err))
		_ = r.log.Close()
		r.log = nil
	}
}

// close clears everything away and records the end.
func (r *run) close(out Outcome, failed error) error {
	rec := r.record
	rec.Time, rec.Event, rec.PID, rec.Millis = time.Now().UTC(), "end", r.pid, out.Took.Milliseconds()
	rec.Exit, rec.Reason = &out.Code, out.Reason
	if failed != nil {
		rec.Exit, rec.Reason = nil, "not begun"
	}
	var logged error
	if r.log != nil {
		logged = r.log.Close()
	}
	var left error
	if r.cgroup != nil {
		left = r.cgroup.remove()
	}
	return errors.Join(r.host.audit(rec), logged, left, r.claim.release())
}

// whole runs the process on a thread of its own: the kernel ends a child with the
// thread that started it (Pdeathsig), and that must be when the runner dies.
// The thread of a sandbox has left our namespaces and is thrown away.
func (r *run) whole(ctx context.Context) (Outcome, error) {
	var out Outcome
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if r.host.options.Sandbox == nil {
			defer runtime.UnlockOSThread()
			out, err = r.run(ctx)
			return
		}
		out, err = r.sandboxed(ctx)
	}()
	<-done
	return out, err
}

// run is the whole life of the process.
func (r *run) run(ctx context.Context) (Outcome, error) {
	readers, err := r.start()
	if err != nil {
		return Outcome{}, fmt.Errorf("start %s: %w", r.interpreter[0], err)
	}
	exited := make(chan struct{})
	guarded := make(chan struct{})
	go func() {
		defer close(guarded)
		r.guard(ctx, exited)
	}()
	r.wait()
	close(exited)
	<-guarded
	r.endAll()
	failed := r.cmd.Wait()
	readers.finish()
	return r.verdict(failed), nil
}

// start starts the interpreter, limits and marks it, and only then gives it the
// script: the limits hold before its first line.
func (r *run) start() (*readers, error) {
	p, err := newPipes()
	if err != nil {
		return nil, err
	}
	r.cmd = r.command(p)
	if err := r.cmd.Start(); err != nil {
		p.closeAll()
		return nil, err
	}
	p.closeChild()
	r.pid = r.cmd.Process.Pid
	if err := r.limited(); err != nil {
		p.closeOurs()
		return nil, errors.Join(err, r.cmd.Process.Kill(), ended(r.cmd.Wait()))
	}
	return p.serve(r), nil
}

// limited has the process limited on a thread that is not the sandbox's: the
// sandbox's own may not set marks.
func (r *run) limited() error {
	if r.host.options.Sandbox == nil {
		return r.limit()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it takes the script's user, and is thrown away
		done <- r.limit()
	}()
	return <-done
}

// limit marks the process, puts it where it is counted, and sets its limits.
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
	cmd.Dir = r.home()
	cmd.Env = r.script.environment(r.home())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.stdin[0], p.stdout[1], p.stderr[1]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if s := r.host.options.Sandbox; s != nil {
		s.confine(cmd)
	}
	return cmd
}

// wait waits for the interpreter's end and leaves it unreaped, so that its number
// is no other process's while the other processes of the run are ended.
func (r *run) wait() {
	for errors.Is(unix.Waitid(unix.P_PID, r.pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// guard ends the run when it has to, and returns when it has ended.
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
			r.kill(r.tooMuchOutput())
			return
		case <-tick.C:
			if v, bad := r.excess(look); bad {
				r.kill(v)
				return
			}
		}
	}
}

// ask asks every process to end, and kills what has not after the grace. What the
// interpreter leaves behind when it goes has the rest of the grace, too.
func (r *run) ask(v verdict, exited <-chan struct{}) {
	r.blame(v)
	r.mark.signalAll(r.pid, unix.SIGTERM)
	if !r.mark.on(r.pid) { // it took the mark off
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

func (r *run) kill(v verdict) {
	r.blame(v)
	r.endAll()
}

func (r *run) blame(v verdict) { r.once.Do(func() { r.why = v }) }

// endAll kills whatever is left of the run.
func (r *run) endAll() {
	if r.room != nil {
		r.room.end()
	}
	_ = unix.Kill(-r.pid, unix.SIGKILL) // even where it took the mark off; it is not reaped yet
	if err := r.mark.kill(r.pid); err != nil {
		r.host.options.Log.Error("processes of a script did not end", zap.String("id", r.script.ID), zap.Int("pid", r.pid), zap.Error(err))
	}
}

// verdict reads how the process ended.
func (r *run) verdict(failed error) Outcome {
	v, code := r.why, r.cmd.ProcessState.ExitCode()
	switch {
	case v.reason != "":
	case r.overflowed():
		v = r.tooMuchOutput()
	case failed != nil:
		v = r.judge(failed)
	}
	return r.host.outcome(r.script, code, r.stdout.text(), v)
}

// overflowed says whether an output exceeds its limit. A script that ends by
// itself, before it is seen to be, has broken the limit as well: which of the two
// is seen first must not decide how it ended.
func (r *run) overflowed() bool {
	select {
	case <-r.full:
		return true
	default:
		return false
	}
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
		return tooMuchMemory(l) // the kernel gave it no more, sooner than it was looked at
	case status.Signaled():
		return verdict{"signal " + unix.SignalName(status.Signal()), r.stderr.last()}
	}
	return verdict{fmt.Sprintf("exit %d", status.ExitStatus()), r.stderr.last()}
}

// peak is the most memory that the process held, or 0 where that cannot be told:
// the kernel counts what this process held when it started it, too.
func peak(exit *exec.ExitError) int64 {
	var own unix.Rusage
	its, ok := exit.SysUsage().(*syscall.Rusage)
	if !ok || unix.Getrusage(unix.RUSAGE_SELF, &own) != nil || its.Maxrss <= own.Maxrss {
		return 0
	}
	return its.Maxrss << 10
}

// ended drops the way a process ended that we killed ourselves.
func ended(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
