//go:build !race

package systemtest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAPipeAmongTheManifestsHangsNeitherAReloadNorTheStop: nobody writes it, and a device
// has no end. What is not a file is named, and what ran runs on.
func TestAPipeAmongTheManifestsHangsNeitherAReloadNorTheStop(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.yaml", smallSaga)
	c := dev(t, t.TempDir(), dir)
	strange := filepath.Join(dir, "x.yaml")
	for name, lay := range map[string]func() error{
		"a pipe":   func() error { return syscall.Mkfifo(strange, 0o600) },
		"a device": func() error { return os.Symlink("/dev/zero", strange) },
		"a folder": func() error { return os.Symlink(t.TempDir(), strange) },
	} {
		if err := lay(); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"lint", dir}, {"test", dir}, {"lint", strange}, {"dev", "--data", t.TempDir(), "--addr", freeAddr(t), "--nats-addr", freeAddr(t), dir}} {
			if name == "a folder" && args[1] == strange {
				continue // of a folder that is named the manifests are read
			}
			if said, code := command(t, args...); code == 0 || !strings.Contains(said, "x.yaml is "+name) {
				t.Errorf("%s: edda %s: code %d, %.500s", name, strings.Join(args, " "), code, said)
			}
		}
		if said, code := c.cli("reload"); code == 0 || !strings.Contains(said, "x.yaml is "+name) {
			t.Errorf("%s: edda reload: code %d, %.500s", name, code, said)
		}
		_, js := client(t, c.nats)
		begin(t, js, "A")
		until(t, "what ran runs on", func() bool { return len(c.instances("small")) == 1 })
		if err := os.Remove(strange); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(strange, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, code := c.cli("reload"); code == 0 {
		t.Errorf("edda reload took a pipe: %.500s", said)
	}
	if code := c.terminate(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err)
	}
}
