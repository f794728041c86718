package cli

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"

	"edda/internal/files"
	"edda/node"
)

// The variables with the credentials of the caller.
const (
	envToken     = "EDDA_TOKEN"
	envTokenFile = "EDDA_TOKEN_FILE"
	envCA        = "EDDA_CA"
	envCert      = "EDDA_CERT"
	envKey       = "EDDA_KEY"
)

// credentials are the token and the certificates of a call, and the authorities it trusts.
type credentials struct {
	token, file   string
	ca, cert, key string
}

func (w *credentials) register(flags *pflag.FlagSet) {
	flags.StringVar(&w.token, "token", "", "token to send ("+envToken+"); visible to others on this machine: prefer the variable or a file")
	flags.StringVar(&w.file, "token-file", "", "file that holds the token ("+envTokenFile+")")
	flags.StringVar(&w.ca, "ca", "", "certificate authorities of the server, instead of the system's ("+envCA+"); means https")
	flags.StringVar(&w.cert, "cert", "", "client certificate ("+envCert+"); with --key; means https")
	flags.StringVar(&w.key, "key", "", "its key ("+envKey+")")
}

// scheme is the default scheme of an address.
func (w *credentials) scheme(env func(string) string) string {
	if cmp.Or(w.ca, w.cert, env(envCA), env(envCert)) != "" {
		return "https"
	}
	return "http"
}

// show adds the token to the request. It warns if the token crosses a network without TLS.
func (w *credentials) show(t *terminal, req *http.Request) error {
	token, err := w.secret(t.getenv)
	if err != nil || token == "" {
		return err
	}
	host := req.URL.Hostname()
	if ip := net.ParseIP(host); req.URL.Scheme == "http" && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		fmt.Fprintf(t.err, "edda: warning: the token goes to %s in the clear: name the address with https://\n", host)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// secret returns the token. A flag overrides the environment.
func (w *credentials) secret(env func(string) string) (string, error) {
	file := w.file
	if w.token == "" && file == "" {
		if token := env(envToken); token != "" {
			return token, nil
		}
		file = env(envTokenFile)
	}
	if w.token != "" || file == "" {
		return w.token, nil
	}
	text, err := files.Read(file, files.Most)
	if err != nil {
		return "", usagef("token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (w *credentials) client(env func(string) string) (*http.Client, error) {
	secured, err := node.ClientTLS(cmp.Or(w.cert, env(envCert)), cmp.Or(w.key, env(envKey)), cmp.Or(w.ca, env(envCA)))
	if err != nil {
		return nil, usagef("%w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secured
	transport.DisableKeepAlives = true // a command makes one call
	return &http.Client{Transport: transport}, nil
}
