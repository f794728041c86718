package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"edda/internal/files"
)

// certificateAge is how old the loaded files may be at a handshake. Handshakes reload
// older ones, so that a rotation of certificates needs no signal.
const certificateAge = 10 * time.Second

// Certificates holds the server's certificate and the authorities of its clients. It
// reloads changed files and is safe for concurrent use.
type Certificates struct {
	cert, key, clientCA string
	log                 *zap.Logger

	loading sync.Mutex // a slow read of the files must not replace what a later one has read

	mu   sync.Mutex // guards now and read
	now  *tls.Config
	read time.Time
}

// OpenCertificates loads the files. With clientCA a client needs a certificate of these
// authorities (mTLS).
func OpenCertificates(cert, key, clientCA string, log *zap.Logger) (*Certificates, error) {
	if cert == "" || key == "" {
		return nil, errors.New("tls: want both a certificate and a key")
	}
	c := &Certificates{cert: cert, key: key, clientCA: clientCA, log: log}
	return c, c.Reload()
}

// Reload loads the files again. If that fails, the previous certificates stay in use.
func (c *Certificates) Reload() error {
	c.loading.Lock()
	defer c.loading.Unlock()
	next, err := c.load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = time.Now()
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	c.now = next
	return nil
}

func (c *Certificates) load() (*tls.Config, error) {
	pair, err := files.KeyPair(c.cert, c.key)
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.clientCA == "" {
		return out, nil
	}
	pem, err := files.Read(c.clientCA, files.Most)
	if err != nil {
		return nil, err
	}
	out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in " + c.clientCA)
	}
	// A resumed session would survive the removal of its authority.
	out.SessionTicketsDisabled = true
	return out, nil
}

// Config returns the configuration of a listener. Each handshake uses current files.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.fresh(), nil },
	}
}

func (c *Certificates) fresh() *tls.Config {
	c.mu.Lock()
	old := time.Since(c.read) > certificateAge
	if old {
		c.read = time.Now() // only one handshake reloads
	}
	c.mu.Unlock()
	if old {
		if err := c.Reload(); err != nil {
			c.log.Error("certificates are not renewed; the ones from before are shown", zap.Error(err))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
