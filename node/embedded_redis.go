package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda"
	"edda/store"
)

const (
	// redisDumpFile is the dump of the embedded Redis in the data folder.
	redisDumpFile = "redis.dump"
	// redisDumpMagic is the start of the file; its number is the version of the format.
	redisDumpMagic = "edda redis dump 1\n"
	// redisDumpMax bounds the contents of a dump, in bytes, because making one holds
	// several copies in memory. Flows on a development machine are far smaller.
	redisDumpMax = 256 << 20
	// redisDumpEvery is the interval between dumps, and so the most that a kill loses.
	redisDumpEvery = time.Second
	// redisDumpShare bounds the time spent on dumps, because commands wait during one.
	// The next dump waits redisDumpShare times as long as the last one took.
	redisDumpShare = 20
	// redisDumpWithin is the timeout of one dump.
	redisDumpWithin = 30 * time.Second
	// redisTick is the interval at which the clock of the embedded Redis moves.
	redisTick = 100 * time.Millisecond
)

// redisDumpScript reads the databases ARGV[2...] atomically, because a dump must not contain
// half a change. It gives up beyond ARGV[1] bytes.
var redisDumpScript = redis.NewScript(`
local read = {
  string = function(k) return {redis.call('GET', k)} end,
  hash = function(k) return redis.call('HGETALL', k) end,
  list = function(k) return redis.call('LRANGE', k, 0, -1) end,
  set = function(k) return redis.call('SMEMBERS', k) end,
  zset = function(k) return redis.call('ZRANGE', k, 0, -1, 'WITHSCORES') end,
}
local out, left = {}, tonumber(ARGV[1])
for i = 2, #ARGV do
  redis.call('SELECT', ARGV[i])
  for _, k in ipairs(redis.call('KEYS', '*')) do
    local t = redis.call('TYPE', k)['ok']
    local v = read[t] and read[t](k) or {}
    left = left - #k
    for _, s in ipairs(v) do left = left - #s end
    if left < 0 then return 'too large' end
    out[#out + 1] = {ARGV[i], k, t, redis.call('PTTL', k), v}
  end
end
return out`)

// redisEntry is one key of the dump.
type redisEntry struct {
	DB     int
	Key    string
	Type   string
	Values []string  // hash: field, value; sorted set: member, score
	Until  time.Time // expiry; zero means never
}

// embeddedRedis is the Redis of edda dev. It dumps its contents to a file, because the store
// keeps flows across a restart, and their Redis must keep them too.
type embeddedRedis struct {
	*miniredis.Miniredis
	path   string
	log    *zap.Logger
	max    int           // bytes of a dump; redisDumpMax except in tests
	client *redis.Client // for dumps only, within the process

	mu        sync.Mutex // guards databases
	databases map[int]bool

	// Only the goroutine of Run uses the fields below.
	now     time.Time         // the clock by which keys expire
	written [sha256.Size]byte // checksum of the last dump
	failing bool              // the last dump failed and was logged
	passed  map[string]bool   // logged types that dumps do not support
}

// openEmbeddedRedis starts a Redis with the contents of the dump, if there is one.
func openEmbeddedRedis(folder string, log *zap.Logger) (*embeddedRedis, error) {
	r := &embeddedRedis{Miniredis: miniredis.NewMiniRedis(), path: filepath.Join(folder, redisDumpFile), log: log, max: redisDumpMax, databases: map[int]bool{0: true}, passed: map[string]bool{}}
	r.ClockTTL(true)
	r.tick()
	entries, err := r.read()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := r.restore(e); err != nil {
			return nil, fmt.Errorf("restore the key %s of %s: %w", e.Key, r.path, err)
		}
	}
	if err := r.Start(); err != nil {
		return nil, err
	}
	r.Server().SetPreHook(r.selected)
	r.client = redis.NewClient(&redis.Options{Protocol: 2, DisableIdentity: true, MaxRetries: -1, PoolSize: 1, ReadTimeout: redisDumpWithin,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return r.Dial() }})
	return r, nil
}

// selected records the used databases, because miniredis does not list them. miniredis calls
// it before every command.
func (r *embeddedRedis) selected(_ *server.Peer, command string, args ...string) bool {
	if command == "SELECT" && len(args) == 1 {
		if n, err := strconv.Atoi(args[0]); err == nil && n >= 0 {
			r.mu.Lock()
			r.databases[n] = true
			r.mu.Unlock()
		}
	}
	return false
}

// Run moves the clock and writes dumps until ctx ends. Then it writes the last dump, so all
// clients must have stopped before.
func (r *embeddedRedis) Run(ctx context.Context) error {
	defer r.shut()
	tick := time.NewTicker(redisTick)
	defer tick.Stop()
	next := time.Now().Add(redisDumpEvery)
	for {
		select {
		case <-tick.C:
			r.tick()
			if began := time.Now(); began.After(next) {
				r.said(r.dump(ctx))
				next = time.Now().Add(max(redisDumpEvery, redisDumpShare*time.Since(began)))
			}
		case <-ctx.Done():
			r.tick()
			if err := r.dump(context.WithoutCancel(ctx)); err != nil {
				return fmt.Errorf("keep the contents of the embedded redis for the next start: %w", err)
			}
			return nil
		}
	}
}

// tick moves the clock in whole milliseconds, the unit of expiries, so that every dump has
// the same expiry of a key.
func (r *embeddedRedis) tick() {
	r.now = time.Now().Round(0).Truncate(time.Millisecond)
	r.SetTime(r.now)
}

// said logs the first of several consecutive failures.
func (r *embeddedRedis) said(err error) {
	if err != nil && !r.failing {
		r.log.Warn("the contents of the embedded redis are not kept; a restart would begin with those of the last dump", zap.String("file", r.path), zap.Error(err))
	}
	r.failing = err != nil
}

// dump writes the contents if they have changed.
func (r *embeddedRedis) dump(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, redisDumpWithin)
	defer cancel()
	entries, err := r.entries(ctx)
	if err != nil {
		return err
	}
	var payload bytes.Buffer
	if err := gob.NewEncoder(&payload).Encode(entries); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(payload.Bytes())
	if sum == r.written {
		return nil
	}
	if err := r.write(sum[:], payload.Bytes()); err != nil {
		return err
	}
	r.written = sum
	return nil
}

// entries reads all databases atomically.
func (r *embeddedRedis) entries(ctx context.Context) ([]redisEntry, error) {
	args := []any{r.max}
	r.mu.Lock()
	for _, n := range slices.Sorted(maps.Keys(r.databases)) {
		args = append(args, n)
	}
	r.mu.Unlock()
	reply, err := redisDumpScript.Eval(ctx, r.client, nil, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the embedded redis: %w", err)
	}
	rows, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("it holds more than %d bytes: remove flows, or name a Redis with --redis", r.max)
	}
	out := make([]redisEntry, 0, len(rows))
	for _, row := range rows {
		e := r.entry(row.([]any))
		if len(e.Values) > 0 {
			out = append(out, e)
		} else if !r.passed[e.Type] {
			r.passed[e.Type] = true
			r.log.Warn("the embedded redis keeps no key of this type for the next start; --redis names a real one", zap.String("type", e.Type), zap.String("key", e.Key))
		}
	}
	return out, nil
}

// entry decodes a row of the script.
func (r *embeddedRedis) entry(row []any) redisEntry {
	db, _ := strconv.Atoi(row[0].(string)) // the script got it as a number
	e := redisEntry{DB: db, Key: row[1].(string), Type: row[2].(string)}
	if ttl := row[3].(int64); ttl >= 0 {
		e.Until = r.now.Add(time.Duration(ttl) * time.Millisecond).UTC()
	}
	for _, v := range row[4].([]any) {
		e.Values = append(e.Values, v.(string))
	}
	return e
}

// write replaces the file atomically. The temporary file always has the same name, so that
// kills leave at most one. The store's lock on the folder excludes other processes.
func (r *embeddedRedis) write(sum, payload []byte) error {
	next := r.path + ".next"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for _, part := range [][]byte{[]byte(redisDumpMagic), sum, payload} {
		if _, err = f.Write(part); err != nil {
			break
		}
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(next, r.path), store.SyncDir(filepath.Dir(r.path)))
}

// read returns the contents of the last dump. A missing file is no error.
func (r *embeddedRedis) read() ([]redisEntry, error) {
	f, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const most = 2*redisDumpMax + 1<<20 // the overhead of gob is far smaller
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	rest, ok := strings.CutPrefix(string(text), redisDumpMagic)
	if !ok || len(rest) < sha256.Size || len(text) > most {
		return nil, r.unreadable(errors.New("it is no dump of this version"))
	}
	sum, payload := rest[:sha256.Size], rest[sha256.Size:]
	if r.written = sha256.Sum256([]byte(payload)); string(r.written[:]) != sum {
		return nil, r.unreadable(errors.New("its checksum is wrong"))
	}
	var entries []redisEntry
	if err := gob.NewDecoder(strings.NewReader(payload)).Decode(&entries); err != nil {
		return nil, r.unreadable(err)
	}
	return entries, nil
}

// unreadable refuses the start, because flows in the store need the contents of Redis.
func (r *embeddedRedis) unreadable(err error) error {
	return edda.Classify(edda.Permanent, "%s cannot be read: %w; remove the folder %s to begin anew, or name another --data", r.path, err, filepath.Dir(r.path))
}

// restore restores one key, unless it has expired.
func (r *embeddedRedis) restore(e redisEntry) error {
	if !e.Until.IsZero() && !e.Until.After(r.now) {
		return nil
	}
	r.databases[e.DB] = true
	db := r.DB(e.DB)
	var err error
	switch e.Type {
	case "string":
		err = db.Set(e.Key, e.Values[0])
	case "hash":
		db.HSet(e.Key, e.Values...)
	case "list":
		_, err = db.Push(e.Key, e.Values...)
	case "set":
		_, err = db.SetAdd(e.Key, e.Values...)
	case "zset":
		for pair := range slices.Chunk(e.Values, 2) {
			score, bad := strconv.ParseFloat(pair[1], 64)
			if _, failed := db.ZAdd(e.Key, score, pair[0]); bad != nil || failed != nil {
				return errors.Join(bad, failed)
			}
		}
	default:
		err = fmt.Errorf("it is a %s", e.Type)
	}
	if err == nil && !e.Until.IsZero() {
		db.SetTTL(e.Key, e.Until.Sub(r.now))
	}
	return err
}

func (r *embeddedRedis) shut() {
	if err := r.client.Close(); err != nil {
		r.log.Warn("close the embedded redis", zap.Error(err))
	}
	r.Close()
}
