package httpeffect

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"edda"
	"edda/effects"
	"edda/effects/dial"
)

// shop is the other side: it remembers what it was asked.
type shop struct {
	*httptest.Server
	mu     sync.Mutex // guards below
	calls  int
	seen   map[string]int
	last   *http.Request
	body   string
	conns  map[string]bool
	answer http.HandlerFunc
	log    []entry
}

// entry is what the shop remembers of a request.
type entry struct{ request, key, kind, body string }

// record gives what is seen from now on.
func (s *shop) record() func() []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
	return func() []entry {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.log
	}
}

func open(t *testing.T) *shop {
	s := newShop(t)
	s.Start()
	return s
}

// openTLS serves https under a certificate of its own, which only its ca trusts.
func openTLS(t *testing.T, config *tls.Config) *shop {
	s := newShop(t)
	s.TLS = config
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

func newShop(t *testing.T) *shop {
	s := &shop{seen: map[string]int{}, conns: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are wanted
	t.Cleanup(s.Close)
	return s
}

// ca is who signed for the shop, in PEM.
func (s *shop) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.seen[r.Header.Get("Idempotency-Key")]++
	s.calls++
	s.log = append(s.log, entry{r.Method + " " + r.URL.String(), r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), string(b)})
	s.last, s.body, s.conns[r.RemoteAddr] = r, string(b), true
	answer := s.answer
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/hang":
		<-r.Context().Done()
	case answer != nil:
		answer(w, r)
	default:
		fmt.Fprint(w, `{"id":"P1"}`)
	}
}

func (s *shop) count(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

// total is how many calls there were, whatever their key.
func (s *shop) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func provider(t *testing.T, o dial.Options) *Provider {
	t.Helper()
	return with(t, o, Options{})
}

// standard has the providers of all tests call over net/http alone.
var standard bool

func with(t *testing.T, guarded dial.Options, o Options) *Provider {
	t.Helper()
	guard, err := dial.New(guarded)
	if err != nil {
		t.Fatal(err)
	}
	o.Guard, o.Standard = guard, standard
	p := New(o)
	t.Cleanup(p.Close)
	return p
}

// call makes a call with the key k.
func call(t *testing.T, p *Provider, config map[string]any) (effects.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return p.Call(ctx, effects.Call{Effect: "charge", ID: "c1", Key: "k", Tenant: "acme", Config: config})
}

// classes of what comes of a call.
const (
	answered  = "answered"
	notSent   = "not sent, may be tried again"
	never     = "not sent, never"
	unknown   = "unknown, may be tried again"
	unknowing = "unknown, never again"
)

func class(err error) string {
	unsent, forGood := errors.Is(err, effects.ErrNotSent), errors.Is(err, edda.Permanent)
	switch {
	case err == nil:
		return answered
	case unsent && forGood:
		return never
	case unsent:
		return notSent
	case forGood:
		return unknowing
	default:
		return unknown
	}
}

// nobody is an address where nobody listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ours509 is a certificate of ours and its key, in PEM.
func ours509(t *testing.T) (cert, key string) {
	t.Helper()
	cert, key, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// certificate is one of 127.0.0.1, that nobody else signed for.
func certificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", encoded), err
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
