package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestARefusedStartBoundAVersionToItsText: whoever mended the manifest before the
// next start was told to raise a version that had never run.
func TestARefusedStartBoundAVersionToItsText(t *testing.T) {
	nats := startNATS(t, "127.0.0.1:0")
	text := "saga: order\nversion: 1\nkey: event.id\non: {Placed: {start: true}, Ended: {do: [{done: =state}]}}\n"
	dir := folder(t, map[string]string{"order.yaml": text})
	holder := startRun(t, nats.URL(), dir, "--data", t.TempDir())
	holder.err.wait(t, started)
	data := t.TempDir()
	refused := startRun(t, nats.URL(), dir, "--data", data)
	refused.err.wait(t, `\(ended\)`)
	if code := refused.stop(); code != 1 {
		t.Fatalf("two processes with the same tenants: %d %s", code, refused.err)
	}
	if code := holder.stop(); code != 0 {
		t.Fatal(code, holder.err)
	}
	write(t, filepath.Join(dir, "order.yaml"), strings.Replace(text, "start: true", "start: true, set: {n: 1}", 1)+"state: {n: 0}\n")
	mended := startRun(t, nats.URL(), dir, "--data", data, "--adopt-empty")
	mended.err.wait(t, started)
	if code := mended.stop(); code != 0 {
		t.Fatal(code, mended.err)
	}
	// What ran is bound.
	write(t, filepath.Join(dir, "order.yaml"), text)
	other := startRun(t, nats.URL(), dir, "--data", data)
	other.err.wait(t, `\(ended\)`)
	if code := other.stop(); code == 0 || !strings.Contains(other.err.String(), "saga order version 1 ran here with another text") {
		t.Errorf("%d %s", code, other.err)
	}
}
