package demo

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"edda/internal/subprocess"
)

// process is the running `edda dev`.
type process struct {
	*subprocess.Process
	dir  string // data, manifests and log
	api  string // URL
	nats string // URL
}

// startEdda writes the manifests, with the shop's address in them, and starts
// edda on free ports.
func startEdda(o Options, shopURL string) (*process, error) {
	dir, err := os.MkdirTemp("", "edda-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the demo: %w", err)
	}
	p := &process{dir: dir}
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
	addrs, err := subprocess.FreeAddrs(2)
	if err != nil {
		return err
	}
	api, natsAddr := addrs[0], addrs[1]
	p.api, p.nats = "http://"+api, "nats://"+natsAddr
	p.Process = subprocess.New("edda", filepath.Join(p.dir, "edda.log"), func() *exec.Cmd {
		return exec.Command(o.Edda, "dev", manifests, "--data", filepath.Join(p.dir, "data"), "--addr", api, "--nats-addr", natsAddr, "--gateway", shopURL)
	})
	return p.Start()
}

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

// ready waits until edda takes work.
func (p *process) ready(ctx context.Context) error {
	return p.Until(ctx, startFor, func() error { return subprocess.Ready(p.api + "/ready") })
}
