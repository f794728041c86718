package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"edda/internal/harness"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

// effectServer is the effect server, a process apart.
type effectServer struct {
	*harness.Process
	url string
}

func (r *run) startEffects() (*effectServer, error) {
	addrs, err := harness.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := &effectServer{url: "http://" + addrs[0]}
	e.Process = harness.New("the effect server", filepath.Join(r.dir, "effects.log"), func() *exec.Cmd {
		return exec.Command(self, effectsCommand, addrs[0], fmt.Sprint(r.Lose))
	})
	if err := e.Start(); err != nil {
		return nil, err
	}
	if err := e.Until(r.ctx, startFor, harness.Ready(r.ctx, e.url+"/ready")); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// book is what was called for the orders of a phase.
func (e *effectServer) book(ctx context.Context, phase string) (b Book, err error) {
	return b, harness.GetJSON(ctx, e.url+"/books/"+phase, &b)
}

// server is the `edda dev` under test.
type server struct{ *harness.Edda }

// startServer starts edda on a folder, with a manifest in which words are replaced.
func (r *run) startServer(dir, manifest string, replace ...string) (*server, error) {
	s, err := r.newServer(dir, manifest, replace...)
	if err != nil {
		return nil, err
	}
	return s, s.StartReady(r.ctx, startFor)
}

// newServer prepares it without starting it.
func (r *run) newServer(dir, manifest string, replace ...string) (*server, error) {
	if err := harness.WriteFiles(dir, manifestFiles, "manifests/"+manifest, replace...); err != nil {
		return nil, err
	}
	e, err := harness.NewEdda(r.Edda, dir, filepath.Join(dir, manifest), "--profiles")
	return &server{e}, err
}

// settled waits until nothing waits in the outbox and so many instances of a saga
// are in one of these statuses.
func (s *server) settled(ctx context.Context, n int, saga string, status ...string) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	return harness.Poll(ctx, fmt.Sprintf("%d instances to be %s and the outbox empty", n, strings.Join(status, " or ")), func() error {
		c, err := s.Counters(ctx)
		if err != nil {
			return err
		}
		ended := 0
		for _, word := range status {
			ended += c.Sum("edda_instances", `saga="`+saga+`"`, `status="`+word+`"`)
		}
		if rows := c.Sum("edda_outbox_items"); ended != n || rows != 0 {
			return fmt.Errorf("%d instances are, and %d rows wait", ended, rows)
		}
		return nil
	})
}

// profile has the server write a CPU profile until it is ended.
func (s *server) profile(file string) error {
	_, err := fmt.Fprintln(s.Stdin, file)
	return err
}

// endProfile returns when the profile is written.
func (s *server) endProfile(ctx context.Context, file string) error {
	if _, err := fmt.Fprintln(s.Stdin); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return harness.Poll(ctx, "the profile to be written", func() error {
		_, err := os.Stat(file)
		return err
	})
}
