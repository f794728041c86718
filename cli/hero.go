package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"edda/hero/dispatcher"
	"edda/hero/redisdb"
)

// redisWithin is how long a command waits for Redis: a person waits too.
const redisWithin = 3 * time.Second

func (t *terminal) heroCommand() *cobra.Command {
	c := &cobra.Command{Use: "hero", Short: "Flows of jobs: the coordinator, and the dispatcher over Redis", Args: noun, RunE: help}
	c.AddCommand(t.heroJobCommand(), t.heroWorkerCommand(), t.heroCallCommand(), t.heroFlowCommand(), t.heroMyceliumCommand())
	return c
}

// heroRedis is where Redis is and how the dispatcher's queues are named.
type heroRedis struct {
	redis         redisdb.Options
	scheme, order string
	logDir        string
}

// defaultLogDir is where jobs' logs lie unless told otherwise.
const defaultLogDir = "edda-hero-logs"

func (h *heroRedis) register(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&h.redis.URL, "redis", "", "URL of Redis: redis://user:password@host:port, rediss:// for TLS, redis-sentinel://host:port,host:port/master (EDDA_REDIS, REDIS_URL; redis://127.0.0.1:6379)")
	f.StringVar(&h.redis.URL, "redis-url", "", "the same as --redis")
	f.StringVar(&h.redis.Addr, "redis-addr", "", "address of Redis: host:port")
	f.StringVar(&h.redis.CA, "redis-ca", "", "file of the CA that signed Redis's certificate")
	f.StringVar(&h.redis.Cert, "redis-cert", "", "file of a client certificate")
	f.StringVar(&h.redis.Key, "redis-key", "", "file of its key")
	f.StringVar(&h.scheme, "queue-scheme", string(dispatcher.SchemeProtocol), "names of the queues: protocol (hero:work_queue:) or unified (hero:q:work:type:)")
	f.StringVar(&h.order, "queue-order", string(dispatcher.FIFO), "order of the jobs: fifo, the oldest first, or lifo")
	f.StringVar(&h.logDir, "log-dir", "", "folder of the jobs' logs (EDDA_HERO_LOGS; "+defaultLogDir+")")
	for flag, words := range map[string][]string{"queue-scheme": dispatcher.Schemes(), "queue-order": dispatcher.Orders()} {
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // the flag is not there: a mistake in this program
		}
	}
}

// open connects, and says at once where nobody answers.
func (h *heroRedis) open(ctx context.Context, t *terminal) (*redisdb.DB, *redis.Client, error) {
	o := h.redis
	if o.URL == "" && o.Addr == "" {
		o.URL = cmp.Or(t.getenv("EDDA_REDIS"), t.getenv("REDIS_URL"))
	}
	h.logDir = cmp.Or(h.logDir, t.getenv("EDDA_HERO_LOGS"), defaultLogDir)
	db, err := redisdb.Open(o)
	if err != nil {
		return nil, nil, &usageError{err}
	}
	client, err := db.Client(0)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, redisWithin)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		_ = db.Close()
		return nil, nil, fmt.Errorf("no Redis answers at %s (%w): start one, or name it with --redis, EDDA_REDIS or REDIS_URL", db.Where(), err)
	}
	return db, client, nil
}

// client opens the dispatcher's client; close it with the function.
func (h *heroRedis) client(ctx context.Context, t *terminal) (*dispatcher.Client, func(), error) {
	db, conn, err := h.open(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	c, err := dispatcher.New(conn, dispatcher.Options{Scheme: dispatcher.Scheme(h.scheme), Order: dispatcher.Order(h.order), LogDir: h.logDir})
	if err != nil {
		_ = db.Close()
		return nil, nil, &usageError{err}
	}
	return c, func() { _ = db.Close() }, nil
}
