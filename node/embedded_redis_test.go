package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"edda"
)

// embedded serves a folder's Redis; stop ends it in order.
func embedded(t *testing.T, folder string, log *zap.Logger) (r *embeddedRedis, stop func() error) {
	t.Helper()
	r, err := openEmbeddedRedis(folder, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() error { cancel(); return <-ended }
}

func clientOf(t *testing.T, r *embeddedRedis, db int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: r.Addr(), DB: db})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTheEmbeddedRedisForgetsNothingOverARestart(t *testing.T) {
	folder, ctx, bytes := t.TempDir(), t.Context(), "\x00\xff\r\n'é"
	r, stop := embedded(t, folder, zap.NewNop())
	const far = 2147483647
	for _, db := range []int{0, 7, far} {
		c := clientOf(t, r, db)
		for _, cmd := range [][]any{
			{"SET", "s" + bytes, bytes}, {"SET", "empty", ""}, {"SET", "soon", "x", "PX", "40"}, {"SET", "later", "x", "PX", "3600000"},
			{"HSET", "h", "f" + bytes, bytes, "empty", ""}, {"RPUSH", "l", "b", "a", bytes, "b"}, {"SADD", "set", "x", bytes},
			{"ZADD", "z", "0.1", "a", "1.7e300", "b", "-inf", bytes, "9007199254740993", "c"}, {"PEXPIRE", "z", "7200000"},
		} {
			if err := c.Do(ctx, cmd...).Err(); err != nil {
				t.Fatalf("%v: %v", cmd, err)
			}
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	r, stop = embedded(t, folder, zap.NewNop())
	for _, db := range []int{0, 7, far} {
		c := clientOf(t, r, db)
		eventually(t, func() bool { return !r.DB(db).Exists("soon") }) // while it was stopped, or now
		if keys := r.DB(db).Keys(); len(keys) != 7 {
			t.Errorf("database %d: %q", db, keys)
		}
		if got, err := c.Get(ctx, "s"+bytes).Result(); err != nil || got != bytes {
			t.Errorf("string %q %v", got, err)
		}
		if got, err := c.Get(ctx, "empty").Result(); err != nil || got != "" {
			t.Errorf("empty string %q %v", got, err)
		}
		if got := c.HGetAll(ctx, "h").Val(); !reflect.DeepEqual(got, map[string]string{"f" + bytes: bytes, "empty": ""}) {
			t.Errorf("hash %q", got)
		}
		if got := c.LRange(ctx, "l", 0, -1).Val(); !reflect.DeepEqual(got, []string{"b", "a", bytes, "b"}) {
			t.Errorf("list %q", got)
		}
		if got := c.SMembersMap(ctx, "set").Val(); !reflect.DeepEqual(got, map[string]struct{}{"x": {}, bytes: {}}) {
			t.Errorf("set %q", got)
		}
		scores := fmt.Sprint(c.ZScore(ctx, "z", "a").Val(), c.ZScore(ctx, "z", "b").Val(), c.ZScore(ctx, "z", bytes).Val(), c.ZScore(ctx, "z", "c").Val())
		if scores != "0.1 1.7e+300 -Inf 9.007199254740992e+15" {
			t.Errorf("sorted set %s", scores)
		}
		for key, most := range map[string]time.Duration{"later": time.Hour, "z": 2 * time.Hour} {
			if got := c.PTTL(ctx, key).Val(); got > most || got < most-10*time.Minute {
				t.Errorf("%s expires in %s", key, got)
			}
		}
		if got := c.PTTL(ctx, "h").Val(); got != -1 {
			t.Errorf("h expires in %s", got)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A kill loses what changed since the last dump, and nothing else.
func TestTheEmbeddedRedisIsWrittenWhileItRuns(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, redisDumpFile)
	r, stop := embedded(t, folder, zap.NewNop())
	c := clientOf(t, r, 3)
	for _, value := range []string{"one", "two"} {
		if err := c.Set(t.Context(), "k", value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool {
			entries, err := (&embeddedRedis{path: path}).read()
			return err == nil && len(entries) == 1 && entries[0].DB == 3 && reflect.DeepEqual(entries[0].Values, []string{value})
		})
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%q stay, %v", left, err)
	}
}

// patience is how long a condition may take on a busy machine.
const patience = 30 * time.Second

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come in")
		}
	}
}

func TestAnUnchangedEmbeddedRedisIsNotWrittenAgain(t *testing.T) {
	r, err := openEmbeddedRedis(t.TempDir(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer r.shut()
	for i := range 200 {
		r.DB(i%3).HSet("h", fmt.Sprint(i), "x")
		if _, err := r.DB(0).SetAdd("s", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		r.databases[i%3] = true
	}
	r.DB(0).SetTTL("h", time.Hour)
	if err := r.dump(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		before := r.now
		eventually(t, func() bool { r.tick(); return r.now.After(before) })
		if err := r.dump(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(r.path); !os.IsNotExist(err) {
		t.Errorf("it was written again: %v", err)
	}
	r.DB(2).HSet("h", "1", "y")
	if err := r.dump(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.path); err != nil {
		t.Errorf("a change was not written: %v", err)
	}
}

func TestADamagedDumpOfTheEmbeddedRedisRefusesTheStart(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, redisDumpFile)
	r, stop := embedded(t, folder, zap.NewNop())
	if err := r.Set("k", "a value"); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Replace(whole, []byte("a value"), []byte("a valve"), 1) // which decodes
	for name, text := range map[string][]byte{"flipped": flipped, "cut": whole[:len(whole)-1], "empty": nil, "foreign": []byte("REDIS0011"), "magic": []byte(redisDumpMagic)} {
		write(t, path, string(text))
		if _, err := openEmbeddedRedis(folder, zap.NewNop()); err == nil || !errors.Is(err, edda.Permanent) || !strings.Contains(err.Error(), "to begin anew") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnEmbeddedRedisTooLargeOrOfAnotherTypeSaysSo(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	r, err := openEmbeddedRedis(t.TempDir(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	defer r.shut()
	if _, err := r.XAdd("stream", "*", []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.dump(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := logs.FilterField(zap.String("type", "stream")).Len(); n != 1 {
		t.Errorf("of the stream it says %v", logs.All())
	}
	r.max = 100
	if err := r.Set("k", strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r.said(r.dump(t.Context()))
	}
	if n := logs.FilterMessageSnippet("are not kept").Len(); n != 1 {
		t.Errorf("of the size it says %v", logs.All())
	}
}
