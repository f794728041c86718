package harness

import (
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Edda is an `edda dev` with the defaults that a user gets.
type Edda struct {
	*Process
	Data      string   // folder
	API, NATS string   // URLs
	Args      []string // of the next Start, after those of NewEdda
	Stdin     io.Writer
}

// NewEdda prepares the binary on free ports. Its data and log are in dir; args are
// manifests and flags.
func NewEdda(binary, dir string, args ...string) (*Edda, error) {
	addrs, err := FreeAddrs(2)
	if err != nil {
		return nil, err
	}
	e := &Edda{Data: filepath.Join(dir, "data"), API: "http://" + addrs[0], NATS: "nats://" + addrs[1]}
	args = append([]string{"dev", "--data", e.Data, "--addr", addrs[0], "--nats-addr", addrs[1]}, args...)
	e.Process = New("edda", filepath.Join(dir, "edda.log"), func() *exec.Cmd {
		cmd := exec.Command(binary, append(args, e.Args...)...)
		// Ctrl-C is for this process, which then stops the other one in order.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		e.Stdin, cmd.Err = cmd.StdinPipe()
		return cmd
	})
	return e, nil
}

// StartReady starts the process, and returns when it takes work.
func (e *Edda) StartReady(ctx context.Context, within time.Duration) error {
	if err := e.Start(); err != nil {
		return err
	}
	if err := e.Until(ctx, within, Ready(ctx, e.API+"/ready")); err != nil {
		e.Kill()
		return err
	}
	return nil
}

// Counters reads the metrics.
func (e *Edda) Counters(ctx context.Context) (Counters, error) {
	return Scrape(ctx, e.API+"/metrics")
}

// WriteFiles copies the files of a pattern into a folder, which it makes. It replaces
// words in them, as strings.NewReplacer does.
func WriteFiles(dir string, from fs.FS, pattern string, replace ...string) error {
	names, err := fs.Glob(from, pattern)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		text = []byte(strings.NewReplacer(replace...).Replace(string(text)))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
