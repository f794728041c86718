package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"edda/internal/files"
)

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
