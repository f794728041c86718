package smtpeffect

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"edda/effects/dial"
	"edda/expression"
)

// How a connection is encrypted.
const (
	securityStartTLS = "starttls" // after the greeting, before anything else
	securityTLS      = "tls"      // from the first byte
	securityNone     = "none"
)

func securities() []string { return []string{securityStartTLS, securityTLS, securityNone} }

// relay is the mail server of one call and how to speak to it.
type relay struct {
	address, host string // host:port, and the host alone
	security      string
	tls           *tls.Config
	username      string
	password      string
	auth          string
	hello         string            // the name this client gives itself
	hide          *strings.Replacer // what no error and no answer may show
}

// relayOf reads the evaluated map of the manifest.
func relayOf(config map[string]any, hello string) (relay, error) {
	text := func(name string) string { return expression.Text(config[name]) }
	r := relay{address: text("server"), security: securityStartTLS, username: text("username"), password: text("password"), auth: authAuto, hello: hello}
	if config["security"] != nil {
		r.security = text("security")
	}
	if config["auth"] != nil {
		r.auth = text("auth")
	}
	var err error
	if r.host, err = hostOf(r.address); err != nil {
		return relay{}, err
	}
	r.hide = r.secrets()
	return r.checked(config)
}

// checked refuses what lint would have refused, had it known the values.
func (r relay) checked(config map[string]any) (_ relay, err error) {
	switch {
	case !slices.Contains(securities(), r.security):
		return relay{}, errors.New("security is one of " + strings.Join(securities(), ", "))
	case !slices.Contains(auths(), r.auth):
		return relay{}, errors.New("auth is one of " + strings.Join(auths(), ", "))
	case (r.username == "") != (r.password == ""):
		return relay{}, errors.New("username and password go together, and one is empty")
	case strings.ContainsRune(r.username+r.password, 0):
		return relay{}, errors.New("username or password holds a NUL")
	}
	if r.tls, err = dial.TLS(config["tls"]); err != nil {
		return relay{}, err
	}
	if r.tls.ServerName == "" {
		r.tls.ServerName = r.host
	}
	return r, nil
}

// hostOf takes a server's address apart. The text is left out of the error: it
// may hold a secret.
func hostOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	n, numberErr := strconv.Atoi(port)
	if err != nil || numberErr != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, "/@ \t\r\n\x00") {
		return "", errors.New("server is host:port such as mail.example:587")
	}
	return host, nil
}

// secrets are the forms in which the password travels: a server might echo them.
// What else is secret, the worker keeps out of results.
func (r relay) secrets() *strings.Replacer {
	encode := base64.StdEncoding.EncodeToString
	var pairs []string
	for _, form := range []string{r.password, encode([]byte(r.password)), encode([]byte("\x00" + r.username + "\x00" + r.password))} {
		if r.password != "" {
			pairs = append(pairs, form, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// clean makes a text that the server had a part in fit to be shown.
func (r relay) clean(text string) string { return shortened(r.hide.Replace(text)) }

// reply is what the server said, without the secrets it may have echoed.
func (r relay) reply(code int, message string) reply {
	return parseReply(code, r.hide.Replace(message))
}

// encrypted reports whether the connection is.
func (r relay) encrypted() bool { return r.security != securityNone }
