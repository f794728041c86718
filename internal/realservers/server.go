// Package realservers runs PostgreSQL, MariaDB and Redis for tests, as Debian installs them.
// Each has a temporary folder and a free loopback port. They are configured without
// durability. A server that is not installed is an error, never a skipped test.
package realservers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"edda/internal/harness"
)

// The bounds of starting and stopping.
const (
	startsWithin = time.Minute // a machine with other work makes a server's first start slow
	stopsWithin  = 20 * time.Second
)

// Server is a running server. Its account has all rights in its database.
type Server struct {
	Host, Port     string
	Socket         string // its unix socket
	User, Password string
	Database       string
	CA, Cert, Key  string // files for a client; empty without TLS

	dir  string
	cmd  *exec.Cmd
	said *log
	// again restarts the server; nil if it cannot.
	again func() error
}

// Address returns host:port.
func (s *Server) Address() string { return net.JoinHostPort(s.Host, s.Port) }

// newServer makes the folder and finds a free port.
func newServer(name string) (*Server, error) {
	dir, err := os.MkdirTemp("", "edda-"+name)
	if err != nil {
		return nil, err
	}
	port, err := harness.FreePort()
	return &Server{Host: "127.0.0.1", Port: port, User: "edda", Password: "Edda.S3cret", Database: "shop", dir: dir}, err
}

// find looks for a program in folders, which may contain *, and in PATH.
func find(program, install string, folders ...string) (string, error) {
	for _, folder := range folders {
		if found, _ := filepath.Glob(filepath.Join(folder, program)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("%s is not installed: run make servers, or install %s", program, install)
}

// asOther runs a command as another account if this process is root, because the servers
// refuse to run as root. The account owns the folder. The command dies with this process.
func (s *Server) asOther(cmd *exec.Cmd, accounts ...string) error {
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // in a shared one MariaDB removes files of others
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range append(accounts, "nobody") {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return chown(s.dir, uid, gid)
	}
	return errors.New("no account to run a server as")
}

func chown(dir string, uid, gid int) error {
	return filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	})
}

// run runs a preparation command and waits for it.
func (s *Server) run(cmd *exec.Cmd, accounts ...string) error {
	if err := s.asOther(cmd, accounts...); err != nil {
		return err
	}
	runtime.LockOSThread() // as start does
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}

// start starts the server and waits until it says that it is ready.
func (s *Server) start(cmd *exec.Cmd, ready string, accounts ...string) error {
	if err := s.asOther(cmd, accounts...); err != nil {
		return err
	}
	s.said = &log{ready: ready, seen: make(chan struct{}), ended: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	cmd.Stdout = cmd.Stderr // some servers report readiness on standard error
	started := make(chan error)
	go func() {
		// Keep the thread that started the server, because the server dies with it. The
		// thread may otherwise end with its goroutine.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			s.said.read(stderr)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd = cmd
	select {
	case <-s.said.seen:
		return nil
	case <-s.said.ended:
		return errors.Join(fmt.Errorf("%s ended: %s", filepath.Base(cmd.Path), s.said.text()), s.Stop())
	case <-time.After(startsWithin):
		return errors.Join(fmt.Errorf("%s is not ready: %s", filepath.Base(cmd.Path), s.said.text()), s.Stop())
	}
}

// Log returns the server's output so far.
func (s *Server) Log() string { return s.said.text() }

// Stop stops the server, if it still runs, and removes its folder.
func (s *Server) Stop() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // both servers exit at once, without a clean shutdown
		late := time.AfterFunc(stopsWithin, func() { _ = s.cmd.Process.Kill() })
		<-s.said.ended
		_ = s.cmd.Wait() // the exit status does not matter
		late.Stop()
	}
	return os.RemoveAll(s.dir)
}

// log keeps the output of a server and looks for a word in it.
type log struct {
	ready       string
	seen, ended chan struct{}

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

// read reads until the server closes its output.
func (l *log) read(r io.Reader) {
	defer close(l.ended)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for found := false; lines.Scan(); {
		l.mu.Lock()
		fmt.Fprintln(&l.said, lines.Text())
		l.mu.Unlock()
		if !found && strings.Contains(lines.Text(), l.ready) {
			found = true
			close(l.seen)
		}
	}
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.said.String()
}
