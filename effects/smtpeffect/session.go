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

// The bounds of a conversation; its time is bounded by the call's context.
const (
	// maxReplies bytes are read from a server in one conversation: far more than
	// a hundred replies, so that one which never ends does not fill the memory.
	maxReplies = 1 << 20
	// goodbye bounds RSET and QUIT, whose replies change nothing any more.
	goodbye = time.Second
)

// The stages of a conversation, as errors and messages name them.
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
	relay  relay
	conn   net.Conn
	client *smtp.Client
	stop   func() bool
}

// connect dials and reads the greeting. From then on the end of ctx ends
// whatever the conversation waits for.
func (p *Provider) connect(ctx context.Context, r relay) (*session, error) {
	raw, err := p.guard.DialContext(ctx, "tcp", r.address)
	if errors.Is(err, dial.ErrForbidden) {
		return nil, impossible(err)
	}
	if err != nil {
		return nil, notSent(atConnect, err.Error())
	}
	s := &session{relay: r, conn: &bounded{Conn: raw, left: maxReplies}}
	s.stop = context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	if err := s.open(ctx); err != nil {
		s.end(false)
		return nil, err
	}
	return s, nil
}

// open makes the connection an SMTP client, inside TLS where that comes first.
func (s *session) open(ctx context.Context) (err error) {
	conn := s.conn
	if s.relay.security == securityTLS {
		secured := tls.Client(conn, s.relay.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return notSent(atTLS, err.Error())
		}
		conn = secured // as it is: the client sees by its type that it is encrypted
	}
	s.client, err = smtp.NewClient(conn, s.relay.host)
	return s.at(atGreeting, err)
}

// converse brings the mail to the server and returns its last reply.
func (s *session) converse(ctx context.Context, l letter) (reply, error) {
	if err := s.at(atHello, s.client.Hello(s.relay.hello)); err != nil {
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

// encrypt turns to TLS where the manifest asks for STARTTLS: there is no falling back.
func (s *session) encrypt() error {
	if s.relay.security != securityStartTLS {
		return nil
	}
	if offered, _ := s.client.Extension("STARTTLS"); !offered {
		return notSent(atTLS, "the server offers no STARTTLS")
	}
	return s.at(atTLS, s.client.StartTLS(s.relay.tls))
}

// envelope says who the mail is from and to.
func (s *session) envelope(l letter) error {
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

// tooLarge reports whether size is more than the server says it takes.
func tooLarge(size int, most string) bool {
	n, err := strconv.Atoi(most)
	return err == nil && n > 0 && size > n
}

// recipients names all of them, so that the answer tells everybody who is
// refused. One that is refused undoes the others: a mail goes to all or to none.
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
	_ = s.client.Reset() // the connection's end takes the others back too
	return refused(rejected, len(to))
}

// data sends the mail and reads what the server says to it. The mail is the
// server's from the moment its last line is sent: until then an error means
// that it was not sent, after it that nobody can tell.
func (s *session) data(ctx context.Context, l letter) (reply, error) {
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
		return s.relay.reply(accepted, closer.ServerResponse()), nil
	}
	return s.afterwards(err)
}

// afterwards judges the reply to a mail that was sent whole.
func (s *session) afterwards(err error) (reply, error) {
	var said *textproto.Error
	switch {
	case !errors.As(err, &said):
		return reply{}, unanswered(s.relay.clean(fmt.Sprint(err)))
	case said.Code >= 200 && said.Code < 300: // any of them takes the mail
		return s.relay.reply(said.Code, said.Msg), nil
	case negative(said.Code):
		return reply{}, s.at(atMessage, err)
	default:
		return reply{}, unanswered("the server said " + strconv.Itoa(said.Code))
	}
}

// at gives an error of a stage its class: a reply that says no is a refusal,
// everything else a mail that was not sent.
func (s *session) at(stage string, err error) error {
	var said *textproto.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said) && negative(said.Code):
		return &refusal{stage: stage, reply: s.relay.reply(said.Code, said.Msg)}
	default:
		return notSent(stage, s.relay.clean(err.Error()))
	}
}

// hurry leaves the conversation little time.
func (s *session) hurry() { _ = s.conn.SetDeadline(time.Now().Add(goodbye)) }

// end closes the connection, with a QUIT where the last reply was understood.
// Anywhere else, and above all within a message, whatever is written could
// make a mail of what was sent so far.
func (s *session) end(polite bool) {
	if polite {
		s.hurry()
		_ = s.client.Quit() // what it answers changes nothing
	}
	s.stop()
	_ = s.conn.Close()
}

// local reports whether the connection stays on this machine.
func (s *session) local() bool {
	at, ok := s.conn.RemoteAddr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// bounded is a connection from which only so much is read.
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

// words splits what a server lists.
func words(list string) []string { return strings.Fields(strings.ToUpper(list)) }
