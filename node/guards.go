package node

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"edda/access"
	"edda/server"
)

// guards are the token book and the TLS certificates of the server. Either may be nil.
type guards struct {
	tokens       *access.Keeper
	certificates *server.Certificates
}

func openGuards(c Config, log *zap.Logger) (guards, error) {
	var g guards
	var err error
	if c.Tokens.File != "" {
		if g.tokens, err = access.Open(c.Tokens.File); err != nil {
			return g, err
		}
	}
	if c.TLS.Cert == "" && c.TLS.Key == "" {
		if c.TLS.ClientCA != "" {
			return g, errors.New("tls.client_ca: wants tls.cert and tls.key, too")
		}
		return g, nil
	}
	g.certificates, err = server.OpenCertificates(c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA, log)
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
