// Package realservers runs the servers that tests talk to: PostgreSQL, MariaDB
// and Redis as Debian installs them, each in a folder of its own that is gone
// afterwards, on a free port of this machine. They promise nothing about
// durability. A server that is not installed is an error, never a skipped test.
package realservers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
)

// The bounds of starting and stopping.
const (
	startsWithin = time.Minute // a machine with other work makes a server's first start slow
	stopsWithin  = 20 * time.Second
)

// Server is one that runs. Its account may do everything in its database.
type Server struct {
	Host, Port     string
	Socket         string // its unix socket
	User, Password string
	Database       string
	CA, Cert, Key  string // files for a client, of one with TLS

	dir  string
	cmd  *exec.Cmd
	said *log
	// again starts it once more, where that is possible.
	again func() error
}

// Address is host:port.
func (s *Server) Address() string { return net.JoinHostPort(s.Host, s.Port) }

// newServer makes the folder and finds a free port.
func newServer(name string) (*Server, error) {
	dir, err := os.MkdirTemp("", "edda-"+name)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	return &Server{Host: "127.0.0.1", Port: port, User: "edda", Password: "Edda.S3cret", Database: "shop", dir: dir}, err
}

// The ports that servers get: none of those that a system gives to connections that
// go out, or one of these could have it before the server does, or while it restarts.
const (
	firstPort = 20_000
	ports     = 12_000
	portTries = 100
)

// freePort is one that nobody listened on a moment ago.
func freePort() (string, error) {
	var err error
	for range portTries {
		port := strconv.Itoa(firstPort + rand.IntN(ports))
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			return port, l.Close()
		}
	}
	return "", err
}

// find looks for a program in folders, where * stands for any, and in PATH.
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

// asOther makes a command run as one of the accounts where we are root, which
// servers refuse to be, and gives it the folder. It ends when we do.
func (s *Server) asOther(cmd *exec.Cmd, accounts ...string) error {
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // MariaDB removes what others have in a common one
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

// run runs a command of the preparation to its end.
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
	cmd.Stdout = cmd.Stderr // some say it there
	started := make(chan error)
	go func() {
		// The server ends with the thread that started it, so that stays as long: it may
		// be one that ends with a goroutine, as those do that take another user.
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

// Log is what the server has said so far.
func (s *Server) Log() string { return s.said.text() }

// Stop ends the server, which may end by itself before, and removes its folder.
func (s *Server) Stop() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // both end at once, without cleaning up
		late := time.AfterFunc(stopsWithin, func() { _ = s.cmd.Process.Kill() })
		<-s.said.ended
		_ = s.cmd.Wait() // how it ends does not matter
		late.Stop()
	}
	return os.RemoveAll(s.dir)
}

// log keeps what a server says and looks for a word in it.
type log struct {
	ready       string
	seen, ended chan struct{}

	mu   sync.Mutex // guards said
	said bytes.Buffer
}

// read reads until the server has closed its end.
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
