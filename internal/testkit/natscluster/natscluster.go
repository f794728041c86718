// Package natscluster runs three NATS servers with JetStream as a cluster on loopback, for tests.
// Each is a process, so that it can be killed and frozen as a machine can. The processes are the
// binary of the test: its TestMain calls [Main].
package natscluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/harness"
	"edda/internal/testkit"
)

const (
	size = 3
	// startWithin bounds the start with the election of a leader, which takes 4 to 9 s by itself.
	startWithin = 40 * time.Second
	// settings is the environment variable that makes a process a server.
	settings = "EDDA_TEST_NATS_SERVER"
	// greeting is what a server says when clients may connect.
	greeting = "ready"
)

// Main runs the tests of a package, or a server if this process is one. Run is that of testing.M,
// with what the package does around it.
func Main(m interface{ Run() int }) {
	text := os.Getenv(settings)
	if text == "" {
		os.Exit(m.Run())
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a server until it is killed, which the kernel does when the test's process ends.
func serve(text string) error {
	var c node
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	opts := &server.Options{
		ServerName: c.Name, Host: "127.0.0.1", Port: c.Port, JetStream: true, StoreDir: c.Dir, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "edda", Host: "127.0.0.1", Port: c.RoutePort},
	}
	for _, route := range c.Routes {
		opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: route})
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(startWithin) {
		return fmt.Errorf("server %s is not ready", c.Name)
	}
	fmt.Println(greeting)
	s.WaitForShutdown()
	return nil
}

// node is a server: what its process is told.
type node struct {
	Name            string
	Dir             string
	Port, RoutePort int
	Routes          []string
}

// Cluster is three servers, n1 to n3.
type Cluster struct {
	t         testing.TB
	nodes     map[string]node
	processes map[string]*harness.Process
}

// Start starts the servers, and returns when they store replicated messages. They end with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, nodes: map[string]node{}, processes: map[string]*harness.Process{}}
	dir := t.TempDir()
	ports := freePorts(t, 2*size)
	var routes []string
	for i := range size {
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", ports[size+i]))
	}
	t.Cleanup(func() {
		for name := range c.processes {
			c.Kill(name)
		}
	})
	for i := range size {
		name := fmt.Sprintf("n%d", i+1)
		c.nodes[name] = node{Name: name, Dir: filepath.Join(dir, name), Port: ports[i], RoutePort: ports[size+i], Routes: routes}
		c.launch(name)
	}
	c.awaitReplication()
	return c
}

// freePorts returns ports of loopback that were free a moment ago.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testkit.Must(t, err)
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

func (c *Cluster) launch(name string) {
	c.t.Helper()
	text, err := json.Marshal(c.nodes[name])
	testkit.Must(c.t, err)
	var says io.Reader
	p := harness.New("server "+name, "", func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), settings+"="+string(text))
		says, cmd.Err = cmd.StdoutPipe()
		cmd.Stderr = os.Stderr
		return cmd
	})
	testkit.Must(c.t, p.Start())
	c.processes[name] = p
	if line, err := bufio.NewReader(says).ReadString('\n'); line != greeting+"\n" {
		c.t.Fatalf("server %s says %q: %v", name, line, err)
	}
}

// awaitReplication waits until a stream with a replica on each server can be created.
func (c *Cluster) awaitReplication() {
	c.t.Helper()
	js := c.Connect(c.URLs())
	testkit.Until(c.t, startWithin, "a replicated stream", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PROBE", Subjects: []string{"probe"}, Replicas: size})
		return err == nil
	})
	testkit.Must(c.t, js.DeleteStream(c.t.Context(), "PROBE"))
	js.Conn().Close()
}

// Connect connects to servers until the end of the test, and to no others.
func (c *Cluster) Connect(urls string) jetstream.JetStream {
	c.t.Helper()
	nc, err := nats.Connect(urls, nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1), nats.RetryOnFailedConnect(true))
	testkit.Must(c.t, err)
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testkit.Must(c.t, err)
	return js
}

// URLs are the addresses of all servers.
func (c *Cluster) URLs() string {
	var out []string
	for name := range c.nodes {
		out = append(out, c.URL(name))
	}
	return strings.Join(out, ",")
}

// URL is the address of a server.
func (c *Cluster) URL(name string) string { return "nats://" + c.Addr(name) }

// Addr is the host:port of a server.
func (c *Cluster) Addr(name string) string { return fmt.Sprintf("127.0.0.1:%d", c.nodes[name].Port) }

// Others are the addresses of the other servers.
func (c *Cluster) Others(name string) string {
	var out []string
	for other := range c.nodes {
		if other != name {
			out = append(out, c.URL(other))
		}
	}
	return strings.Join(out, ",")
}

// Leader returns the server that leads a stream, once there is one.
func (c *Cluster) Leader(js jetstream.JetStream, stream string) (leader string) {
	c.t.Helper()
	c.awaitInfo(js, stream, "leader", func(info *jetstream.ClusterInfo) bool {
		leader = info.Leader
		return leader != ""
	})
	return leader
}

// AwaitReplicas waits until every replica of a stream is up to date.
func (c *Cluster) AwaitReplicas(js jetstream.JetStream, stream string) {
	c.t.Helper()
	c.awaitInfo(js, stream, "replicas", func(info *jetstream.ClusterInfo) bool {
		current := 0
		for _, r := range info.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		return info.Leader != "" && current == size-1
	})
}

func (c *Cluster) awaitInfo(js jetstream.JetStream, stream, what string, holds func(*jetstream.ClusterInfo) bool) {
	c.t.Helper()
	testkit.Until(c.t, startWithin, what+" of "+stream, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		s, err := js.Stream(ctx, stream)
		return err == nil && s.CachedInfo().Cluster != nil && holds(s.CachedInfo().Cluster)
	})
}

// Kill ends a server at once, without a word to the others.
func (c *Cluster) Kill(name string) {
	if p := c.processes[name]; p != nil {
		p.Kill()
		delete(c.processes, name)
	}
}

// Restart starts a killed server on its files.
func (c *Cluster) Restart(name string) {
	c.t.Helper()
	c.launch(name)
}

// Freeze stops a server as a paused machine does: its connections stay open.
func (c *Cluster) Freeze(name string) { c.signal(name, syscall.SIGSTOP) }

// Thaw continues a frozen server.
func (c *Cluster) Thaw(name string) { c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) {
	c.t.Helper()
	testkit.Must(c.t, c.processes[name].Cmd.Process.Signal(s))
}
