package smtpeffect

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"

	"github.com/wneessen/go-mail/smtp"
)

// The words of auth in a manifest; a mechanism's name on the wire is in upper case.
const (
	authAuto   = "auto"
	authPlain  = "plain"
	authLogin  = "login"
	authCram   = "cram-md5"
	authScram  = "scram-sha-256"
	maxRounds  = 1_000_000 // of SCRAM: a server asks for some thousands; more would keep this machine busy
	wireOfCram = "CRAM-MD5"
)

func auths() []string { return []string{authAuto, authPlain, authLogin, authCram, authScram} }

// preferred lists the mechanisms of auth: auto, best first: one that does not
// show the password, then those that every server does right.
func preferred() []string { return []string{"SCRAM-SHA-256", "PLAIN", "LOGIN", wireOfCram} }

// authenticate shows the credentials, where there are any, over a connection
// that is encrypted or does not leave this machine.
func (s *session) authenticate() error {
	if s.relay.username == "" {
		return nil
	}
	if !s.relay.encrypted() && !s.local() {
		return impossible(errors.New("credentials are not shown over a connection that is not encrypted: use security: starttls or tls"))
	}
	_, offered := s.client.Extension("AUTH")
	name := s.mechanism(words(offered))
	if name == "" {
		return notSent(atAuth, "the server offers no way to authenticate that auth: "+s.relay.auth+" allows")
	}
	return s.authenticated(s.client.Auth(s.relay.credentials(name)))
}

// mechanism chooses by name; empty when the server has none that is allowed.
func (s *session) mechanism(offered []string) string {
	for _, name := range preferred() {
		wanted := s.relay.auth == authAuto || slices.Contains(words(s.relay.auth), name)
		if wanted && slices.Contains(offered, name) {
			return name
		}
	}
	return ""
}

func (r relay) credentials(mechanism string) smtp.Auth {
	switch mechanism {
	case "PLAIN":
		return smtp.PlainAuth("", r.username, r.password, r.host, !r.encrypted())
	case "LOGIN":
		return smtp.LoginAuth(r.username, r.password, r.host, !r.encrypted())
	case wireOfCram:
		return smtp.CRAMMD5Auth(r.username, r.password)
	default:
		return &mutual{Auth: smtp.ScramSHA256Auth(r.username, r.password)}
	}
}

// authenticated says how it ended, without a text in which the exchange could
// be echoed: of a refusal only its codes are kept.
func (s *session) authenticated(err error) error {
	var said *textproto.Error
	var broken net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && negative(said.Code):
		no := parseReply(said.Code, said.Msg)
		no.text = "the server refused the user name or the password"
		return &refusal{stage: atAuth, reply: no}
	case errors.As(err, &broken) || errors.Is(err, io.EOF):
		return notSent(atAuth, s.relay.clean(err.Error()))
	case errors.Is(err, errRounds) || errors.Is(err, errUnproved):
		return notSent(atAuth, err.Error())
	default:
		return notSent(atAuth, "the server does not keep to the mechanism")
	}
}

var (
	errRounds   = errors.New("the server asks for too many rounds of SCRAM")
	errUnproved = errors.New("the server did not prove that it knows the password")
)

// mutual is SCRAM that insists on the server's half: that it proves to know the
// password, and that it asks for a bounded amount of work.
type mutual struct {
	smtp.Auth
	proved bool
}

var rounds = regexp.MustCompile(`(?:^|,)i=(\d+)`)

// Next answers a challenge; see smtp.Auth.
func (m *mutual) Next(challenge []byte, more bool) ([]byte, error) {
	if !more && !m.proved {
		return nil, errUnproved
	}
	if asked := rounds.FindSubmatch(challenge); more && asked != nil {
		if n, err := strconv.Atoi(string(asked[1])); err != nil || n > maxRounds {
			return nil, errRounds
		}
	}
	answer, err := m.Auth.Next(challenge, more)
	if err == nil && more && bytes.HasPrefix(challenge, []byte("v=")) {
		m.proved = true
	}
	return answer, err
}
