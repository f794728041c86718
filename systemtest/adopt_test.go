//go:build !race

package systemtest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestAnEmptyDataFolderForgetsNothingSilently: the start is refused while another store
// has the tenants, goes on where that is meant, and then it is the other one that is refused.
func TestAnEmptyDataFolderForgetsNothingSilently(t *testing.T) {
	dir := t.TempDir()
	nats := startNATS(t, freeAddr(t), t.TempDir())
	manifest := write(t, dir, "small.yaml", smallSaga)
	args := func(data string, more ...string) []string {
		return append([]string{"run", "--role", "saga", "--nats-url", nats.url(), "--data", filepath.Join(dir, data), manifest}, more...)
	}
	start := func(data string, more ...string) *child {
		addr := freeAddr(t)
		c := launch(t, args(data, append(more, "--addr", addr)...)...)
		c.addr, c.nats, c.tenant = addr, nats.url(), "default"
		c.says(`"msg":"started"`)
		return c
	}
	first := start("first")
	_, js := client(t, nats.url())
	if err := publishSurely(js, message(0, "K1", "Begin", `{"k":"K1"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "an instance waits", func() bool { return len(first.instances("small")) == 1 })
	if code := first.terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	refusedRun := func(data string, words ...string) {
		t.Helper()
		c := launch(t, args(data, "--addr", freeAddr(t))...)
		if code := c.code(); code != 1 {
			t.Errorf("exit code %d, want 1", code)
		}
		for _, word := range words {
			if !strings.Contains(c.err.String(), word) {
				t.Errorf("it does not say %q: %s", word, c.err)
			}
		}
	}
	refusedRun("second", "served all tenants", "edda restore", "--adopt-empty")
	if first = start("first"); len(first.instances("small")) != 1 {
		t.Error("the instance is gone")
	}
	if code := first.terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	second := start("second", "--adopt-empty")
	if out, code := second.cli("audit", "list", "--process"); code != 0 || !strings.Contains(out, "adopt-empty") {
		t.Errorf("the audit says nothing: %d %s", code, out)
	}
	if code := second.terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	refusedRun("first", "served all tenants")
	if code := start("second").terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
}
