package smtpeffect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"edda/effects/dial"
)

// The bounds of a session. The call's context bounds its time.
const (
	// maxReplies bounds the bytes read from a server, so that an endless reply does not fill the
	// memory.
	maxReplies = 1 << 20
	// goodbye bounds RSET and QUIT, whose replies change nothing.
	goodbye = time.Second
)

// The stages of a session, as errors and messages name them.
const (
	atConnect   = "connect"
	atTLS       = "tls"
	atGreeting  = "greeting"
	atHello     = "hello"
	atAuth      = "auth"
	atSender    = "sender"
	atRecipient = "recipient"
	atData      = "data"
	atMessage   = "message"
)

// session is one connection to a mail server. One goroutine uses it.
type session struct {
	server server
	conn   net.Conn
	client *smtp.Client
	stop   func() bool
}

// connect dials and reads the greeting. From then on the end of ctx ends every wait.
func (p *Provider) connect(ctx context.Context, r server) (*session, error) {
	raw, err := p.guard.DialContext(ctx, "tcp", r.address)
	if errors.Is(err, dial.ErrForbidden) {
		return nil, impossible(err)
	}
	if err != nil {
		return nil, notSent(atConnect, err.Error())
	}
	s := &session{server: r, conn: &bounded{Conn: raw, left: maxReplies}}
	s.stop = context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if err := s.open(ctx); err != nil {
		s.end(false)
		return nil, err
	}
	return s, nil
}

// open makes the connection an SMTP client, with security: tls inside TLS.
func (s *session) open(ctx context.Context) (err error) {
	conn := s.conn
	if s.server.security == securityTLS {
		secured := tls.Client(conn, s.server.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return notSent(atTLS, err.Error())
		}
		conn = secured // unwrapped: the client recognises TLS by the type
	}
	s.client, err = smtp.NewClient(conn, s.server.host)
	return s.at(atGreeting, err)
}

// converse sends the mail and returns the last reply.
func (s *session) converse(ctx context.Context, l email) (reply, error) {
	if err := s.at(atHello, s.client.Hello(s.server.hello)); err != nil {
		return reply{}, err
	}
	if err := s.encrypt(); err != nil {
		return reply{}, err
	}
	if err := s.authenticate(); err != nil {
		return reply{}, err
	}
	if err := s.envelope(l); err != nil {
		return reply{}, err
	}
	return s.data(ctx, l)
}

// encrypt starts TLS for security: starttls. It never falls back to plain text.
func (s *session) encrypt() error {
	if s.server.security != securityStartTLS {
		return nil
	}
	if offered, _ := s.client.Extension("STARTTLS"); !offered {
		return notSent(atTLS, "the server offers no STARTTLS")
	}
	return s.at(atTLS, s.client.StartTLS(s.server.tls))
}

// envelope sends the sender and the recipients.
func (s *session) envelope(l email) error {
	s.client.SkipSMTPUTF8(!l.utf8)
	if offered, _ := s.client.Extension("SMTPUTF8"); l.utf8 && !offered {
		return impossible(errors.New("an address has letters beyond ASCII before its @, and the server takes none (SMTPUTF8)"))
	}
	if _, most := s.client.Extension("SIZE"); tooLarge(len(l.message), most) {
		return impossible(fmt.Errorf("the mail has %d bytes, and the server takes %s", len(l.message), most))
	}
	if err := s.at(atSender, s.client.Mail(l.from.path())); err != nil {
		return err
	}
	return s.recipients(l.to)
}

// tooLarge reports whether a size is above the server's SIZE.
func tooLarge(size int, most string) bool {
	n, err := strconv.Atoi(most)
	return err == nil && n > 0 && size > n
}

// recipients sends all recipients, so that the answer lists every refused one. If one is refused,
// the mail is sent to nobody.
func (s *session) recipients(to []address) error {
	var rejected []rejection
	for _, a := range to {
		err := s.at(atRecipient, s.client.Rcpt(a.path()))
		var no *refusal
		if err != nil && !errors.As(err, &no) {
			return err
		}
		if err != nil {
			rejected = append(rejected, rejection{a, no.reply})
		}
		if err != nil && no.reply.code == closing {
			break
		}
	}
	if len(rejected) == 0 {
		return nil
	}
	s.hurry()
	_ = s.client.Reset() // without RSET the end of the connection discards them
	return refused(rejected, len(to))
}

// data sends the mail and reads the reply. The server has the mail once its last line is sent:
// before that an error means that the mail was not sent, after it the outcome is unknown.
func (s *session) data(ctx context.Context, l email) (reply, error) {
	w, err := s.client.Data()
	if err != nil {
		return reply{}, s.at(atData, err)
	}
	if _, err := w.Write(l.message); err != nil {
		return reply{}, s.at(atMessage, err)
	}
	if ctx.Err() != nil {
		return reply{}, s.at(atMessage, ctx.Err())
	}
	err = w.Close()
	if closer, ok := w.(*smtp.DataCloser); ok && err == nil {
		return s.server.reply(accepted, closer.ServerResponse()), nil
	}
	return s.afterwards(err)
}

// afterwards judges the reply to a mail that was sent in full.
func (s *session) afterwards(err error) (reply, error) {
	var said *textproto.Error
	switch {
	case !errors.As(err, &said):
		return reply{}, unanswered(s.server.clean(fmt.Sprint(err)))
	case said.Code >= 200 && said.Code < 300: // each of them accepts the mail
		return s.server.reply(said.Code, said.Msg), nil
	case negative(said.Code):
		return reply{}, s.at(atMessage, err)
	default:
		return reply{}, unanswered("the server said " + strconv.Itoa(said.Code))
	}
}

// at classifies an error of a stage: a negative reply is a refusal, any other error means that the
// mail was not sent.
func (s *session) at(stage string, err error) error {
	var said *textproto.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && negative(said.Code):
		return &refusal{stage: stage, reply: s.server.reply(said.Code, said.Msg)}
	default:
		return notSent(stage, s.server.clean(err.Error()))
	}
}

// hurry sets a short deadline for what follows.
func (s *session) hurry() { _ = s.conn.SetDeadline(time.Now().Add(goodbye)) }

// end closes the connection, and sends QUIT if no reply is due. After any other error nothing may
// be written, because it could end a mail that was sent in part.
func (s *session) end(polite bool) {
	if polite {
		s.hurry()
		_ = s.client.Quit() // its reply changes nothing
	}
	s.stop()
	_ = s.conn.Close()
}

// local reports whether the server is on this machine.
func (s *session) local() bool {
	at, ok := s.conn.RemoteAddr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// bounded is a connection from which at most left bytes are read.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the server does not stop talking")
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// words splits a server's list, in upper case.
func words(list string) []string { return strings.Fields(strings.ToUpper(list)) }
