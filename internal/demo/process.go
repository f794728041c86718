package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is the `edda dev` under way.
type process struct {
	cmd  *exec.Cmd
	dir  string // data, manifests and log
	api  string // URL
	nats string // URL
	done chan error
}

// startEdda writes the manifests, with the shop's address in them, and starts
// edda on free ports.
func startEdda(o Options, shopURL string) (*process, error) {
	dir, err := os.MkdirTemp("", "edda-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the demo: %w", err)
	}
	p := &process{dir: dir, done: make(chan error, 1)}
	if err := p.start(o, shopURL); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *process) start(o Options, shopURL string) error {
	manifests, err := writeManifests(p.dir, shopURL)
	if err != nil {
		return err
	}
	api, natsAddr, err := freePorts()
	if err != nil {
		return err
	}
	p.api, p.nats = "http://"+api, "nats://"+natsAddr
	log, err := os.Create(p.logFile())
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() // the child has its own
	p.cmd = exec.Command(o.Edda, "dev", manifests, "--data", filepath.Join(p.dir, "data"), "--addr", api, "--nats-addr", natsAddr, "--gateway", shopURL)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start edda: %w", err)
	}
	go func() { p.done <- p.cmd.Wait() }() // ends with the process, which stop waits for
	return nil
}

func (p *process) logFile() string { return filepath.Join(p.dir, "edda.log") }

func writeManifests(dir, shopURL string) (string, error) {
	out := filepath.Join(dir, "manifests")
	if err := os.Mkdir(out, 0o755); err != nil {
		return "", err
	}
	names, err := fs.Glob(manifestFiles, "manifests/*.yaml")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := manifestFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		text = []byte(strings.ReplaceAll(string(text), "SHOP/", shopURL+"/"))
		if err := os.WriteFile(filepath.Join(out, filepath.Base(name)), text, 0o644); err != nil {
			return "", err
		}
	}
	return out, nil
}

// freePorts finds two ports that nobody listens on.
func freePorts() (a, b string, err error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer first.Close()
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer second.Close()
	return first.Addr().String(), second.Addr().String(), nil
}

// ready waits until edda takes work.
func (p *process) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	return poll(ctx, "edda to be ready", func() error {
		select {
		case err := <-p.done:
			p.done <- err
			return fatal{fmt.Errorf("edda ended at once (%v):\n%s", err, p.tail())}
		default:
		}
		resp, err := http.Get(p.api + "/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/ready says %s", resp.Status)
		}
		return nil
	})
}

// tail is the end of edda's log.
func (p *process) tail() string {
	const most = 2000
	text, _ := os.ReadFile(p.logFile())
	if len(text) > most {
		text = text[len(text)-most:]
	}
	return string(text)
}

// stop asks edda to drain and waits for its end.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop edda: %w", err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			return fmt.Errorf("edda did not end well: %w\n%s", err, p.tail())
		}
		return nil
	case <-time.After(stopFor):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("edda did not end within %s of being asked to", stopFor)
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
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-tick.C:
		}
	}
}
