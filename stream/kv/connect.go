package kv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"
	"go.uber.org/zap"

	"edda"
)

const (
	// defaultPingEvery and pingsLost detect a frozen server, whose connections stay open, within ten
	// seconds: the third unanswered ping closes the connection.
	defaultPingEvery = 3 * time.Second
	pingsLost        = 2
	// writeWithin bounds a write to the connection. The client holds its lock meanwhile, so without the bound
	// a full socket of a frozen server would delay the pings, too.
	writeWithin = 5 * time.Second
	// reconnectWait is the interval of reconnects.
	reconnectWait = 500 * time.Millisecond
	// apiTimeout bounds JetStream requests without a deadline, and the wait for an ack of the
	// client's futures.
	apiTimeout = 5 * time.Second
	// maxUnacked bounds the messages without an ack that the client's futures publish. A publisher
	// has windows instead.
	maxUnacked = 8192
)

// Connection says where NATS is and how to log in, in the words of the nats CLI. The zero value is
// the local server.
type Connection struct {
	URL, Creds, User, Password, Token, NKey string
	Cert, Key, CA                           string
	// Context names a context of the nats CLI. The other fields override it.
	Context string
	// Name is the connection's name on the server; "edda" when empty.
	Name string
	// Unbuffered makes a publish fail while the connection is down. Otherwise the client keeps the
	// message and sends it after the reconnect.
	Unbuffered bool
	// PingEvery is a third of the time in which a frozen server is found; 3 s when zero.
	PingEvery time.Duration
	// Server connects to a server in this process instead of a URL.
	Server nats.InProcessConnProvider
	Log    *zap.Logger
}

// FromEnv sets the empty fields from NATS_URL, NATS_CREDS, NATS_USER, NATS_PASSWORD, NATS_TOKEN,
// NATS_NKEY, NATS_CERT, NATS_KEY, NATS_CA and NATS_CONTEXT.
func (c Connection) FromEnv(env func(string) string) Connection {
	for name, field := range map[string]*string{
		"NATS_URL": &c.URL, "NATS_CREDS": &c.Creds, "NATS_USER": &c.User,
		"NATS_PASSWORD": &c.Password, "NATS_TOKEN": &c.Token, "NATS_NKEY": &c.NKey,
		"NATS_CERT": &c.Cert, "NATS_KEY": &c.Key, "NATS_CA": &c.CA, "NATS_CONTEXT": &c.Context,
	} {
		if *field == "" {
			*field = env(name)
		}
	}
	return c
}

// Connect returns a connection that retries for ever, also while the server is not reachable yet;
// its Status tells. Only wrong settings are an error, which is edda.Permanent.
func Connect(c Connection) (*nats.Conn, jetstream.JetStream, error) {
	opts, err := c.options()
	if err != nil {
		return nil, nil, edda.Classify(edda.Permanent, "connect to nats: %w", err)
	}
	var nc *nats.Conn
	var settings natscontext.Settings
	if c.Context != "" && c.Server == nil {
		nc, settings, err = natscontext.Connect(c.Context, opts...)
	} else {
		nc, err = nats.Connect(cmp.Or(c.URL, nats.DefaultURL), opts...)
	}
	if err != nil {
		return nil, nil, edda.Classify(edda.Permanent, "connect to nats: %w", err)
	}
	js, err := newJetStream(nc, settings.JSDomain, settings.JSAPIPrefix)
	if err != nil {
		nc.Close()
		return nil, nil, edda.Classify(edda.Permanent, "use jetstream: %w", err)
	}
	return nc, js, nil
}

// newJetStream returns a JetStream with the bounds of this package.
func newJetStream(nc *nats.Conn, domain, prefix string) (jetstream.JetStream, error) {
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(apiTimeout),
		jetstream.WithPublishAsyncTimeout(apiTimeout),
		jetstream.WithPublishAsyncMaxPending(maxUnacked),
	}
	switch {
	case domain != "":
		return jetstream.NewWithDomain(nc, domain, opts...)
	case prefix != "":
		return jetstream.NewWithAPIPrefix(nc, prefix, opts...)
	}
	return jetstream.New(nc, opts...)
}

func (c Connection) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(cmp.Or(c.Name, "edda")),
		nats.PingInterval(cmp.Or(c.PingEvery, defaultPingEvery)), nats.MaxPingsOutstanding(pingsLost),
		nats.FlusherTimeout(writeWithin), nats.ReconnectOnFlusherError(),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		nats.IgnoreAuthErrorAbort(), // credentials may be renewed at any time
	}
	if c.Unbuffered {
		opts = append(opts, nats.ReconnectBufSize(-1))
	}
	if c.Server != nil {
		return append(append(opts, nats.InProcessServer(c.Server)), c.reports()...), nil
	}
	who, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if c.Context != "" && c.URL != "" {
		opts = append(opts, servers(c.URL))
	}
	return append(append(opts, who...), c.reports()...), nil
}

func (c Connection) credentials() ([]nats.Option, error) {
	var opts []nats.Option
	for _, file := range []string{c.Creds, c.NKey, c.Cert, c.Key, c.CA} {
		if file == "" {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
	}
	if c.User != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token))
	}
	if c.Creds != "" {
		opts = append(opts, nats.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("nkey %s: %w", c.NKey, err)
		}
		opts = append(opts, o)
	}
	return c.tls(opts)
}

func (c Connection) tls(opts []nats.Option) ([]nats.Option, error) {
	if (c.Cert == "") != (c.Key == "") {
		return nil, errors.New("a client certificate needs both NATS_CERT and NATS_KEY")
	}
	if c.Cert != "" {
		opts = append(opts, nats.ClientCert(c.Cert, c.Key))
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(c.CA))
	}
	return opts, nil
}

// servers makes the URL override the context's.
func servers(urls string) nats.Option {
	return func(o *nats.Options) error {
		o.Servers = nil
		for _, u := range strings.Split(urls, ",") {
			o.Servers = append(o.Servers, strings.TrimSpace(u))
		}
		return nil
	}
}

// ConnectedTo returns the server's URL without passwords. For a server in this process it is the
// URL on which that listens for others, if it does.
func (c Connection) ConnectedTo(nc *nats.Conn) string {
	if c.Server == nil {
		return nc.ConnectedUrlRedacted()
	}
	if s, ok := c.Server.(*server.Server); ok && s.Addr() != nil {
		return s.ClientURL()
	}
	return "within the process"
}

// reports are the handlers that log each change of the connection.
func (c Connection) reports() []nats.Option {
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Warn("nats is disconnected", zap.Error(err))
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("nats is connected again", zap.String("url", c.ConnectedTo(nc)))
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Info("nats is connected", zap.String("url", c.ConnectedTo(nc)))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Error("nats reports an error", zap.Error(err))
		}),
	}
}
