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

// certificateAge is how old what was read of the files may be at a handshake:
// what rotates certificates need not call anyone.
const certificateAge = 10 * time.Second

// Certificates is what the server shows, and whose clients it takes, read from
// files that may change. Its methods may be called concurrently.
type Certificates struct {
	cert, key, clientCA string
	log                 *zap.Logger

	mu   sync.Mutex // guards both
	now  *tls.Config
	read time.Time
}

// OpenCertificates reads the files. With clientCA only clients with a
// certificate of these authorities may connect (mTLS).
func OpenCertificates(cert, key, clientCA string, log *zap.Logger) (*Certificates, error) {
	if cert == "" || key == "" {
		return nil, errors.New("tls: want both a certificate and a key")
	}
	c := &Certificates{cert: cert, key: key, clientCA: clientCA, log: log}
	return c, c.Reload()
}

// Reload reads the files again. Where they cannot be used the ones from before
// go on.
func (c *Certificates) Reload() error {
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
	// A resumed session would outlive the authority that let it in.
	out.SessionTicketsDisabled = true
	return out, nil
}

// Config is for a listener: each handshake uses what the files hold then.
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
		c.read = time.Now() // one handshake reads; the others go on
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
