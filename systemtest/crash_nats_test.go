//go:build !race

package systemtest

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"edda/internal/harness"
)

// natsServer is a NATS server in a process of its own, which can be killed.
type natsServer struct {
	*harness.Process
	t         testing.TB
	addr, dir string
}

func startNATS(t testing.TB, addr, dir string) *natsServer {
	t.Helper()
	n := &natsServer{t: t, addr: addr, dir: dir}
	n.Process = harness.New("nats", "", func() *exec.Cmd {
		cmd := exec.Command(theNATS.get(t), addr, dir)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd
	})
	n.start()
	t.Cleanup(n.Kill)
	return n
}

func (n *natsServer) url() string { return "nats://" + n.addr }

// start returns when it greets a client. Before it listens it tries the port, and then resets a connection.
func (n *natsServer) start() {
	n.t.Helper()
	if err := n.Start(); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "nats listens", func() bool {
		conn, err := net.Dial("tcp", n.addr)
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close() }() // it was only a look
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		_, err = conn.Read(make([]byte, 1))
		return err == nil
	})
}

func (n *natsServer) kill() { n.Kill() }

// stop ends it in order.
func (n *natsServer) stop() {
	n.t.Helper()
	if err := n.Stop(); err != nil {
		n.t.Error(err)
	}
}
