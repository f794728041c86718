package redisdb

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/internal/backoff"
	"edda/internal/realservers"
	"edda/internal/testkit"
)

// failsOverWithin is generous: sentinels consider the master down after a second, agree, and
// promote the replica.
const failsOverWithin = 60 * time.Second

// The master at the configured address is lost. Without a restart the DB finds the old writes
// at the new master, and writes more.
func TestALostMasterOfSentinelsIsReplaced(t *testing.T) {
	t.Parallel()
	master := real(t, realservers.RedisOptions{Password: "pw"})
	replica := real(t, realservers.RedisOptions{Password: "pw", More: []string{
		"--replicaof", master.Host, master.Port, "--masterauth", "pw", "--repl-diskless-sync-delay", "0",
	}})
	var watching []string
	for range 3 {
		s, err := realservers.Sentinel(master, "mymaster", 2)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = s.Stop() })
		watching = append(watching, s.Address())
	}
	// Hosts that do not answer, such as the first, are passed over.
	d := open(t, Options{URL: "redis-sentinel://:pw@" + closedPort(t) + "," + strings.Join(watching, ",") + "/mymaster"})
	testkit.Must(t, d.Ping(t.Context()))
	testkit.Must(t, d.Push(t.Context(), 3, queue, "job:1:1"))
	within(t, "the sentinels know each other and the replica, which has what was written", func() error {
		return errors.Join(knows(t, watching), has(t, replica, 1))
	})

	testkit.Must(t, master.Kill())
	within(t, "a write reaches the new master", func() error { return d.Push(t.Context(), 3, queue, "job:1:2") })
	if err := has(t, replica, 2); err != nil {
		t.Error(err)
	}
	// A context that is used for the first time finds the new master, too.
	within(t, "a write of a new context", func() error { return d.Push(t.Context(), 4, queue, "job:1:3") })
}

// The error names the sentinels.
func TestSentinelsThatDoNotKnowTheMasterSaySo(t *testing.T) {
	t.Parallel()
	master := real(t, realservers.RedisOptions{})
	s, err := realservers.Sentinel(master, "mymaster", 1)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	for _, url := range []string{"redis-sentinel://" + s.Address() + "/another", "redis-sentinel://" + closedPort(t) + "/mymaster"} {
		err := open(t, Options{URL: url}).Ping(t.Context())
		if !errors.Is(err, edda.Temporary) || !strings.Contains(err.Error(), strings.TrimPrefix(url[strings.LastIndex(url, "/"):], "/")+" of 127.0.0.1:") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A cluster is refused, because one step needs keys of several slots.
func TestARedisClusterIsRefusedByName(t *testing.T) {
	t.Parallel()
	_, bus, err := net.SplitHostPort(closedPort(t)) // or it is 10,000 above the other one, which may be taken
	testkit.Must(t, err)
	s := real(t, realservers.RedisOptions{More: []string{"--cluster-enabled", "yes", "--cluster-port", bus}})
	d := open(t, Options{Addr: s.Address()})
	for _, context := range []uint32{0, 3} {
		if err := d.Push(t.Context(), context, queue, "job:1:1"); err == nil || !strings.Contains(err.Error(), "this is a Redis Cluster, which does not serve") {
			t.Errorf("context %d: %v", context, err)
		}
	}
}

// knows returns nil once the sentinels know one another and one replica. Before that they
// cannot fail over.
func knows(t *testing.T, sentinels []string) error {
	for _, addr := range sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: addr})
		others, err := c.Sentinels(t.Context(), "mymaster").Result()
		replicas, err2 := c.Replicas(t.Context(), "mymaster").Result()
		testkit.Must(t, c.Close())
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if len(others) != len(sentinels)-1 || len(replicas) != 1 || replicas[0]["master-link-status"] != "ok" {
			return fmt.Errorf("%s knows %d sentinels and the replicas %v", addr, len(others), replicas)
		}
	}
	return nil
}

// has returns nil if the queue of context 3 has that many entries in that Redis.
func has(t *testing.T, s *realservers.Server, want int64) error {
	c := redis.NewClient(&redis.Options{Addr: s.Address(), Password: s.Password, DB: 3})
	defer c.Close()
	if n, err := c.LLen(t.Context(), queue).Result(); err != nil || n != want {
		return fmt.Errorf("the queue has %d entries, want %d: %w", n, want, err)
	}
	return nil
}

// within tries until it succeeds.
func within(t *testing.T, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(failsOverWithin); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, failsOverWithin, err)
		}
		if backoff.Wait(t.Context(), 20*time.Millisecond) != nil {
			t.Fatal(err)
		}
	}
}

// closedPort returns an address without a listener.
func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	testkit.Must(t, l.Close())
	return l.Addr().String()
}
