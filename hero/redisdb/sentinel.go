package redisdb

import (
	"crypto/tls"
	"errors"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	// sentinelPort is where a sentinel listens by itself.
	sentinelPort = "26379"
	// maxSentinels bounds the addresses of one URL; three to seven are usual.
	maxSentinels = 32
)

// sentinels are the processes that know which Redis is the master now, and what they
// call it. The zero value is for a Redis that is always at the same address.
type sentinels struct {
	addrs          []string
	master         string
	user, password string
}

// errSentinelURL shows nothing of the URL, which may hold passwords.
var errSentinelURL = errors.New("the URL of the Redis Sentinels cannot be read: want redis-sentinel://user:password@host:port,host:port,…/master, " +
	"or rediss-sentinel:// for TLS, with ?sentinel_user=…&sentinel_password=… where the sentinels want a password of their own")

// ofSentinels tells whether the URL names sentinels and not a Redis.
func ofSentinels(text string) bool {
	scheme, _, _ := strings.Cut(text, "://")
	return scheme == "redis-sentinel" || scheme == "rediss-sentinel"
}

// readSentinels reads the URL of sentinels. User and password before the hosts are those
// of Redis itself.
func readSentinels(text string, r *redis.Options) (sentinels, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	authority, path, _ := strings.Cut(rest, "/")
	userinfo, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		userinfo, hosts = authority[:at+1], authority[at+1:]
	}
	// A list of hosts is none to net/url, which reads all the rest.
	u, err := url.Parse(scheme + "://" + userinfo + "host/" + path)
	if err != nil || u.Fragment != "" {
		return sentinels{}, errSentinelURL
	}
	s := sentinels{master: strings.Trim(u.Path, "/")}
	for key, values := range u.Query() {
		switch {
		case len(values) != 1:
			return sentinels{}, errSentinelURL
		case key == "sentinel_user":
			s.user = values[0]
		case key == "sentinel_password":
			s.password = values[0]
		default:
			return sentinels{}, errSentinelURL
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host, sentinelPort)
		if host == "" || err != nil || len(s.addrs) == maxSentinels {
			return sentinels{}, errSentinelURL
		}
		s.addrs = append(s.addrs, addr)
	}
	if s.master == "" || strings.ContainsAny(s.master, "/ ") {
		return sentinels{}, errors.New("the URL of the Redis Sentinels names no master: want redis-sentinel://host:port,host:port/master, with the name that sentinel.conf gives it")
	}
	r.Username = u.User.Username()
	r.Password, _ = u.User.Password()
	r.Addr = s.master + " of " + strings.Join(s.addrs, ",")
	if scheme == "rediss-sentinel" {
		r.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // each connection is verified for the host that it goes to
	}
	return s, nil
}

// connect makes the client of one database, with so many connections at most. It
// connects to nothing yet.
func (d *DB) connect(database, connections int) *redis.Client {
	o := d.options
	o.DB, o.PoolSize = database, connections
	if len(d.sentinels.addrs) == 0 {
		return redis.NewClient(&o)
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: d.sentinels.master, SentinelAddrs: d.sentinels.addrs,
		SentinelUsername: d.sentinels.user, SentinelPassword: d.sentinels.password,
		Protocol: o.Protocol, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		MaxRetries: o.MaxRetries, DialerRetries: o.DialerRetries, PoolSize: o.PoolSize, PipelinePoolSize: o.PipelinePoolSize,
		ConnMaxIdleTime: o.ConnMaxIdleTime, DisableIdentity: o.DisableIdentity,
	})
}
