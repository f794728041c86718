//go:build !race

package systemtest

import (
	"path/filepath"
	"sync"
	"testing"

	"edda/internal/harness"
)

// theBinary is the product, theNATS the torture's NATS server, theWorker the worker of docs/NATS.md. Each is built
// once, by the first test that needs it.
var (
	theBinary = binary{of: "edda/cmd/edda"}
	theNATS   = binary{of: "edda/systemtest/nats"}
	theWorker = binary{of: "edda/docs/examples/worker"}
)

type binary struct {
	of   string // package
	once sync.Once
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
	dir, err := sharedDir()
	if err != nil {
		b.err = err
		return
	}
	b.path = filepath.Join(dir, filepath.Base(b.of))
	b.err = harness.GoBuild("-ldflags", asShipped, "-o", b.path, b.of)
}
