package node

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"edda"
	"edda/hero/redisdb"
)

// needsRedis reports whether any part of the process uses Redis.
func (s Settings) usesRedis() bool { return s.Redis.configured() || s.coordinator() || s.runner() }

// redisFromEnv returns the Redis URL of the environment variables that edda hero knows, if a
// role needs Redis and no setting names one.
func redisFromEnv(c Config, getenv func(string) string) string {
	if c.Redis.Addr != "" || !c.coordinator() && !c.runner() {
		return ""
	}
	return cmp.Or(getenv("EDDA_REDIS"), getenv("REDIS_URL"))
}

// openRedis makes the client, and for edda dev without --redis an embedded Redis. It sends
// no command.
func (p *process) openRedis() error {
	if !p.settings.usesRedis() {
		return nil
	}
	redis.SetLogger(silent{}) // callers handle the errors
	c := p.settings.Redis
	if p.settings.Dev && !c.configured() {
		var err error
		if p.embeddedRedis, err = openEmbeddedRedis(p.settings.Data, p.log.Named("redis")); err != nil {
			return fmt.Errorf("embedded redis: %w", err)
		}
		c.Addr = p.embeddedRedis.Addr()
	}
	db, err := redisdb.Open(redisdb.Options{URL: c.URL, Addr: c.Addr, CA: c.CA, Cert: c.Cert, Key: c.Key, Log: p.log.Named("redis")})
	if err != nil {
		return &ConfigError{edda.Classify(edda.Permanent, "redis: %w", err)}
	}
	p.redis = db
	return nil
}

// silent drops the log lines of the Redis library.
type silent struct{}

// Printf drops the line.
func (silent) Printf(context.Context, string, ...any) {}

// holdRedis keeps the client open and the embedded Redis running until all parts
// that use them have stopped.
func (p *process) holdRedis(ctx context.Context) error {
	var err error
	if p.embeddedRedis != nil {
		err = p.embeddedRedis.Run(ctx)
	} else {
		<-ctx.Done()
	}
	if err := p.redis.Close(); err != nil {
		p.log.Warn("close redis", zap.Error(err))
	}
	return err
}

// redisAt describes the address of Redis, for people.
func (p *process) redisAt() string {
	if p.embeddedRedis != nil {
		return p.embeddedRedis.Addr() + " (embedded, kept with the data, for development only: --redis names a real one)"
	}
	return p.redis.Where()
}
