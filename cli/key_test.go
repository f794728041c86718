package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPayloadsAreEncryptedAtRest(t *testing.T) {
	keys, data := filepath.Join(t.TempDir(), "keyset.json"), t.TempDir()
	for _, verb := range []string{"create", "rotate"} {
		if code, _, said := shell(t, nil, "key", verb, "--keyset", keys); code != 0 {
			t.Fatal(said)
		}
	}
	if code, _, said := shell(t, nil, "key", "create", "--keyset", keys); code != 1 || !strings.Contains(said, "the file exists") {
		t.Errorf("%d %s", code, said)
	}
	config := filepath.Join(t.TempDir(), "edda.yaml")
	write(t, config, "encryption: {keyset: "+keys+"}\n")
	nats := startNATS(t, "127.0.0.1:0")
	dir := folder(t, map[string]string{"order.yaml": orderSaga})
	r := startRun(t, nats.URL(), dir, "--data", data, "--config", config)
	r.err.wait(t, started)
	r.edda(t, "send", "Order.OrderPlaced", "--id", "O1", "--data", `{"order_id":"O1","total":4711004711}`)
	r.until(t, "4711004711", "instance", "describe", "order", "O1", "--tenant", "default", "-o", "json")
	r.stop()
	if code := scan(t, data, "4711004711"); code != "" {
		t.Errorf("%s has the payload in the clear", code)
	}
	// Without the keyset it is not opened; with it, it goes on.
	r = startRun(t, nats.URL(), dir, "--data", data)
	r.err.wait(t, `\(ended\)`)
	if code := r.stop(); code != 1 || !strings.Contains(r.err.String(), "is encrypted: name its keyset with EDDA_ENCRYPTION_KEYSET, or --config with encryption.keyset") {
		t.Errorf("%d %s", code, r.err)
	}
	if code, _, said := shell(t, []string{"EDDA_ENCRYPTION_KEYSET=" + keys}, "key", "rotate"); code != 0 {
		t.Fatal(said)
	}
	r = startRun(t, nats.URL(), dir, "--data", data, "--config", config)
	r.err.wait(t, started)
	r.until(t, "4711004711", "instance", "describe", "order", "O1", "--tenant", "default", "-o", "json")
}

// scan names a file below a folder that has the text.
func scan(t *testing.T, dir, text string) (found string) {
	t.Helper()
	seen := 0
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		seen++
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), text) {
			found = path
		}
		return err
	}); err != nil || seen == 0 {
		t.Fatalf("%d files, %v", seen, err)
	}
	return found
}
