package realservers

import (
	"errors"
	"fmt"
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

// Sentinel starts a Redis Sentinel that watches a master. After a second without an answer it
// considers the master down. It promotes a replica if quorum sentinels agree.
func Sentinel(master *Server, name string, quorum int) (*Server, error) {
	s, err := newServer("sentinel")
	if err != nil {
		return nil, err
	}
	if err := s.sentinel(master, name, quorum); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) sentinel(master *Server, name string, quorum int) error {
	server, err := find("redis-server", "redis-server", "/usr/bin")
	if err != nil {
		return err
	}
	// A sentinel writes what it learns into this file.
	settings := []string{
		"bind " + s.Host, "port " + s.Port, "dir " + s.dir, "daemonize no",
		fmt.Sprintf("sentinel monitor %s %s %s %d", name, master.Host, master.Port, quorum),
		"sentinel down-after-milliseconds " + name + " 1000", "sentinel failover-timeout " + name + " 5000",
	}
	if master.Password != "" {
		settings = append(settings, "sentinel auth-pass "+name+" "+master.Password)
	}
	conf := filepath.Join(s.dir, "sentinel.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return s.start(exec.Command(server, conf, "--sentinel"), "+monitor master "+name, "redis")
}

// RedisRights returns the ACL rule of a role's user edda-<role>, for RedisOptions.Users: that of
// docs/HERO.md with a password.
func RedisRights(role, password string) (string, error) {
	page, err := page("docs/HERO.md")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(page) {
		if rule, ok := strings.CutPrefix(line, "user edda-"+role+" "); ok {
			return "edda-" + role + " " + strings.ReplaceAll(strings.TrimSpace(rule), "PASSWORD", password), nil
		}
	}
	return "", fmt.Errorf("docs/HERO.md has no user edda-%s", role)
}

// page reads a file of the module that the tests run in.
func page(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			text, err := os.ReadFile(filepath.Join(dir, name))
			return string(text), err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the tests")
		}
		dir = up
	}
}
