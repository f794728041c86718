package smtpeffect

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"edda"
	"edda/effects"
)

func (v *visit) AuthMechanisms() []string { return v.o.mechanisms }

// Auth knows four mechanisms, and one lie: SCRAM that does not prove anything.
func (v *visit) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if v.o.users[user] != password || password == "" {
			return smtp.ErrAuthFailed
		}
		v.o.mu.Lock()
		defer v.o.mu.Unlock()
		v.o.authed = append(v.o.authed, mechanism+" "+user)
		return nil
	}
	switch mechanism {
	case "PLAIN":
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	case "LOGIN":
		return &loginServer{check: check}, nil
	case "CRAM-MD5":
		return &cramServer{users: v.o.users, check: check}, nil
	case "SCRAM-SHA-256":
		return &scramServer{users: v.o.users, check: check, rounds: v.o.rounds, lies: v.o.lies}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

type loginServer struct {
	check func(user, password string) error
	said  []string
}

func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	if response != nil {
		l.said = append(l.said, string(response))
	}
	switch len(l.said) {
	case 0:
		return []byte("Username:"), false, nil
	case 1:
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.said[0], l.said[1])
}

type cramServer struct {
	users map[string]string
	check func(user, password string) error
	asked bool
}

func (c *cramServer) Next(response []byte) ([]byte, bool, error) {
	const challenge = "<1@office.example>"
	if !c.asked {
		c.asked = true
		return []byte(challenge), false, nil
	}
	user, digest, _ := strings.Cut(string(response), " ")
	mac := hmac.New(md5.New, []byte(c.users[user]))
	mac.Write([]byte(challenge))
	if hex.EncodeToString(mac.Sum(nil)) != digest {
		return nil, false, smtp.ErrAuthFailed
	}
	return nil, true, c.check(user, c.users[user])
}

// scramServer is the server's half of RFC 5802.
type scramServer struct {
	users  map[string]string
	check  func(user, password string) error
	rounds int
	lies   string
	step   int
	user   string
	first  string // the client's, bare
	mine   string
}

func (s *scramServer) Next(response []byte) ([]byte, bool, error) {
	s.step++
	switch s.step {
	case 1:
		return nil, false, nil
	case 2:
		return s.challenge(string(response))
	case 3:
		return s.verify(string(response))
	}
	return nil, true, s.check(s.user, s.users[s.user])
}

func (s *scramServer) challenge(response string) ([]byte, bool, error) {
	s.first = strings.TrimPrefix(response, "n,,")
	user, nonce, _ := strings.Cut(strings.TrimPrefix(s.first, "n="), ",r=")
	s.user, s.mine = user, "r="+nonce+"more,s="+base64.StdEncoding.EncodeToString([]byte("salt"))+",i="+strconv.Itoa(s.rounds)
	return []byte(s.mine), false, nil
}

func (s *scramServer) verify(response string) ([]byte, bool, error) {
	bare, proof, _ := strings.Cut(response, ",p=")
	salted, err := pbkdf2.Key(sha256.New, s.users[s.user], []byte("salt"), s.rounds, sha256.Size)
	if err != nil {
		return nil, false, err
	}
	signed := s.first + "," + s.mine + "," + bare
	given, err := base64.StdEncoding.DecodeString(proof)
	if err != nil || len(given) != sha256.Size {
		return nil, false, smtp.ErrAuthFailed
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	for i, b := range sum(stored[:], signed) {
		given[i] ^= b
	}
	if sha256.Sum256(given) != stored {
		return nil, false, smtp.ErrAuthFailed
	}
	server := sum(sum(salted, "Server Key"), signed)
	switch s.lies {
	case "unproved":
		return nil, true, nil
	case "wrong":
		server[0]++
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(server)), false, nil
}

func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func TestMechanisms(t *testing.T) {
	all := []string{"PLAIN", "LOGIN", "CRAM-MD5", "SCRAM-SHA-256"}
	tests := []struct {
		auth    any
		offered []string
		want    string
	}{
		{"plain", all, "PLAIN ann"}, {"login", all, "LOGIN ann"}, {"cram-md5", all, "CRAM-MD5 ann"}, {"scram-sha-256", all, "SCRAM-SHA-256 ann"},
		{nil, all, "SCRAM-SHA-256 ann"}, {"auto", all[:3], "PLAIN ann"}, {"auto", all[1:3], "LOGIN ann"}, {"auto", all[2:3], "CRAM-MD5 ann"},
	}
	for _, tt := range tests {
		for _, security := range securities() {
			o := open(t, how{security: security, mechanisms: tt.offered})
			config := o.mailTo(security, credentials())
			config["auth"] = tt.auth
			r, err := provider(t).Call(t.Context(), call("k", config))
			if err != nil || r.Status != 250 || len(o.got()) != 1 || strings.Join(o.authed, "") != tt.want {
				t.Errorf("%v %s: %+v %v, authenticated %q", tt.auth, security, r, err, o.authed)
			}
		}
	}
}

func TestWrongPassword(t *testing.T) {
	for _, auth := range auths() {
		o := open(t, how{security: securityTLS, mechanisms: []string{"PLAIN", "LOGIN", "CRAM-MD5", "SCRAM-SHA-256"}})
		config := o.mailTo(securityTLS, map[string]any{"username": "ann", "password": "wr0ng-one", "auth": auth})
		r, err := provider(t).Call(t.Context(), call("k", config))
		if err != nil || r.Status != 535 || r.Retry || len(o.got()) != 0 {
			t.Errorf("%s: %+v %v", auth, r, err)
		}
		if message := fmt.Sprint(r.Body); !strings.Contains(message, "refused the user name or the password") {
			t.Errorf("%s: %s", auth, message)
		}
	}
}

func TestNoCommonMechanism(t *testing.T) {
	for auth, offered := range map[string][]string{"plain": {"LOGIN"}, "auto": {"NTLM"}, "scram-sha-256": nil} {
		o := open(t, how{security: securityTLS, mechanisms: offered})
		config := o.mailTo(securityTLS, credentials())
		config["auth"] = auth
		_, err := provider(t).Call(t.Context(), call("k", config))
		if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || strings.Contains(o.commands(), "MAIL") {
			t.Errorf("%s: %v", auth, err)
		}
	}
}

func TestScramInsistsOnTheServersHalf(t *testing.T) {
	for _, tt := range []struct {
		lies   string
		rounds int
		want   string
	}{{"unproved", 4096, "did not prove"}, {"wrong", 4096, "does not keep"}, {"", maxRounds + 1, "too many rounds"}} {
		o := open(t, how{security: securityTLS, mechanisms: []string{"SCRAM-SHA-256"}})
		o.lies, o.rounds = tt.lies, tt.rounds
		_, err := provider(t).Call(t.Context(), call("k", o.mailTo(securityTLS, credentials())))
		if !errors.Is(err, effects.ErrNotSent) || errors.Is(err, edda.Permanent) || !strings.Contains(fmt.Sprint(err), tt.want) || len(o.got()) != 0 {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestCredentialsAreNeverShownInTheClear: a mechanism that is offered on a
// connection without encryption is not used, unless it stays on this machine.
func TestCredentialsAreNeverShownInTheClear(t *testing.T) {
	s := &session{server: server{username: "ann", password: "s3cret", security: securityNone}, conn: elsewhere{}}
	err := s.authenticate() // a client would be needed to say more than the error
	if !errors.Is(err, effects.ErrNotSent) || !errors.Is(err, edda.Permanent) {
		t.Errorf("error %v", err)
	}
}

// TestAServerThatEchoesShowsNoSecret: whatever the server says at whatever
// stage, the password and the exchange are in no error and in no answer.
func TestAServerThatEchoesShowsNoSecret(t *testing.T) {
	heard := ""
	echo := func(code, later string) *office {
		return script(t, func(command string) string {
			heard += command + " "
			switch command {
			case "":
				return "220 hi"
			case "EHLO":
				return "250-hi\r\n250 AUTH PLAIN LOGIN"
			case "AUTH":
				return code
			}
			return later + secretForms()
		})
	}
	for _, code := range []string{"235 ok", "535 " + secretForms(), "435 " + secretForms(), secretForms(), "334 " + base64.StdEncoding.EncodeToString([]byte(secretForms()))} {
		for _, later := range []string{"550 ", "451-4.0.0 a\r\n451 4.0.0 ", "25", ""} {
			r, err := provider(t).Call(t.Context(), call("k", echo(code, later).mailTo(securityNone, credentials())))
			for _, form := range strings.Fields(secretForms()) {
				if shown := fmt.Sprint(r, err); strings.Contains(shown, form) {
					t.Errorf("after %.10s and %s: %s shows %s", code, later, shown, form)
				}
			}
		}
	}
	if !strings.Contains(heard, "AUTH") {
		t.Error("the server was never asked")
	}
}

// secretForms are the ways in which the password travels.
func secretForms() string {
	encode := base64.StdEncoding.EncodeToString
	return strings.Join([]string{"s3cret", encode([]byte("s3cret")), encode([]byte("\x00ann\x00s3cret"))}, " ")
}
