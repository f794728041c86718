package kv

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda/internal/testcerts"
	"edda/stream/wire"
)

// secured starts a server with TLS. With mutual, clients need a certificate of the authority.
func secured(t *testing.T, ca *testcerts.Authority, mutual bool) string {
	t.Helper()
	pair := ca.Issue(t, "nats")
	leaf, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		TLS: true, TLSTimeout: 5, TLSConfig: &tls.Config{Certificates: []tls.Certificate{leaf}, MinVersion: tls.VersionTLS12}}
	if mutual {
		pem, err := os.ReadFile(ca.File)
		if err != nil {
			t.Fatal(err)
		}
		o.TLSVerify, o.TLSConfig.ClientAuth, o.TLSConfig.ClientCAs = true, tls.RequireAndVerifyClientCert, x509.NewCertPool()
		o.TLSConfig.ClientCAs.AppendCertsFromPEM(pem)
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("not ready")
	}
	return s.ClientURL()
}

// reaches reports whether a stream can be created over the connection, or else the error or the
// log.
func reaches(t *testing.T, c Connection) (bool, string) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	c.Log = zap.New(core)
	nc, js, err := Connect(c)
	if err != nil {
		return false, err.Error()
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !nc.IsConnected() {
		if err := nc.LastError(); err != nil && !strings.Contains(err.Error(), "no servers") {
			return false, err.Error()
		}
		select {
		case <-nc.StatusChanged():
		case <-ctx.Done():
			return false, "not connected: " + logs.All()[0].Message
		case <-time.After(10 * time.Millisecond):
		}
	}
	if tlsState, err := nc.TLSConnectionState(); err != nil || tlsState.Version < tls.VersionTLS12 {
		t.Errorf("connected without TLS: %v", err)
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "X", Subjects: []string{"x"}})
	return err == nil, ""
}

func TestNATSOverTLS(t *testing.T) {
	t.Parallel() // it waits
	ca, stranger := testcerts.New(t), testcerts.New(t)
	plain, mutual := secured(t, ca, false), secured(t, ca, true)
	mine, forged := ca.Issue(t, "edda"), stranger.Issue(t, "edda")
	for name, tt := range map[string]struct {
		Connection
		want bool
	}{
		"tls":                                  {Connection{URL: plain, CA: ca.File}, true},
		"tls, by a context":                    {Connection{Context: natsContext(t, plain, ca.File, "", "")}, true},
		"tls, another authority":               {Connection{URL: plain, CA: stranger.File}, false},
		"tls, the system's authorities":        {Connection{URL: plain}, false},
		"mutual tls":                           {Connection{URL: mutual, CA: ca.File, Cert: mine.Cert, Key: mine.Key}, true},
		"mutual tls, by a context":             {Connection{Context: natsContext(t, mutual, ca.File, mine.Cert, mine.Key)}, true},
		"mutual tls, no certificate":           {Connection{URL: mutual, CA: ca.File}, false},
		"mutual tls, a stranger's":             {Connection{URL: mutual, CA: ca.File, Cert: forged.Cert, Key: forged.Key}, false},
		"mutual tls, a certificate, no key":    {Connection{URL: mutual, CA: ca.File, Cert: mine.Cert}, false},
		"mutual tls, files that are not there": {Connection{URL: mutual, CA: ca.File, Cert: mine.Cert + "x", Key: mine.Key}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := reaches(t, tt.Connection)
			if got != tt.want || !got && why == "" {
				t.Errorf("connected %t: %s", got, why)
			}
		})
	}
}

// natsContext writes a context as the nats CLI does, and returns its path, which can be used as its
// name.
func natsContext(t *testing.T, url, ca, cert, key string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "context.json")
	text := `{"url":"` + url + `","ca":"` + ca + `","cert":"` + cert + `","key":"` + key + `"}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFromEnvUsesTheVariablesOfTheNATSCLI(t *testing.T) {
	ca := testcerts.New(t)
	mine := ca.Issue(t, "edda")
	env := map[string]string{"NATS_URL": secured(t, ca, true), "NATS_CA": ca.File, "NATS_CERT": mine.Cert, "NATS_KEY": mine.Key}
	if got, why := reaches(t, Connection{}.FromEnv(func(name string) string { return env[name] })); !got {
		t.Error(why)
	}
}

// TestAStreamThatCannotBeWrittenIsNotHealthy: on a full disk the server gave up its streams, and
// /health reported no problem.
func TestAStreamThatCannotBeWrittenIsNotHealthy(t *testing.T) {
	bubble(t, func(_ context.Context, w *world) {
		if err := w.Server().(*Embedded).Healthy(); err != nil {
			t.Fatal(err)
		}
		w.Server().(*Embedded).log.Errorf("JetStream stream '%s > %s' critical write error: %v", "$G", wire.AggregateEvents, "no space left on device")
		err := w.Server().(*Embedded).Healthy()
		if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "start again") {
			t.Errorf("got %v", err)
		}
	})
}
