//go:build !race

package systemtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.etcd.io/bbolt"

	"edda/stream/kv"
)

const smallSaga = `saga: small
version: 1
key: event.k
on:
  Begin: {start: true, do: [{ask: go_on, due: 24h, with: {choices: ["on", "off"]}}]}
  go_on.on: {do: [{done: true}]}
  go_on.off: {do: [{fail: "off"}]}
`

// refused starts the binary where it cannot work: it must say so in one line
// with the words, and exit 1.
func refused(t *testing.T, words []string, args ...string) {
	t.Helper()
	c := launch(t, args...)
	if code := c.code(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	said := strings.TrimSpace(c.err.String())
	if n := strings.Count(said, "\n"); n > 0 || !strings.HasPrefix(said, "edda: ") {
		t.Errorf("it says more than one line: %s", said)
	}
	for _, word := range words {
		if !strings.Contains(said, word) {
			t.Errorf("%q does not say %q", said, word)
		}
	}
}

func devArgs(t *testing.T, manifest, data string) []string {
	t.Helper()
	return []string{"dev", manifest, "--data", data, "--addr", freeAddr(t), "--nats-addr", freeAddr(t)}
}

func TestASecondProcessOnTheSameDataIsRefused(t *testing.T) {
	manifest, data := write(t, t.TempDir(), "small.yaml", smallSaga), t.TempDir()
	first := dev(t, data, manifest)
	refused(t, []string{data, "another process"}, devArgs(t, manifest, data)...)
	if body, status := first.fetch("/ready"); status != 200 {
		t.Errorf("the first one suffered: %s", body)
	}
}

func TestPortsInUseAreRefused(t *testing.T) {
	manifest := write(t, t.TempDir(), "small.yaml", smallSaga)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	for _, flag := range []string{"--addr", "--nats-addr"} {
		refused(t, []string{taken, "in use", flag}, append(devArgs(t, manifest, t.TempDir()), flag, taken)...)
	}
}

func TestAFileInPlaceOfTheDataFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	manifest := write(t, dir, "small.yaml", smallSaga)
	for _, data := range []string{manifest, filepath.Join(manifest, "below")} {
		refused(t, []string{manifest, "--data"}, devArgs(t, manifest, data)...)
	}
}

func TestAStoreOfANewerFormatIsRefused(t *testing.T) {
	manifest, data := write(t, t.TempDir(), "small.yaml", smallSaga), t.TempDir()
	if code := dev(t, data, manifest).terminate(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	files, err := filepath.Glob(filepath.Join(data, "store", "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	db, err := bbolt.Open(files[0], 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte("99"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	refused(t, []string{files[0], "newer", "99"}, devArgs(t, manifest, data)...)
}

func TestAStreamWhoseSettingsContradictOursIsRefused(t *testing.T) {
	server, err := kv.StartEmbedded(context.Background(), kv.EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, js := client(t, server.URL())
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: "AGGREGATE_EVENTS", Subjects: []string{"tenant.*.aggregate.>"}, Storage: jetstream.MemoryStorage,
	}); err != nil {
		t.Fatal(err)
	}
	manifest := write(t, t.TempDir(), "small.yaml", smallSaga)
	config := write(t, t.TempDir(), "edda.yaml", "log: {level: error}\n")
	refused(t, []string{"AGGREGATE_EVENTS", "storage", "file"},
		"run", "--config", config, "--role", "combined", "--nats-url", server.URL(), "--addr", freeAddr(t), "--data", t.TempDir(), manifest)
}

// client connects as any program does.
func client(t testing.TB, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

const brokenSaga = `saga: broken
version: one
key: event.
surprise: 1
on:
  Begin: {start: true, do: [{timer: t}, {done: =step.nobody.result}]}
`

func TestABrokenManifestShowsAllItsErrorsAndStartsNothing(t *testing.T) {
	manifest, data := write(t, t.TempDir(), "broken.yaml", brokenSaga), filepath.Join(t.TempDir(), "data")
	c := launch(t, devArgs(t, manifest, data)...)
	if code := c.code(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, word := range []string{"broken.yaml:2:", "broken.yaml:3:", "broken.yaml:4:", "broken.yaml:6:", "surprise", "^"} {
		if said := c.err.String() + c.out.String(); !strings.Contains(said, word) {
			t.Errorf("%q is missing in\n%s", word, said)
		}
	}
	if _, err := os.Stat(data); err == nil {
		t.Error("the data folder was made")
	}
}
