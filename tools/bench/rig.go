package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"edda/internal/scrape"
	"edda/internal/subprocess"
)

//go:embed manifests/*.yaml
var manifestFiles embed.FS

// effectServer is the effect server, a process apart.
type effectServer struct {
	*subprocess.Process
	url string
}

func (r *run) startEffects() (*effectServer, error) {
	addrs, err := subprocess.FreeAddrs(1)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	e := &effectServer{url: "http://" + addrs[0]}
	e.Process = subprocess.New("the effect server", filepath.Join(r.dir, "effects.log"), func() *exec.Cmd {
		return exec.Command(self, effectsCommand, addrs[0], fmt.Sprint(r.Lose))
	})
	if err := e.Start(); err != nil {
		return nil, err
	}
	if err := e.Until(r.ctx, startFor, func() error { return subprocess.Ready(e.url + "/ready") }); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// book is what was called for the orders of a phase.
func (e *effectServer) book(ctx context.Context, phase string) (b Book, err error) {
	return b, getJSON(ctx, e.url+"/books/"+phase, &b)
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// server is the `edda dev` under test, with the defaults that a user gets.
type server struct {
	*subprocess.Process
	data, api, nats string
	extra           []string       // arguments
	control         io.WriteCloser // its stdin: when to write a CPU profile
}

// startServer starts edda on a folder, with a manifest in which words are replaced.
func (r *run) startServer(dir, manifest string, replace ...string) (*server, error) {
	s, err := r.newServer(dir, manifest, replace...)
	if err != nil {
		return nil, err
	}
	return s, s.start(r.ctx)
}

// newServer prepares it without starting it.
func (r *run) newServer(dir, manifest string, replace ...string) (*server, error) {
	text, err := manifestFiles.ReadFile("manifests/" + manifest)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, manifest)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o600); err != nil {
		return nil, err
	}
	addrs, err := subprocess.FreeAddrs(2)
	if err != nil {
		return nil, err
	}
	s := &server{data: filepath.Join(dir, "data"), api: "http://" + addrs[0], nats: "nats://" + addrs[1]}
	args := []string{"dev", file, "--data", s.data, "--addr", addrs[0], "--nats-addr", addrs[1], "--profiles"}
	in := &pipe{}
	s.control = in
	s.Process = subprocess.New("edda", filepath.Join(dir, "edda.log"), func() *exec.Cmd {
		cmd := exec.Command(r.Edda, append(args, s.extra...)...)
		in.w, in.err = cmd.StdinPipe()
		return cmd
	})
	return s, nil
}

// pipe is the writing end of the stdin of a process that may be started again.
type pipe struct {
	w   io.WriteCloser
	err error
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	return p.w.Write(b)
}

func (p *pipe) Close() error {
	if p.w == nil {
		return p.err
	}
	return p.w.Close()
}

// start starts it and returns when it takes work.
func (s *server) start(ctx context.Context) error {
	if err := s.Start(); err != nil {
		return err
	}
	if err := s.Until(ctx, startFor, func() error { return subprocess.Ready(s.api + "/ready") }); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

func (s *server) counters(ctx context.Context) (scrape.Counters, error) {
	return scrape.Read(ctx, s.api+"/metrics")
}

// settled waits until nothing waits in the outbox and so many instances of a saga
// are in one of these statuses.
func (s *server) settled(ctx context.Context, n int, saga string, status ...string) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	return subprocess.Poll(ctx, fmt.Sprintf("%d instances to be %s and the outbox empty", n, strings.Join(status, " or ")), func() error {
		c, err := s.counters(ctx)
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
	_, err := fmt.Fprintln(s.control, file)
	return err
}

// endProfile returns when the profile is written.
func (s *server) endProfile(ctx context.Context, file string) error {
	if _, err := fmt.Fprintln(s.control); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return subprocess.Poll(ctx, "the profile to be written", func() error {
		_, err := os.Stat(file)
		return err
	})
}
