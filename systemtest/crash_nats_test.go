package systemtest

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// natsServer is a NATS server in a process of its own, which can be killed.
type natsServer struct {
	t         testing.TB
	addr, dir string
	cmd       *exec.Cmd
}

func startNATS(t testing.TB, addr, dir string) *natsServer {
	t.Helper()
	n := &natsServer{t: t, addr: addr, dir: dir}
	n.start()
	t.Cleanup(n.kill)
	return n
}

func (n *natsServer) url() string { return "nats://" + n.addr }

// start returns when it takes connections.
func (n *natsServer) start() {
	n.t.Helper()
	n.cmd = exec.Command(theNATS.get(n.t), n.addr, n.dir)
	n.cmd.Stderr = os.Stderr
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	until(n.t, "nats listens", func() bool {
		conn, err := net.Dial("tcp", n.addr)
		if err != nil {
			return false
		}
		_ = conn.Close() // it was only a look
		return true
	})
}

func (n *natsServer) kill() {
	_ = n.cmd.Process.Kill() // it may have ended
	_ = n.cmd.Wait()         // it was killed
}

// stop ends it in order.
func (n *natsServer) stop() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	if err := n.cmd.Wait(); err != nil {
		n.t.Errorf("nats: %v", err)
	}
}
