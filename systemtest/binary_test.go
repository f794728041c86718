package systemtest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// theBinary is the product, and theNATS the torture's NATS server. Each is built
// once, by the first test that needs it.
var (
	theBinary = binary{of: "edda/cmd/edda"}
	theNATS   = binary{of: "edda/systemtest/nats"}
)

type binary struct {
	of   string // package
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
	b.path = filepath.Join(b.dir, filepath.Base(b.of))
	b.err = goTool("build", "-ldflags", asShipped, "-o", b.path, b.of)
}

func (b *binary) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir) // it is the system's folder for such things
	}
}
