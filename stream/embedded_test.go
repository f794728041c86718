package stream

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"edda"
)

// These tests use real ports and files, outside of bubbles.

func TestEmbeddedServerOnAPort(t *testing.T) {
	dir := t.TempDir()
	for round := range 2 { // the second finds what the first one stored
		s, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir, Addr: "127.0.0.1:0", SyncAlways: true, MaxPayload: 2 << 20})
		if err != nil {
			t.Fatal(err)
		}
		nc, js, err := Connect(Connection{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		if nc.MaxPayload() != 2<<20 {
			t.Errorf("the payload limit is %d", nc.MaxPayload())
		}
		found, err := EnsureStreams(t.Context(), js, StreamOptions{SyncAlways: true})
		if err != nil {
			t.Fatal(err)
		}
		if found[0].Created != (round == 0) {
			t.Errorf("round %d: the stream is %+v", round, found[0])
		}
		nc.Close()
		s.Close()
		s.Close() // the second does nothing
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Addr: l.Addr().String()})
	wantError(t, err, edda.Permanent, l.Addr().String(), "in use")
}

func TestWrongAddresses(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:nats", "300.1.1.1:4222"} {
		_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Addr: addr})
		wantError(t, err, edda.Permanent, "start nats")
	}
}

func TestFolderThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: filepath.Join(file, "sub")})
	wantError(t, err, edda.Permanent, file)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to say so", took)
	}
}

func TestPayloadBeyondWhatNATSAllows(t *testing.T) {
	_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), MaxPayload: 1 << 30})
	wantError(t, err, edda.Permanent, "1073741824")
}

func TestConnectWaitsForTheServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	nc, _, err := Connect(Connection{URL: "nats://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if nc.IsConnected() {
		t.Fatal("it is connected to nothing")
	}
	changes := nc.StatusChanged(nats.CONNECTED)
	s, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case <-changes:
	case <-ctx.Done():
		t.Error("it does not connect once the server is there")
	}
}

func TestConnectionFromTheEnvironment(t *testing.T) {
	env := map[string]string{
		"NATS_URL": "u", "NATS_CREDS": "c", "NATS_USER": "us", "NATS_PASSWORD": "p", "NATS_TOKEN": "t",
		"NATS_NKEY": "n", "NATS_CERT": "ce", "NATS_KEY": "k", "NATS_CA": "ca", "NATS_CONTEXT": "x",
	}
	got := Connection{URL: "mine"}.FromEnv(func(name string) string { return env[name] })
	want := Connection{
		URL: "mine", Creds: "c", User: "us", Password: "p", Token: "t", NKey: "n", Cert: "ce", Key: "k", CA: "ca", Context: "x",
	}
	if got != want {
		t.Errorf("got %+v", got)
	}
}

func TestWrongSettingsAreErrors(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	nkey := filepath.Join(t.TempDir(), "nkey")
	if err := os.WriteFile(nkey, []byte("no seed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		c    Connection
		says string
	}{
		"creds":   {Connection{Creds: "/no/such/file"}, "/no/such/file"},
		"ca":      {Connection{CA: "/no/such/ca"}, "/no/such/ca"},
		"cert":    {Connection{Cert: nkey}, "NATS_KEY"},
		"nkey":    {Connection{NKey: nkey}, nkey},
		"context": {Connection{Context: "nowhere"}, "nowhere"},
		"url":     {Connection{URL: "nats://[::1"}, "connect to nats"},
	} {
		nc, _, err := Connect(test.c)
		if err == nil {
			nc.Close()
		}
		t.Run(name, func(t *testing.T) { wantError(t, err, edda.Permanent, test.says) })
	}
}

func TestContextOfTheNATSCommandLine(t *testing.T) {
	s, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	contexts := filepath.Join(home, "nats", "context")
	if err := os.MkdirAll(contexts, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{"good": s.URL(), "bad": "nats://127.0.0.1:1"} {
		if err := os.WriteFile(filepath.Join(contexts, name+".json"), []byte(`{"url":"`+url+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []Connection{{Context: "good"}, {Context: "bad", URL: s.URL()}} {
		nc, _, err := Connect(c)
		if err != nil {
			t.Fatal(err)
		}
		if !nc.IsConnected() || !strings.HasSuffix(s.URL(), nc.ConnectedAddr()) {
			t.Errorf("%+v connects to %q", c, nc.ConnectedAddr())
		}
		nc.Close()
	}
}

func TestOnlyThisProcessReachesAServerWithoutAnAddress(t *testing.T) {
	s, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.URL() != "" {
		t.Errorf("it listens on %s", s.URL())
	}
}
