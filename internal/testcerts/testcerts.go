// Package testcerts writes certificate authorities and certificates to files, for tests.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates that are valid for an hour.
type Authority struct {
	File string // certificate of the authority

	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// Pair names the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{}
	der := a.make(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "Edda's tests"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}, "")
	a.File = filepath.Join(t.TempDir(), "ca.pem")
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue writes a new certificate of that name for 127.0.0.1.
func (a *Authority) Issue(t testing.TB, name string) Pair {
	t.Helper()
	dir := t.TempDir()
	p := Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	a.IssueInto(t, name, p)
	return p
}

// IssueInto replaces the certificate in the files of p.
func (a *Authority) IssueInto(t testing.TB, name string, p Pair) {
	t.Helper()
	der := a.make(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, p.Key)
	write(t, p.Cert, "CERTIFICATE", der)
}

// make signs a certificate and writes its key to keyFile. Without a keyFile it makes the
// authority's own certificate.
func (a *Authority) make(t testing.TB, c *x509.Certificate, keyFile string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a.serial++
	c.SerialNumber, c.BasicConstraintsValid = big.NewInt(a.serial), true
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if keyFile == "" {
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	must(t, err)
	if keyFile == "" {
		a.cert, err = x509.ParseCertificate(der)
		must(t, err)
		return der
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write(t, keyFile, "PRIVATE KEY", private)
	return der
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
