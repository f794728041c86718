package realservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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
