package realservers

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAServerRunsAndIsGone(t *testing.T) {
	for name, start := range map[string]func() (*Server, error){"PostgreSQL": Postgres, "MariaDB": MariaDB, "Redis": aRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := start()
			if err != nil {
				t.Fatal(err)
			}
			for network, address := range map[string]string{"tcp": s.Address(), "unix": s.Socket} {
				if conn, err := net.Dial(network, address); err != nil {
					t.Error(err)
				} else {
					conn.Close()
				}
			}
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
				t.Errorf("the folder is still there: %v", err)
			}
			if conn, err := net.Dial("tcp", s.Address()); err == nil {
				conn.Close()
				t.Error("it still listens")
			}
		})
	}
}

func aRedis() (*Server, error) { return Redis(RedisOptions{Socket: true}) }

// ask sends a line to a Redis and reads the answer's first line.
func ask(t *testing.T, s *Server, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

func TestARedisIsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct {
		options RedisOptions
		want    string
	}{
		"one that forgets":      {RedisOptions{}, "$-1"},
		"one with a disk":       {RedisOptions{AppendOnly: true}, "$3"},
		"one with 40 databases": {RedisOptions{Databases: 40}, "$-1"},
	} {
		s, err := Redis(o.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask(t, s, "SET color red"); got != "+OK" {
			t.Error(name, got)
		}
		if got := ask(t, s, "SELECT 39"); (got == "+OK") != (o.options.Databases == 40) {
			t.Error(name, got)
		}
		if err := errors.Join(s.Kill(), s.Restart()); err != nil {
			t.Fatal(name, err)
		}
		if got := ask(t, s, "GET color"); got != o.want {
			t.Error(name, got)
		}
		if err := errors.Join(s.Pause(), s.Resume(), s.Stop()); err != nil {
			t.Error(name, err)
		}
	}
}

func TestUsersOfARedis(t *testing.T) {
	t.Parallel()
	s, err := Redis(RedisOptions{Password: "secret", Users: []string{"reader on >pw ~a* +get"}})
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"AUTH secret": "+OK", "AUTH reader pw": "+OK", "GET a": "-NOAUTH Authentication required."} {
		if got := ask(t, s, command); got != want {
			t.Errorf("%s: %s", command, got)
		}
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func TestARedisThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	if s, err := Redis(RedisOptions{More: []string{"--no-such-setting", "1"}}); err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("%v, %v", s, err)
	}
}

func TestWhatIsNotInstalledSaysHowToInstallIt(t *testing.T) {
	if _, err := find("no-such-server", "nothing", "/nowhere"); err == nil || !strings.Contains(err.Error(), "make servers") {
		t.Errorf("error %v", err)
	}
}
