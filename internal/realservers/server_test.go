package realservers

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestAServerRunsAndIsGone(t *testing.T) {
	for name, start := range map[string]func() (*Server, error){"PostgreSQL": Postgres, "MariaDB": MariaDB} {
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

func TestWhatIsNotInstalledSaysHowToInstallIt(t *testing.T) {
	if _, err := find("no-such-server", "nothing", "/nowhere"); err == nil || !strings.Contains(err.Error(), "make servers") {
		t.Errorf("error %v", err)
	}
}
