package redisdb

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edda"
	"edda/internal/files"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

func TestWhereRedisIs(t *testing.T) {
	for _, tt := range []struct {
		options              Options
		where, user, passwrd string
	}{
		{Options{}, "127.0.0.1:6379", "", ""},
		{Options{Addr: "10.0.0.1:7000"}, "10.0.0.1:7000", "", ""},
		{Options{Addr: "10.0.0.1"}, "10.0.0.1:6379", "", ""},
		{Options{Addr: ":7000"}, "127.0.0.1:7000", "", ""},
		{Options{Addr: "[::1]"}, "[::1]:6379", "", ""},
		{Options{Addr: "[::1]:7000"}, "[::1]:7000", "", ""},
		{Options{URL: "redis://redis.example"}, "redis.example:6379", "", ""},
		{Options{URL: "redis://redis.example:7000/0"}, "redis.example:7000", "", ""},
		{Options{URL: "redis://:p%40ss@redis.example/"}, "redis.example:6379", "", "p@ss"},
		{Options{URL: "rediss://router:pw@[::1]:7000"}, "[::1]:7000", "router", "pw"},
		{Options{URL: "unix:///run/redis.sock"}, "/run/redis.sock", "", ""},
		{Options{URL: "redis-sentinel://s1.example,s2.example:7001,[::1]/mymaster"}, "mymaster of s1.example:26379,s2.example:7001,[::1]:26379", "", ""},
		{Options{URL: "redis-sentinel://router:p%40ss@10.0.0.1/mymaster?sentinel_user=watch&sentinel_password=sp"}, "mymaster of 10.0.0.1:26379", "router", "p@ss"},
		{Options{URL: "rediss-sentinel://:pw@10.0.0.1:7000/mymaster/"}, "mymaster of 10.0.0.1:7000", "", "pw"},
	} {
		d, err := Open(tt.options)
		if err != nil {
			t.Errorf("%+v: %v", tt.options, err)
			continue
		}
		if o := d.options; d.where != tt.where || o.Username != tt.user || o.Password != tt.passwrd || (o.TLSConfig != nil) != strings.HasPrefix(tt.options.URL, "rediss") {
			t.Errorf("%+v: %s %s %s", tt.options, d.where, o.Username, o.Password)
		}
		testkit.Must(t, d.Close())
	}
}

func TestBadOptions(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	testkit.Must(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	large := filepath.Join(t.TempDir(), "large")
	testkit.Must(t, os.WriteFile(large, nil, 0o600))
	testkit.Must(t, os.Truncate(large, files.Most+1))
	const secret = "hunter2"
	for _, tt := range []struct {
		options Options
		says    string
	}{
		{Options{URL: "http://:hunter2@localhost"}, "redis://"},
		{Options{URL: "redis://:hunter2@"}, "redis://"},
		{Options{URL: "redis://user:hunter2 @host:1"}, "redis://"},
		{Options{URL: "redis://user:hunter2%zz@host:1"}, "redis://"},
		{Options{URL: "redis://:hunter2@host:port"}, "redis://"},
		{Options{URL: "localhost:6379"}, "redis://"},
		{Options{URL: "redis://:hunter2@host?db=3"}, "redis://"},
		{Options{URL: "unix://"}, "redis://"},
		{Options{URL: "redis://:hunter2@host/3"}, "names a database"},
		{Options{URL: "redis-sentinel://:hunter2@host:1"}, "names no master"},
		{Options{URL: "redis-sentinel://:hunter2@host:1/a/b"}, "names no master"},
		{Options{URL: "redis-sentinel://:hunter2@/mymaster"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://:hunter2@a,,b/mymaster"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://:hunter2@a:port/mymaster"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://hunter2%zz@a/mymaster"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://a/mymaster?password=hunter2"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://a/mymaster?sentinel_password=hunter2&sentinel_password=x"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://" + strings.Repeat("a,", maxSentinels) + "a/mymaster"}, "redis-sentinel://"},
		{Options{URL: "redis-sentinel://a/mymaster", CA: text}, "rediss://"},
		{Options{URL: "redis://:hunter2@host", Addr: "host:1"}, "not both"},
		{Options{Addr: "redis://hunter2@host:1"}, "host:port"},
		{Options{Addr: "user:hunter2@host"}, "host:port"},
		{Options{Remember: time.Millisecond}, "a second"},
		{Options{URL: "redis://host", CA: text}, "rediss://"},
		{Options{URL: "rediss://host", CA: "/nowhere/ca.crt"}, "/nowhere/ca.crt"},
		{Options{URL: "rediss://host", CA: text}, "no PEM certificate"},
		{Options{URL: "rediss://host", Cert: text}, "both"},
		{Options{URL: "rediss://host", Key: text}, "both"},
		{Options{URL: "rediss://host", Cert: text, Key: text}, "client certificate"},
		{Options{URL: "rediss://host", CA: large}, "more than"},
		{Options{URL: "rediss://host", Cert: large, Key: text}, "more than"},
	} {
		_, err := Open(tt.options)
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%+v: %v", tt.options, err)
		}
	}
}

func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	s := real(t, realservers.RedisOptions{TLS: true, Password: "pw"})
	url := "rediss://:pw@" + s.Address()
	testkit.Must(t, open(t, Options{URL: url, CA: s.CA, Cert: s.Cert, Key: s.Key}).Ping(t.Context()))
	for name, o := range map[string]Options{
		"no client certificate": {URL: url, CA: s.CA},
		"an unknown CA":         {URL: url, Cert: s.Cert, Key: s.Key},
		"another name":          {URL: strings.Replace(url, "127.0.0.1", "localhost", 1), CA: s.CA, Cert: s.Cert, Key: s.Key},
	} {
		err := open(t, o).Ping(t.Context())
		if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := open(t, Options{Addr: s.Address()}).Ping(t.Context()); !errors.Is(err, edda.Temporary) {
		t.Error("without TLS:", err)
	}
}

func TestRedisOverAUnixSocket(t *testing.T) {
	t.Parallel()
	s := real(t, realservers.RedisOptions{Socket: true})
	d := open(t, Options{URL: "unix://" + s.Socket})
	testkit.Must(t, d.Ping(t.Context()))
	testkit.Must(t, d.Push(t.Context(), 3, queue, "job:1:1"))
}
