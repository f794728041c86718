package herodemo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a child of the demo. It has a process group of its own, so that a
// Ctrl-C reaches it through us, in order; and it ends when we do, however that is.
type process struct {
	name string
	log  string // file
	make func() *exec.Cmd
	cmd  *exec.Cmd
	done chan error // its end, once
}

// child prepares a process whose output goes to a file of the folder.
func (r *run) child(name, program string, env []string, args ...string) *process {
	return &process{name: name, log: filepath.Join(r.dir, name+".log"), make: func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = r.dir, append(clean(os.Environ()), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return cmd
	}}
}

// edda prepares a process of this very binary.
func (r *run) edda(name string, env []string, args ...string) *process {
	return r.child(name, r.Edda, env, args...)
}

// clean leaves out what would point the children anywhere but at each other.
func clean(environ []string) []string {
	var out []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "EDDA_") && !strings.HasPrefix(name, "NATS_") && !strings.HasPrefix(name, "REDIS_") &&
			name != "COORDINATOR_URL" && name != "MYCELIUM_URL" {
			out = append(out, line)
		}
	}
	return out
}

// start starts the process, for the first time or again. Its thread stays until it
// has ended: the kernel ends a child with the thread that started it.
func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of the %s: %w", p.name, err)
	}
	cmd, started, done := p.make(), make(chan error, 1), make(chan error, 1)
	cmd.Stdout, cmd.Stderr = log, log
	go func() {
		defer log.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start the %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// until waits until the process does what it was started for.
func (p *process) until(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	return poll(ctx, "the "+p.name+" to be ready", func() error {
		select {
		case err := <-p.done:
			p.done <- err
			return fatal{fmt.Errorf("the %s ended at once (%v):\n%s", p.name, err, p.tail())}
		default:
			return ready()
		}
	})
}

// says is ready once an address answers a GET with 200.
func says(ctx context.Context, url string) func() error {
	return func() error {
		_, err := get(ctx, url)
		return err
	}
}

// maxPage bounds what is read of an answer.
const maxPage = 4 << 20

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	return string(text), err
}

// tail is the end of the process's log.
func (p *process) tail() string {
	const most = 2000
	text, _ := os.ReadFile(p.log)
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

// kill ends the process as a power cut does.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the %s: %w", p.name, err)
	}
	<-p.done
	p.cmd = nil
	return nil
}

// stop asks the process to end and waits for it.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the %s: %w", p.name, err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("the %s did not end well: %w\n%s", p.name, err, p.tail())
		}
		return nil
	case <-time.After(stopFor):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("the %s did not end within %s of being asked to", p.name, stopFor)
	}
}

// fatal ends a poll at once.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll tries until it works, ctx ends, or the error is fatal.
func poll(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if f := (fatal{}); errors.As(err, &f) {
			return f.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}
