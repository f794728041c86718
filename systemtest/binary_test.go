package systemtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// theBinary is built once, by the first test that needs it.
var theBinary binary

type binary struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func (b *binary) get(t testing.TB) string {
	t.Helper()
	b.once.Do(b.build)
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func (b *binary) build() {
	if b.dir, b.err = os.MkdirTemp("", "edda-systemtest"); b.err != nil {
		return
	}
	b.path = filepath.Join(b.dir, "edda")
	cmd := exec.Command("go", "build", "-o", b.path, "edda/cmd/edda")
	cmd.Stderr = os.Stderr
	b.err = cmd.Run()
}

func (b *binary) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // it is the system's folder for such things
	}
}
