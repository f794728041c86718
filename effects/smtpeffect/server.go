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

// The words of security:, which say how the connection is encrypted.
const (
	securityStartTLS = "starttls" // after the greeting, before anything else
	securityTLS      = "tls"      // from the first byte
	securityNone     = "none"
)

func securities() []string { return []string{securityStartTLS, securityTLS, securityNone} }

// server is the mail server of one call, and how to connect to it.
type server struct {
	address, host string // host:port, and the host alone
	security      string
	tls           *tls.Config
	username      string
	password      string
	auth          string
	hello         string            // the client's name in EHLO
	hide          *strings.Replacer // masks secrets in errors and answers
}

// serverOf reads the manifest's evaluated map. hello is the client's name in EHLO.
func serverOf(config map[string]any, hello string) (server, error) {
	text := func(name string) string { return expression.Text(config[name]) }
	r := server{address: text("server"), security: securityStartTLS, username: text("username"), password: text("password"), auth: authAuto, hello: hello}
	if config["security"] != nil {
		r.security = text("security")
	}
	if config["auth"] != nil {
		r.auth = text("auth")
	}
	var err error
	if r.host, err = hostOf(r.address); err != nil {
		return server{}, err
	}
	switch { // lint has checked the values that it knew
	case !slices.Contains(securities(), r.security):
		return server{}, errors.New("security is one of " + strings.Join(securities(), ", "))
	case !slices.Contains(auths(), r.auth):
		return server{}, errors.New("auth is one of " + strings.Join(auths(), ", "))
	case (r.username == "") != (r.password == ""):
		return server{}, errors.New("username and password go together, and one is empty")
	case strings.ContainsRune(r.username+r.password, 0):
		return server{}, errors.New("username or password holds a NUL")
	}
	r.hide = r.secrets()
	if r.tls, err = dial.TLS(config["tls"]); err != nil {
		return server{}, err
	}
	if r.tls.ServerName == "" {
		r.tls.ServerName = r.host
	}
	return r, nil
}

// hostOf returns the host of host:port. Its error does not show the text, which may hold a secret.
func hostOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	n, numberErr := strconv.Atoi(port)
	if err != nil || numberErr != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, "/@ \t\r\n\x00") {
		return "", errors.New("server is host:port such as mail.example:587")
	}
	return host, nil
}

// secrets masks the forms in which the password is sent, because a server may repeat them. The
// worker masks all other secrets.
func (r server) secrets() *strings.Replacer {
	encode := base64.StdEncoding.EncodeToString
	var pairs []string
	for _, form := range []string{r.password, encode([]byte(r.password)), encode([]byte("\x00" + r.username + "\x00" + r.password))} {
		if r.password != "" {
			pairs = append(pairs, form, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// clean masks the secrets in a text that the server contributed to, and shortens it.
func (r server) clean(text string) string { return shortened(r.hide.Replace(text)) }

// reply parses a reply and masks the secrets in it.
func (r server) reply(code int, message string) reply {
	return parseReply(code, r.hide.Replace(message))
}

func (r server) encrypted() bool { return r.security != securityNone }
