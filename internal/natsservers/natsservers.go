// Package natsservers runs three NATS servers with JetStream as a cluster on loopback, for the
// demo of a cluster and for tests. Each is a process, so that it can be killed and frozen as a
// machine can. The processes are the calling program itself, whose main calls [Main] first.
package natsservers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/harness"
)

const (
	size = 3
	// StartWithin bounds the start with the election of a leader, which takes 4 to 9 s by itself. On a busy machine the
	// servers may need several.
	StartWithin = 90 * time.Second
	// answerWithin bounds one request to a cluster that may have no leader.
	answerWithin = 2 * time.Second
	// settings is the environment variable that makes a process a server.
	settings = "EDDA_NATS_SERVER"
)

// Main returns if this process is the program itself. A process that [Start] has started
// serves, and does not return.
func Main() {
	text := os.Getenv(settings)
	if text == "" {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// described is a server: what its process is told.
type described struct {
	Name            string
	Dir             string
	Addr, RouteAddr string
	Routes          []string // the same for all servers of a cluster
}

// serve runs a server until its process is killed.
func serve(text string) error {
	var d described
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	opts := &server.Options{ServerName: d.Name, JetStream: true, StoreDir: d.Dir, NoSigs: true, NoLog: true, Cluster: server.ClusterOpts{Name: "edda-" + d.Routes[0]}}
	if err := errors.Join(split(d.Addr, &opts.Host, &opts.Port), split(d.RouteAddr, &opts.Cluster.Host, &opts.Cluster.Port)); err != nil {
		return err
	}
	for _, route := range d.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: route})
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

func split(addr string, host *string, port *int) error {
	name, number, _ := strings.Cut(addr, ":")
	*host = name
	_, err := fmt.Sscan(number, port)
	return err
}

// Servers are three servers: n1 to n3.
type Servers struct {
	all       []described
	processes map[string]*harness.Process
}

// Start starts the servers with their files in a folder, which it makes. It returns when they
// store replicated messages. They end at [Servers.Stop], or with this process.
func Start(ctx context.Context, dir string) (*Servers, error) {
	addrs, err := harness.FreeAddrs(2 * size)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for the NATS servers: %w", err)
	}
	s := &Servers{processes: map[string]*harness.Process{}}
	for i := range size {
		s.add(described{Name: fmt.Sprintf("n%d", i+1), Addr: addrs[i], RouteAddr: addrs[size+i], Routes: addrs[size:]}, dir)
	}
	for _, d := range s.all {
		if err := s.processes[d.Name].Start(); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
	}
	if err := s.awaitReplication(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// add prepares a server.
func (s *Servers) add(d described, dir string) {
	d.Dir = filepath.Join(dir, d.Name)
	s.all = append(s.all, d)
	s.processes[d.Name] = harness.New("the NATS server "+d.Name, d.Dir+".log", func() *exec.Cmd {
		text, err := json.Marshal(d)
		cmd := exec.Command(os.Args[0])
		cmd.Err = errors.Join(cmd.Err, err)
		cmd.Env = harness.Environ(settings + "=" + string(text))
		// Ctrl-C is for this process, which then stops the servers last.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	})
}

// awaitReplication waits until a stream with a replica on each server can be created.
func (s *Servers) awaitReplication(ctx context.Context) error {
	nc, err := nats.Connect(s.URLs(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return fmt.Errorf("connect to the NATS servers: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return s.processes[s.all[0].Name].Until(ctx, StartWithin, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Replicas: size}); err != nil {
			return err
		}
		return js.DeleteStream(ctx, "PROBE")
	})
}

// URLs are the addresses of all servers, with commas between.
func (s *Servers) URLs() string {
	var out []string
	for _, d := range s.all {
		out = append(out, "nats://"+d.Addr)
	}
	return strings.Join(out, ",")
}

// Addrs are the host:port of each server, by its name.
func (s *Servers) Addrs() map[string]string {
	out := map[string]string{}
	for _, d := range s.all {
		out[d.Name] = d.Addr
	}
	return out
}

// Process is that of a server.
func (s *Servers) Process(name string) *harness.Process { return s.processes[name] }

// Wipe kills a server and removes its files, as the loss of its machine does.
func (s *Servers) Wipe(name string) error {
	s.processes[name].Kill()
	for _, d := range s.all {
		if d.Name == name {
			return os.RemoveAll(d.Dir)
		}
	}
	return nil
}

// Stop kills the servers: a test or a demo does not need their files any more.
func (s *Servers) Stop() error {
	for _, p := range s.processes {
		p.Kill()
	}
	return nil
}
