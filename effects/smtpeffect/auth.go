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

// The words of auth: in a manifest. The protocol has them in upper case.
const (
	authAuto   = "auto"
	authPlain  = "plain"
	authLogin  = "login"
	authCram   = "cram-md5"
	authScram  = "scram-sha-256"
	maxRounds  = 1_000_000 // of SCRAM: servers ask for thousands, and more would use much CPU
	wireOfCram = "CRAM-MD5"
)

func auths() []string { return []string{authAuto, authPlain, authLogin, authCram, authScram} }

// preferred lists the mechanisms of auth: auto. SCRAM is first, because it does not show the
// password; the others are ordered by how well servers support them.
func preferred() []string { return []string{"SCRAM-SHA-256", "PLAIN", "LOGIN", wireOfCram} }

// authenticate sends the credentials, if there are any, on a connection that is encrypted or local.
func (s *session) authenticate() error {
	if s.server.username == "" {
		return nil
	}
	if !s.server.encrypted() && !s.local() {
		return impossible(errors.New("credentials are not shown over a connection that is not encrypted: use security: starttls or tls"))
	}
	_, offered := s.client.Extension("AUTH")
	name := s.mechanism(words(offered))
	if name == "" {
		return notSent(atAuth, "the server offers no way to authenticate that auth: "+s.server.auth+" allows")
	}
	return s.authenticated(s.client.Auth(s.server.credentials(name)))
}

// mechanism chooses among the offered mechanisms. It returns empty if none is allowed.
func (s *session) mechanism(offered []string) string {
	for _, name := range preferred() {
		wanted := s.server.auth == authAuto || slices.Contains(words(s.server.auth), name)
		if wanted && slices.Contains(offered, name) {
			return name
		}
	}
	return ""
}

func (r server) credentials(mechanism string) smtp.Auth {
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

// authenticated classifies the result of authentication. It keeps only the codes of a refusal,
// because the text may repeat the credentials.
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
		return notSent(atAuth, s.server.clean(err.Error()))
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

// mutual is SCRAM in which the server must prove that it knows the password, and may ask for
// maxRounds at most.
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
