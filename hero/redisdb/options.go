package redisdb

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"edda/internal/files"
)

// Options names a Redis and how to connect to it. One of URL and Addr is enough; neither
// means the Redis of this machine.
type Options struct {
	// URL is redis://[[user]:password@]host[:port], rediss:// for TLS, or
	// unix:///path/of/the/socket. redis-sentinel://[[user]:password@]host[:port],…/master,
	// rediss-sentinel:// for TLS, is the master that sentinels name. The URL names no
	// database, because contexts are databases.
	URL string
	// Addr is host:port, without TLS and password.
	Addr string
	// CA is a file of the certificates that sign the server's; the system's if empty.
	// Cert and Key are files of a client certificate. They need rediss.
	CA, Cert, Key string
	// Remember is the time for which a command id is known: the same command does nothing a
	// second time. The default is a week.
	Remember time.Duration
	Log      *zap.Logger
	// Now is the clock; time.Now by default.
	Now func() time.Time

	sentinels sentinels // of URL
}

const (
	// defaultAddr is the default address of Redis.
	defaultAddr = "127.0.0.1:6379"
	// defaultRemember outlasts every outage through which an outbox retries.
	defaultRemember = 7 * 24 * time.Hour
	// dialTimeout and answerTimeout bound a connection and an answer. A slower Redis counts
	// as down, and the next try uses a new connection.
	dialTimeout   = 3 * time.Second
	answerTimeout = 3 * time.Second
	// idleTimeout closes an idle connection: a process that serves many contexts has a
	// pool for each.
	idleTimeout = 2 * time.Minute
	// connections bounds the pool of one database: each Take that waits holds one, besides
	// those of short commands.
	connections = 512
)

// validate fills in the defaults and returns the client's options for database 0.
func (o *Options) validate() (*redis.Options, error) {
	if o.URL != "" && o.Addr != "" {
		return nil, errors.New("give the Redis URL or its address, not both")
	}
	if o.Remember == 0 {
		o.Remember = defaultRemember
	}
	if o.Remember < time.Second {
		return nil, errors.New("command ids must be remembered for a second at least")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &redis.Options{
		Network: "tcp", Addr: o.Addr, Protocol: 2,
		DialTimeout: dialTimeout, ReadTimeout: answerTimeout, WriteTimeout: answerTimeout, ContextTimeoutEnabled: true,
		MaxRetries: -1, DialerRetries: 1, // this package retries what it may
		PoolSize: connections, PipelinePoolSize: -1, ConnMaxIdleTime: idleTimeout,
		DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if o.URL != "" {
		if err := o.readURL(r); err != nil {
			return nil, err
		}
	}
	if r.Network == "tcp" && len(o.sentinels.addrs) == 0 {
		addr, err := hostPort(cmp.Or(r.Addr, defaultAddr), "6379")
		if err != nil {
			return nil, err
		}
		r.Addr = addr
	}
	return r, o.certificates(r)
}

// errURL does not show the URL, which may hold a password.
var errURL = errors.New("the Redis URL cannot be read: want redis://user:password@host:port, rediss:// for TLS, or redis-sentinel://host:port,host:port/master; " +
	"special characters in the password are written as %XX")

func (o *Options) readURL(r *redis.Options) (err error) {
	if ofSentinels(o.URL) {
		o.sentinels, err = readSentinels(o.URL, r)
		return err
	}
	u, err := url.Parse(o.URL)
	if err != nil {
		return errURL
	}
	r.Username = u.User.Username()
	r.Password, _ = u.User.Password()
	switch u.Scheme {
	case "unix":
		r.Network, r.Addr = "unix", u.Path
		if u.Path == "" {
			return errURL
		}
		return nil
	case "rediss":
		r.TLSConfig = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	case "redis":
	default:
		return errURL
	}
	if r.Addr = u.Host; u.Host == "" || u.Opaque != "" || u.RawQuery != "" || u.Fragment != "" {
		return errURL
	}
	if path := strings.Trim(u.Path, "/"); path != "" && path != "0" {
		return errors.New("the Redis URL names a database: leave it out, contexts are databases of their own")
	}
	return nil
}

// hostPort fills in a missing port, and this machine for a missing host.
func hostPort(addr, otherwise string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = strings.Trim(addr, "[]"), otherwise
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil || strings.ContainsAny(host, " /@") {
		return "", errors.New("the Redis address cannot be read: want host:port")
	}
	return net.JoinHostPort(host, port), nil
}

func (o *Options) certificates(r *redis.Options) error {
	if o.CA == "" && o.Cert == "" && o.Key == "" {
		return nil
	}
	if r.TLSConfig == nil {
		return errors.New("a CA or certificate for Redis needs a rediss:// URL")
	}
	if o.CA != "" {
		pem, err := files.Read(o.CA, files.Most)
		if err != nil {
			return fmt.Errorf("read the CA of Redis: %w", err)
		}
		r.TLSConfig.RootCAs = x509.NewCertPool()
		if !r.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("the CA of Redis, %s, holds no PEM certificate", o.CA)
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return errors.New("a client certificate for Redis needs both the certificate and its key")
	}
	if o.Cert != "" {
		pair, err := files.KeyPair(o.Cert, o.Key)
		if err != nil {
			return fmt.Errorf("read the client certificate for Redis: %w", err)
		}
		r.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}
