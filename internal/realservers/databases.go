package realservers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Postgres starts a PostgreSQL.
func Postgres() (*Server, error) {
	s, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	if err := s.postgres(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) postgres() error {
	const bin = "/usr/lib/postgresql/*/bin"
	initdb, err := find("initdb", "postgresql", bin)
	if err != nil {
		return err
	}
	server, err := find("postgres", "postgresql", bin)
	if err != nil {
		return err
	}
	password, data := filepath.Join(s.dir, "password"), filepath.Join(s.dir, "data")
	if err := os.WriteFile(password, []byte(s.Password), 0o600); err != nil {
		return err
	}
	s.Database, s.Socket = "postgres", filepath.Join(s.dir, ".s.PGSQL."+s.Port)
	prepare := exec.Command(initdb, "--pgdata", data, "--username", s.User, "--pwfile", password, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync")
	if err := s.run(prepare, "postgres"); err != nil {
		return err
	}
	return s.start(exec.Command(server, "-D", data, "-p", s.Port, "-k", s.dir, "-h", s.Host,
		"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off", "-c", "deadlock_timeout=100ms", "-c", "log_statement=none"),
		"ready to accept connections", "postgres")
}

// MariaDB starts a MariaDB, which by itself cuts values to fit, as old ones do.
func MariaDB() (*Server, error) {
	s, err := newServer("mariadb")
	if err != nil {
		return nil, err
	}
	if err := s.mariadb(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func (s *Server) mariadb() error {
	installer, err := find("mariadb-install-db", "mariadb-server", "/usr/bin")
	if err != nil {
		return err
	}
	server, err := find("mariadbd", "mariadb-server", "/usr/sbin")
	if err != nil {
		return err
	}
	first, data := filepath.Join(s.dir, "first.sql"), filepath.Join(s.dir, "data")
	account := fmt.Sprintf("CREATE DATABASE %s;\nCREATE USER '%s'@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO '%[2]s'@'%%' WITH GRANT OPTION;\n", s.Database, s.User, s.Password)
	if err := os.WriteFile(first, []byte(account), 0o600); err != nil {
		return err
	}
	s.Socket = filepath.Join(s.dir, "mariadb.sock")
	prepare := exec.Command(installer, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	if err := s.run(prepare, "mysql"); err != nil {
		return err
	}
	return s.start(exec.Command(server, "--no-defaults", "--datadir="+data, "--socket="+s.Socket, "--port="+s.Port, "--bind-address="+s.Host, "--init-file="+first,
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--skip-log-bin", "--skip-name-resolve", "--sql-mode=", "--tmpdir="+s.dir, "--pid-file="+filepath.Join(s.dir, "pid")),
		"ready for connections", "mysql")
}
