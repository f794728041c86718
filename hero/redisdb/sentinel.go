package redisdb

import (
	"crypto/tls"
	"errors"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	// sentinelPort is the default port of a sentinel.
	sentinelPort = "26379"
	// maxSentinels bounds the addresses of one URL; three to seven are usual.
	maxSentinels = 32
)

// sentinels are the processes that know the current master, and the name by which they know
// it. The zero value means a Redis at a fixed address.
type sentinels struct {
	addrs          []string
	master         string
	user, password string
}

// errSentinelURL does not show the URL, which may hold passwords.
var errSentinelURL = errors.New("the URL of the Redis Sentinels cannot be read: want redis-sentinel://user:password@host:port,host:port,…/master, " +
	"or rediss-sentinel:// for TLS, with ?sentinel_user=…&sentinel_password=… where the sentinels want a password of their own")

// ofSentinels reports whether the URL names sentinels instead of a Redis.
func ofSentinels(text string) bool {
	scheme, _, _ := strings.Cut(text, "://")
	return scheme == "redis-sentinel" || scheme == "rediss-sentinel"
}

// readSentinels reads the URL of sentinels. The user and password before the hosts are of
// Redis itself.
func readSentinels(text string, r *redis.Options) (sentinels, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	authority, path, _ := strings.Cut(rest, "/")
	userinfo, hosts := "", authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		userinfo, hosts = authority[:at+1], authority[at+1:]
	}
	// net/url cannot read a list of hosts; it reads the rest.
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
		r.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // each connection verifies the name of its host
	}
	return s, nil
}

// connect returns the client of one database, with a bound on its connections. It does not
// connect yet.
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
