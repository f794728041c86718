package grpceffect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda"
	"edda/effects"
	"edda/effects/dial"
	"edda/effects/effecttest"
	"edda/internal/testkit"
)

// doorman counts the connections of a server.
type doorman struct{ came, there atomic.Int64 }

func (d *doorman) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (d *doorman) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (d *doorman) HandleRPC(context.Context, stats.RPCStats)                         {}
func (d *doorman) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		d.came.Add(1)
		d.there.Add(1)
	case *stats.ConnEnd:
		d.there.Add(-1)
	}
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Until(t, 10*time.Second, what, is)
}

func TestCallsShareOneConnection(t *testing.T) {
	d := &doorman{}
	b := openBank(t, describedV1, grpc.StatsHandler(d))
	p := local(t)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			if _, err := b.call(p, fmt.Sprint("k", i%10)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := d.came.Load(); n != 1 {
		t.Errorf("%d connections for a hundred calls", n)
	}
	p.Close()
	until(t, "the connection is closed", func() bool { return d.there.Load() == 0 })
	if _, err := b.call(p, "k"); !errors.Is(err, effects.ErrNotSent) {
		t.Errorf("after Close: %v", err)
	}
}

// TestConnectionsAreBounded: the one that was used longest ago goes, and not
// before its call has ended.
func TestConnectionsAreBounded(t *testing.T) {
	d := &doorman{}
	b := openBank(t, describedV1, grpc.StatsHandler(d))
	p := local(t)
	hanging := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := p.Call(ctx, effects.Call{Key: "hangs", Config: b.config(map[string]any{"message": map[string]any{"order": "hang"}})})
		hanging <- err
	}()
	until(t, "the call hangs", func() bool { return b.count("hangs") == 1 })
	for i := range maxConns + 5 {
		if _, err := p.conns.take(fmt.Sprintf("127.0.0.1:%d", i+1), true, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.conns.byKey); n > maxConns {
		t.Errorf("%d connections are kept", n)
	}
	if d.there.Load() != 1 {
		t.Error("the connection of the call under way was closed")
	}
	cancel()
	if err := <-hanging; err == nil {
		t.Error("the call that hung has an answer")
	}
	until(t, "the connection is closed", func() bool { return d.there.Load() == 0 })
}

func TestServerThatRestarts(t *testing.T) {
	b := openBank(t, describedV1)
	p := local(t)
	for i := range 3 {
		if _, err := b.call(p, fmt.Sprint("up", i)); err != nil {
			t.Fatal(err)
		}
		b.stop()
		_, err := b.call(p, "down")
		if err == nil || errors.Is(err, edda.Permanent) {
			t.Errorf("a server that is down: %v", err)
		}
		b.start(describedV1)
		until(t, "the server is reached again", func() bool {
			_, err := b.call(p, "again")
			return err == nil
		})
	}
	if n := b.count("down"); n != 0 {
		t.Errorf("%d calls came while it was down", n)
	}
}

// TestLineThatIsDeadIsGivenUp: a call that nobody answered is no reason for the
// next one to wait on the same connection.
func TestLineThatIsDeadIsGivenUp(t *testing.T) {
	d := &doorman{}
	b := openBank(t, describedV1, grpc.StatsHandler(d))
	f := effecttest.NewFaults(t, b.addr)
	p, through := local(t), map[string]any{"target": f.Address()}
	if _, err := b.call(p, "k", through); err != nil {
		t.Fatal(err)
	}
	f.NoAnswers()
	err := b.silence(p, 50*time.Millisecond, "silence", through)
	if err == nil || errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) {
		t.Errorf("error %v", err)
	}
	f.None()
	if _, err := b.call(p, "k", through); err != nil || d.came.Load() != 2 {
		t.Errorf("%d connections, %v", d.came.Load(), err)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	p := provider(t, dial.Options{})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[fd00::1]"} {
		for _, extra := range []map[string]any{{"plaintext": true}, {}, {"proto": "shop.proto"}} {
			config := map[string]any{"target": host + ":1", "method": "shop.v1.Payments/Charge"}
			for name, v := range extra {
				config[name] = v
			}
			if config["proto"] != nil {
				config["proto"] = writeProto(t, t.TempDir()+"/shop.proto", shopProto)
			}
			_, err := p.Call(t.Context(), effects.Call{Config: config})
			if !errors.Is(err, edda.Permanent) || !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, dial.ErrForbidden) {
				t.Errorf("%s %v: %v", host, extra, err)
			}
		}
	}
}

func TestListedHostsMayBePrivate(t *testing.T) {
	b := openBank(t, describedV1)
	for word, allowed := range map[string]bool{"127.0.0.1": true, b.addr: true, "127.0.0.0/8": true, "pay.example": false} {
		_, err := b.call(provider(t, dial.Options{Allow: []string{word}, ListedOnly: true}), "k")
		if (err == nil) != allowed || err != nil && !errors.Is(err, dial.ErrForbidden) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// TestNoProxyGetsBetween: grpc by itself would ask the environment, and reach
// through a proxy what the guard refuses.
func TestNoProxyGetsBetween(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{})
	go func() {
		defer close(came)
		if c, err := l.Accept(); err == nil {
			t.Error("the proxy was asked")
			_ = c.Close()
		}
	}()
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	_, err = local(t).Call(t.Context(), effects.Call{Config: map[string]any{"target": "10.0.0.1:443", "method": "a.B/C"}})
	if !errors.Is(err, dial.ErrForbidden) {
		t.Errorf("error %v", err)
	}
	_ = l.Close()
	<-came
}

// certificate is one that signs itself, for localhost and as a client's.
func certificate(t *testing.T) (pair tls.Certificate, cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bank"}, DNSNames: []string{"localhost", "bank.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
	if pair, err = tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

func TestTLS(t *testing.T) {
	pair, cert, key := certificate(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	b := openBank(t, describedV1, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven})))
	names := make(chan string, 1)
	b.answers(func(ctx context.Context, in *dynamicpb.Message) (any, error) {
		from, _ := peer.FromContext(ctx)
		shown := from.AuthInfo.(credentials.TLSInfo).State.PeerCertificates
		names <- fmt.Sprint(len(shown))
		return usual(ctx, in)
	})
	_, port, _ := net.SplitHostPort(b.addr)
	p := local(t)
	for _, tt := range []struct {
		target string
		tls    any
		shown  string // how many certificates the server saw; nothing where it was not called
	}{
		{"localhost:" + port, map[string]any{"ca": cert}, "0"},
		{"localhost:" + port, map[string]any{"ca": cert, "cert": cert, "key": key}, "1"},
		{"127.0.0.1:" + port, map[string]any{"ca": cert, "server_name": "bank.example"}, "0"},
		{"127.0.0.1:" + port, map[string]any{"ca": cert}, ""},
		{"localhost:" + port, nil, ""},
	} {
		_, err := b.call(p, "k", map[string]any{"plaintext": nil, "target": tt.target, "tls": tt.tls})
		switch {
		case tt.shown != "" && err != nil:
			t.Errorf("%s %v: %v", tt.target, tt.tls, err)
		case tt.shown != "":
			if got := <-names; got != tt.shown {
				t.Errorf("%s: the server saw %s certificates, want %s", tt.target, got, tt.shown)
			}
		case !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "certificate"):
			t.Errorf("%s: %v", tt.target, err)
		}
	}
	if _, err := b.call(p, "k", map[string]any{"plaintext": nil, "tls": map[string]any{"ca": "s3cret"}}); !errors.Is(err, edda.Permanent) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a certificate that is none: %v", err)
	}
	if _, err := b.call(p, "k"); err == nil || errors.Is(err, edda.Permanent) {
		t.Errorf("plaintext to a server with TLS: %v", err)
	}
}
