package smtpeffect

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/effects/dial"
	"github.com/emersion/go-smtp"
)

// The faults that an office can have at a stage.
const (
	temporary = "451 4.3.0 later, please"
	permanent = "554 5.7.1 never"
	drop      = "drop"
	stall     = "stall"
)

// taken is one mail as the server took it.
type taken struct {
	from string
	to   []string
	utf8 bool
	data string
}

// office is a go-smtp server with faults between it and its clients.
type office struct {
	address, ca string
	server      *smtp.Server
	users       map[string]string
	mechanisms  []string
	done        chan struct{} // closed when the test ends
	stalled     chan struct{} // gets one when a stall begins
	resume      chan struct{} // closed to end the stalls

	mu       sync.Mutex // guards below
	faults   map[string]string
	rejects  map[string]*smtp.SMTPError
	mails    []taken
	said     []string // commands, as they came
	sessions int      // that have ended
	authed   []string
	rounds   int // of SCRAM
	// greylisted is how many recipients are told to come again
	greylisted int
	lies       string // of SCRAM: unproved or wrong
	first      string // what becomes of the first mail, after which then is the answer to recipients
	then       *smtp.SMTPError
}

// how says which office a test wants.
type how struct {
	security   string // of the connection; none when empty
	mechanisms []string
	prepare    func(*smtp.Server)
}

func open(t *testing.T, h how) *office {
	t.Helper()
	cert, ca := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &office{
		address: l.Addr().String(), ca: ca, mechanisms: h.mechanisms, users: map[string]string{"ann": "s3cret"},
		done: make(chan struct{}), stalled: make(chan struct{}, 100), resume: make(chan struct{}),
		faults: map[string]string{}, rejects: map[string]*smtp.SMTPError{}, rounds: 4096,
	}
	o.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &visit{o: o, conn: c.Conn()}, nil }))
	o.server.ErrorLog = log.New(io.Discard, "", 0) // it complains of sessions that a test's end cuts off
	o.server.Domain, o.server.AllowInsecureAuth = "office.example", h.security != securityStartTLS
	config := &tls.Config{Certificates: []tls.Certificate{cert}}
	if h.security == securityStartTLS {
		o.server.TLSConfig = config
	}
	if h.security == securityTLS {
		l = tls.NewListener(l, config)
	}
	if h.prepare != nil {
		h.prepare(o.server)
	}
	o.serve(t, l)
	return o
}

func (o *office) serve(t *testing.T, l net.Listener) {
	ended := make(chan error, 1)
	go func() { ended <- o.server.Serve(gate{l, o}) }()
	t.Cleanup(func() {
		close(o.done)
		_ = l.Close()
		_ = o.server.Close()
		<-ended
	})
}

func (o *office) fault(stage string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.faults[stage]
}

func (o *office) breaks(stage, what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = map[string]string{stage: what}
}

func (o *office) got() []taken {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]taken(nil), o.mails...)
}

func (o *office) commands() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.said, " ")
}

// seen counts the mails with the Message-ID of a key.
func (o *office) seen(id string) (n int) {
	for _, m := range o.got() {
		if strings.Contains(m.data, "Message-ID: "+id+"\r\n") {
			n++
		}
	}
	return n
}

// wait blocks until the test ends, or the stalls do.
func (o *office) wait() {
	select {
	case o.stalled <- struct{}{}:
	default: // enough have been told
	}
	select {
	case <-o.done:
	case <-o.resume:
	}
}

// visit is a session of the server.
type visit struct {
	o    *office
	conn net.Conn
	mail taken
}

func (v *visit) Reset() { v.mail = taken{} }

func (v *visit) Logout() error {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	v.o.sessions++
	return nil
}

func (v *visit) Mail(from string, opts *smtp.MailOptions) error {
	v.mail = taken{from: from, utf8: opts.UTF8}
	return nil
}

func (v *visit) Rcpt(to string, _ *smtp.RcptOptions) error {
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	no := v.o.rejects[to]
	if v.o.first == "" && v.o.then != nil {
		no = v.o.then
	}
	if v.o.greylisted > 0 {
		no = &smtp.SMTPError{Code: 451, Message: "greylisted"}
		v.o.greylisted--
	}
	if no != nil {
		return no
	}
	v.mail.to = append(v.mail.to, to)
	return nil
}

func (v *visit) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	what := v.o.fault(".")
	v.o.mu.Lock()
	defer v.o.mu.Unlock()
	if v.o.first != "" {
		what, v.o.first = v.o.first, ""
	}
	switch what {
	case temporary, permanent:
		code, _ := strconv.Atoi(what[:3])
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: what[4:]}
	case drop:
		_ = v.conn.Close()
	}
	v.mail.data = string(b)
	v.o.mails = append(v.o.mails, v.mail)
	return nil
}

// gate hands out connections with faults.
type gate struct {
	net.Listener
	o *office
}

func (g gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, o: g.o, in: bufio.NewReader(c)}, nil
}

// wire is the server's end of a connection: it reads a line at a time and puts
// the office's faults in between.
type wire struct {
	net.Conn
	o       *office
	in      *bufio.Reader
	pending []byte
	greeted bool
	body    bool
	raw     bool   // encrypted from here on
	reply   string // what becomes of the server's next reply
}

func (w *wire) Read(p []byte) (int, error) {
	for len(w.pending) == 0 {
		if w.raw {
			return w.in.Read(p)
		}
		text, err := w.in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		if err := w.line(text); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.pending)
	w.pending = w.pending[n:]
	return n, nil
}

// line passes a client's line on, or does what the fault of its stage says.
func (w *wire) line(text string) error {
	stage := w.stage(text)
	what := w.o.fault(stage)
	if stage == "." {
		w.reply, what = what, "" // the server takes the mail; its reply may be lost
	}
	switch what {
	case "":
	case drop:
		_ = w.Conn.Close()
		return io.EOF
	case stall:
		w.o.wait()
	default:
		_, err := io.WriteString(w.Conn, what+"\r\n")
		return err
	}
	w.raw = stage == "STARTTLS"
	w.body = stage == "DATA" || stage == "body"
	w.pending = []byte(text)
	return nil
}

func (w *wire) stage(text string) string {
	if w.body && text != ".\r\n" {
		return "body"
	}
	if w.body {
		return "."
	}
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	w.o.mu.Lock()
	w.o.said = append(w.o.said, word)
	w.o.mu.Unlock()
	return strings.Replace(word, "HELO", "EHLO", 1)
}

func (w *wire) Write(p []byte) (int, error) {
	what, greeting := w.reply, !w.greeted
	if greeting {
		what = w.o.fault("connect")
	}
	w.greeted, w.reply = true, ""
	switch {
	case what == drop:
		_ = w.Conn.Close()
		return 0, io.ErrClosedPipe
	case what == stall:
		w.o.wait()
	case what != "" && greeting:
		_, err := io.WriteString(w.Conn, what+"\r\n")
		return len(p), err
	}
	return w.Conn.Write(p)
}

// certificate is one for this machine, and its authority in PEM.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "office"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func provider(t *testing.T) *Provider {
	t.Helper()
	guard, err := dial.New(dial.Options{AllowLoopback: true})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Guard: guard})
	t.Cleanup(p.Close)
	return p
}

// mailTo is a mail for an office, as a manifest would give it.
func (o *office) mailTo(security string, more map[string]any) map[string]any {
	config := map[string]any{
		"server": o.address, "security": security, "from": "Shop <shop@shop.example>", "to": "ann@home.example", "subject": "Hello", "text": "Hi Ann",
	}
	if security != securityNone {
		config["tls"] = map[string]any{"ca": o.ca}
	}
	for name, v := range more {
		config[name] = v
	}
	return config
}

// elsewhere is a connection to another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 1), Port: 25} }

// after gives the first mail a reply and refuses every recipient from then on.
func (o *office) after(reply string, no *smtp.SMTPError) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first, o.then = reply, no
}
