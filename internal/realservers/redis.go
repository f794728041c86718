package realservers

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// RedisOptions configure a Redis. The zero value has no password and no persistence.
type RedisOptions struct {
	Databases int    // 16 by default
	Password  string // of the default user; empty means none
	// Users are the rules of further users, as ACL SETUSER takes them:
	// "router on >secret ~msg_* +lpush".
	Users []string
	// AppendOnly syncs every write before its answer, so that a kill loses nothing.
	AppendOnly bool
	// TLS makes the server speak TLS only and require a client certificate. The Server
	// names one.
	TLS bool
	// Socket makes it listen on a unix socket, too.
	Socket bool
	// More holds further command-line options, such as "--maxmemory", "3mb".
	More []string
}

// Redis starts a Redis.
func Redis(o RedisOptions) (*Server, error) {
	s, err := newServer("redis")
	if err != nil {
		return nil, err
	}
	s.User, s.Password, s.Database = "default", o.Password, "0"
	if s.again, err = s.redis(o); err == nil {
		err = s.again()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// redis makes a function that starts the server.
func (s *Server) redis(o RedisOptions) (func() error, error) {
	server, err := find("redis-server", "redis-server", "/usr/bin")
	if err != nil {
		return nil, err
	}
	args := []string{"--bind", s.Host, "--dir", s.dir, "--daemonize", "no", "--save", "", "--maxmemory-policy", "noeviction", "--appendonly", "no"}
	if o.AppendOnly {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if o.Databases > 0 {
		args = append(args, "--databases", strconv.Itoa(o.Databases))
	}
	if o.Password != "" {
		args = append(args, "--requirepass", o.Password)
	}
	for _, user := range o.Users {
		args = append(append(args, "--user"), strings.Fields(user)...)
	}
	if o.Socket {
		s.Socket = filepath.Join(s.dir, "redis.sock")
		args = append(args, "--unixsocket", s.Socket, "--unixsocketperm", "777")
	}
	secured, err := s.secured(o.TLS)
	if err != nil {
		return nil, err
	}
	args = append(append(args, secured...), o.More...)
	return func() error { return s.start(exec.Command(server, args...), "Ready to accept connections", "redis") }, nil
}

// secured returns the options of its listener.
func (s *Server) secured(tls bool) ([]string, error) {
	if !tls {
		return []string{"--port", s.Port}, nil
	}
	cert, key := filepath.Join(s.dir, "server.crt"), filepath.Join(s.dir, "server.key")
	return []string{"--port", "0", "--tls-port", s.Port, "--tls-ca-cert-file", filepath.Join(s.dir, "ca.crt"), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "yes"}, s.certified()
}

// Kill kills the server with SIGKILL. Restart starts it again with the same port and
// folder.
func (s *Server) Kill() error {
	err := s.cmd.Process.Kill()
	<-s.said.ended
	_ = s.cmd.Wait() // the exit status is that of the kill
	return err
}

// Restart restarts a killed server.
func (s *Server) Restart() error { return s.again() }

// Pause makes the server hang until Resume.
func (s *Server) Pause() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }
