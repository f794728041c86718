package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"edda/access"
	"edda/internal/files"
	"edda/server"
)

// guards are the token book and the TLS certificates of the server. Either may be nil.
type guards struct {
	tokens       *access.Tokens
	certificates *server.Certificates
}

// openGuards opens the files of callers. A shard has those of its node's front.
func (s Settings) openGuards(log *zap.Logger) (guards, error) {
	if s.front != nil {
		return s.front.guards, nil
	}
	var g guards
	var err error
	if s.Tokens.File != "" {
		if g.tokens, err = access.Open(s.Tokens.File); err != nil {
			return g, err
		}
	}
	if s.TLS.Cert == "" && s.TLS.Key == "" {
		if s.TLS.ClientCA != "" {
			return g, errors.New("tls.client_ca: wants tls.cert and tls.key, too")
		}
		return g, nil
	}
	g.certificates, err = server.OpenCertificates(s.TLS.Cert, s.TLS.Key, s.TLS.ClientCA, log)
	return g, err
}

// reload reloads the files. A file that cannot be used keeps its previous content in use.
func (g guards) reload() error {
	var errs []error
	if g.tokens != nil {
		errs = append(errs, kept(g.tokens.Reload()))
	}
	if g.certificates != nil {
		errs = append(errs, kept(g.certificates.Reload()))
	}
	return errors.Join(errs...)
}

func kept(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the file of before stays in force", err)
}

// ClientTLS loads a client certificate and the trusted authorities; nil if neither is
// configured.
func ClientTLS(cert, key, ca string) (*tls.Config, error) {
	if cert == "" && key == "" && ca == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cert != "" || key != "" {
		pair, err := files.KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if ca == "" {
		return c, nil
	}
	pem, err := files.Read(ca, files.Most)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New("authorities: no certificate in " + ca)
	}
	return c, nil
}
