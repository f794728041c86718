// Package natscluster is three NATS servers with JetStream for tests: those of
// [natsservers], each a process of the binary of the test. Its TestMain calls [Main].
package natscluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"edda/internal/natsservers"
	"edda/internal/testkit"
)

// Main runs the tests of a package, or a server if this process is one. Run is that of testing.M,
// with what the package does around it.
func Main(m interface{ Run() int }) {
	natsservers.Main()
	os.Exit(m.Run())
}

// Cluster is three servers, n1 to n3.
type Cluster struct {
	t       testing.TB
	dir     string
	servers *natsservers.Servers
}

// Start starts the servers, and returns when they store replicated messages. They end with the test.
func Start(t testing.TB) *Cluster {
	t.Helper()
	dir := t.TempDir()
	s, err := natsservers.Start(t.Context(), dir)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, s.Stop()) })
	return &Cluster{t: t, dir: dir, servers: s}
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
	return c.servers.URLs()
}

// URL is the address of a server.
func (c *Cluster) URL(name string) string { return "nats://" + c.Addr(name) }

// Addr is the host:port of a server.
func (c *Cluster) Addr(name string) string { return c.servers.Addrs()[name] }

// Others are the addresses of the other servers.
func (c *Cluster) Others(name string) string {
	var out []string
	for other := range c.servers.Addrs() {
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
		return info.Leader != "" && current == len(c.servers.Addrs())-1
	})
}

func (c *Cluster) awaitInfo(js jetstream.JetStream, stream, what string, holds func(*jetstream.ClusterInfo) bool) {
	c.t.Helper()
	testkit.Until(c.t, natsservers.StartWithin, what+" of "+stream, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		s, err := js.Stream(ctx, stream)
		return err == nil && s.CachedInfo().Cluster != nil && holds(s.CachedInfo().Cluster)
	})
}

// Kill ends a server at once, without a word to the others.
func (c *Cluster) Kill(name string) { c.servers.Process(name).Kill() }

// Wipe kills a server and removes its files.
func (c *Cluster) Wipe(name string) {
	c.t.Helper()
	testkit.Must(c.t, c.servers.Wipe(name))
}

// Restart starts a killed server on its files.
func (c *Cluster) Restart(name string) {
	c.t.Helper()
	testkit.Must(c.t, c.servers.Process(name).Start())
}

// Remember starts the servers again, and notes their files in between. back starts them with those, as after a power cut
// that took what was not synced.
func (c *Cluster) Remember() (back func()) {
	c.t.Helper()
	noted := c.t.TempDir()
	c.again(func() error { return os.CopyFS(noted, os.DirFS(c.dir)) })
	return func() {
		c.t.Helper()
		c.again(func() error {
			for name := range c.servers.Addrs() {
				if err := os.RemoveAll(filepath.Join(c.dir, name)); err != nil {
					return err
				}
				if err := os.CopyFS(filepath.Join(c.dir, name), os.DirFS(filepath.Join(noted, name))); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// again kills all servers, and starts them after do.
func (c *Cluster) again(do func() error) {
	c.t.Helper()
	for name := range c.servers.Addrs() {
		c.Kill(name)
	}
	testkit.Must(c.t, do())
	for name := range c.servers.Addrs() {
		c.Restart(name)
	}
}

// Freeze stops a server as a paused machine does: its connections stay open.
func (c *Cluster) Freeze(name string) { c.signal(name, syscall.SIGSTOP) }

// Thaw continues a frozen server.
func (c *Cluster) Thaw(name string) { c.signal(name, syscall.SIGCONT) }

func (c *Cluster) signal(name string, s syscall.Signal) {
	c.t.Helper()
	testkit.Must(c.t, c.servers.Process(name).Cmd.Process.Signal(s))
}
